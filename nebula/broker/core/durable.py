"""Durable subscriptions, and the sessions that they belong to (B.2, B.5, D.3, D.19, D.32, D.35)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from nebula.broker.core import tables
from nebula.broker.core.access import Rights
from nebula.broker.core.context import CoreContext
from nebula.broker.core.costs import text_cost_bytes
from nebula.broker.core.destinations.queue import QUEUE_COST_BYTES, Queue
from nebula.broker.core.session import Session
from nebula.broker.core.shares import Resource, Usage
from nebula.broker.core.subscription import AckMode, Feed, Subscription
from nebula.errors import Refused

# Memory that CPython uses for a session with durable subscriptions and for each of these, without texts.
SESSION_COST_BYTES: Final = 800
DURABLE_COST_BYTES: Final = 1_500


@dataclass(slots=True, eq=False, repr=False)
class Durable:
    """A durable subscription: what goes on while its session is away.

    Attributes:
        session: what it belongs to.
        id: as in SUBSCRIBE.
        pattern: the destination or glob.
        ack_mode, prefetch: of its last SUBSCRIBE.
        since: number of what came last before it: after a crash nothing older is told.
        queue, feed: keep what it has still to get: a bound queue for topics, a feed for last values.
        subscription: the one that is served at present; None while it is paused or away.
    """

    session: DurableSession
    id: str
    pattern: str
    ack_mode: AckMode
    prefetch: int
    since: int
    queue: Queue | None = None
    feed: Feed | None = None
    subscription: Subscription | None = None

    @property
    def cost_bytes(self) -> int:
        """Memory that it costs, without its messages."""
        bound_bytes = 0 if self.queue is None else QUEUE_COST_BYTES
        return DURABLE_COST_BYTES + bound_bytes + text_cost_bytes(self.id, self.pattern)


@dataclass(slots=True, eq=False, repr=False)
class DurableSession:
    """What a client-id names, as long as it has durable subscriptions.

    Attributes:
        id: the client-id.
        rights: whose it is.
        usage: of its principal, which pays for it.
        durables: its durable subscriptions, by id.
        away_since: when its connection ended; None while it is connected.
    """

    id: str
    rights: Rights
    usage: Usage
    durables: dict[str, Durable] = field(default_factory=dict)
    away_since: float | None = None


class DurableSessions:
    """All sessions with durable subscriptions.

    Args:
        context: what all parts of the core share.

    Attributes:
        by_id: all of them, by client-id.
    """

    def __init__(self, context: CoreContext) -> None:
        self._limits = context.limits
        self._account = context.account
        self._journal = context.journal
        self.by_id: dict[str, DurableSession] = {}
        # Those without a connection, longest first.
        self._away: dict[str, DurableSession] = {}

    def open(self, connected: Session) -> DurableSession:
        """The durable session of a connected one, made if it is new, with room for one more subscription.

        Raises:
            Refused: there are too many durable sessions, or durable subscriptions.
        """
        id_, usage = connected.id, connected.usage
        self._account.need(Resource.DURABLES, usage, id_)
        self._account.need_memory(usage, "one more durable subscription", id_)
        session = self.by_id.get(id_)
        if session is None:
            self._account.need(Resource.SESSIONS, usage, id_)
            session = self._make(id_, connected.rights, usage)
            self._record(session)
        if len(session.durables) >= self._limits.max_subscriptions:
            raise Refused("too-many-subscriptions", f"the session has {len(session.durables)}")
        return session

    def take_in(self, durable: Durable) -> None:
        """Know of a durable subscription, which the store knows already."""
        session = durable.session
        # One that goes on is there already, and costs no more.
        if durable.id not in session.durables:
            self._account.take(Resource.DURABLES, session.usage, durable.cost_bytes)
        session.durables[durable.id] = durable

    def add(self, durable: Durable) -> None:
        """One more durable subscription, or one that has changed."""
        self.take_in(durable)
        if self._journal is not None:
            last = durable.ack_mode.value, durable.prefetch, durable.since
            row = tables.SubscriptionRow(durable.session.id, durable.id, durable.pattern, *last)
            self._journal.put(tables.Put(tables.SUBSCRIPTIONS, row))

    def remove(self, durable: Durable) -> None:
        """One durable subscription less; a session without any is forgotten."""
        session = durable.session
        del session.durables[durable.id]
        self._account.give_back(Resource.DURABLES, session.usage, durable.cost_bytes)
        if self._journal is not None:
            for table in (tables.SUBSCRIPTIONS, tables.PENDING):
                self._journal.drop(table, session.id, durable.id)
        if not session.durables:
            del self.by_id[session.id]
            cost_bytes = SESSION_COST_BYTES + text_cost_bytes(session.id)
            self._account.give_back(Resource.SESSIONS, session.usage, cost_bytes)
            self._away.pop(session.id, None)
            if self._journal is not None:
                self._journal.drop(tables.SESSIONS, session.id)

    def arrive(self, id: str) -> None:  # noqa: A002
        """The client of this session has connected."""
        session = self._away.pop(id, None)
        if session is not None:
            session.away_since = None
            self._record(session)

    def leave(self, id: str, now: float) -> None:  # noqa: A002
        """It has gone: from now on the session is abandoned, until it comes again."""
        session = self.by_id.get(id)
        if session is not None and session.away_since is None:
            session.away_since = now
            self._away[id] = session
            self._record(session)

    def expired(self, now: float) -> Iterator[DurableSession]:
        """Those that were abandoned for too long. The caller removes them."""
        for session in list(self._away.values()):
            assert session.away_since is not None
            # In the order in which they went: behind the first that is not abandoned no other is.
            if session.away_since + self._limits.session_expiry_seconds > now:
                return
            yield session

    def restore(self, row: tables.SessionRow, rights: Rights, usage: Usage, now: float) -> DurableSession:
        """Take what was kept by an earlier run. All are away at first."""
        session = self._make(row.id, rights, usage)
        offset = 0.0 if self._journal is None else self._journal.wall_offset
        # A clock that was put back must not make it live for ever.
        session.away_since = now if row.away_since is None else min(now, row.away_since - offset)
        self._away[row.id] = session
        if row.away_since is None:
            # It was connected when the broker was killed: from now on it is away, over further starts.
            self._record(session)
        return session

    def close(self) -> None:
        """At a clean stop, after all connections have ended: have the store know what is pending."""
        if self._journal is None:
            return
        for session in self.by_id.values():
            for durable in session.durables.values():
                if durable.feed is not None:
                    pending = tuple(topic.destination for topic in durable.feed.pending())
                    row = tables.PendingRow(session.id, durable.id, pending)
                    self._journal.put(tables.Put(tables.PENDING, row))

    def _make(self, id: str, rights: Rights, usage: Usage) -> DurableSession:  # noqa: A002
        session = self.by_id[id] = DurableSession(id, rights, usage)
        self._account.take(Resource.SESSIONS, usage, SESSION_COST_BYTES + text_cost_bytes(id))
        return session

    def _record(self, session: DurableSession) -> None:
        if self._journal is not None:
            since = session.away_since
            wall = None if since is None else since + self._journal.wall_offset
            row = tables.SessionRow(session.id, session.rights.principal, wall)
            self._journal.put(tables.Put(tables.SESSIONS, row))
