"""SUBSCRIBEs: what they may have, what feeds them, and what goes on when they end."""

from __future__ import annotations

from dataclasses import dataclass

from nebula.broker.destinations.last_value import LastValues
from nebula.broker.destinations.queue import Queue
from nebula.broker.destinations.queues import Queues
from nebula.broker.destinations.topic import Topics
from nebula.broker.destinations.value_feed import ValueFeed
from nebula.broker.durables import Durable, StandingSession, StandingSessions
from nebula.broker.globs import compile_glob, is_glob
from nebula.broker.limits import Limits
from nebula.broker.messages import QUEUE_PREFIX, Kind
from nebula.broker.notes import SESSIONS_EXPIRED
from nebula.broker.policies import PolicyTable, SlowSubscriber, WhenFull
from nebula.broker.session import Session
from nebula.broker.store import PutSubscription
from nebula.broker.subscriptions import AckMode, Subscription
from nebula.errors import Refused
from nebula.headers import INBOX_PREFIX, PAUSED, REMOVED


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscribeRequest:
    """What a SUBSCRIBE asks for, in the core's words.

    Attributes:
        kind: of its destination.
        durable: it is to outlive its connection (not on queues, which keep anyway; D.10).
        eager: it wants all present values first.
        tells_end: and to be told when it has had them.
    """

    id: str
    destination: str
    kind: Kind = Kind.QUEUE
    ack_mode: AckMode = AckMode.AUTO
    prefetch: int | None = None
    exclusive: bool = False
    auto_delete: bool = False
    durable: bool = False
    eager: bool = False
    tells_end: bool = False


