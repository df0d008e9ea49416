"""The broker's heart: destinations by name, who is subscribed to them, and what happens on each request.

It decides and changes memory; it never writes to anybody. What it decided lies in the outboxes
of the sessions, and `take_work` says which ones the shell has to look at. Time is an argument.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from nebula.broker.destinations.base import Account, Destination
from nebula.broker.destinations.queue import Queue
from nebula.broker.destinations.topic import Topic
from nebula.broker.limits import Limits
from nebula.broker.messages import Head, Message, Verdict
from nebula.broker.policies import DestinationPolicy, PolicyTable
from nebula.broker.session import Session
from nebula.broker.subscriptions import AckMode, Subscription
from nebula.errors import Refused
from nebula.headers import INBOX_PREFIX, RESERVED_QUEUE_PREFIX

TOPIC_PREFIX = "/topic/"

# STOMP has no code for it; PROTOCOL B.6 is what `X/` will be.
_LAST_VALUE_PREFIX = "X/"
_GLOB_CHARACTERS = frozenset("*?[]")

# PROTOCOL G: the name of an inbox that is gone is not given out again for an hour. So many
# names are remembered at most; the oldest are forgotten first.
_RETIRED_INBOX_SECONDS = 3600.0
_MAX_RETIRED_INBOXES = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscribeRequest:
    """What a SUBSCRIBE asks for, in the core's words."""

    id: str
    destination: str
    ack_mode: AckMode = AckMode.AUTO
    prefetch: int | None = None
    exclusive: bool = False
    auto_delete: bool = False


@dataclass(frozen=True, slots=True)
class Work:
    """What the shell has to do after an input.

    Attributes:
        dirty: sessions whose outbox is to be written (or who are too slow and to be ended).
        resumed: sessions that were held back and may be read on; True where the wait was in
            vain and the policy of the destination decides now.
    """

    dirty: list[Session]
    resumed: list[tuple[Session, bool]]


