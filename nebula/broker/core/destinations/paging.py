"""The messages that wait in a queue, in order of number. Of a deep queue only a window is in memory.

    front (in memory, next first) | paged (rows, on disk alone), behind (in memory)
                     number <= after | after < number

A message leaves memory only after the batch with its row has been committed, and comes back by pages, which
the core asks for as work. What is not kept on disk, and what came back from a consumer, stays in memory.

The number `after` divides the line. Messages are delivered from the front, and only messages that were never
delivered in this run are paged, so whatever a consumer holds is at or below `after` as well. So a message
that comes back always belongs in `front`, and no page brings it a second time.

Invariants, checked after each step of the tests:

- numbers rise along `front`, and along `behind`;
- what is in `front`, and what is un-ACKed, has a number of `after` at most; `behind` has higher ones;
- a paged message is in no other place, and its row has a number in `after < number <= up_to`. Messages in
  `behind` may have numbers in that range too: their page merges them by number;
- without paged messages there is nothing behind.
"""

from __future__ import annotations

from bisect import bisect, bisect_left
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, dropwhile, islice

from nebula.broker.core.messages import DEFAULT_PRIORITY, MESSAGE_COST_BYTES, PRIORITIES, Message
from nebula.broker.core.storage import PAGE_BYTES, PAGE_MESSAGES, KeptLine, PageRequest


def paged_bytes(count: int, body_bytes: int) -> int:
    """What messages on disk count for against the limits of their queue."""
    return count * MESSAGE_COST_BYTES + body_bytes


class Depot:
    """The part of a line that is on disk alone, and what waits behind it.

    Attributes:
        after, up_to: its rows are between these numbers. `after` also ends the front.
        count, size_bytes: of them.
        behind: in memory, with numbers above `after`: what came later, or may not be paged.
        asked: the page that is on its way, or None.
        ahead: the one behind it, asked for before that was taken; or None.
        low_mark: with so few in front the next page is asked for.
        removed: numbers of what was taken out from `behind`: a page may still bring its row.
    """

    __slots__ = ("after", "ahead", "asked", "behind", "count", "low_mark", "removed", "size_bytes", "up_to")

    def __init__(self, after: int, low_mark: int) -> None:
        self.after = self.up_to = after
        self.count = 0
        self.size_bytes = 0
        self.behind: deque[Message] = deque()
        self.asked: PageRequest | None = None
        self.ahead: PageRequest | None = None
        self.low_mark = low_mark
        self.removed: set[int] = set()