class Subscribing:
    """The subscriptions of all sessions.

    Args:
        limits: what peers may use.
        queues, topics, values: what feeds them.
        standing: the durable ones.
        policies: what differs for single destinations.
    """

    def __init__(
        self,
        limits: Limits,
        queues: Queues,
        topics: Topics,
        values: LastValues,
        standing: StandingSessions,
        policies: PolicyTable,
    ) -> None:
        self._policies = policies
        self._count = 0  # subscriptions of all sessions
        self._limits = limits
        self._queues = queues
        self._topics = topics
        self._values = values
        self._standing = standing

    def may_subscribe(self, session: Session, request: SubscribeRequest, now: float) -> bool:
        """Whether the request is to be heard at all; False: it is ignored, as D.5 and D.48 say."""
        name = request.destination
        if request.kind is not Kind.QUEUE and is_glob(name):
            return True  # it gets what its principal may receive
        is_bare = request.kind is Kind.QUEUE and not name.startswith(QUEUE_PREFIX)
        if is_bare and not session.profile.bare_names_are_queues:
            return False  # D.10: there is no such resource
        if name.startswith(INBOX_PREFIX):
            return request.exclusive and self._queues.is_fresh_inbox(name, now)
        return session.rights.may_subscribe(name)

    def subscribe(self, session: Session, request: SubscribeRequest) -> Subscription:
        """Make a subscription; `attach` it to its destination when its RECEIPT was said (D.43).

        Raises:
            Refused: it cannot be had; the connection is to be closed with an ERROR.
        """
        if self._count >= self._limits.max_subscriptions_in_all:
            raise Refused("too-many-subscriptions", f"the broker has {self._count} subscriptions")
        durable = None
        source: Queue | ValueFeed | None
        if request.kind is not Kind.QUEUE and (request.durable or self._is_paused(session, request)):
            self._need_glob(request)
            durable = self._durable_for(session, request)
            source = durable.source
        else:
            # D.32: this id means something else from now on.
            self.remove_paused(session, request.id)
            source = self._source_for(session, request)
        if request.eager and isinstance(source, ValueFeed):
            self._take_snapshot(source, request)
        subscription = self._make(session, request, source)
        if durable is not None:
            durable.subscription = subscription
        session.subscriptions[request.id] = subscription
        self._count += 1
        return subscription

    def _take_snapshot(self, feed: ValueFeed, request: SubscribeRequest) -> None:
        try:
            self._values.take_snapshot(feed, tells_end=request.tells_end)
        except Refused:
            feed.end_walk()
            feed.snapshot = None
            if not feed.is_durable:
                self._values.remove(feed)
            raise

    def unsubscribe(self, subscription: Subscription, now: float, *, lost: bool, removes: bool) -> str | None:
        """End a subscription; what it did not settle goes back to the front (D.12).

        Args:
            removes: a durable one is to go for good; otherwise it is paused (D.3).

        Returns:
            What became of a durable one, PAUSED or REMOVED; None: it was none.
        """
        session = subscription.session
        del session.subscriptions[subscription.id]
        self._count -= 1
        subscription.destination.detach(subscription, now, lost=lost)
        standing = self._standing.by_id.get(session.id)
        durable = None if standing is None else standing.durables.get(subscription.id)
        if standing is not None and durable is not None and durable.subscription is subscription:
            durable.subscription = None
            if removes:
                self.remove(standing, durable)
            return REMOVED if removes else PAUSED
        destination = subscription.destination
        if isinstance(destination, Queue):
            if destination.rights is not None:
                self._topics.release(subscription.pattern, destination)
            else:
                self._queues.forget_if_idle(destination, now)
        return None

    def drain(self, subscription: Subscription) -> bool:
        """End its deliveries; what is un-ACKed stays with it until ACK, NACK or the end of its connection.

        With the last of these it ends by itself. Idempotent. False, and nothing done: nothing of it is
        un-ACKed, or it is not one of a queue that others may read. `unsubscribe` it then.
        """
        queue = subscription.destination
        if not isinstance(queue, Queue) or queue.rights is not None or queue.is_inbox:
            return False
        if subscription.is_drained:
            return True
        if not subscription.unacked:
            return False
        queue.drain(subscription)
        return True

    def _is_paused(self, session: Session, request: SubscribeRequest) -> bool:
        """D.32: the same id and destination go on where a durable one was left, also if it is not said."""
        standing = self._standing.by_id.get(session.id)
        durable = None if standing is None else standing.durables.get(request.id)
        return durable is not None and durable.pattern == request.destination

    def remove_paused(self, session: Session, id: str) -> bool:  # noqa: A002
        """Remove a durable subscription that is not served at present; False: there is none."""
        standing = self._standing.by_id.get(session.id)
        durable = None if standing is None else standing.durables.get(id)
        if standing is None or durable is None:
            return False
        self.remove(standing, durable)
        return True

    def remove(self, standing: StandingSession, durable: Durable) -> None:
        """Forget a durable subscription that is not served, with what it keeps."""
        if isinstance(durable.source, ValueFeed):
            self._values.remove(durable.source)
        else:
            durable.source.clear("deleted")
            self._topics.release(durable.pattern, durable.source)
        self._standing.remove(standing, durable)

    def expire(self, now: float) -> None:
        """Forget the sessions that were abandoned for too long."""
        for standing in self._standing.expired(now):
            self._values.account.notes.add(
                SESSIONS_EXPIRED, "away too long", principal=standing.rights.principal, session=standing.id
            )
            for durable in list(standing.durables.values()):
                self.remove(standing, durable)

    def restore(self, row: PutSubscription, kind: Kind, pending: tuple[str, ...] | None) -> None:
        """Take up a durable subscription of an earlier run.

        Args:
            pending: what it has still to be told of; None: that is not known, so all that changed.
        """
        standing = self._standing.by_id[row.session]
        source = self._add_source(kind, row.id, standing, row.destination)
        durable = Durable(row.id, row.destination, AckMode(row.ack), row.prefetch, source, row.seen_number)
        self._standing.take_in(standing, durable)
        if isinstance(source, ValueFeed):
            self._values.owe(source, pending, row.seen_number)

    def queue_of(self, name: str) -> Queue | None:
        """The bound queue of a durable subscription, by its own name."""
        if not name.startswith("\0"):
            return None
        _, session, id_ = name.split("\0", 2)
        standing = self._standing.by_id.get(session)
        durable = None if standing is None else standing.durables.get(id_)
        return durable.source if durable is not None and isinstance(durable.source, Queue) else None

    def _add_source(
        self,
        kind: Kind,
        id: str,  # noqa: A002
        standing: StandingSession,
        pattern: str,
    ) -> Queue | ValueFeed:
        """What keeps the messages of a new durable subscription."""
        if kind is Kind.LAST_VALUE:
            feed = ValueFeed(self._values.account, pattern, standing.rights, is_durable=True)
            self._values.add(feed)
            return feed
        # Apart from all that a peer can name.
        name = f"\0{standing.id}\0{id}"
        queue = self._queues.make_bound(name, standing.rights, is_durable=True)
        self._topics.bind(pattern, queue)
        return queue

    def _make(
        self, session: Session, request: SubscribeRequest, source: Queue | ValueFeed | None
    ) -> Subscription:
        ack_mode = request.ack_mode
        if request.kind is Kind.LAST_VALUE and session.profile.acks_alone and ack_mode is AckMode.CLIENT:
            ack_mode = AckMode.INDIVIDUAL  # D.7
        if isinstance(source, Queue):
            destination: Queue | Topics | LastValues = source
        else:
            destination = self._topics if source is None else self._values
        subscription = Subscription(
            request.id,
            session,
            request.destination,
            destination,
            ack_mode,
            prefetch=min(request.prefetch or self._limits.default_prefetch, self._limits.max_prefetch),
            exclusive=request.exclusive and request.kind is Kind.QUEUE,
        )
        if isinstance(source, ValueFeed):
            subscription.feed = source
        return subscription

    def _queue_for(self, request: SubscribeRequest) -> Queue:
        name = request.destination
        queue = self._queues.get(name)
        if queue is None:
            self._need_place()
            return self._queues.create(name, auto_delete=request.auto_delete)
        if queue.exclusive_subscription is not None:
            raise Refused("exclusive", f"{name} has an exclusive subscription")
        if request.exclusive and queue.consumer_count:
            raise Refused("exclusive", f"{name} has a subscription, so there can be no exclusive one")
        return queue

    def _source_for(self, session: Session, request: SubscribeRequest) -> Queue | ValueFeed | None:
        """What feeds a subscription that goes with its connection; None: its topic itself."""
        if request.kind is Kind.QUEUE:
            return self._queue_for(request)
        self._need_glob(request)
        pattern = request.destination
        if request.kind is Kind.LAST_VALUE:
            feed = ValueFeed(self._values.account, pattern, session.rights, is_durable=False)
            self._values.add(feed)
            return feed
        if pattern not in self._topics.topics:
            self._need_place()
        policy = self._policies.lookup(pattern)
        drops = policy is not None and policy.slow_subscriber is SlowSubscriber.DROP_OLDEST
        if request.ack_mode is AckMode.AUTO and not drops:
            return None
        when_full = WhenFull.DROP_OLDEST if drops else WhenFull.REJECT
        queue = self._queues.make_bound(pattern, session.rights, is_durable=False, when_full=when_full)
        self._topics.bind(pattern, queue)
        return queue

    def _durable_for(self, session: Session, request: SubscribeRequest) -> Durable:
        """D.32: the one of this id goes on where its destination is the same, and is replaced otherwise."""
        standing = self._standing.by_id.get(session.id)
        durable = None if standing is None else standing.durables.get(request.id)
        if standing is not None and durable is not None and durable.pattern != request.destination:
            self.remove(standing, durable)
            durable = None
        prefetch = request.prefetch or self._limits.default_prefetch
        if durable is None:
            self._standing.check_room()
            standing = self._standing.open(session.id, session.rights)
            if len(standing.durables) >= self._limits.max_subscriptions:
                raise Refused("too-many-subscriptions", f"the session has {len(standing.durables)}")
            source = self._add_source(request.kind, request.id, standing, request.destination)
            since = self._values.next_number()
            durable = Durable(request.id, request.destination, request.ack_mode, prefetch, source, since)
        assert standing is not None
        durable.ack_mode = request.ack_mode
        durable.prefetch = prefetch
        if request.eager:
            durable.since = 0  # what of the snapshot a crash leaves untold is to be told too
        self._standing.add(standing, durable)
        return durable

    def _need_place(self) -> None:
        used = len(self._queues.by_name) + len(self._topics.topics) + len(self._values.topics)
        if used >= self._limits.max_destinations:
            raise Refused("too-many-destinations", f"the broker has {used}")

    def _need_glob(self, request: SubscribeRequest) -> None:
        """A glob that means nothing is refused before anything is made; and one too many: each takes memory,
        and may have to be tried on each name that was not seen before."""
        pattern = request.destination
        if not is_glob(pattern):
            return
        try:
            compile_glob(pattern)
        except ValueError as error:
            raise Refused("glob", f"{pattern[:60]} {error}") from error
        known = self._values.globs if request.kind is Kind.LAST_VALUE else self._topics.globs
        used = len(self._values.globs) + len(self._topics.globs)
        if pattern not in known and used >= self._limits.max_globs:
            raise Refused("too-many-globs", f"the broker has {used} globs")
