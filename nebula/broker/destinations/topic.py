"""Topics: each message to everybody who is subscribed at that moment.

Invariants, checked after each step of the tests:

- a topic holds no message: what cannot go out at once lies in the receivers' outboxes, which
  are bounded, or in the queue that is bound to a subscription;
- each subscription is either fed directly (auto) or through one bound queue;
- a topic without subscriptions is forgotten.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Final

from nebula.broker.account import Account
from nebula.broker.destinations.queue import Queue
from nebula.broker.globs import Matcher, compile_glob, is_glob
from nebula.broker.messages import Message, Verdict
from nebula.broker.patterns import PatternTable
from nebula.broker.shares import Resource, Usage
from nebula.broker.subscriptions import Subscription
from nebula.headers import RESERVED_TOPIC_PREFIX

# For so many destinations it is remembered whom they reach, where rights are configured; and so many changes
# of subscriptions are looked at one by one.
_MAX_REMEMBERED: Final = 10_000
_MAX_CHARACTERS: Final = 256
_MAX_CHANGES: Final = 64


class Topic:
    """What is subscribed to one topic, or to one glob of topics.

    Args:
        pattern: what was subscribed to.
        owner: who subscribed first, and pays for its place among the destinations.
        number: its place in the order in which they came.

    Attributes:
        matches: whether a destination is one of its.
        direct: subscriptions that acknowledge nothing.
        queues: one for each other subscription, which gives it credit, redelivery and a bound. That
            of a durable one stays while its subscription is away.
    """

    __slots__ = ("direct", "matches", "number", "owner", "queues")

    def __init__(self, pattern: str, owner: Usage, number: int) -> None:
        self.matches: Matcher = compile_glob(pattern)
        self.owner = owner
        self.number = number
        self.direct: list[Subscription] = []
        self.queues: list[Queue] = []

    @property
    def consumer_count(self) -> int:
        """Subscriptions, and those that are away."""
        return len(self.direct) + len(self.queues)

    @property
    def is_idle(self) -> bool:
        """Nothing would be lost if it were forgotten."""
        return not (self.direct or self.queues)

    def reaches(self, destination: str) -> bool:
        """Whether anybody is subscribed who may receive what is sent there, if it matches."""
        return any(each.session.rights.may_receive(destination) for each in self.direct) or any(
            queue.may_take(destination) for queue in self.queues
        )

    def send(self, message: Message, now: float, *, is_judged: bool) -> list[Queue]:
        """To everybody who is subscribed now, and may receive it.

        Args:
            is_judged: rights are configured, so that each receiver's are looked at.

        Returns:
            Bound queues that have no room for it.
        """
        head = message.head
        if is_judged or head.reply_to is not None:
            self._send_with_care(message, now, is_judged=is_judged)
        else:
            # `Subscription.deliver` written out: the call would cost a third of the fan-out.
            size = message.size_bytes
            for subscription in self.direct:
                session = subscription.session
                outbox = session.outbox
                if not outbox:
                    session.dirty.append(session)
                outbox.append((subscription, message, None))
                session.outbox_bytes += size
                if session.outbox_bytes >= session.high_water_bytes:
                    session.choke()
        if not self.queues:
            return []
        send = Queue.send_once if head.is_once else Queue.send
        return [
            queue
            for queue in self.queues
            if queue.may_take(head.destination) and send(queue, message, now) is Verdict.FULL
        ]

    def _send_with_care(self, message: Message, now: float, *, is_judged: bool) -> None:
        head = message.head
        for subscription in self.direct:
            session = subscription.session
            if is_judged and not session.rights.may_receive(head.destination):
                continue
            subscription.deliver(message)
            if head.reply_to is not None:
                session.reply_rights.grant(message, now)


class Topics:
    """All topics, and what is subscribed to several of them by a glob.

    Args:
        account: what all principals use.

    Attributes:
        globs: those that are subscribed to at present.
    """

    takes_nacks = False  # a direct subscription has nothing to give back

    def __init__(self, account: Account) -> None:
        self._account = account
        self.is_judged = False
        self._table: PatternTable[Topic] = PatternTable()
        self.globs = self._table.globs
        self._created = 0
        # Whom a destination reaches, and after how many changes that was found. Else what others subscribe
        # to would cost each SEND, though they may receive nothing of it.
        self._reached: dict[str, tuple[int, list[Topic]]] = {}
        self._changes = 0
        self._changed: deque[Topic] = deque(maxlen=_MAX_CHANGES)

    @property
    def topics(self) -> Mapping[str, Topic]:
        """By what was subscribed to."""
        return self._table.things

    def send(self, message: Message, now: float) -> list[Queue]:
        """To everybody whose pattern matches; one MESSAGE for each subscription (D.33).

        Who has no room is not waited for: his bound queue is among those returned.
        """
        table = self._table
        destination = message.head.destination
        if not table.has_globs:
            topic = table.get(destination)
            if topic is None:
                return []
            if topic.consumer_count > 1:
                message.shared = {}
            return topic.send(message, now, is_judged=self.is_judged)
        # A glob shows what is reserved only to whom it is meant for, also where no rights are configured.
        is_judged = self.is_judged or destination.startswith(RESERVED_TOPIC_PREFIX)
        topics = self._judged(destination) if is_judged else table.matching(destination)
        if len(topics) > 1 or (topics and topics[0].consumer_count > 1):
            message.shared = {}
        full: list[Queue] = []
        for topic in topics:
            full += topic.send(message, now, is_judged=is_judged)
        return full

    def review(self) -> None:
        """Rights have changed."""
        self._reached.clear()

    def _judged(self, destination: str) -> Sequence[Topic]:
        """Those that match and have somebody who may receive it, in the order in which they came."""
        changes, reached = self._reached.get(destination, (-1, []))
        if changes == self._changes:
            return reached
        new_count = self._changes - changes
        if changes < 0 or new_count > len(self._changed):
            reached = [each for each in self._table.matching(destination) if each.reaches(destination)]
        else:
            changed = {
                each for each in islice(reversed(self._changed), new_count) if each.matches(destination)
            }
            reached = [each for each in reached if each not in changed]
            reached += [each for each in changed if each.reaches(destination)]
            reached.sort(key=_by_number)
        if len(destination) <= _MAX_CHARACTERS:
            if destination not in self._reached and len(self._reached) >= _MAX_REMEMBERED:
                del self._reached[next(iter(self._reached))]
            self._reached[destination] = self._changes, reached
        return reached

    def _note_change(self, topic: Topic) -> None:
        self._changes += 1
        self._changed.append(topic)

    def bind(self, pattern: str, queue: Queue) -> None:
        """Feed `queue` with what is sent to topics of `pattern`."""
        topic = self.topic(pattern, queue.owner)
        topic.queues.append(queue)
        self._note_change(topic)

    def release(self, pattern: str, queue: Queue) -> None:
        """Feed it no more."""
        topic = self._table.things[pattern]
        topic.queues.remove(queue)
        self._note_change(topic)
        self._forget_if_idle(pattern, topic)

    def attach(self, subscription: Subscription, now: float) -> None:  # noqa: ARG002
        """Feed it directly what comes from now on."""
        topic = self.topic(subscription.pattern, subscription.session.usage)
        topic.direct.append(subscription)
        self._note_change(topic)

    def detach(self, subscription: Subscription, now: float, *, lost: bool) -> None:  # noqa: ARG002
        """Feed it no more."""
        topic = self._table.things[subscription.pattern]
        topic.direct.remove(subscription)
        self._note_change(topic)
        self._forget_if_idle(subscription.pattern, topic)

    def acknowledge(self, subscription: Subscription, messages: Sequence[Message], now: float) -> None:
        """Nothing was un-ACKed."""

    def give_back(
        self, subscription: Subscription, messages: Sequence[Message], now: float, *, requeue: bool
    ) -> None:
        """Nothing was un-ACKed."""

    def resume(self, subscription: Subscription, now: float) -> None:
        """Nothing waits."""

    def topic(self, pattern: str, owner: Usage) -> Topic:
        """What is subscribed to `pattern`, new if there is nothing yet."""
        topic = self._table.get(pattern)
        if topic is None:
            self._created += 1
            # What is literal comes first.
            topic = Topic(pattern, owner, self._created if is_glob(pattern) else 0)
            self._table.add(pattern, topic)
            self._account.take(Resource.DESTINATIONS, owner)
        return topic

    def _forget_if_idle(self, pattern: str, topic: Topic) -> None:
        if topic.is_idle:
            self._table.remove(pattern)
            self._account.give_back(Resource.DESTINATIONS, topic.owner)


def _by_number(topic: Topic) -> int:
    return topic.number
