"""Paging of deep queues: a window of messages in memory, the rest on disk alone.

A line of a deep queue has three parts:

    front (in memory, next first) | paged (rows, on disk alone), behind (in memory)
                     number <= after | after < number

**Out.** A message leaves memory only after the batch with its row was committed, and only from beyond the
window: half of `window_bytes` stays in front. What is not kept on disk stays in memory, and so does what came
back from a consumer, since its row may not have its count of attempts yet.

**In.** When half of the last page is gone, the next one (half a window at most) is asked for. The core cannot
read: a page is a `PageRequest` in its work, and comes back by `take_page`. Until then nothing goes out of a
line whose front is empty.

**One number divides the line.** Messages are delivered from the front, and only messages that were never
delivered in this run are paged. So whatever a consumer holds is at or below `after`, a message that it gives
back belongs in `front`, and no page brings it a second time.

Invariants, checked after each step of the tests:

- numbers rise along `front`, and along `behind`;
- what is in `front`, and what is un-ACKed, has a number of `after` at most; `behind` has higher ones;
- a paged message is in no other place, and its row has a number in `after < number <= up_to`. Messages in
  `behind` may have numbers in that range too: their page merges them by number;
- without paged messages there is nothing behind.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import dropwhile, islice
from operator import attrgetter
from typing import Final

from nebula.broker.core.destinations.line import Line, PagedPart
from nebula.broker.core.messages import MESSAGE_COST_BYTES, Message
from nebula.broker.core.shares import Usage
from nebula.broker.core.storage import PAGE_BYTES, PAGE_MESSAGES, KeptLine, PageRequest

# Where the broker's memory is scarce, windows are this many times smaller.
SCARCE: Final = 16


@dataclass(slots=True, eq=False, repr=False)
class Paging:
    """The window of one queue.

    Args:
        lines: of the queue, by level.
        window_bytes: what may stay in memory where the store has it.

    Attributes:
        is_deep: some of its messages are on disk alone.
        paged_bytes: what those count for against the limits of the queue.
        small_window_bytes: the window where memory is scarce.
    """

    lines: Sequence[Line]
    window_bytes: int
    small_window_bytes: int = field(init=False)
    is_deep: bool = False
    paged_bytes: int = 0
    # Nothing is paged out before the queue has grown to this: looking costs time.
    _pages_at: int = 0
    # Who pays how much for rows of messages on disk alone. Rows of an earlier run are counted once they
    # have been in memory.
    _paged_by: Counter[Usage] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.small_window_bytes = self.window_bytes // SCARCE

    @property
    def paged_count(self) -> int:
        """Messages on disk alone."""
        return sum(line.paged.count for line in self.lines if line.paged is not None)

    @property
    def is_awaited(self) -> bool:
        """A page is on its way."""
        return any(line.paged is not None and line.paged.asked is not None for line in self.lines)

    def restore(self, name: str, kept: KeptLine, messages: Iterable[Message]) -> None:
        """Take what an earlier run has left in a line: the first messages in memory, the others on disk."""
        line = self._line(name)
        front = line.front
        front.extend(messages)
        if kept.count > len(front):
            paged = line.paged = PagedPart(front[-1].number if front else 0, len(front))
            paged.up_to = kept.last_number
            paged.count = kept.count - len(front)
            paged.size_bytes = paged_bytes(paged.count, kept.body_bytes - _body_bytes(front))
            self.paged_bytes += paged.size_bytes
            self.is_deep = True

    def page_out(
        self, up_to: int, stored_bytes: int, may_go: Callable[[Message], bool], *, is_scarce: bool
    ) -> list[Message] | None:
        """Let go what the store has, beyond the window.

        Args:
            up_to: the highest number whose batch is committed.
            stored_bytes: what the queue's messages in memory count for.
            may_go: whether the store has a message as it is.
            is_scarce: the broker's memory is used up by half, so that the window is a small one.

        Returns:
            The messages that are on disk alone from now on. None, at no cost: the queue has not grown enough.
        """
        window_bytes = self.small_window_bytes if is_scarce else self.window_bytes
        self._pages_at = min(self._pages_at, stored_bytes + window_bytes // 4)
        if stored_bytes <= max(window_bytes, self._pages_at):
            return None
        gone = [one for line in self.lines for one in _page_out(line, up_to, window_bytes // 2, may_go)]
        stored_bytes -= sum(message.size_bytes for message in gone)
        self.paged_bytes += paged_bytes(len(gone), _body_bytes(gone))
        self._pages_at = stored_bytes + max(window_bytes // 4, stored_bytes // 8)
        self.is_deep = self.is_deep or bool(gone)
        return gone

    def wanted_pages(self, asker: object, *, is_scarce: bool) -> Iterator[PageRequest]:
        """The pages that are wanted now, and are not on their way."""
        window_bytes = self.small_window_bytes if is_scarce else self.window_bytes
        for line in self.lines:
            paged = line.paged
            if paged is None or paged.asked is not None or len(line.front) > paged.low_mark:
                continue
            if not (is_scarce and line.front):
                size_bytes = min(PAGE_BYTES, max(1, window_bytes // 2))
                count = min(PAGE_MESSAGES, max(1, size_bytes // MESSAGE_COST_BYTES))
                paged.asked = PageRequest(line.name, paged.after, paged.up_to, count, size_bytes, asker)
                yield paged.asked

    def page_after(self, request: PageRequest, last: int) -> PageRequest | None:
        """The page behind one that was just read, up to `last`, if a consumer waits for both; else None."""
        line = self._line(request.line)
        paged = line.paged
        if paged is None or paged.asked is not request or line.front or last >= paged.up_to:
            return None
        paged.ahead = replace(request, after=last, up_to=paged.up_to)
        return paged.ahead

    def take_page(
        self, request: PageRequest, page: Sequence[tuple[Message, int]]
    ) -> list[tuple[Message, int]] | None:
        """Put a page that was read behind the front.

        Args:
            page: its messages, each with its deliveries that failed.

        Returns:
            Those that were on disk alone. None: the page is not wanted any more.
        """
        line = self._line(request.line)
        paged = line.paged
        if paged is None or paged.asked is not request:
            return None
        paged.asked, paged.ahead = paged.ahead, None
        last = page[-1][0].number if page else request.up_to
        between = []
        while paged.behind and paged.behind[0].number <= last:
            between.append(paged.behind.popleft())
        held = {message.number for message in between} | paged.removed
        paged.removed = {number for number in paged.removed if number > last}
        arrived = [each for each in page if each[0].number not in held] if held else [*page]
        fresh = [message for message, _ in arrived]
        size_bytes = paged_bytes(len(fresh), _body_bytes(fresh))
        paged.after, paged.low_mark = last, len(fresh)
        paged.count -= len(fresh)
        paged.size_bytes -= size_bytes
        line.front.extend(sorted((*between, *fresh), key=attrgetter("number")) if between else fresh)
        if last >= paged.up_to:
            size_bytes += paged.size_bytes  # nothing, unless rows have gone from under us
            line.front.extend(paged.behind)
            line.paged = None
        self.paged_bytes -= size_bytes
        return arrived

    # --- who pays for rows on disk alone ---

    def charge(self, payer: Usage, message: Message) -> None:
        """Keep `payer` charged for a message that has left memory."""
        self._paged_by[payer] += message.disk_bytes

    def recharge(self, payer: Usage, disk_bytes: int) -> None:
        """Charge messages that have come from disk, as far as `payer` is not charged for them already."""
        charged = min(self._paged_by[payer], disk_bytes)
        self._paged_by[payer] -= charged
        payer.disk_bytes += disk_bytes - charged

    def settle(self) -> None:
        """Find out whether the queue is still deep. If not, no row on disk alone is paid for any more."""
        self.is_deep = any(line.paged is not None for line in self.lines)
        if not self.is_deep:
            # Something may be left: not all payers of an earlier run's messages are known.
            for payer, size_bytes in self._paged_by.items():
                payer.disk_bytes -= size_bytes
            self._paged_by.clear()

    def _line(self, name: str) -> Line:
        return next(each for each in self.lines if each.name == name)


def _page_out(line: Line, up_to: int, window_bytes: int, may_go: Callable[[Message], bool]) -> list[Message]:
    """Let go what is committed and beyond what may stay in front. Returns it, in order."""
    if line.paged is not None:
        return _let_go(line.paged, line.paged.behind, up_to, may_go)
    front = line.front
    kept_count, kept_bytes = 0, 0
    for message in front:
        kept_bytes += message.size_bytes
        if kept_bytes > window_bytes and kept_count:
            break
        kept_count += 1
    # The front ends before the first message that is paged out. Messages before it that may not be paged
    # stay in the front, however many they are: behind the pages, a message that a consumer gives back
    # would overtake them.
    beyond = islice(front, kept_count, None)
    rest = list(dropwhile(lambda each: each.number > up_to or not may_go(each), beyond))
    paged = PagedPart(0, kept_count // 2)
    gone = _let_go(paged, rest, up_to, may_go)
    if gone:
        # Not from the last in front: what is un-ACKed may have come between.
        paged.after = gone[0].number - 1
        for _ in rest:
            front.pop()
        line.paged = paged
    return gone


def _let_go(
    paged: PagedPart, messages: Iterable[Message], up_to: int, may_go: Callable[[Message], bool]
) -> list[Message]:
    gone: list[Message] = []
    kept: list[Message] = []
    for message in messages:
        (gone if message.number <= up_to and may_go(message) else kept).append(message)
    if gone:
        paged.behind = deque(kept)
        paged.count += len(gone)
        paged.size_bytes += paged_bytes(len(gone), _body_bytes(gone))
        paged.up_to = gone[-1].number
    return gone


def paged_bytes(count: int, body_bytes: int) -> int:
    """What messages on disk count for against the limits of their queue."""
    return count * MESSAGE_COST_BYTES + body_bytes


def _body_bytes(messages: Iterable[Message]) -> int:
    return sum(len(message.body) for message in messages)
