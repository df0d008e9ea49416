"""Durable subscriptions, and the sessions that they belong to (PROTOCOL B.2, B.5; D.3, D.19, D.32)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from nebula.broker.access import Rights
from nebula.broker.destinations.queue import Queue
from nebula.broker.destinations.value_feed import ValueFeed
from nebula.broker.journal import Journal
from nebula.broker.limits import Limits
from nebula.broker.store import (
    DropSession,
    DropSubscription,
    PutPending,
    PutSession,
    PutSubscription,
)
from nebula.broker.subscriptions import AckMode, Subscription
from nebula.errors import Refused


class Durable:
    """A durable subscription: what goes on while its session is away.

    Attributes:
        id: as in SUBSCRIBE.
        pattern: the destination or glob.
        ack_mode, prefetch: of its last SUBSCRIBE.
        source: keeps what it has still to get: a queue for topics, a feed for last values.
        since: number of what came last before it: after a crash nothing older is told.
        subscription: the one that is served at present; None while it is paused or away.
    """

    __slots__ = ("ack_mode", "id", "pattern", "prefetch", "since", "source", "subscription")

    def __init__(
        self,
        id: str,  # noqa: A002
        pattern: str,
        ack_mode: AckMode,
        prefetch: int,
        source: Queue | ValueFeed,
        since: int,
    ) -> None:
        self.id = id
        self.pattern = pattern
        self.ack_mode = ack_mode
        self.prefetch = prefetch
        self.source = source
        self.since = since
        self.subscription: Subscription | None = None


class StandingSession:
    """What a client-id names, as long as it has durable subscriptions.

    Attributes:
        id: the client-id.
        rights: whose it is.
        durables: its durable subscriptions, by id.
        away_since: when its connection ended; None while it is connected.
    """

    __slots__ = ("away_since", "durables", "id", "rights")

    def __init__(self, id: str, rights: Rights) -> None:  # noqa: A002
        self.id = id
        self.rights = rights
        self.durables: dict[str, Durable] = {}
        self.away_since: float | None = None


class StandingSessions:
    """All sessions with durable subscriptions.

    Args:
        limits: how many, and for how long.
        journal: is told of all of them; None: they do not survive the process.
    """

    def __init__(self, limits: Limits, journal: Journal | None = None) -> None:
        self._limits = limits
        self._journal = journal
        self._by_id: dict[str, StandingSession] = {}
        self._count = 0  # durable subscriptions of all of them
        # Those without a connection, longest first.
        self._away: dict[str, StandingSession] = {}

    @property
    def by_id(self) -> Mapping[str, StandingSession]:
        """All of them."""
        return self._by_id

    def open(self, id: str, rights: Rights) -> StandingSession:  # noqa: A002
        """The session of this client-id, made if it is new.

        Raises:
            Refused: there are too many.
        """
        session = self._by_id.get(id)
        if session is None:
            if len(self._by_id) >= self._limits.max_durable_sessions:
                raise Refused("too-many-sessions", f"the broker has {len(self._by_id)} durable sessions")
            session = self._by_id[id] = StandingSession(id, rights)
            self._record(session)
        return session

    def check_room(self) -> None:
        """Refuse one more durable subscription where there are too many.

        Raises:
            Refused: there are.
        """
        if self._count >= self._limits.max_durable_subscriptions:
            raise Refused("too-many-subscriptions", f"the broker has {self._count} durable subscriptions")

    def take_in(self, session: StandingSession, durable: Durable) -> None:
        """Know of a durable subscription, which the store knows already."""
        self._count += durable.id not in session.durables
        session.durables[durable.id] = durable

    def add(self, session: StandingSession, durable: Durable) -> None:
        """One more durable subscription, or one that has changed."""
        self.take_in(session, durable)
        if self._journal is not None:
            row = PutSubscription(
                session.id,
                durable.id,
                durable.pattern,
                durable.ack_mode.value,
                durable.prefetch,
                durable.since,
            )
            self._journal.put("subscription", session.id, durable.id, row)

    def remove(self, session: StandingSession, durable: Durable) -> None:
        """One durable subscription less; a session without any is forgotten."""
        del session.durables[durable.id]
        self._count -= 1
        if self._journal is not None:
            self._journal.put(
                "subscription", session.id, durable.id, DropSubscription(session.id, durable.id)
            )
        if not session.durables:
            del self._by_id[session.id]
            self._away.pop(session.id, None)
            if self._journal is not None:
                self._journal.put("session", session.id, "", DropSession(session.id))

    def arrive(self, id: str) -> None:  # noqa: A002
        """The client of this session has connected."""
        session = self._away.pop(id, None)
        if session is not None:
            session.away_since = None
            self._record(session)

    def leave(self, id: str, now: float) -> None:  # noqa: A002
        """It has gone: from now on the session is abandoned, until it comes again."""
        session = self._by_id.get(id)
        if session is not None and session.away_since is None:
            session.away_since = now
            self._away[id] = session
            self._record(session)

    def expired(self, now: float) -> Iterator[StandingSession]:
        """Those that were abandoned for too long. They are to be removed."""
        for session in list(self._away.values()):
            assert session.away_since is not None
            if session.away_since + self._limits.session_expiry_seconds > now:
                return
            yield session

    def restore(self, row: PutSession, rights: Rights, now: float) -> StandingSession:
        """Take what was kept by an earlier run. All are away at first."""
        session = self._by_id[row.id] = StandingSession(row.id, rights)
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
        for session in self._by_id.values():
            for durable in session.durables.values():
                feed = durable.source
                if isinstance(feed, ValueFeed):
                    pending = tuple(topic.destination for topic in feed.pending())
                    self._journal.put(
                        "pending", session.id, durable.id, PutPending(session.id, durable.id, pending)
                    )

    def _record(self, session: StandingSession) -> None:
        if self._journal is not None:
            since = session.away_since
            wall = None if since is None else since + self._journal.wall_offset
            row = PutSession(session.id, session.rights.principal, wall)
            self._journal.put("session", session.id, "", row)
