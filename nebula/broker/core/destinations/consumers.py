"""Consumers of one queue, and which of them gets the next message.

Invariants, checked after each step of the tests:

- `ready` has each subscription with credit once, and no other, except those of throttled sessions;
- a drained subscription gets nothing any more, and still has something to settle.

**Fairness.** Consumers with credit stand in a line, `ready`. The first one gets the next message and goes to
the end, so that consumers with equal credit get equally many. A consumer without credit leaves the line, and
comes back at its end with the ACK that gives it credit: a slow consumer is passed over, and holds up no
other. A session that is throttled is found out only when its turn comes, since sessions do not know their
queues; `Queue.resume` brings it back. No delivery looks at all consumers.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from nebula.broker.core.subscription import AUTO, Subscription


@dataclass(slots=True, eq=False, repr=False)
class Consumers:
    """The subscriptions of one queue. Nothing here dispatches: that is the queue's.

    Attributes:
        subscriptions: those at this moment.
        drained: those that were drained before, and have still something to settle.
        exclusive: the one that lets no other in, if there is one (G.exclusive).
        ready: those with credit, next one first.
    """

    subscriptions: list[Subscription] = field(default_factory=list)
    drained: list[Subscription] = field(default_factory=list)
    exclusive: Subscription | None = None
    ready: deque[Subscription] = field(default_factory=deque)

    @property
    def is_empty(self) -> bool:
        """There is no subscription, not even a drained one."""
        return not (self.subscriptions or self.drained)

    @property
    def credit(self) -> int:
        """How many messages could become un-ACKed now."""
        return sum(
            consumer.prefetch - len(consumer.unacked)
            for consumer in self.ready
            if consumer.ack_mode is not AUTO and consumer.has_credit
        )

    def next(self) -> Subscription | None:
        """The one that gets the next message. It stays the first until it has got it."""
        ready = self.ready
        while ready:
            consumer = ready[0]
            if not consumer.session.is_throttled:
                return consumer
            ready.popleft().in_turn = False
        return None

    def add(self, subscription: Subscription) -> None:
        """One more; follow it with `line_up`."""
        self.subscriptions.append(subscription)
        if subscription.exclusive:
            self.exclusive = subscription

    def line_up(self, subscription: Subscription) -> None:
        """Put it at the end of the line if it has credit."""
        if not subscription.in_turn and subscription.has_credit:
            self.ready.append(subscription)
            subscription.in_turn = True

    def drain(self, subscription: Subscription) -> None:
        """It gets nothing any more, and keeps what it has."""
        self._leave(subscription)
        subscription.is_drained = True
        subscription.prefetch = subscription.window = 0
        self.drained.append(subscription)

    def remove(self, subscription: Subscription) -> None:
        """It is gone, drained or not."""
        if subscription.is_drained:
            self.drained.remove(subscription)
        else:
            self._leave(subscription)

    def _leave(self, subscription: Subscription) -> None:
        self.subscriptions.remove(subscription)
        if subscription.exclusive:
            self.exclusive = None
        self._skip(subscription)

    def _skip(self, subscription: Subscription) -> None:
        if subscription.in_turn:
            self.ready.remove(subscription)
            subscription.in_turn = False

    def suspend(self, subscription: Subscription) -> None:
        """It gets nothing until `prefetch` is its `window` again."""
        subscription.prefetch = 0
        self._skip(subscription)