class Broker:
    """All destinations, and every rule that concerns more than one of them.

    Deterministic: the same inputs (with their times) give the same outputs.

    Args:
        limits: what peers may use.
        policies: limits of single destinations, by pattern.
        incarnation: begins every message-id, so that none comes again after a restart (D.20). No
            space, no colon, no backslash.
    """

    def __init__(
        self, limits: Limits | None = None, policies: PolicyTable | None = None, *, incarnation: str = "m"
    ) -> None:
        self.limits = limits or Limits()
        self.incarnation = incarnation
        self.account = Account(self.limits.max_memory_bytes)
        self._policies = policies or PolicyTable(())
        self._destinations: dict[str, Queue | Topic] = {}
        self._last_number = 0
        self._dirty: list[Session] = []
        # Held back until there is room: whose room, for how much, and until when they wait.
        self._paused: dict[Session, tuple[Queue, int, float]] = {}
        self._retired_inboxes: dict[str, float] = {}

    @property
    def destinations(self) -> Mapping[str, Queue | Topic]:
        """By name, for inspection."""
        return self._destinations

    def open_session(self, id: str, principal: str, *, connection: object = None) -> Session:  # noqa: A002
        """Make the session of a new connection. End it with `close_session`."""
        return Session(
            id,
            principal,
            self._dirty,
            high_water_bytes=self.limits.outbox_high_water_bytes,
            max_outbox_bytes=self.limits.max_outbox_bytes,
            connection=connection,
        )

    def close_session(self, session: Session, now: float, *, lost: bool) -> None:
        """Take back what the session did not settle and forget it.

        Args:
            lost: the connection broke; without it the peer said DISCONNECT, and its deliveries
                do not count as attempts (DESIGN 4).
        """
        # What one of its subscriptions gives back must not go to another one that ends too.
        session.is_choked = True
        for subscription in list(session.subscriptions.values()):
            self.unsubscribe(subscription, now, lost=lost)
        self._paused.pop(session, None)

    def send(
        self,
        session: Session,
        head: Head,
        body: bytes,
        now: float,
        *,
        exchange: tuple[str, str] | None = None,
        may_wait: bool = True,
    ) -> Verdict:
        """Hand a message to its destination.

        Args:
            exchange: a header of this message that others with its head do not share.
            may_wait: the session can be held back when there is no room. Then nothing has
                happened, and the session turns up in `Work.resumed` when it may try again.

        Returns:
            The verdict. Any other than ACCEPTED means that nothing happened.
        """
        destination = self._destinations.get(head.destination)
        if destination is None:
            created = self._create_by_send(head)
            if isinstance(created, Verdict):
                return created
            destination = created
        elif head.requires_consumers and not destination.consumer_count:
            return self._refuse(Verdict.NO_CONSUMER)
        self._last_number = number = self._last_number + 1
        message = Message(head, body, number, now, exchange)
        verdict = destination.send(message, now)
        if verdict is Verdict.FULL and isinstance(destination, Queue):
            size = message.size_bytes
            if may_wait and self._may_wait(session, destination, size):
                self._paused[session] = (destination, size, now + self.limits.max_pause_seconds)
                return Verdict.WAIT
            self._forget_if_idle(destination, now)
            return self._refuse(verdict)
        return verdict

    def subscribe(self, session: Session, request: SubscribeRequest) -> Subscription:
        """Make a subscription. Say its RECEIPT (D.43), then call `begin`: no message comes before.

        Ask `may_subscribe` first.

        Raises:
            Refused: it cannot be had; the connection is to be closed with an ERROR.
        """
        destination = self._for_subscription(request)
        prefetch = request.prefetch or self.limits.default_prefetch
        subscription = Subscription(
            request.id,
            session,
            destination,
            request.ack_mode,
            prefetch=min(prefetch, self.limits.max_prefetch),
            exclusive=request.exclusive and isinstance(destination, Queue),
        )
        session.subscriptions[request.id] = subscription
        return subscription

    def may_subscribe(self, request: SubscribeRequest, now: float) -> bool:
        """Whether the request is to be heard at all; False: it is ignored, as D.5 and D.48 say."""
        name = request.destination
        if not name.startswith(RESERVED_QUEUE_PREFIX):
            return True
        is_fresh = name not in self._destinations and (self._retired_inboxes.get(name, now) <= now)
        return name.startswith(INBOX_PREFIX) and request.exclusive and is_fresh

    def begin(self, subscription: Subscription, now: float) -> None:
        """Let the messages flow: after the RECEIPT was said."""
        subscription.destination.attach(subscription, now)

    def unsubscribe(self, subscription: Subscription, now: float, *, lost: bool = False) -> None:
        """End a subscription; what it did not settle goes back to the front (D.12)."""
        del subscription.session.subscriptions[subscription.id]
        destination = subscription.destination
        destination.detach(subscription, now, lost=lost)
        self._forget_if_idle(destination, now)

    def acknowledge(self, subscription: Subscription, number: int, now: float) -> bool:
        """Settle a message, or with the mode client it and all before it. False: not known."""
        messages = subscription.settle(number)
        if messages:
            subscription.destination.acknowledge(subscription, messages, now)
        return bool(messages)

    def negative_acknowledge(
        self, subscription: Subscription, number: int, now: float, *, requeue: bool
    ) -> bool:
        """Give messages back; the scope is that of an ACK. False: not known."""
        messages = subscription.settle(number)
        if messages:
            subscription.destination.give_back(subscription, messages, now, requeue=requeue)
        return bool(messages)

    def consumer_count(self, name: str) -> int | None:
        """Subscriptions of a queue at this moment; None for a topic."""
        destination = self._destinations.get(name)
        if isinstance(destination, Topic) or name.startswith(TOPIC_PREFIX):
            return None
        return 0 if destination is None else destination.consumer_count

    def resume(self, session: Session, now: float) -> None:
        """The session's outbox was written: queues may dispatch to it again."""
        session.is_choked = False
        for subscription in list(session.subscriptions.values()):
            subscription.destination.resume(subscription, now)

    def advance(self, now: float) -> None:
        """Let time pass: drop what has expired. Call it about once a second."""
        for destination in list(self._destinations.values()):
            destination.expire(now)
            self._forget_if_idle(destination, now)
        for name, until in list(self._retired_inboxes.items()):
            if until > now:
                break
            del self._retired_inboxes[name]

    def take_work(self, now: float) -> Work:
        """What is to be done now. Ask after every input, and do all of it."""
        resumed = self._take_resumed(now) if self._paused else []
        dirty = self._dirty[:]
        self._dirty.clear()
        return Work(dirty, resumed)

    def _take_resumed(self, now: float) -> list[tuple[Session, bool]]:
        resumed = []
        for session, (queue, size_bytes, until) in list(self._paused.items()):
            if queue.has_room_for(size_bytes):
                resumed.append((session, False))
            elif until <= now:
                # Its consumers had their time: nobody else waits for them until they move on.
                queue.is_stalled = True
                resumed.append((session, True))
        for session, _ in resumed:
            del self._paused[session]
        return resumed

    def _may_wait(self, session: Session, queue: Queue, size_bytes: int) -> bool:
        # Who consumes is never held back: its ACKs come by the same stream (DESIGN 4).
        return not session.subscriptions and queue.is_consumed and queue.could_hold(size_bytes)

    def _refuse(self, verdict: Verdict) -> Verdict:
        self.account.dropped[verdict.value] += 1
        return verdict

    def _create_by_send(self, head: Head) -> Queue | Verdict:
        """The queue that a SEND creates, or the verdict where it creates none."""
        name = head.destination
        if name.startswith(TOPIC_PREFIX):
            # Nobody is subscribed, and a topic keeps nothing.
            return Verdict.ACCEPTED
        if name.startswith(INBOX_PREFIX):
            return self._refuse(Verdict.NO_CONSUMER)  # D.48: only its SUBSCRIBE creates it
        if name.startswith(RESERVED_QUEUE_PREFIX):
            return self._refuse(Verdict.UNAUTHORISED)
        if head.requires_consumers:
            return self._refuse(Verdict.NO_CONSUMER)
        if len(self._destinations) >= self.limits.max_destinations:
            return self._refuse(Verdict.FULL)
        queue = self._destinations[name] = self._make_queue(name)
        return queue

    def _for_subscription(self, request: SubscribeRequest) -> Queue | Topic:
        """The destination that a SUBSCRIBE is about, created where it is new."""
        name = request.destination
        destination = self._destinations.get(name)
        if destination is None:
            if len(self._destinations) >= self.limits.max_destinations:
                raise Refused("too-many-destinations", f"the broker has {len(self._destinations)}")
            if name.startswith(TOPIC_PREFIX):
                destination = Topic(name, lambda: self._make_queue(name, auto_delete=True))
            else:
                destination = self._make_queue(name, auto_delete=request.auto_delete)
            self._destinations[name] = destination
        elif isinstance(destination, Queue):
            if destination.exclusive_subscription is not None:
                raise Refused("exclusive", f"{name} has an exclusive subscription")
            if request.exclusive and destination.consumer_count:
                raise Refused("exclusive", f"{name} has a subscription, so there can be no exclusive one")
        return destination

    def _make_queue(self, name: str, *, auto_delete: bool = False) -> Queue:
        policy = self._policies.lookup(name) or DestinationPolicy()
        limits = self.limits
        is_inbox = name.startswith(INBOX_PREFIX)
        return Queue(
            name,
            self.account,
            max_messages=policy.max_messages or limits.max_queue_messages,
            max_bytes=policy.max_bytes or limits.max_queue_bytes,
            max_deliveries=policy.max_deliveries or limits.max_deliveries,
            # D.48: an inbox exists through its subscription only, whatever that asked for.
            auto_delete=auto_delete or is_inbox,
            is_inbox=is_inbox,
        )

    def _forget_if_idle(self, destination: Destination, now: float) -> None:
        """Forget what holds and feeds nothing: the next SEND or SUBSCRIBE makes it again."""
        if not destination.is_idle:
            return
        self._destinations.pop(destination.name, None)
        if isinstance(destination, Queue) and destination.is_inbox:
            self._retired_inboxes[destination.name] = now + _RETIRED_INBOX_SECONDS
            if len(self._retired_inboxes) > _MAX_RETIRED_INBOXES:
                del self._retired_inboxes[next(iter(self._retired_inboxes))]


def check_destination(name: str, *, subscribing: bool) -> None:
    """Refuse the names that mean something which this broker does not do yet.

    Raises:
        Refused: with a text that may be shown to the peer.
    """
    if name.startswith(_LAST_VALUE_PREFIX):
        raise Refused("not-supported", "last-value destinations (X/…) are not supported yet")
    if name.startswith(TOPIC_PREFIX) and _GLOB_CHARACTERS.intersection(name):
        what = "globs are not supported yet" if subscribing else "a SEND needs one destination"
        raise Refused("not-supported", f"a topic's name has no *, ?, [ or ] here: {what}")
