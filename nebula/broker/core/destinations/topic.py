"""Topics: each message to all subscriptions of that moment.

Invariants, checked after each step of the tests:

- a topic holds no message: what cannot go out at once lies in the receivers' outboxes, which
  are bounded, or in the queue that is bound to a subscription;
- each subscription is either fed directly (auto) or through one bound queue;
- a topic without subscriptions is forgotten.

**Fan-out.** Auto subscriptions, the usual ones, are fed in one loop: the message goes straight into each
session's outbox, and its encoding is shared (`Message.shared`). Whatever a topic cannot do itself (ACKs,
redelivery, a bound, a subscriber that is away) a queue can, so each other subscription has a queue of its
own, and a durable subscription needs no class of its own. The publisher never waits for a subscriber: a
connected one without room is ended or loses its oldest messages, as it asked for; for a durable one the
message becomes a dead letter, or is dropped where its principal's share is used up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from nebula.broker.core.account import Account
from nebula.broker.core.destinations.base import Destination
from nebula.broker.core.destinations.queue import Queue
from nebula.broker.core.messages import ACCEPTED, Message, Verdict
from nebula.broker.core.notes import SHARE
from nebula.broker.core.patterns import PatternTable
from nebula.broker.core.shares import Resource, Usage
from nebula.broker.core.subscription import Ending, Subscription
from nebula.headers import RESERVED_TOPIC_PREFIX


@dataclass(slots=True, eq=False, repr=False)
class Topic:
    """What is subscribed to one topic, or to one glob of topics.

    Attributes:
        direct: subscriptions that acknowledge nothing.
        owner: the first subscriber of those that still are; pays for it as a destination.
        queues: one for each other subscription, which gives it credit, redelivery and a bound. That
            of a durable one stays while its subscription is away.
    """

    owner: Usage
    direct: list[Subscription] = field(default_factory=list)
    queues: list[Queue] = field(default_factory=list)

    @property
    def subscriber_count(self) -> int:
        """Subscriptions, and those that are away."""
        return len(self.direct) + len(self.queues)

    def reaches(self, destination: str) -> bool:
        """Whether a subscriber may receive what is sent there."""
        for subscription in self.direct:
            if subscription.session.rights.may_receive(destination):
                return True
        for queue in self.queues:  # noqa: SIM110  # of very many a generator takes three times as long
            if queue.may_take(destination):
                return True
        return False

    @property
    def users(self) -> Iterator[Usage]:
        """Whose subscriptions there are."""
        yield from (subscription.session.usage for subscription in self.direct)
        yield from (queue.owner for queue in self.queues)

    def send(self, message: Message, now: float, *, is_judged: bool) -> list[Queue]:
        """To all subscribers that may receive it.

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
                    session.throttle()
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


class Topics(Destination):
    """All topics, and what is subscribed to several of them by a glob.

    Args:
        account: what all principals use.
        make_dead_letter: `Queues.make_dead_letter`.

    Attributes:
        topics: by what was subscribed to.
        table: the same, with the globs that are subscribed to at present.
    """

    def __init__(self, account: Account, make_dead_letter: Callable[..., None]) -> None:
        self._account = account
        self._make_dead_letter = make_dead_letter
        self.is_judged = False
        self.table: PatternTable[Topic] = PatternTable(Topic.reaches)
        self.topics = self.table.things

    def send(self, message: Message, now: float) -> Verdict:
        """To all subscriptions whose pattern matches; one MESSAGE for each subscription (D.33).

        Always ACCEPTED: the publisher does not wait for a subscriber without room.
        """
        table = self.table
        destination = message.head.destination
        if not table.globs:
            topic = table.things.get(destination)
            if topic is None:
                return ACCEPTED
            if topic.subscriber_count > 1:
                message.shared = {}
            full = topic.send(message, now, is_judged=self.is_judged)
            if full:
                self._drop_unroomed(full, message)
            return ACCEPTED
        # A subscription to `/topic/*` must not reach reserved topics without a right to them, even where no
        # rights are configured.
        is_judged = self.is_judged or destination.startswith(RESERVED_TOPIC_PREFIX)
        topics = table.reached(destination) if is_judged else table.matching(destination)
        if len(topics) > 1 or (topics and topics[0].subscriber_count > 1):
            message.shared = {}
        for topic in topics:
            full = topic.send(message, now, is_judged=is_judged)
            if full:
                self._drop_unroomed(full, message)
        return ACCEPTED

    def _drop_unroomed(self, full: Sequence[Queue], message: Message) -> None:
        """The message found no room in these bound queues.

        A connected subscriber that is too slow is ended. For a durable one the message becomes a dead letter,
        unless its principal's share is used up.
        """
        for queue in full:
            if queue.auto_delete:
                for subscription in queue.consumers.subscriptions:
                    subscription.session.mark_too_slow()
            elif queue.owner.is_disk_full or not self._account.has_room_for(message.size_bytes, queue.owner):
                # Not dead-lettered: dead letters of others would have to make room.
                resource = Resource.DISK if queue.owner.is_disk_full else Resource.MEMORY
                self._account.exceed(resource, queue.owner)
                self._account.drop(message.head, SHARE)
            else:
                self._make_dead_letter(message, "full", was_kept=True)

    def bind(self, pattern: str, queue: Queue) -> None:
        """Feed `queue` with what is sent to topics of `pattern`."""
        self.topic(pattern, queue.owner).queues.append(queue)
        self.table.note_change(pattern)

    def release(self, queue: Queue, pattern: str) -> None:
        """Feed a bound queue no more."""
        topic = self.table.things[pattern]
        topic.queues.remove(queue)
        self._let_go(pattern, topic, queue.owner)

    def attach(self, subscription: Subscription, now: float) -> None:  # noqa: ARG002
        """Feed it directly what comes from now on."""
        self.topic(subscription.pattern, subscription.session.usage).direct.append(subscription)
        self.table.note_change(subscription.pattern)

    # A direct subscription acknowledges nothing, so it leaves nothing and settles nothing. When rights
    # change nothing waits, and each new message is judged.

    def detach(self, subscription: Subscription, now: float, ending: Ending) -> bool:  # noqa: ARG002
        """Feed it no more."""
        topic = self.table.things[subscription.pattern]
        topic.direct.remove(subscription)
        self._let_go(subscription.pattern, topic, subscription.session.usage)
        return False

    def topic(self, pattern: str, owner: Usage) -> Topic:
        """What is subscribed to `pattern`, new if there is nothing yet."""
        topic = self.table.things.get(pattern)
        if topic is None:
            topic = Topic(owner)
            self.table.add(pattern, topic)
            self._account.take(Resource.DESTINATIONS, owner)
        return topic

    def _let_go(self, pattern: str, topic: Topic, leaver: Usage) -> None:
        """A subscription of this principal has ended: forget a topic that is idle."""
        self.table.note_change(pattern)
        if not topic.subscriber_count:
            self.table.remove(pattern)
            self._account.give_back(Resource.DESTINATIONS, topic.owner)
        elif topic.owner is leaver and leaver not in topic.users:
            # A principal that has left must not pay for those that stay.
            self._account.give_back(Resource.DESTINATIONS, topic.owner)
            topic.owner = next(topic.users)
            self._account.take(Resource.DESTINATIONS, topic.owner)
