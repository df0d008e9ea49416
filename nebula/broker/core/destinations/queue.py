"""Queues: first in, first out, each message to one of the competing consumers.

Invariants, checked after each step of the tests:

- a message is in exactly one place: waiting (in memory, or on disk alone), un-ACKed on one subscription, or
  postponed;
- what waits is in order of arrival (numbers rise), also after messages came back;
- nothing waits while a subscription has credit, unless the next page is on its way, or it waits for a commit
  (its own, or that of a message before it).

The queue dispatches; `Consumers` says who is next, and `QueueStore` holds the messages.

**Once.** A message that must not be delivered twice after a crash (`send_once`) waits for the commit of its
batch, and everything behind it waits too: order is kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Final

from nebula.broker.core.access import Rights
from nebula.broker.core.destinations.base import Destination
from nebula.broker.core.destinations.consumers import Consumers
from nebula.broker.core.destinations.queue_store import QueueStore
from nebula.broker.core.messages import ACCEPTED, Message, Verdict
from nebula.broker.core.shares import Usage
from nebula.broker.core.storage import PageRequest
from nebula.broker.core.subscription import AUTO, PLAIN_NACK, Ending, Nack, Subscription

# Memory that CPython uses for an empty queue, measured by tests/broker/core/test_costs.py.
QUEUE_COST_BYTES: Final = 3_200


@dataclass(slots=True, eq=False, repr=False)
class Queue(Destination):
    """A FIFO queue with competing consumers, served in turn as far as their credit goes.

    Args:
        store: holds its messages.
        owner: who created it, and pays for it as a destination.
        auto_delete: goes with its last subscription, whatever it holds (G.auto-delete).
        is_inbox: lives by its exclusive subscription only (D.48).
        rights: of the principal that it belongs to, where it is bound to one subscription to topics; it takes
            only what these permit. None: it is a named queue.
        on_left: called when a subscription has ended, and nothing of it is left here.

    Attributes:
        taken_count: messages that it ever accepted, without those of earlier runs.
        consumers: its subscriptions.
        is_stalled: its consumers took too long, so that no sender waits for them until they make progress.
    """

    store: QueueStore
    owner: Usage
    _: KW_ONLY
    auto_delete: bool = False
    is_inbox: bool = False
    rights: Rights | None = None
    on_left: Callable[[Queue, float], None] | None = None
    name: str = field(init=False)
    is_stalled: bool = False
    taken_count: int = 0
    consumers: Consumers = field(default_factory=Consumers)
    # `consumers.ready`, kept here as well because each message needs it.
    _ready: deque[Subscription] = field(init=False)
    _time_to_live: float | None = field(init=False)
    # Batches that messages here wait for, each with the number of the first such message. Two at most: the
    # one being written and the one being gathered. A number stays until the commit, even if its message is
    # gone before.
    _uncommitted: list[tuple[int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.name = self.store.name
        self._ready = self.consumers.ready
        self._time_to_live = self.store.rules.time_to_live

    @property
    def is_idle(self) -> bool:
        """It may be forgotten: without a subscription, and empty (or made to go with the last one)."""
        return self.consumers.is_empty and (self.auto_delete or self.store.is_empty)

    @property
    def is_bound(self) -> bool:
        """It belongs to one subscription to topics."""
        return self.rights is not None

    @property
    def subscriber_cost_bytes(self) -> int:
        """Others pay for a named queue, and for that of a durable subscription."""
        return QUEUE_COST_BYTES if self.is_bound and self.auto_delete else 0

    def may_take(self, destination: str) -> bool:
        """Whether what was sent to `destination` may be received from here."""
        return self.rights is None or self.rights.may_receive(destination)

    # --- messages ---

    def send(self, message: Message, now: float) -> Verdict:
        """To the next consumer with credit, else behind what waits; FULL where there is no room for it."""
        store = self.store
        line = store.line
        if self._time_to_live is not None:
            message.expire_at(now + self._time_to_live)
        ready = self._ready
        if line.front or line.paged is not None:
            consumer = None
        elif ready and not (first := ready[0]).session.is_throttled:
            consumer = first  # as mostly: without a call
        else:
            consumer = self.consumers.next()
        if consumer is None:
            if not store.append(message, now):
                return Verdict.FULL
            if ready and line.front:
                # It need not wait for the page of a lower level.
                self._pump(now)
        else:
            # With `auto` nothing is kept, so there is no limit to look at.
            if consumer.ack_mode is not AUTO and not store.admit(message, now):
                return Verdict.FULL
            self._dispatch(consumer, message, None, now)
        self.taken_count += 1
        return ACCEPTED

    # Not delivered earlier, because a crash would undo the `dedup-id` of a message that a consumer has, see
    # docs/decisions/0037.
    def send_once(self, message: Message, now: float) -> Verdict:
        """Like `send`, but a stored message is delivered only when its batch is committed.

        Later messages do not overtake it. So no crash can undo the SEND of a message that a consumer has.
        """
        journal = self.store.journal
        if journal is None or not self.store.keeps(message):
            return self.send(message, now)
        if self._time_to_live is not None:
            message.expire_at(now + self._time_to_live)
        if not self.store.append(message, now):
            return Verdict.FULL
        batches = self._uncommitted
        if not batches or batches[-1][1] != journal.batch:
            batches.append((message.number, journal.batch))
            self.store.work.uncommitted[self] = None
        self.taken_count += 1
        return ACCEPTED

    def committed(self, batch: int, now: float) -> None:
        """Dispatch what waited for this batch, which is committed now."""
        batches = self._uncommitted
        while batches and batches[0][1] <= batch:
            del batches[0]
        if not batches:
            del self.store.work.uncommitted[self]
        self._pump(now)

    def take_page(self, request: PageRequest, page: Sequence[tuple[Message, int]], now: float) -> None:
        """Go on with a page that was asked for."""
        self.store.take_page(request, page, now)
        self._pump(now)

    def restore_postponed(self, number: int, line: str, due: float) -> None:
        """A message of this line, in memory or on disk, was postponed until then by an earlier run."""
        self.store.restore_postponed(number, line, due)
        self.store.work.postponed[self] = None

    def put_back_due(self, now: float, most: int) -> int:
        """Go on with at most `most` postponed messages that are due. Returns how many."""
        count = self.store.put_back_due(now, most)
        if count:
            self._pump(now)
        if self.store.postponed is None:
            self.store.work.postponed.pop(self, None)
        return count

    # --- subscriptions ---

    def attach(self, subscription: Subscription, now: float) -> None:
        """Let it compete for what waits and what comes."""
        self.consumers.add(subscription)
        self.resume(subscription, now)

    def detach(self, subscription: Subscription, now: float, ending: Ending) -> bool:
        """Take back what it did not settle, to the front, for the others at once (D.12)."""
        unacked, kept, consumers = subscription.unacked, ending.kept, self.consumers
        # The bound queue of a durable subscription stays until that is removed.
        outlives = not (self.auto_delete or ending.removes) if self.is_bound else not self.is_inbox
        # Whether messages that a transaction has settled are still here after an UNSUBSCRIBE.
        is_left = bool(kept) and outlives
        if is_left:
            if not subscription.is_drained:
                consumers.drain(subscription)
            returned = [unacked.pop(number) for number in list(unacked) if number not in kept]
        else:
            consumers.remove(subscription)
            returned = list(unacked.values())
            unacked.clear()
        self.store.take_back(returned, now, counted=ending.lost)
        if self.auto_delete and consumers.is_empty:
            self.store.clear("deleted")
        self._pump(now)
        if not is_left and self.on_left is not None:
            self.on_left(self, now)
        return is_left

    def drain(self, subscription: Subscription) -> bool:
        """Let it compete no more, and keep what it has: others may get what waits, as if it were gone."""
        if self.is_bound or self.is_inbox:
            return False
        if not subscription.is_drained and subscription.unacked:
            self.consumers.drain(subscription)
        return subscription.is_drained

    def remove_drained(self) -> Sequence[Subscription]:
        """Drop and count what drained subscriptions have un-ACKed, because the queue is removed. Returns
        them."""
        drained, self.consumers.drained = self.consumers.drained, []
        for subscription in drained:
            messages = list(subscription.unacked.values())
            subscription.unacked.clear()
            self.store.out_count -= len(messages)
            self.store.drop(messages, "deleted")
        return drained

    def review(self, subscription: Subscription, now: float) -> None:
        """Suspend it while its principal may not receive from here: it gets nothing."""
        if self.is_bound or self.is_inbox:
            return  # looked at for each message, or its own
        if not subscription.session.rights.may_subscribe(self.name):
            self.consumers.suspend(subscription)
        elif not subscription.prefetch:
            subscription.prefetch = subscription.window
            self.resume(subscription, now)

    def ack(self, subscription: Subscription, number: int, now: float) -> bool:
        """Forget what was consumed; its credit is used at once."""
        messages = subscription.settle(number)
        if not messages:
            return False
        self.store.release(messages)
        self.is_stalled = False
        line = self.store.line
        # Mostly nothing waits and the subscription is in turn, and then there is nothing to resume.
        if line.front or line.paged is not None or not subscription.in_turn:
            self.resume(subscription, now)
        return True

    def give_back(self, subscription: Subscription, number: int, now: float, nack: Nack = PLAIN_NACK) -> bool:
        """Requeue messages at the front, postpone them or make dead letters of them, as the NACK says. After
        too many failed deliveries they become dead letters in any case."""
        messages = subscription.settle(number)
        if not messages:
            return False
        if nack.requeue:
            # A drain gives back messages that were never begun. Those of a transaction were, and so was what
            # is to come again later.
            is_drain = subscription.is_drained and subscription not in subscription.session.parted
            self.store.take_back(messages, now, counted=not is_drain or nack.delay > 0, nack=nack)
            if self.store.postponed is not None:
                self.store.work.postponed[self] = None
        else:
            self.store.reject(messages, now, nack)
        self.resume(subscription, now)
        return True

    def resume(self, subscription: Subscription, now: float) -> None:
        """Put it at the end of the line if it has credit."""
        self.consumers.line_up(subscription)
        line = self.store.line
        if line.front:
            self._pump(now)
        elif line.paged is not None:
            self.store.refill()

    # --- dispatching ---

    def _pump(self, now: float) -> None:
        """Dispatch what waits, as far as credit goes."""
        store = self.store
        line = store.line
        first_uncommitted = self._uncommitted[0][0] if self._uncommitted else None
        while line.front:
            if first_uncommitted is not None and line.front[0].number >= first_uncommitted:
                break
            consumer = self.consumers.next()
            if consumer is None:
                break
            message = line.pop()
            if store.postponed is not None and store.puts_apart(store.postponed, message, now):
                continue
            if message.has_expired(now):
                store.dead_letter(message, "expired", now)
                continue
            # Looked at again where it matters: what waits here was sent to many destinations.
            if self.rights is not None and not self.rights.may_receive(message.head.destination):
                store.drop([message], "unauthorised")
                continue
            attempts = store.attempts.get(message.number)
            if consumer.ack_mode is AUTO:
                store.forget(message)
            self._dispatch(consumer, message, attempts, now)
        if store.paging.is_deep:
            store.refill()

    def _dispatch(self, consumer: Subscription, message: Message, attempts: int | None, now: float) -> None:
        """Deliver to the first of the ready, and put the next one in its place.

        A message that needs an ACK is held already, and any other is no longer held.
        """
        ready = self._ready
        if message.head.reply_to is not None:
            consumer.session.reply_rights.grant(message, now)
        if consumer.ack_mode is AUTO:
            # Consumed when sent (STOMP 1.2, "SUBSCRIBE ack Header").
            self.is_stalled = False
            if len(ready) > 1:
                ready.rotate(-1)
        else:
            consumer.unacked[message.number] = message
            self.store.out_count += 1
            if len(consumer.unacked) >= consumer.prefetch:
                ready.popleft().in_turn = False
            elif len(ready) > 1:
                ready.rotate(-1)
        consumer.deliver(message, attempts)
