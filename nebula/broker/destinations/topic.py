"""Topics: each message to everybody who is subscribed at that moment.

Invariants, checked after each step of the tests:

- a topic holds no message: what cannot go out at once lies in the receivers' outboxes, which
  are bounded, or in the private queue of a subscription that acknowledges;
- each subscription is either fed directly (auto) or through one private queue.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nebula.broker.destinations.queue import Queue
from nebula.broker.messages import Message, Verdict
from nebula.broker.subscriptions import AckMode, Subscription


class Topic:
    """A fan-out topic.

    A subscription that acknowledges has a queue of its own here, which is what gives it credit,
    redelivery and a bound; a full one means that its peer is too slow to stay.

    Args:
        name: its destination.
        make_queue: makes such a private queue.
    """

    def __init__(self, name: str, make_queue: Callable[[], Queue]) -> None:
        self.name = name
        self._make_queue = make_queue
        self._direct: list[Subscription] = []
        self._queues: dict[Subscription, Queue] = {}

    @property
    def consumer_count(self) -> int:
        return len(self._direct) + len(self._queues)

    @property
    def is_idle(self) -> bool:
        return not (self._direct or self._queues)

    def send(self, message: Message, now: float) -> Verdict:
        """To everybody who is subscribed now. Always accepted: who has no room is ended, not waited for."""
        if self.consumer_count > 1:
            message.shared = {}
        # `Subscription.deliver` written out: the call would cost a third of the fan-out.
        size = message.size_bytes
        for subscription in self._direct:
            session = subscription.session
            outbox = session.outbox
            if not outbox:
                session.dirty.append(session)
            outbox.append((subscription, message, None))
            session.outbox_bytes += size
            if session.outbox_bytes >= session.high_water_bytes:
                session.choke()
        if self._queues:
            for subscription, queue in self._queues.items():
                if queue.send(message, now) is Verdict.FULL:
                    subscription.session.mark_too_slow()
        return Verdict.ACCEPTED

    def attach(self, subscription: Subscription, now: float) -> None:
        """Feed it what comes from now on."""
        if subscription.ack_mode is AckMode.AUTO:
            self._direct.append(subscription)
        else:
            queue = self._queues[subscription] = self._make_queue()
            queue.attach(subscription, now)

    def detach(self, subscription: Subscription, now: float, *, lost: bool) -> None:
        """Feed it no more; what it did not settle is gone, nobody else is to have it."""
        if subscription.ack_mode is AckMode.AUTO:
            self._direct.remove(subscription)
        else:
            self._queues.pop(subscription).detach(subscription, now, lost=lost)

    def acknowledge(self, subscription: Subscription, messages: Sequence[Message], now: float) -> None:
        self._queues[subscription].acknowledge(subscription, messages, now)

    def give_back(
        self, subscription: Subscription, messages: Sequence[Message], now: float, *, requeue: bool
    ) -> None:
        self._queues[subscription].give_back(subscription, messages, now, requeue=requeue)

    def resume(self, subscription: Subscription, now: float) -> None:
        queue = self._queues.get(subscription)
        if queue is not None:
            queue.resume(subscription, now)

    def expire(self, now: float) -> None:
        for queue in self._queues.values():
            queue.expire(now)