class Line:
    """A line of messages, first in, first out.

    Args:
        name: what the store calls it.

    Attributes:
        front: those in memory that come first. Empty while more is on disk: the next page is on its way.
        depot: the rest of a deep line; None for any other.
        pop: takes the first of `front`.
    """

    __slots__ = ("depot", "front", "name", "pop")

    def __init__(self, name: str) -> None:
        self.name = name
        self.front: deque[Message] = deque()
        self.depot: Depot | None = None
        self.pop: Callable[[], Message] = self.front.popleft

    def __len__(self) -> int:
        depot = self.depot
        return len(self.front) + (0 if depot is None else depot.count + len(depot.behind))

    @property
    def lines(self) -> Sequence[Line]:
        """The lines that it consists of."""
        return (self,)

    def in_memory(self) -> Iterator[Message]:
        """All but what is on disk alone."""
        return iter(self.front) if self.depot is None else chain(self.front, self.depot.behind)

    @property
    def memory_count(self) -> int:
        """How many those are."""
        return len(self.front) + (0 if self.depot is None else len(self.depot.behind))

    def name_of(self, message: Message) -> str:  # noqa: ARG002
        """What the store calls the line of this message."""
        return self.name

    def append(self, message: Message) -> None:
        """Put the newest message at the end."""
        (self.front if self.depot is None else self.depot.behind).append(message)

    def shed(self) -> Message:
        """Take what is missed least: of `front`, the oldest."""
        return self.pop()

    def put_back(self, messages: Iterable[Message]) -> None:
        """Put back messages that were taken, each in its place; no paged message comes before it."""
        front = self.front
        returned = list(messages)
        if len(returned) == 1 and front and front[0].number < returned[0].number:
            # Who NACKs his window one by one must not have it merged each time.
            front.insert(bisect(front, returned[0].number, key=_by_number), returned[0])
            return
        # Others may have come back before them, from another consumer: merge with those.
        last = max(message.number for message in returned)
        while front and front[0].number < last:
            returned.append(front.popleft())
        returned.sort(key=_by_number)
        front.extendleft(reversed(returned))

    def remove(self, is_unwanted: Callable[[Message], bool]) -> list[Message]:
        """Take out of memory what is unwanted, in order."""
        removed: list[Message] = []
        for part in (self.front,) if self.depot is None else (self.front, self.depot.behind):
            unwanted = [message for message in part if is_unwanted(message)]
            if unwanted:
                kept = [message for message in part if not is_unwanted(message)]
                part.clear()
                part.extend(kept)
                removed += unwanted
                if self.depot is not None:
                    self.depot.removed.update(message.number for message in unwanted)
        return removed

    def sweep(
        self, begin: int, most: int, is_unwanted: Callable[[Message], bool]
    ) -> tuple[list[Message], list[Message]]:
        """Look at what is in memory from the `begin`th on, and take out what is unwanted of it.

        Returns:
            What was kept and what was taken out, together `most` at most. Nothing at all: that was the end.
        """
        parts = (self.front,) if self.depot is None else (self.front, self.depot.behind)
        for part in parts:
            if begin < len(part):
                return self._sweep(part, begin, most, is_unwanted)
            begin -= len(part)
        return [], []

    def _sweep(
        self, part: deque[Message], begin: int, most: int, is_unwanted: Callable[[Message], bool]
    ) -> tuple[list[Message], list[Message]]:
        kept: list[Message] = []
        unwanted: list[Message] = []
        for message in islice(part, begin, begin + most):
            (unwanted if is_unwanted(message) else kept).append(message)
        if unwanted:
            # Turning a deque costs a nanosecond for each that passes: far less than to make it anew.
            part.rotate(-begin)
            for _ in range(len(kept) + len(unwanted)):
                part.popleft()
            part.extendleft(reversed(kept))
            part.rotate(begin)
            if self.depot is not None:
                self.depot.removed.update(message.number for message in unwanted)
        return kept, unwanted

    def take_out(self, numbers: Collection[int]) -> list[Message]:
        """Take these out of `front`, and look at what lies between the first and the last of them alone."""
        front = self.front
        start = bisect_left(front, min(numbers), key=_by_number)
        end = bisect(front, max(numbers), key=_by_number)
        front.rotate(-start)
        between = [front.popleft() for _ in range(end - start)]
        front.extendleft([message for message in reversed(between) if message.number not in numbers])
        front.rotate(start)
        taken = [message for message in between if message.number in numbers]
        if self.depot is not None:
            self.depot.removed.update(message.number for message in taken)
        return taken

    def refresh(self) -> None:
        """Something was done to one of `lines`."""

    def forget_paged(self) -> Depot | None:
        """Leave what is on disk alone to itself, for good; what waited behind it moves up."""
        depot, self.depot = self.depot, None
        if depot is not None:
            self.front.extend(depot.behind)
        return depot

    # --- paging ---

    def page_out(self, up_to: int, window_bytes: int, may_go: Callable[[Message], bool]) -> list[Message]:
        """Let go what is beyond the window and committed.

        Args:
            up_to: the highest number whose batch is committed.
            window_bytes: what may stay in front.
            may_go: whether the store has it as it is.

        Returns:
            What is on disk alone from now on, in order.
        """
        if self.depot is not None:
            return self._let_go(self.depot, self.depot.behind, up_to, may_go)
        front = self.front
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
        depot = Depot(0, kept_count // 2)
        gone = self._let_go(depot, rest, up_to, may_go)
        if gone:
            # Not from the last in front: what is un-ACKed may have come between.
            depot.after = gone[0].number - 1
            for _ in rest:
                front.pop()
            self.depot = depot
        return gone

    def _let_go(
        self, depot: Depot, messages: Iterable[Message], up_to: int, may_go: Callable[[Message], bool]
    ) -> list[Message]:
        gone: list[Message] = []
        kept: list[Message] = []
        for message in messages:
            (gone if message.number <= up_to and may_go(message) else kept).append(message)
        if gone:
            depot.behind = deque(kept)
            depot.count += len(gone)
            depot.size_bytes += paged_bytes(len(gone), sum(len(message.body) for message in gone))
            depot.up_to = gone[-1].number
        return gone

    def wanted_page(self, purpose: object, window_bytes: int) -> PageRequest | None:
        """The page that is to be read now, half a window at most; None: none, or it is on its way."""
        depot = self.depot
        if depot is None or depot.asked is not None or len(self.front) > depot.low_mark:
            return None
        size_bytes = min(PAGE_BYTES, max(1, window_bytes // 2))
        count = min(PAGE_MESSAGES, max(1, size_bytes // MESSAGE_COST_BYTES))
        depot.asked = PageRequest(self.name, depot.after, depot.up_to, count, size_bytes, purpose)
        return depot.asked

    def page_after(self, request: PageRequest, last: int) -> PageRequest | None:
        """The page behind one that was just read, up to `last`, if somebody waits for both; else None."""
        depot = self.depot
        if depot is None or depot.asked is not request or self.front or last >= depot.up_to:
            return None
        depot.ahead = replace(request, after=last, up_to=depot.up_to)
        return depot.ahead

    def take_page(self, request: PageRequest, page: Sequence[Message]) -> tuple[set[int], int] | None:
        """Put a page that was read behind the front.

        Returns:
            The numbers of those messages that were on disk alone, and what they counted for there. None: the
            page is not wanted any more.
        """
        depot = self.depot
        if depot is None or depot.asked is not request:
            return None
        depot.asked, depot.ahead = depot.ahead, None
        last = page[-1].number if page else request.up_to
        between = []
        while depot.behind and depot.behind[0].number <= last:
            between.append(depot.behind.popleft())
        held = {message.number for message in between} | depot.removed
        depot.removed = {number for number in depot.removed if number > last}
        fresh = [message for message in page if message.number not in held]
        size_bytes = paged_bytes(len(fresh), sum(len(each.body) for each in fresh))
        depot.after = last
        depot.count -= len(fresh)
        depot.size_bytes -= size_bytes
        depot.low_mark = len(fresh)
        self.front.extend(sorted((*between, *fresh), key=_by_number) if between else fresh)
        if last >= depot.up_to:
            self.front.extend(depot.behind)
            size_bytes += depot.size_bytes  # nothing, unless rows have gone from under us
            self.depot = None
        return {message.number for message in fresh}, size_bytes

    def restore(self, kept: KeptLine, messages: Iterable[Message]) -> None:
        """Take what an earlier run has left: the first ones in memory, the others on disk."""
        self.front.extend(messages)
        body_bytes = sum(len(message.body) for message in self.front)
        if kept.count > len(self.front):
            depot = self.depot = Depot(self.front[-1].number if self.front else 0, len(self.front))
            depot.up_to = kept.last_number
            depot.count = kept.count - len(self.front)
            depot.size_bytes = paged_bytes(depot.count, kept.body_bytes - body_bytes)


class PriorityLine:
    """Ten lines of which the highest that has something comes first. To a queue it is what a `Line` is.

    While the highest level waits for its page, so do those below.

    Args:
        name: of the queue. The line of the default level has it in the store, so that a queue's messages are
            found again when it is given priorities, or loses them.
    """

    __slots__ = ("depot", "front", "lines")

    def __init__(self, name: str) -> None:
        self.lines = tuple(Line(level_name(name, level)) for level in range(PRIORITIES))
        self.front: deque[Message] = self.lines[0].front
        self.depot: Depot | None = None

    def __len__(self) -> int:
        return sum(map(len, self.lines))

    def in_memory(self) -> Iterator[Message]:
        """All but what is on disk alone, in the order in which they will go."""
        return chain.from_iterable(line.in_memory() for line in reversed(self.lines))

    def name_of(self, message: Message) -> str:
        """What the store calls the line of this message."""
        return self.lines[message.head.priority].name

    def append(self, message: Message) -> None:
        """Put the newest message at the end of its level."""
        self.lines[message.head.priority].append(message)
        self.refresh()

    def pop(self) -> Message:
        """Take the first of `front`."""
        message = self.front.popleft()
        if not self.front:
            self.refresh()
        return message

    def shed(self) -> Message:
        """Take what is missed least: the oldest of the lowest level that has some in memory."""
        message = next(line for line in self.lines if line.front).pop()
        self.refresh()
        return message

    def put_back(self, messages: Iterable[Message]) -> None:
        """Put messages back that were taken, each to its place."""
        levels: dict[int, list[Message]] = {}
        for message in messages:
            levels.setdefault(message.head.priority, []).append(message)
        for level, returned in levels.items():
            self.lines[level].put_back(returned)
        self.refresh()

    def remove(self, is_unwanted: Callable[[Message], bool]) -> list[Message]:
        """Take out of memory what is unwanted."""
        removed = list(chain.from_iterable(line.remove(is_unwanted) for line in self.lines))
        self.refresh()
        return removed

    def sweep(
        self, begin: int, most: int, is_unwanted: Callable[[Message], bool]
    ) -> tuple[list[Message], list[Message]]:
        """As `Line.sweep`, over all levels."""
        for line in self.lines:
            count = line.memory_count
            if begin < count:
                swept = line.sweep(begin, most, is_unwanted)
                self.refresh()
                return swept
            begin -= count
        return [], []

    def refresh(self) -> None:
        """Something was done to one of `lines`: find the highest that is not empty."""
        line = next((each for each in reversed(self.lines) if each.front or each.depot), self.lines[0])
        self.front, self.depot = line.front, line.depot


def level_name(queue: str, level: int) -> str:
    """What the store calls the line of one level of a queue. No destination has a NUL in its name."""
    return queue if level == DEFAULT_PRIORITY else f"{queue}\0{level}"


def level_of(line: str) -> int:
    """The level that a line is for. Only it counts: what is in a line may ask for another one, where its
    queue had no priorities when it came."""
    _, has_level, level = ("", "", "") if line.startswith("\0") else line.partition("\0")
    return int(level) if has_level else DEFAULT_PRIORITY


def queue_name(line: str) -> str:
    """The queue that a line belongs to, or itself if that is a durable subscription's."""
    return line if line.startswith("\0") else line.partition("\0")[0]


def _by_number(message: Message) -> int:
    return message.number
