"""Queues: first in, first out, each message to one of the competing consumers.

Invariants, checked after each step of the tests:

- a message is in exactly one place: waiting, or un-ACKed on one subscription;
- `_waiting` is in order of arrival (numbers rise), also after messages came back;
- nothing waits while a subscription has credit;
- `stored_bytes` is the sum over waiting and un-ACKed messages;
- the journal was told of exactly those of them that are kept on disk.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TypeAlias

from nebula.broker.access import Rights
from nebula.broker.destinations.base import Account
from nebula.broker.journal import Journal
from nebula.broker.messages import Message, Verdict
from nebula.broker.subscriptions import AckMode, Subscription

Bury: TypeAlias = Callable[[Message, str, str, int], None]
"""Takes a message that nobody consumed: from where, why, and how often it was delivered."""


class Queue:
    """A FIFO queue with competing consumers, served in turn as far as their credit goes.

    Args:
        name: its destination.
        account: what all queues hold together.
        max_messages, max_bytes: waiting and un-ACKed ones.
        max_deliveries: failed deliveries after which a message is dead; None: it never is.
        bury: takes what is dead; None: that is dropped.
        journal: is told of what is to be kept on disk; None: nothing is.
        keeps_all: all messages are persistent here, whatever their SENDs said.
        auto_delete: goes with its last subscription, whatever it holds.
        is_inbox: lives by its exclusive subscription only (D.48).
        rights: of whom it belongs to, where it is bound to one subscription to topics; it gets what
            these let it.
        drops_oldest: what waits longest makes room where there is none.

    Attributes:
        subscriptions: those at this moment.
        exclusive_subscription: the one that lets no other in, if there is one.
    """

    takes_nacks = True

    def __init__(
        self,
        name: str,
        account: Account,
        *,
        max_messages: int,
        max_bytes: int,
        max_deliveries: int | None,
        bury: Bury | None = None,
        journal: Journal | None = None,
        keeps_all: bool = False,
        auto_delete: bool = False,
        is_inbox: bool = False,
        rights: Rights | None = None,
        drops_oldest: bool = False,
    ) -> None:
        self.name = name
        self.max_messages = max_messages
        self.max_bytes = max_bytes
        self.auto_delete = auto_delete
        self.is_inbox = is_inbox
        self.rights = rights
        self.is_stalled = False
        self.stored_bytes = 0
        self._max_deliveries = max_deliveries
        self._bury = bury
        self._journal = journal
        self._keeps_all = keeps_all
        self._drops_oldest = drops_oldest
        self._account = account
        self._waiting: deque[Message] = deque()
        self._unacked_count = 0
        self.subscriptions: list[Subscription] = []
        self.exclusive_subscription: Subscription | None = None
        # Those with credit, next one first. A session may choke behind our back: such a
        # subscription is dropped from here when its turn comes, and `resume` brings it back.
        self._takers: deque[Subscription] = deque()
        # Of messages that came back: how many attempts failed. Few, so not on every message.
        self._attempts: dict[int, int] = {}
        self._next_expiry: float | None = None

    @property
    def consumer_count(self) -> int:
        """Its subscriptions."""
        return len(self.subscriptions)

    @property
    def is_idle(self) -> bool:
        """It may be forgotten: nobody is subscribed, and nothing waits (or is to go with the last)."""
        if self.subscriptions:
            return False
        return self.auto_delete or not self._waiting

    def has_room_for(self, size_bytes: int) -> bool:
        """Whether a sender that waits may go on: with a margin, so that they do not flutter."""
        return (
            self.stored_bytes * 8 < self.max_bytes * 7
            and self.depth * 8 < self.max_messages * 7
            and self._account.stored_bytes * 8 < self._account.max_bytes * 7
            # A message may be larger than the margin.
            and not self._is_full(size_bytes)
        )

    def could_take(self, messages: int, size_bytes: int) -> bool:
        """Whether so much more would find room."""
        return (
            self.stored_bytes + size_bytes <= self.max_bytes and self.depth + messages <= self.max_messages
        ) or self._drops_oldest

    def could_hold(self, size_bytes: int) -> bool:
        """Whether there would be room for it if nothing else were held."""
        return size_bytes <= min(self.max_bytes, self._account.max_bytes)

    @property
    def is_consumed(self) -> bool:
        """Whether waiting for room makes sense."""
        return bool(self.subscriptions) and not self.is_stalled

    @property
    def depth(self) -> int:
        """Messages held, waiting and un-ACKed."""
        return len(self._waiting) + self._unacked_count

    @property
    def unacked_count(self) -> int:
        """Messages that were delivered and not settled."""
        return self._unacked_count

    @property
    def waiting(self) -> Iterator[Message]:
        """What waits in memory, in the order of delivery. To be looked at before anything changes."""
        return iter(self._waiting)

    def attempts_of(self, message: Message) -> int:
        """How many deliveries of a message that it holds have failed."""
        return self._attempts.get(message.number, 0)

    def withdraw(self, messages: Collection[Message]) -> None:
        """Forget these, uncounted: they wait in memory, and somebody else has them from now on."""
        gone = {message.number for message in messages}
        self._waiting = deque(each for each in self._waiting if each.number not in gone)
        for message in messages:
            self._forget(message)

    def may_take(self, destination: str) -> bool:
        """Whether what was sent to `destination` may be received from here."""
        return self.rights is None or self.rights.may_receive(destination)

    def send(self, message: Message, now: float) -> Verdict:
        """To the next consumer with credit, else behind what waits; FULL where there is no room for it."""
        taker = None if self._waiting else self._next_taker()
        if taker is not None and taker.ack_mode is AckMode.AUTO:
            # Nothing is kept, so there is no limit to look at.
            self._dispatch(taker, message, None, now)
        elif self._is_full(message.size_bytes) and not self._make_room(message.size_bytes):
            return Verdict.FULL
        else:
            if self._journal is not None and self._keeps(message):
                self._journal.put_message(self.name, message)
            if taker is not None:
                self._dispatch(taker, message, None, now)
            else:
                self._wait(message)
        return Verdict.ACCEPTED

    def restore(self, messages: Iterable[tuple[Message, int]]) -> None:
        """Take what was kept by an earlier run, in order of arrival, before anything else happens.

        Args:
            messages: each with its deliveries that failed.
        """
        for message, attempts in messages:
            self._wait(message)
            if attempts:
                self._attempts[message.number] = attempts

    def attach(self, subscription: Subscription, now: float) -> None:
        """Let it compete for what waits and what comes."""
        self.subscriptions.append(subscription)
        if subscription.exclusive:
            self.exclusive_subscription = subscription
        self.resume(subscription, now)

    def detach(self, subscription: Subscription, now: float, *, lost: bool) -> None:
        """Take back what it did not settle, to the front, for the others at once (D.12)."""
        self.subscriptions.remove(subscription)
        if subscription.exclusive:
            self.exclusive_subscription = None
        if subscription.in_turn:
            self._takers.remove(subscription)
            subscription.in_turn = False
        messages = list(subscription.unacked.values())
        subscription.unacked.clear()
        self._take_back(messages, now, counted=lost)
        if self.auto_delete and not self.subscriptions:
            self.clear("deleted")
        self._pump(now)

    def clear(self, reason: str) -> None:
        """Drop and count all that waits."""
        self._drop(self._waiting, reason)
        self._waiting.clear()

    def suspend(self, subscription: Subscription) -> None:
        """Its principal may not receive from here any more: it gets nothing until `prefetch` is raised."""
        subscription.prefetch = 0
        if subscription.in_turn:
            self._takers.remove(subscription)
            subscription.in_turn = False

    def acknowledge(self, subscription: Subscription, messages: Sequence[Message], now: float) -> None:
        """Forget what was consumed; its credit is used at once."""
        self._release(messages)
        self.is_stalled = False
        self.resume(subscription, now)

    def give_back(
        self, subscription: Subscription, messages: Sequence[Message], now: float, *, requeue: bool
    ) -> None:
        """Requeue at the front, or let them die: by `requeue`, or because too many deliveries failed."""
        if requeue:
            self._take_back(messages, now, counted=True)
        else:
            self._unacked_count -= len(messages)
            for message in messages:
                self._let_die(message, "rejected", self._attempts.get(message.number, 0) + 1, now)
        self.resume(subscription, now)

    def resume(self, subscription: Subscription, now: float) -> None:
        """Put it at the end of the line if it has credit."""
        if not subscription.in_turn and subscription.has_credit:
            self._takers.append(subscription)
            subscription.in_turn = True
        if self._waiting:
            self._pump(now)

    def expire(self, now: float) -> None:
        """Drop and count what has expired. Costs nothing until the earliest time has come."""
        if self._next_expiry is None or self._next_expiry > now:
            return
        expired = [message for message in self._waiting if message.has_expired(now)]
        if expired:
            self._waiting = deque(each for each in self._waiting if not each.has_expired(now))
            self._drop(expired, "expired")
        self._next_expiry = None
        for message in self._waiting:
            self._note_expiry(message)

    def _is_full(self, size_bytes: int) -> bool:
        return (
            self.stored_bytes + size_bytes > self.max_bytes
            or self._account.stored_bytes + size_bytes > self._account.max_bytes
            or len(self._waiting) + self._unacked_count >= self.max_messages
        )

    def _next_taker(self) -> Subscription | None:
        takers = self._takers
        while takers:
            taker = takers[0]
            if not taker.session.is_choked:
                return taker
            takers.popleft().in_turn = False
        return None

    def _pump(self, now: float) -> None:
        """Dispatch what waits, as far as credit goes."""
        waiting = self._waiting
        while waiting:
            taker = self._next_taker()
            if taker is None:
                return
            message = waiting.popleft()
            if message.has_expired(now):
                self._drop([message], "expired")
                continue
            # Looked at again where it matters: what waits here was sent to many destinations.
            if not self.may_take(message.head.destination):
                self._drop([message], "unauthorised")
                continue
            self._release_bytes(message.size_bytes)
            if taker.ack_mode is AckMode.AUTO and self._journal is not None and self._keeps(message):
                self._journal.drop_message(self.name, message)
            self._dispatch(taker, message, self._attempts.get(message.number), now)

    def _dispatch(self, taker: Subscription, message: Message, attempts: int | None, now: float) -> None:
        """Deliver to the first of the takers, and put the next one in its place."""
        takers = self._takers
        if message.head.reply_to is not None:
            taker.session.reply_rights.grant(message, now)
        if taker.ack_mode is AckMode.AUTO:
            # Consumed when sent (STOMP 1.2, "SUBSCRIBE ack Header").
            self.is_stalled = False
            if attempts is not None:
                del self._attempts[message.number]
            if len(takers) > 1:
                takers.rotate(-1)
        else:
            taker.unacked[message.number] = message
            self._unacked_count += 1
            self._hold(message.size_bytes)
            if len(taker.unacked) >= taker.prefetch:
                takers.popleft().in_turn = False
            elif len(takers) > 1:
                takers.rotate(-1)
        taker.deliver(message, attempts)

    def _take_back(self, messages: Iterable[Message], now: float, *, counted: bool) -> None:
        """Requeue what a subscription did not consume, at the front and in order of arrival."""
        returned = []
        for message in messages:
            self._unacked_count -= 1
            attempts = self._attempts.get(message.number, 0) + counted
            if self._max_deliveries is not None and attempts >= self._max_deliveries:
                self._let_die(message, "exhausted", attempts, now)
            else:
                self._attempts[message.number] = attempts
                returned.append(message)
                if counted and self._journal is not None and self._keeps(message):
                    self._journal.put_again(self.name, message, attempts)
        if not returned:
            return
        # Others may have come back before them, from another consumer: merge with those.
        waiting = self._waiting
        last = max(message.number for message in returned)
        while waiting and waiting[0].number < last:
            returned.append(waiting.popleft())
        returned.sort(key=_by_number)
        waiting.extendleft(reversed(returned))
        for message in returned:
            self._note_expiry(message)

    def _make_room(self, size_bytes: int) -> bool:
        """Drop what waits longest, where that is the way of this queue."""
        if not self._drops_oldest:
            return False
        while self._waiting and self._is_full(size_bytes):
            self._drop([self._waiting.popleft()], "full")
        return not self._is_full(size_bytes)

    def _keeps(self, message: Message) -> bool:
        return self._keeps_all or message.head.is_persistent

    def _wait(self, message: Message) -> None:
        self._waiting.append(message)
        self._hold(message.size_bytes)
        if message.expires_at is not None:
            self._note_expiry(message)

    def _hold(self, size_bytes: int) -> None:
        self.stored_bytes += size_bytes
        self._account.stored_bytes += size_bytes

    def _release_bytes(self, size_bytes: int) -> None:
        self.stored_bytes -= size_bytes
        self._account.stored_bytes -= size_bytes

    def _release(self, messages: Sequence[Message]) -> None:
        """Forget un-ACKed messages: they are consumed."""
        self._unacked_count -= len(messages)
        attempts = self._attempts
        for message in messages:
            self._release_bytes(message.size_bytes)
            if attempts:
                attempts.pop(message.number, None)
            if self._journal is not None and self._keeps(message):
                self._journal.drop_message(self.name, message)

    def _let_die(self, message: Message, reason: str, deliveries: int, now: float) -> None:
        """To the dead-letter queue, or nowhere: what is over by now is of use to nobody."""
        if self._bury is None or message.has_expired(now):
            self._drop([message], "expired" if message.has_expired(now) else reason)
            return
        self._forget(message)
        # Not our name: that of a queue which is bound to topics is no destination.
        self._bury(message, message.head.destination, reason, deliveries)

    def _drop(self, messages: Iterable[Message], reason: str) -> None:
        """Forget messages that were counted as stored, and count them as lost."""
        for message in messages:
            self._forget(message)
            self._account.dropped[reason] += 1

    def _forget(self, message: Message) -> None:
        self._release_bytes(message.size_bytes)
        self._attempts.pop(message.number, None)
        if self._journal is not None and self._keeps(message):
            self._journal.drop_message(self.name, message)

    def _note_expiry(self, message: Message) -> None:
        at = message.expires_at
        if at is not None and (self._next_expiry is None or at < self._next_expiry):
            self._next_expiry = at


def _by_number(message: Message) -> int:
    return message.number
