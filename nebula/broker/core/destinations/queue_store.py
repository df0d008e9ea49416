"""What a queue holds: in which order, in how much room, for how long, and what of it is on disk."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Final, TypeAlias

from nebula.broker.core.account import Account
from nebula.broker.core.destinations.paging import Line, PriorityLine, paged_bytes
from nebula.broker.core.destinations.postponed import Postponed
from nebula.broker.core.journal import Journal
from nebula.broker.core.messages import Message
from nebula.broker.core.policies import QueueRules
from nebula.broker.core.session import PLAIN_NACK, Nack
from nebula.broker.core.shares import Usage
from nebula.broker.core.storage import KeptLine, PageRequest

Bury: TypeAlias = Callable[[Message, str, str, int, Nack], None]
"""Takes a message that nobody consumed: from where, why, how often delivered, and the last NACK."""

# Where memory is scarce, a window is so much smaller.
SCARCE: Final = 16


class Holding:
    """The messages of a queue, waiting and un-ACKed.

    Args:
        name: of the queue.
        account: what all queues hold together.
        rules: what it may hold, and what happens at that.
        bury: takes what is dead; None: that is dropped.
        journal: is told of what is to be kept on disk; None: nothing is.
        keeps_all: all messages are persistent here, whatever their SENDs said.
        has_levels: it has priorities, whatever its rules say: messages were kept so.
        payer: who pays for all messages here; None: each sender pays for its own.

    Attributes:
        stored_bytes: what its messages in memory count for.
        paged_bytes: what those on disk alone count for.
        is_deep: some are on disk alone.
        doomed: in memory, but in no line any more: what is still to be dropped.
    """

    # A plain object with more than 29 attributes is slower in CPython 3.11.
    __slots__ = (
        "_account",
        "_attempts",
        "_bury",
        "_journal",
        "_keeps_all",
        "_line",
        "_next_expiry",
        "_paged_by",
        "_pages_at",
        "_small_window_bytes",
        "_sweep_at",
        "_unacked_count",
        "doomed",
        "is_deep",
        "max_bytes",
        "max_messages",
        "name",
        "paged_bytes",
        "payer",
        "rules",
        "stored_bytes",
    )

    def __init__(
        self,
        name: str,
        account: Account,
        rules: QueueRules,
        *,
        bury: Bury | None = None,
        journal: Journal | None = None,
        keeps_all: bool = False,
        has_levels: bool = False,
        payer: Usage | None = None,
    ) -> None:
        self.name = name
        self.payer = payer
        self.rules = rules
        self.max_messages = rules.max_messages
        self.max_bytes = rules.max_bytes
        self.is_deep = False
        self.doomed: deque[Message] = deque()
        self.stored_bytes = 0
        self.paged_bytes = 0
        self._account = account
        self._bury = bury
        self._journal = journal
        self._keeps_all = keeps_all
        has_levels = has_levels or rules.has_priorities
        self._line: Line | PriorityLine = PriorityLine(name) if has_levels else Line(name)
        self._unacked_count = 0
        # Of messages that came back: how many attempts failed. Few, so not on every message.
        self._attempts: dict[int, int] = {}
        self._next_expiry: float | None = None
        # How far a sweep for what has expired has come; None: there is none under way.
        self._sweep_at: int | None = None
        self._small_window_bytes = rules.window_bytes // SCARCE
        # With more in memory it is looked at what may go.
        self._pages_at = 0
        # Who pays how much for messages that are only on disk. Those of an earlier run are counted once they
        # have been in memory.
        self._paged_by: Counter[Usage] = Counter()

    @property
    def depth(self) -> int:
        """Messages held, waiting and un-ACKed."""
        return len(self._line) + self._unacked_count

    @property
    def may_keep(self) -> bool:
        """Whether its messages may be on disk."""
        return self._journal is not None

    @property
    def lines(self) -> Sequence[Line]:
        """What waits, by level."""
        return self._line.lines

    @property
    def unacked_count(self) -> int:
        """Messages that were delivered and not settled."""
        return self._unacked_count - self.postponed_count

    @property
    def postponed_count(self) -> int:
        """Messages that were NACKed and wait for their time."""
        postponed = self._account.postponed.get(self)
        return 0 if postponed is None else len(postponed.apart)

    @property
    def waiting(self) -> Iterator[Message]:
        """What waits in memory, in the order of delivery. To be looked at before anything changes."""
        return self._line.in_memory()

    def attempts_of(self, message: Message) -> int:
        """How many deliveries of a message that it holds have failed."""
        return self._attempts.get(message.number, 0)

    def withdraw(self, messages: Collection[Message]) -> None:
        """Forget these, uncounted: they wait in memory, and somebody else has them from now on."""
        gone = {message.number for message in messages}
        # Of a hundred thousand some hundreds go at a time: the others must not be looked at each time.
        taken = [message for line in self.lines for message in line.take_out(gone)] if gone else []
        self._line.refresh()
        if len(taken) < len(gone):
            taken += self._line.remove(lambda message: message.number in gone)
        for message in taken:
            self._forget(message)
        if self.is_deep:
            self._refill()

    # --- what is held ---

    def restore(self, kept: KeptLine, name: str, messages: Sequence[tuple[Message, int]]) -> None:
        """Take what was kept by an earlier run, in order of arrival, before anything else happens.

        Args:
            kept: a line of this queue.
            name: of that line.
            messages: the first of them, each with its deliveries that failed.
        """
        line = next(each for each in self.lines if each.name == name)
        line.restore(kept, [message for message, _ in messages])
        self._line.refresh()
        for message, _ in messages:
            self._find_payer(message)
        self._arrive(messages)
        if line.depot is not None:
            self.is_deep = True
            self.paged_bytes += line.depot.size_bytes

    def clear(self, reason: str) -> int:
        """Drop and count all that waits. Returns how many that were."""
        count = self.doom(reason)
        self.forget_doomed(reason, count)
        return count

    def doom(self, reason: str) -> int:
        """Take out all that waits, to be dropped by `forget_doomed`: from now on nobody gets it.

        What is on disk alone is dropped and counted at once.

        Returns:
            How many that were.
        """
        count = len(self._line) + self._doom_postponed()
        self.clear_paged(reason)
        for line in self.lines:
            self.doomed.extend(line.front)
            line.front.clear()
        self._line.refresh()
        return count

    def _doom_postponed(self) -> int:
        postponed = self._account.postponed.pop(self, None)
        if postponed is None:
            return 0
        self.doomed.extend(postponed.apart.values())
        self._unacked_count -= len(postponed.apart)
        if self._journal is not None:
            for number, (_, line) in postponed.due.items():
                self._journal.drop_postponed(line, number)
        return len(postponed.apart)

    def forget_doomed(self, reason: str, most: int) -> bool:
        """Drop and count so many of what was taken out. Returns whether some are left."""
        doomed = self.doomed
        self._drop([doomed.popleft() for _ in range(min(most, len(doomed)))], reason)
        return bool(doomed)

    def clear_paged(self, reason: str) -> int:
        """Drop and count what is on disk alone. Returns how many that were."""
        count = 0
        for line in self.lines:
            depot = line.forget_paged()
            if depot is not None:
                assert self._journal is not None
                self.paged_bytes -= depot.size_bytes
                self._account.dropped[reason] += depot.count
                self._journal.drop_messages(line.name, depot.after, depot.up_to)
                count += depot.count
        self._line.refresh()
        self._find_depth()
        return count

    def expire(self, now: float, most: int) -> int:
        """Let die what has expired and is in memory; what is on disk alone, when it comes from there.

        Costs nothing until the earliest time has come. Then all that waits is looked at, over several calls
        if it is much.

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
        count = 0
        while count < most:
            kept, expired = self._line.sweep(self._sweep_at, most - count, lambda each: each.has_expired(now))
            if not kept and not expired:
                self._sweep_at = None
                break
            count += len(kept) + len(expired)
            # What is taken from the front meanwhile shifts the others: who is missed waits for the next one.
            self._sweep_at += len(kept)
            for message in kept:
                self._note_expiry(message)
            for message in expired:
                self._let_die(message, "expired", self._attempts.get(message.number, 0), now)
        if self._sweep_at is None and self._next_expiry is None:
            self._account.expiring.pop(self, None)
        if self.is_deep:
            self._refill()
        return count

    # --- paging: see `line` ---

    def page_out(self, up_to: int, *, is_scarce: bool) -> None:
        """Let go what the store has, beyond the window. Costs nothing until the queue has grown by a part.

        Args:
            up_to: the highest number that the store has.
            is_scarce: the broker's memory is used up by half, so that the window is a small one.
        """
        window_bytes = self._small_window_bytes if is_scarce else self.rules.window_bytes
        self._pages_at = min(self._pages_at, self.stored_bytes + window_bytes // 4)
        if self.stored_bytes <= max(window_bytes, self._pages_at):
            if not self.is_deep and self.stored_bytes < self._small_window_bytes:
                self._account.large.pop(self, None)
            return
        for line in self.lines:
            gone = line.page_out(up_to, window_bytes // 2, self._may_go)
            released_bytes = 0
            for message in gone:
                size_bytes, head = message.size_bytes, message.head
                payer = self.payer or head.usage
                payer.memory_bytes -= size_bytes
                self._paged_by[payer] += size_bytes + head.text_characters
                released_bytes += size_bytes
            self.stored_bytes -= released_bytes
            self._account.stored_bytes -= released_bytes
            self.paged_bytes += paged_bytes(len(gone), sum(len(message.body) for message in gone))
        self._line.refresh()
        self._pages_at = self.stored_bytes + max(window_bytes // 4, self.stored_bytes // 8)
        self.is_deep = any(line.depot is not None for line in self.lines)

    def _refill(self) -> None:
        """Ask for the pages that are wanted now, so that what waits can go on.

        Not while what is un-ACKed takes all the memory it may: they are asked for when it is settled.
        """
        # A page has bodies for half a window; small ones cost some times that to keep.
        most_bytes = self._most_from_disk_bytes
        margin_bytes = min(4 * self.rules.window_bytes, most_bytes // 2)
        if self._unacked_count and self.stored_bytes > most_bytes - margin_bytes:
            return
        is_scarce = self._is_scarce
        window_bytes = self._small_window_bytes if is_scarce else self.rules.window_bytes
        for line in self.lines:
            page = None if is_scarce and line.front else line.wanted_page(self, window_bytes)
            if page is not None:
                self._account.pages.append(page)

    def page_after(self, request: PageRequest, last: int) -> PageRequest | None:
        """Ask for the page behind one that was just read, before it is put here; see `Line.page_after`."""
        # Where nobody drinks them as they come, two might be too much for the memory.
        if self._unacked_count or self._is_scarce:
            return None
        line = next(each for each in self.lines if each.name == request.line)
        return line.page_after(request, last)

    @property
    def _is_scarce(self) -> bool:
        # Many queues that are read at once must not fill the broker's memory with pages.
        return self._account.stored_bytes > self._account.max_bytes // 2

    @property
    def _most_from_disk_bytes(self) -> int:
        # Consumers that ACK in groups must go on where the broker's memory is used up by others.
        is_scarce = self._account.stored_bytes >= self._account.max_bytes
        return self.rules.max_memory_bytes // (4 if is_scarce else 1)

    def put_page(self, request: PageRequest, page: Sequence[tuple[Message, int]]) -> None:
        """Put a page that was asked for behind what waits in memory.

        Args:
            page: its messages, each with its deliveries that failed.
        """
        line = next(each for each in self.lines if each.name == request.line)
        found = line.take_page(request, [message for message, _ in page])
        if found is None:
            return
        fresh, size_bytes = found
        self.paged_bytes -= size_bytes
        arrived = [each for each in page if each[0].number in fresh]
        for message, _ in arrived:
            self._find_payer(message)
        self._arrive(arrived)
        self._line.refresh()
        self._find_depth()
        self._refill()

    def _find_depth(self) -> None:
        self.is_deep = any(line.depot is not None for line in self.lines)
        if not self.is_deep:
            # Not all payers of an earlier run's messages are known.
            for payer, size_bytes in self._paged_by.items():
                payer.disk_bytes -= size_bytes
            self._paged_by.clear()

    def _find_payer(self, message: Message) -> None:
        """Charge a message that is read from disk to its sender, if it was not charged yet."""
        payer = self.payer or message.head.usage
        if self._paged_by[payer] >= message.disk_bytes:
            self._paged_by[payer] -= message.disk_bytes
        else:
            payer.disk_bytes += message.disk_bytes

    def _arrive(self, messages: Iterable[tuple[Message, int]]) -> None:
        """Count what has come from the disk."""
        for message, attempts in messages:
            self._hold(message)
            self._note_expiry(message)
            if attempts:
                self._attempts[message.number] = attempts
        self._note_size()

    def _may_go(self, message: Message) -> bool:
        # What came back has a count that its row may not have yet.
        return self._keeps(message) and message.number not in self._attempts

    # --- one message ---

    def _take_back(
        self, messages: Iterable[Message], now: float, *, counted: bool, nack: Nack = PLAIN_NACK
    ) -> None:
        """Requeue what a subscription did not consume, at the front and in order of arrival; or put it apart
        for as long as the NACK says."""
        returned = []
        max_deliveries = self.rules.max_deliveries
        for message in messages:
            self._unacked_count -= 1
            attempts = self._attempts.get(message.number, 0) + counted
            if max_deliveries is not None and attempts >= max_deliveries:
                self._let_die(message, "exhausted", attempts, now, nack)
            else:
                self._attempts[message.number] = attempts
                if nack.delay:
                    self._postpone(message, now + nack.delay)
                else:
                    returned.append(message)
                    self._note_expiry(message)
                if counted and self._journal is not None and self._keeps(message):
                    self._journal.put_again(self._line.name_of(message), message, attempts)
        if returned:
            self._line.put_back(returned)

    # --- what is postponed ---

    def restore_postponed(self, number: int, line: str, due: float) -> None:
        """A message of this line, in memory or on disk, was postponed until then by an earlier run."""
        self._account.postponed.setdefault(self, Postponed()).due[number] = due, line

    def _postpone(self, message: Message, due: float) -> None:
        """Put a message apart. It still counts as taken and not settled, though nobody has it."""
        self._unacked_count += 1
        line = self._line.name_of(message)
        # A dead letter or a drop has its time too.
        at = due if message.expires_at is None else min(due, message.expires_at)
        self._account.postponed.setdefault(self, Postponed()).add(message, line, at)
        if self._journal is not None and self._keeps(message):
            self._journal.put_postponed(line, message.number, at)

    def put_back_due(self, now: float, most: int) -> int:
        """Put back what is due, each in its place. Returns how many."""
        postponed = self._account.postponed[self]
        returned = postponed.take_due(now, most)
        for message in returned:
            self._unacked_count -= 1
            self._note_expiry(message)
            self._forget_time(message)
        if returned:
            self._line.put_back(returned)
        return len(returned)

    def _waits_for_its_time(self, message: Message, postponed: Postponed, now: float) -> bool:
        """Whether a message whose turn has come was postponed by an earlier run: then it is put apart."""
        time = postponed.due.get(message.number)
        if time is None:
            return False
        if time[0] <= now:
            self._forget_time(message)
            return False
        self._unacked_count += 1
        # It has left its place, and its row may not be paged from now on.
        self._attempts.setdefault(message.number, 0)
        postponed.put_apart(message)
        return True

    def _forget_time(self, message: Message) -> None:
        """It may be delivered at any time, or is gone."""
        postponed = self._account.postponed.get(self)
        time = None if postponed is None else postponed.due.pop(message.number, None)
        if postponed is None or time is None:
            return
        if not postponed.due:
            del self._account.postponed[self]
        if self._journal is not None and self._keeps(message):
            self._journal.drop_postponed(time[1], message.number)

    def _keeps(self, message: Message) -> bool:
        return self._keeps_all or message.head.is_persistent

    def _wait(self, message: Message) -> None:
        self._line.append(message)
        self._hold(message)
        self._note_size()
        if message.expires_at is not None:
            self._note_expiry(message)

    def _note_size(self) -> None:
        if self.stored_bytes >= self._small_window_bytes and self._journal is not None:
            self._account.large[self] = None

    # `Account.hold` and `release` inlined: every message that waits passes here.

    def _hold(self, message: Message) -> None:
        size_bytes = message.size_bytes
        self.stored_bytes += size_bytes
        self._account.stored_bytes += size_bytes
        (self.payer or message.head.usage).memory_bytes += size_bytes

    def _let_go(self, message: Message) -> None:
        size_bytes = message.size_bytes
        self.stored_bytes -= size_bytes
        self._account.stored_bytes -= size_bytes
        (self.payer or message.head.usage).memory_bytes -= size_bytes

    def _release(self, messages: Sequence[Message]) -> None:
        """Forget un-ACKed messages: they are consumed."""
        self._unacked_count -= len(messages)
        attempts, payer = self._attempts, self.payer
        released_bytes = 0
        for message in messages:
            size_bytes = message.size_bytes
            released_bytes += size_bytes
            who = payer or message.head.usage
            who.memory_bytes -= size_bytes
            if attempts:
                attempts.pop(message.number, None)
            if self._journal is not None and self._keeps(message):
                self._journal.drop_message(self._line.name_of(message), message, who)
        self.stored_bytes -= released_bytes
        self._account.stored_bytes -= released_bytes

    def _let_die(
        self, message: Message, reason: str, deliveries: int, now: float, nack: Nack = PLAIN_NACK
    ) -> None:
        """To the dead-letter queue, or nowhere: a request that is over by now is of use to nobody."""
        if message.has_expired(now):
            reason = "expired"
        if self._bury is None or (reason == "expired" and message.is_request):
            self._drop([message], reason)
            return
        self._forget(message)
        # Not our name: that of a queue which is bound to topics is no destination.
        self._bury(message, message.head.destination, reason, deliveries, nack)

    def _drop(self, messages: Iterable[Message], reason: str) -> None:
        """Forget messages that were counted as stored, and count them as lost."""
        for message in messages:
            self._forget(message)
            self._account.drop(message.head, reason)

    def _forget(self, message: Message) -> None:
        self._let_go(message)
        self._attempts.pop(message.number, None)
        if self._account.postponed:
            self._forget_time(message)
        if self._journal is not None and self._keeps(message):
            payer = self.payer or message.head.usage
            self._journal.drop_message(self._line.name_of(message), message, payer)

    def _note_expiry(self, message: Message) -> None:
        at = message.expires_at
        if at is not None and (self._next_expiry is None or at < self._next_expiry):
            self._next_expiry = at
            self._account.expiring[self] = None
