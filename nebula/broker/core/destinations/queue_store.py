"""The messages of one queue: in which order, in how much room, for how long, and what of them is on disk.

A message is held from `admit` (or `restore`) until `release`, `forget` or a dead letter. While it is held it
is in one of these places:

- waiting in `line`, in memory or on disk alone (see `paging`);
- out: un-ACKed on a subscription, which has the reference, or postponed;
- purged: taken out by an operator, and still to be dropped.

Invariants, checked after each step of the tests:

- `stored_bytes` is the sum over the messages in memory, wherever they are;
- each message in memory is charged to one payer: the queue's, or else its sender;
- the journal has exactly those messages that are kept on disk.

**Room.** A message needs room three times: in the queue's own limits, in its payer's share of the broker's
memory, and on the disk if it is kept there. `admit` asks for all three at once, before any of the message is
kept. The `could_` methods ask without a message in hand, for transactions, copies and publishers that wait.

**Expiry in portions.** Messages expire in any order, and a heap of times would cost each message something,
though few expire. So only the earliest time is known. When it has come, a sweep looks at all that waits, a
portion at each call, and finds the next earliest time on its way. A message on disk alone is looked at when
its page comes. Being late is harmless: the queue looks again before it delivers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from itertools import islice
from typing import Protocol, TypeAlias

from nebula.broker.core.account import Account
from nebula.broker.core.destinations.line import Line, PriorityLine
from nebula.broker.core.destinations.paging import Paging
from nebula.broker.core.destinations.postponed import Postponed
from nebula.broker.core.journal import Journal
from nebula.broker.core.messages import Message
from nebula.broker.core.policies import QueueRules, WhenFull
from nebula.broker.core.shares import Usage
from nebula.broker.core.storage import KeptLine, PageRequest
from nebula.broker.core.subscription import PLAIN_NACK, Nack
from nebula.broker.core.tables import POSTPONED

DeadLetter: TypeAlias = Callable[[Message, str, int, Nack], None]
"""Takes a message that was not consumed: why, how often delivered, and the last NACK."""


class Waiting(Protocol):
    """A queue that goes on at a commit, or when a message is due."""

    def committed(self, batch: int, now: float) -> None:
        """This batch is durable."""

    def put_back_due(self, now: float, most: int) -> int:
        """Put back postponed messages that are due. Returns how many."""


@dataclass(slots=True, eq=False, repr=False)
class QueueWork:
    """Which queues of a broker have something to do, so that the others cost nothing: there may be very many.

    The dictionaries are ordered sets.

    Attributes:
        large: those that hold much in memory; what is stored can be paged out.
        expiring: those with messages that will expire.
        pages: of deep queues, to be read now.
        postponed: those that had postponed messages at the last look.
        uncommitted: those with messages that are not delivered until their batch is committed.
    """

    large: dict[QueueStore, None] = field(default_factory=dict)
    expiring: dict[QueueStore, None] = field(default_factory=dict)
    pages: list[PageRequest] = field(default_factory=list)
    postponed: dict[Waiting, None] = field(default_factory=dict)
    uncommitted: dict[Waiting, None] = field(default_factory=dict)


@dataclass(slots=True, eq=False, repr=False)
class QueueStore:
    """What one queue holds.

    Args:
        name: of the queue.
        account: what all destinations hold together.
        work: where the store says that it has something to do.
        rules: what it may hold, and what happens when it is full.
        make_dead_letter: takes what is dead; None: that is dropped.
        journal: gets what is kept on disk; None: nothing is.
        keeps_all: all messages are persistent here, whatever their SENDs said.
        payer: who pays for all messages here; None: each sender pays for its own.

    Attributes:
        stored_bytes: what its messages in memory count for.
        out_count: messages that are un-ACKed or postponed.
        attempts: failed deliveries by number, of messages that came back: few, so not on every message.
        postponed: messages that wait for their time; None: no message does.
        purged: what is still to be dropped.
    """

    name: str
    account: Account
    work: QueueWork
    rules: QueueRules
    _: KW_ONLY
    make_dead_letter: DeadLetter | None = None
    journal: Journal | None = None
    keeps_all: bool = False
    payer: Usage | None = None
    line: Line | PriorityLine = field(init=False)
    paging: Paging = field(init=False)
    stored_bytes: int = 0
    out_count: int = 0
    attempts: dict[int, int] = field(default_factory=dict)
    postponed: Postponed | None = None
    purged: list[Message] = field(default_factory=list)
    _next_expiry: float | None = None
    # How many messages a sweep for expired ones has passed; None: no sweep is under way.
    _sweep_at: int | None = None

    def __post_init__(self) -> None:
        self.line = PriorityLine(self.name) if self.rules.has_priorities else Line(self.name)
        self.paging = Paging(self.line.lines, self.rules.window_bytes)

    @property
    def depth(self) -> int:
        """Messages held, waiting and out."""
        return len(self.line) + self.out_count

    @property
    def unacked_count(self) -> int:
        """Messages that were delivered and not settled."""
        return self.out_count - self.postponed_count

    @property
    def postponed_count(self) -> int:
        """Messages that were NACKed and wait for their time."""
        return 0 if self.postponed is None else len(self.postponed.apart)

    @property
    def is_empty(self) -> bool:
        """It holds nothing."""
        return not (len(self.line) or self.purged or self.out_count)

    def keeps(self, message: Message) -> bool:
        """Whether this message is kept on disk."""
        # Other messages stay in memory: their senders asked for no place on disk, see docs/decisions/0013.
        return self.journal is not None and (self.keeps_all or message.head.is_persistent)

    # --- taking messages in ---

    def admit(self, message: Message, now: float) -> bool:
        """Hold a new message. False, and nothing done: there is no room for it, and none could be made."""
        if self._is_full(message) and not self._make_room(message, now):
            return False
        payer = self.payer or message.head.usage
        if self.journal is not None and self.keeps(message):
            self.journal.put_message(self.line.name_of(message), message, payer)
        # `Account.hold` written out: every message passes here.
        size_bytes = message.size_bytes
        self.stored_bytes += size_bytes
        self.account.stored_bytes += size_bytes
        payer.memory_bytes += size_bytes
        return True

    def append(self, message: Message, now: float) -> bool:
        """Hold a new message at the end of the line; as `admit`."""
        if not self.admit(message, now):
            return False
        self.line.append(message)
        if self.stored_bytes >= self.paging.small_window_bytes and self.journal is not None:
            self.work.large[self] = None
        if message.expires_at is not None:
            self._note_expiry(message)
        return True

    def restore(self, kept: KeptLine, name: str, messages: Sequence[tuple[Message, int]]) -> None:
        """Take what was kept by an earlier run, in order of arrival, before anything else happens.

        Args:
            kept: a line of this queue.
            name: of that line.
            messages: the first of them, each with its deliveries that failed.
        """
        self.paging.restore(name, kept, [message for message, _ in messages])
        self._arrive(messages)

    def _arrive(self, messages: Iterable[tuple[Message, int]]) -> None:
        """Hold what has come from the disk."""
        # By payer, as a page seldom has many: to charge each message takes longer, see docs/decisions/0067.
        taken: dict[Usage, tuple[int, int]] = {}
        for message, attempts in messages:
            payer, size_bytes = self.payer or message.head.usage, message.size_bytes
            memory_bytes, disk_bytes = taken.get(payer, (0, 0))
            taken[payer] = memory_bytes + size_bytes, disk_bytes + message.disk_bytes
            if message.expires_at is not None:
                self._note_expiry(message)
            if attempts:
                self.attempts[message.number] = attempts
        for payer, (memory_bytes, disk_bytes) in taken.items():
            self.paging.recharge(payer, disk_bytes)
            self.stored_bytes += memory_bytes
            self.account.hold(memory_bytes, payer)
        if self.stored_bytes >= self.paging.small_window_bytes and self.journal is not None:
            self.work.large[self] = None
        self.line.refresh()

    # --- room ---

    @property
    def loses_oldest(self) -> bool:
        """Whether the oldest message makes room for a new one."""
        return self.rules.when_full is not WhenFull.REJECT

    def could_hold(self, size_bytes: int) -> bool:
        """Whether there would be room for it if nothing else were held."""
        return size_bytes <= min(self.rules.max_bytes, self.rules.max_memory_bytes, self.account.max_bytes)

    def could_keep(self, message: Message) -> bool:
        """Whether it may be written to the disk, if it is kept there."""
        account, payer = self.account, self.payer or message.head.usage
        if not (account.is_disk_low or payer.is_disk_full) or not self.keeps(message):
            return True
        # A message that becomes a dead letter frees its sender's share: without this the sender could fill
        # the disk.
        return message.head.is_moved and (account.is_disk_low or payer is not account.dead)

    def could_take(self, messages: int, size_bytes: int) -> bool:
        """Whether this many more would find room, or make some."""
        if self._fits(messages, size_bytes):
            return True
        if not self.loses_oldest:
            return False
        if self.paging.is_deep:
            # It is dropped when it comes from the disk.
            return not self.account.is_disk_low
        # Un-ACKed messages stay. Mostly the first one or two that wait are enough.
        for message in self.line.in_memory():
            messages -= 1
            size_bytes -= message.size_bytes
            if self._fits(messages, size_bytes):
                return True
        return False

    def _fits(self, messages: int, size_bytes: int) -> bool:
        """Whether the queue stays within its own limits with this many more; negative: fewer."""
        rules, stored_bytes = self.rules, self.stored_bytes + size_bytes
        return (
            stored_bytes <= rules.max_memory_bytes
            and stored_bytes + self.paging.paged_bytes <= rules.max_bytes
            and self.depth + messages <= rules.max_messages
        )

    def could_accept(self, message: Message, other: Message) -> bool:
        """Whether `message` would find room here when `other` has taken some elsewhere."""
        return (
            self.could_take(1, message.size_bytes)
            and self.could_hold(message.size_bytes)
            and self.could_keep(message)
            and self.account.has_room_for(message.size_bytes + other.size_bytes, message.head.usage)
        )

    def is_ready_for(self, size_bytes: int, sender: Usage) -> bool:
        """Whether a sender that waits for room may go on: with a margin, so that senders do not flutter."""
        account, rules, payer = self.account, self.rules, self.payer or sender
        return (
            (self.stored_bytes + self.paging.paged_bytes) * 8 < rules.max_bytes * 7
            and self.stored_bytes * 8 < rules.max_memory_bytes * 7
            and self.depth * 8 < rules.max_messages * 7
            and not account.is_nearly_full(payer)
            # A message may be larger than the margin. What else could go to make room has gone already.
            and self._fits(1, size_bytes)
            and not account.is_disk_low
            and account.has_room_for(size_bytes, payer)
        )

    def _is_full(self, message: Message) -> bool:
        # `_fits` and `Usage.is_disk_full` written out: every message passes here.
        stored_bytes = self.stored_bytes + message.size_bytes
        account, rules, payer = self.account, self.rules, self.payer or message.head.usage
        return (
            stored_bytes + self.paging.paged_bytes > rules.max_bytes
            or stored_bytes > rules.max_memory_bytes
            or (
                account.stored_bytes + message.size_bytes > account.watermark_bytes
                and not self._has_memory_for(message)
            )
            or len(self.line) + self.out_count >= rules.max_messages
            or (
                (account.is_disk_low or payer.disk_bytes >= payer.most_disk_bytes)
                and not self.could_keep(message)
            )
        )

    def _make_room(self, message: Message, now: float) -> bool:
        """Lose the oldest waiting messages if the queue's policy says so, and if that helps."""
        rules, line = self.rules, self.line
        # What is dead is still held, by another queue.
        freed_bytes = self.stored_bytes if rules.when_full is WhenFull.DROP_OLDEST else 0
        if (
            not self.loses_oldest
            or not self.could_hold(message.size_bytes)
            or not self.could_keep(message)
            or not self._has_memory_for(message, freed_bytes)
        ):
            return False
        payer = self.payer or message.head.usage
        while line.front and self._is_full(message):
            # A sender whose share is used up replaces only its own.
            if not self._has_memory_for(message) and (self.payer or line.front[0].head.usage) is not payer:
                break
            self._lose_oldest(now)
        if not self.paging.is_deep:
            return not self._is_full(message)
        self.refill()
        # What waits longest may be on disk: it is lost when it comes from there.
        return not self._is_full(message) or (self._has_memory_for(message) and not self.account.is_disk_low)

    def _has_memory_for(self, message: Message, freed_bytes: int = 0) -> bool:
        """Whether its payer has room for it in the broker's memory; it has if that was said before."""
        account = self.account
        return message is account.judged or account.has_room_for(
            message.size_bytes - freed_bytes, self.payer or message.head.usage
        )

    def _trim(self, now: float) -> None:
        """Lose the oldest messages beyond the limits, if the queue's policy says so: they have come from
        disk.

        A queue with another policy keeps what it has promised: messages may take more room in memory than
        they did on disk, and its limits may be lower than they were.
        """
        rules = self.rules
        while self.loses_oldest and self.line.front:
            size_bytes = self.stored_bytes + self.paging.paged_bytes
            if size_bytes <= rules.max_bytes and self.depth <= rules.max_messages:
                break
            self._lose_oldest(now)

    def _lose_oldest(self, now: float) -> None:
        message = self.line.shed()
        if self.rules.when_full is WhenFull.DEAD_LETTER:
            self.dead_letter(message, "full", now)
        else:
            self.drop([message], "full")

    # --- letting messages go ---

    def release(self, messages: Sequence[Message]) -> None:
        """Forget un-ACKed messages: they are consumed."""
        self.out_count -= len(messages)
        attempts, payer, journal = self.attempts, self.payer, self.journal
        released_bytes = 0
        for message in messages:
            size_bytes = message.size_bytes
            released_bytes += size_bytes
            who = payer or message.head.usage
            who.memory_bytes -= size_bytes
            if attempts:
                attempts.pop(message.number, None)
            if journal is not None and self.keeps(message):
                journal.drop_message(self.line.name_of(message), message, who)
        self.stored_bytes -= released_bytes
        self.account.stored_bytes -= released_bytes

    def forget(self, message: Message) -> None:
        """Forget a message that is in no place any more, wherever it was."""
        payer = self.payer or message.head.usage
        self.stored_bytes -= message.size_bytes
        self.account.release(message.size_bytes, payer)
        self.attempts.pop(message.number, None)
        self._forget_time(message.number)
        if self.journal is not None and self.keeps(message):
            self.journal.drop_message(self.line.name_of(message), message, payer)

    def drop(self, messages: Iterable[Message], reason: str) -> None:
        """Forget messages, and count them as lost."""
        for message in messages:
            self.forget(message)
            self.account.drop(message.head, reason)

    def dead_letter(
        self, message: Message, reason: str, now: float, nack: Nack = PLAIN_NACK, *, more_attempts: int = 0
    ) -> None:
        """Forget a message and make a dead letter of it. A request that is over by now is dropped: its
        caller no longer waits."""
        if message.has_expired(now):
            reason = "expired"
        if self.make_dead_letter is None or (reason == "expired" and message.is_request):
            self.drop([message], reason)
            return
        deliveries = self.attempts.get(message.number, 0) + more_attempts
        self.forget(message)
        self.make_dead_letter(message, reason, deliveries, nack)

    def reject(self, messages: Sequence[Message], now: float, nack: Nack) -> None:
        """Make dead letters of un-ACKed messages: their consumer rejected them."""
        self.out_count -= len(messages)
        for message in messages:
            self.dead_letter(message, "rejected", now, nack, more_attempts=1)

    def take_back(
        self, messages: Iterable[Message], now: float, *, counted: bool, nack: Nack = PLAIN_NACK
    ) -> None:
        """Requeue un-ACKed messages, at the front and in order of arrival, or postpone them as the NACK says.

        Args:
            counted: it was an attempt. After too many of them a message is dead.
        """
        returned = []
        max_deliveries = self.rules.max_deliveries
        for message in messages:
            self.out_count -= 1
            attempts = self.attempts.get(message.number, 0) + counted
            if max_deliveries is not None and attempts >= max_deliveries:
                self.dead_letter(message, "exhausted", now, nack, more_attempts=counted)
                continue
            self.attempts[message.number] = attempts
            if nack.delay:
                self._postpone(message, now + nack.delay)
            else:
                returned.append(message)
                self._note_expiry(message)
            if counted and self.journal is not None and self.keeps(message):
                self.journal.put_again(self.line.name_of(message), message, attempts)
        if returned:
            self.line.put_back(returned)

    def withdraw(self, messages: Collection[Message]) -> None:
        """Forget these, uncounted: they wait in memory, and another holder has them from now on."""
        for message in self.line.take_out(messages):
            self.forget(message)
        self.refill()

    def clear(self, reason: str) -> int:
        """Drop and count all that waits. Returns how many that were."""
        count = self.begin_purge(reason)
        self.purge_some(reason, count)
        return count

    def begin_purge(self, reason: str) -> int:
        """Take out all that waits, to be dropped by `purge_some`: from now on no consumer gets it.

        What is on disk alone is dropped and counted at once.

        Returns:
            How many that were.
        """
        count = len(self.line)
        if self.postponed is not None:
            apart = self.postponed.apart
            count += len(apart)
            self.out_count -= len(apart)
            self.purged.extend(apart.values())
            # The times of those that are in their line, in memory or not, end as well.
            for number in list(self.postponed.due):
                self._forget_time(number)
        for line in self.line.lines:
            self.purged.extend(line.in_memory())
            line.front.clear()
            paged, line.paged = line.paged, None
            if paged is not None and self.journal is not None:
                self.account.dropped[reason] += paged.count
                self.journal.drop_messages(line.name, paged.after, paged.up_to)
        self.line.refresh()
        self.paging.paged_bytes = 0
        self.paging.settle()
        return count

    def purge_some(self, reason: str, most: int) -> bool:
        """Drop and count at most `most` of what was taken out. Returns whether some are left."""
        self.drop(self.purged[:most], reason)
        del self.purged[:most]
        return bool(self.purged)

    # --- time ---

    def expire(self, now: float, most: int) -> int:
        """Make dead letters of expired messages in memory; of those on disk alone, when they come from there.

        Costs nothing until the earliest time has come. Then it looks at all waiting messages, over several
        calls if there are many.

        Args:
            most: messages to be looked at.

        Returns:
            How many were.
        """
        if self._sweep_at is None:
            if self._next_expiry is None or self._next_expiry > now:
                return 0
            # Found anew as the sweep goes on.
            self._sweep_at, self._next_expiry = 0, None
        looked_at = list(islice(self.line.in_memory(), self._sweep_at, self._sweep_at + most))
        expired = [message for message in looked_at if message.has_expired(now)]
        for message in self.line.take_out(expired):
            self.dead_letter(message, "expired", now)
        for message in looked_at:
            if not message.has_expired(now):
                self._note_expiry(message)
        # What is taken from the front meanwhile shifts the others: a message that is skipped so waits for the
        # next sweep.
        self._sweep_at += len(looked_at) - len(expired)
        if len(looked_at) < most:
            self._sweep_at = None
            if self._next_expiry is None:
                self.work.expiring.pop(self, None)
        self.refill()
        return len(looked_at)

    def _note_expiry(self, message: Message) -> None:
        at = message.expires_at
        if at is not None and (self._next_expiry is None or at < self._next_expiry):
            self._next_expiry = at
            self.work.expiring[self] = None

    def restore_postponed(self, number: int, line: str, due: float) -> None:
        """A message of this line, in memory or on disk, was postponed until then by an earlier run."""
        self.postponed = self.postponed or Postponed()
        self.postponed.due[number] = due, line

    def _postpone(self, message: Message, due: float) -> None:
        """Put a message apart. It still counts as out, though no consumer has it."""
        self.out_count += 1
        line = ""
        # A dead letter or a drop has its time too.
        at = due if message.expires_at is None else min(due, message.expires_at)
        if self.journal is not None and self.keeps(message):
            line = self.line.name_of(message)
            self.journal.put_postponed(line, message.number, at)
        self.postponed = self.postponed or Postponed()
        self.postponed.put_apart(message, at, line)

    def put_back_due(self, now: float, most: int) -> int:
        """Put back what is due, each in its place. Returns how many."""
        returned = [] if self.postponed is None else self.postponed.take_due(now, most)
        for message in returned:
            self.out_count -= 1
            self._note_expiry(message)
            self._forget_time(message.number)
        if returned:
            self.line.put_back(returned)
        return len(returned)

    def puts_apart(self, postponed: Postponed, message: Message, now: float) -> bool:
        """Put apart a message whose turn has come before its time: an earlier run has postponed it."""
        if not postponed.is_early(message, now):
            self._forget_time(message.number)
            return False
        self.out_count += 1
        # It has left its place, and its row may not be paged from now on.
        self.attempts.setdefault(message.number, 0)
        postponed.put_apart(message, *postponed.due[message.number])
        return True

    def _forget_time(self, number: int) -> None:
        """A message may be delivered at any time, or is gone."""
        postponed = self.postponed
        time = None if postponed is None else postponed.due.pop(number, None)
        if postponed is None or time is None:
            return
        if not postponed.due:
            self.postponed = None
        if self.journal is not None and time[1]:
            self.journal.drop(POSTPONED, time[1], number)

    # --- paging ---

    def page_out(self, up_to: int) -> None:
        """Release the memory of messages beyond the window that the store has. Costs nothing until the queue
        has grown by a part.

        Args:
            up_to: the highest number that the store has.
        """
        paging = self.paging
        gone = paging.page_out(up_to, self.stored_bytes, self._may_go, is_scarce=self._is_scarce)
        if gone is None:
            if not paging.is_deep and self.stored_bytes < paging.small_window_bytes:
                self.work.large.pop(self, None)
            return
        for message in gone:
            payer = self.payer or message.head.usage
            self.stored_bytes -= message.size_bytes
            self.account.release(message.size_bytes, payer)
            paging.charge(payer, message)
        for line in self.line.lines:
            if line.paged is not None and self.journal is not None:
                line.paged.removed |= self.journal.dropped(line.name, line.paged.after)
        self.line.refresh()

    def _may_go(self, message: Message) -> bool:
        # What came back has a count that its row may not have yet.
        return self.keeps(message) and message.number not in self.attempts

    def refill(self) -> None:
        """Ask for the pages that are wanted now, so that what waits can go on.

        Not while what is un-ACKed takes all the memory it may: they are asked for when it is settled.
        """
        if not self.paging.is_deep:
            return
        account = self.account
        # Consumers that ACK in groups must go on where the broker's memory is used up by others.
        most_bytes = self.rules.max_memory_bytes // (4 if account.stored_bytes >= account.max_bytes else 1)
        # A page has bodies for half a window; small ones cost some times that to keep.
        margin_bytes = min(4 * self.rules.window_bytes, most_bytes // 2)
        if not self.out_count or self.stored_bytes <= most_bytes - margin_bytes:
            self.work.pages.extend(self.paging.wanted_pages(self, is_scarce=self._is_scarce))

    def page_after(self, request: PageRequest, last: int) -> PageRequest | None:
        """Ask for the page behind one that was just read, before it is put here; see `Paging.page_after`."""
        # Where no consumer takes them as they come, two might be too much for the memory.
        return None if self.out_count or self._is_scarce else self.paging.page_after(request, last)

    def take_page(self, request: PageRequest, page: Sequence[tuple[Message, int]], now: float) -> None:
        """Put a page that was asked for behind what waits in memory; see `Paging.take_page`."""
        arrived = self.paging.take_page(request, page)
        if arrived is not None:
            self._arrive(arrived)
            self.paging.settle()
        self._trim(now)
        self.refill()

    @property
    def _is_scarce(self) -> bool:
        # Many queues that are read at once must not fill the broker's memory with pages.
        return self.account.stored_bytes > self.account.max_bytes // 2
