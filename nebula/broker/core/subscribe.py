"""SUBSCRIBE and UNSUBSCRIBE: what a subscription may have, what feeds it, and what stays when it ends.

A subscription that goes with its connection is fed by a queue, by its topic, by a queue of its own that is
bound to its topics, or by a value feed. A durable one (D.3, D.32) has a bound queue or a feed that outlives
it and its connection.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

from nebula.broker.core.context import CoreContext
from nebula.broker.core.costs import text_cost_bytes
from nebula.broker.core.destinations.line import queue_name
from nebula.broker.core.destinations.queue import Queue
from nebula.broker.core.durable import Durable, DurableSession, DurableSessions
from nebula.broker.core.messages import QUEUE_KIND, QUEUE_PREFIX, DestinationKind
from nebula.broker.core.notes import SESSIONS_EXPIRED
from nebula.broker.core.policies import SlowSubscriber, WhenFull
from nebula.broker.core.routing import Routing
from nebula.broker.core.session import Session
from nebula.broker.core.shares import Resource, Usage
from nebula.broker.core.subscription import AckMode, Ending, Feed, Subscription
from nebula.broker.core.tables import SubscriptionRow
from nebula.broker.core.value_feed import ENTRY_COST_BYTES, ValueFeed
from nebula.errors import Refused
from nebula.globs import compile_glob, is_glob
from nebula.headers import INBOX_PREFIX, PAUSED, REMOVED

# Memory that CPython uses for a connected subscription, without its texts.
SUBSCRIPTION_COST_BYTES: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscribeRequest:
    """What a SUBSCRIBE asks for, in the core's words.

    Attributes:
        kind: of its destination.
        durable: outlives its connection (not on queues, which keep their messages anyway; D.10).
        eager: begins with all present values, also where it resumes (D.34).
        tells_end: marks the last of these.
    """

    id: str
    destination: str
    kind: DestinationKind = QUEUE_KIND
    ack_mode: AckMode = AckMode.AUTO
    prefetch: int | None = None
    exclusive: bool = False
    auto_delete: bool = False
    durable: bool = False
    eager: bool = False
    tells_end: bool = False


class Subscriptions:
    """The subscriptions of all sessions.

    Attributes:
        durable_sessions: the durable ones, by session.
    """

    def __init__(self, context: CoreContext, routing: Routing) -> None:
        self._context = context
        self._limits = context.limits
        self._account = context.account
        self._queues = routing.queues
        self._topics = routing.topics
        self._values = routing.values
        self._by_kind = routing.by_kind
        self.durable_sessions = DurableSessions(context)
        # The first to use a glob, of those who still do: they pay for it.
        self._glob_owners: dict[str, Usage] = {}

    def may_subscribe(self, session: Session, request: SubscribeRequest, now: float) -> bool:
        """Whether the request is permitted; False: it is ignored, as D.5 and D.48 say."""
        name = request.destination
        # A queue keeps its messages anyway, so `durable` asks for nothing there (D.10).
        if request.durable and not request.kind.holds_messages and not session.rights.may_keep(name):
            return False
        if not request.kind.holds_messages and is_glob(name):
            return True  # it gets what its principal may receive
        is_bare = request.kind.holds_messages and not name.startswith(QUEUE_PREFIX)
        if is_bare and not session.profile.bare_names_are_queues:
            return False  # D.10: there is no such resource
        if name.startswith(INBOX_PREFIX):
            return request.exclusive and self._queues.is_fresh_inbox(name, now)
        return session.rights.may_subscribe(name)

    def subscribe(self, session: Session, request: SubscribeRequest) -> Subscription:
        """Make a subscription; `attach` it to its destination when its RECEIPT was said (D.43).

        Raises:
            Refused: it cannot be had; the connection is closed with an ERROR.
        """
        self._account.need(Resource.SUBSCRIPTIONS, session.usage, session.id)
        self._need_memory(session)
        paused = self._find_durable(session.id, request.id)
        # D.32: the same id and destination go on where they were left, even without `durable`.
        goes_on = paused is not None and paused.pattern == request.destination
        is_durable = not request.kind.holds_messages and (request.durable or goes_on)
        if is_durable:
            self._need_glob(session, request)
        if paused is not None and not (is_durable and goes_on):
            self.remove(paused)  # D.32: this id means something else from now on.
            paused = None
        if is_durable:
            durable = self._durable_for(session, request, paused)
            queue, feed = durable.queue, durable.feed
        else:
            durable = None
            queue, feed = self._source_for(session, request)
        if request.eager and feed is not None:
            self._take_snapshot(feed, request)
        subscription = self._make(session, request, queue, feed)
        if durable is not None:
            durable.subscription = subscription
        session.subscriptions[request.id] = subscription
        self._account.take(Resource.SUBSCRIPTIONS, session.usage, subscription_cost_bytes(subscription))
        if not request.kind.holds_messages:  # the name of a queue is no glob
            self._pay_for_glob(request.destination, session.usage)
        return subscription

    def _count_out(self, subscription: Subscription) -> None:
        usage = subscription.session.usage
        self._account.give_back(Resource.SUBSCRIPTIONS, usage, subscription_cost_bytes(subscription))

    def _pay_for_glob(self, pattern: str, usage: Usage) -> None:
        if is_glob(pattern) and pattern not in self._glob_owners:
            self._glob_owners[pattern] = usage
            self._account.take(Resource.GLOBS, usage)

    def _let_go_of_glob(self, pattern: str, leaver: Usage) -> None:
        """A subscription of this principal has ended: another principal that uses its glob pays for it."""
        # A glob is compiled and filed once, however many subscribe to it: one principal pays for it, and the
        # next one when that leaves.
        owner = self._glob_owners.get(pattern)
        heir = next(self._users_of_glob(pattern), None)
        if owner is None or (heir and (owner is not leaver or owner in self._users_of_glob(pattern))):
            return
        self._account.give_back(Resource.GLOBS, self._glob_owners.pop(pattern))
        if heir is not None:
            self._pay_for_glob(pattern, heir)

    def _users_of_glob(self, pattern: str) -> Iterator[Usage]:
        topic = self._topics.topics.get(pattern)
        return chain(() if topic is None else topic.users, self._values.feeds.users_of(pattern))

    def _take_snapshot(self, feed: Feed, request: SubscribeRequest) -> None:
        try:
            self._values.take_snapshot(feed, tells_end=request.tells_end)
        except Refused:
            # A feed that is not durable belongs to no subscription yet, so nothing else would remove it.
            feed.end_walk()
            feed.snapshot = None
            if not feed.is_durable:
                self._values.feeds.remove(feed)
            raise

    def unsubscribe(self, subscription: Subscription, now: float, ending: Ending) -> str | None:
        """End a subscription; what it did not settle goes back to the front (D.12).

        What its ending keeps stays until the open transactions end; `part` then gives back what is left.

        Returns:
            What became of a durable one, PAUSED or REMOVED; None: it was not durable.
        """
        session = subscription.session
        if subscription in session.parted:
            # It ended before, and what had stayed with it is settled now.
            self.part(subscription, now, Ending(lost=ending.lost))
            return None
        del session.subscriptions[subscription.id]
        if subscription.destination.detach(subscription, now, ending):
            session.parted[subscription] = None
        else:
            self._count_out(subscription)
        if subscription.pattern.startswith(INBOX_PREFIX):
            session.inbox_count -= 1
        durable = self._find_durable(session.id, subscription.id)
        if durable is not None and durable.subscription is subscription:
            durable.subscription = None
            if ending.removes:
                self.remove(durable)
            return REMOVED if ending.removes else PAUSED
        self._let_go_of_glob(subscription.pattern, session.usage)
        return None

    def part(self, subscription: Subscription, now: float, ending: Ending) -> None:
        """A transaction has ended: give back messages of an ended subscription that no other transaction has
        settled."""
        if not subscription.destination.detach(subscription, now, ending):
            del subscription.session.parted[subscription]
            self._count_out(subscription)

    def _find_durable(self, session: str, id: str) -> Durable | None:  # noqa: A002
        holder = self.durable_sessions.by_id.get(session)
        return None if holder is None else holder.durables.get(id)

    def remove_paused(self, session: Session, id: str) -> bool:  # noqa: A002
        """Remove a durable subscription that is not served at present; False: it does not exist."""
        durable = self._find_durable(session.id, id)
        if durable is not None:
            self.remove(durable)
        return durable is not None

    def remove(self, durable: Durable) -> None:
        """Forget a durable subscription that is not served, with what it keeps."""
        if durable.feed is not None:
            self._values.feeds.remove(durable.feed)
        if durable.queue is not None:
            for subscription in durable.queue.remove_drained():
                del subscription.session.parted[subscription]
                self._count_out(subscription)
            durable.queue.store.clear("deleted")
            self._topics.release(durable.queue, durable.pattern)
        self.durable_sessions.remove(durable)
        self._let_go_of_glob(durable.pattern, durable.session.usage)

    def end_session(self, holder: DurableSession) -> None:
        """Remove a session's durable subscriptions and everything kept for them. None may be connected."""
        for durable in list(holder.durables.values()):
            self.remove(durable)

    def drop_backlog(self, holder: DurableSession) -> int:
        """Drop everything that waits for a session; its subscriptions stay. Returns how much there was."""
        count = 0
        for durable in holder.durables.values():
            if durable.feed is not None:
                count += self._values.drop_waiting(durable.feed)
            if durable.queue is not None:
                count += durable.queue.store.clear("purged")
        return count

    def relieve(self, sessions: Collection[Session]) -> None:
        """End subscriptions whose pending values have a principal exceed its share of the memory.

        Such values cannot be refused when they are published, as others publish them. The largest
        holder is ended first: a connection that is too slow, or a durable subscription that is away.
        """
        # Below the watermark no principal can be overdrawn: no need to look at all principals.
        if self._account.stored_bytes < self._account.watermark_bytes:
            return
        for owner in self._account.usages.all:
            if self._account.is_overdrawn(owner) and not owner.is_operator:
                self._relieve(owner, [each for each in sessions if each.usage is owner])

    def _relieve(self, owner: Usage, sessions: Sequence[Session]) -> None:
        held: list[tuple[int, Session | Durable]] = []
        for session in sessions:
            feeds = [each.feed for each in session.subscriptions.values() if each.feed is not None]
            held.append((sum(feed.pending_count for feed in feeds), session))
        held += [
            (durable.feed.pending_count, durable)
            for holder in self.durable_sessions.by_id.values()
            if holder.usage is owner
            for durable in holder.durables.values()
            if durable.feed is not None and durable.subscription is None
        ]
        held.sort(key=lambda each: each[0])
        # If most of it is messages, those are refused instead, and the subscriptions stay.
        while (
            held
            and self._account.is_overdrawn(owner)
            and 2 * ENTRY_COST_BYTES * sum(count for count, _ in held) > owner.memory_bytes
        ):
            _, largest = held.pop()
            self._account.exceed(Resource.MEMORY, owner)
            if isinstance(largest, Session):
                largest.mark_too_slow()
            else:
                self.remove(largest)

    def expire(self, now: float) -> None:
        """Forget the sessions that were abandoned for too long."""
        for holder in self.durable_sessions.expired(now):
            self._account.notes.add(SESSIONS_EXPIRED, "away too long", holder.rights.principal, holder.id)
            self.end_session(holder)

    def restore(self, row: SubscriptionRow, kind: DestinationKind, pending: tuple[str, ...] | None) -> None:
        """Take up a durable subscription of an earlier run.

        Args:
            pending: destinations of which it has not had the last value; None: that is not known, so it
                gets all that changed.
        """
        holder = self.durable_sessions.by_id[row.session]
        queue, feed = self._add_source(kind, row.id, holder, row.destination)
        ack_mode, since = AckMode(row.ack), row.seen_number
        durable = Durable(holder, row.id, row.destination, ack_mode, row.prefetch, since, queue, feed)
        self.durable_sessions.take_in(durable)
        self._pay_for_glob(row.destination, holder.usage)
        if feed is not None:
            self._values.feeds.owe(feed, pending, row.seen_number)

    def queue_of(self, line: str) -> Queue | None:
        """The queue that a line belongs to, also that of a durable subscription."""
        name = queue_name(line)
        # Named by `_add_source`. No name of a peer's begins so.
        if not name.startswith("\0"):
            return self._queues.get(name)
        _, session, id_ = name.split("\0", 2)
        durable = self._find_durable(session, id_)
        return None if durable is None else durable.queue

    def _add_source(
        self, kind: DestinationKind, id_: str, holder: DurableSession, pattern: str
    ) -> tuple[Queue | None, Feed | None]:
        """What keeps the messages of a new durable subscription: a bound queue, or a feed."""
        if kind.holds_value:
            feed: Feed = ValueFeed(self._account, pattern, holder.rights, holder.usage, is_durable=True)
            self._values.feeds.add(feed)
            return None, feed
        # Apart from all that a peer can name.
        name = f"\0{holder.id}\0{id_}"
        queue = self._queues.make_bound(name, holder.rights, holder.usage, is_durable=True)
        self._topics.bind(pattern, queue)
        return queue, None

    def _make(
        self, session: Session, request: SubscribeRequest, queue: Queue | None, feed: Feed | None
    ) -> Subscription:
        ack_mode = request.ack_mode
        if request.kind.holds_value and session.profile.acks_alone and ack_mode is AckMode.CLIENT:
            ack_mode = AckMode.INDIVIDUAL  # D.7
        return Subscription(
            request.id,
            session,
            request.destination,
            queue or self._by_kind[request.kind],
            ack_mode,
            prefetch=min(request.prefetch or self._limits.default_prefetch, self._limits.max_prefetch),
            exclusive=request.exclusive and request.kind.holds_messages,
            began_at=self._values.next_number() if queue is not None and queue.is_inbox else 0,
            feed=feed,
        )

    def _queue_for(self, session: Session, request: SubscribeRequest) -> Queue:
        name = request.destination
        queue = self._queues.get(name)
        if queue is None:
            self._account.need(Resource.DESTINATIONS, session.usage, session.id)
            if name.startswith(INBOX_PREFIX):
                if session.inbox_count >= self._limits.max_inboxes:
                    raise Refused("too-many-inboxes", f"more than {self._limits.max_inboxes} inboxes")
                session.inbox_count += 1
            return self._queues.create(name, session.usage, auto_delete=request.auto_delete)
        if queue.consumers.exclusive is not None:
            raise Refused("exclusive", f"{name} has an exclusive subscription")
        if request.exclusive and queue.consumers.subscriptions:
            raise Refused("exclusive", f"{name} has a subscription, so there can be no exclusive one")
        return queue

    def _source_for(self, session: Session, request: SubscribeRequest) -> tuple[Queue | None, Feed | None]:
        """What feeds a subscription that goes with its connection; neither: its topic itself."""
        if request.kind.holds_messages:
            return self._queue_for(session, request), None
        self._need_glob(session, request)
        pattern = request.destination
        if request.kind.holds_value:
            feed: Feed = ValueFeed(self._account, pattern, session.rights, session.usage, is_durable=False)
            self._values.feeds.add(feed)
            return None, feed
        if not request.kind.fans_out:
            return None, None
        self._need_topic(session, pattern)
        policy = self._context.policies.lookup(pattern)
        drops = policy is not None and policy.slow_subscriber is SlowSubscriber.DROP_OLDEST
        # With auto nothing is kept for a subscriber of topics, and a slow one is ended. Only ACKs and drops
        # need a queue of its own between the topic and it.
        if request.ack_mode is AckMode.AUTO and not drops:
            return None, None
        when_full = WhenFull.DROP_OLDEST if drops else WhenFull.REJECT
        queue = self._queues.make_bound(
            pattern,
            session.rights,
            session.usage,
            is_durable=False,
            when_full=when_full,
            on_left=lambda queue, _: self._topics.release(queue, pattern),
        )
        self._topics.bind(pattern, queue)
        return queue, None

    def _durable_for(self, session: Session, request: SubscribeRequest, paused: Durable | None) -> Durable:
        """The durable subscription that is served from now on: the paused one, or a new one."""
        prefetch, durable = request.prefetch or self._limits.default_prefetch, paused
        if durable is None:
            id_, pattern = request.id, request.destination
            if request.kind.fans_out:
                self._need_topic(session, pattern)
            holder = self.durable_sessions.open(session)
            queue, feed = self._add_source(request.kind, id_, holder, pattern)
            since = self._values.next_number()
            durable = Durable(holder, id_, pattern, request.ack_mode, prefetch, since, queue, feed)
        durable.ack_mode = request.ack_mode
        durable.prefetch = prefetch
        if request.eager:
            durable.since = 0  # after a crash the rest of the snapshot is sent too
        self.durable_sessions.add(durable)
        return durable

    def _need_topic(self, session: Session, pattern: str) -> None:
        if pattern not in self._topics.topics:
            self._account.need(Resource.DESTINATIONS, session.usage, session.id)

    def _need_memory(self, session: Session) -> None:
        """Where its memory is used up a principal may still subscribe, to take its messages out; but not so
        often that the subscriptions fill what is left to others."""
        usage = session.usage
        if usage.used(Resource.SUBSCRIPTIONS) >= self._limits.max_subscriptions:
            self._account.need_memory(usage, "more of your subscriptions", session.id)

    def _need_glob(self, session: Session, request: SubscribeRequest) -> None:
        """Refuse a malformed glob, or one too many, before anything is created. Each takes memory, and may
        have to be tried on each new name."""
        pattern = request.destination
        if not is_glob(pattern):
            return
        try:
            compile_glob(pattern)
        except ValueError as error:
            raise Refused("glob", f"{pattern[:60]} {error}") from error
        if pattern not in self._glob_owners:
            self._account.need(Resource.GLOBS, session.usage, session.id)


def subscription_cost_bytes(subscription: Subscription) -> int:
    """Memory that a connected subscription costs, without its messages."""
    source_bytes = subscription.destination.subscriber_cost_bytes
    return SUBSCRIPTION_COST_BYTES + source_bytes + text_cost_bytes(subscription.id, subscription.pattern)
