"""The order of the messages that wait in a queue: one line by number, or ten lines by priority.

A line is in order of number, and numbers are given in the order of arrival. So a message that comes back from
a consumer has one place in the line, and goes there. A deep line has a `PagedPart` on disk; `paging` says how
the three parts of a line relate, and moves messages between them.
"""

from __future__ import annotations

from bisect import bisect, bisect_left
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain

from nebula.broker.core.messages import DEFAULT_PRIORITY, PRIORITIES, Message
from nebula.broker.core.storage import PageRequest


@dataclass(slots=True, eq=False, repr=False)
class PagedPart:
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

    after: int
    low_mark: int
    up_to: int = 0
    count: int = 0
    size_bytes: int = 0
    behind: deque[Message] = field(default_factory=deque)
    asked: PageRequest | None = None
    ahead: PageRequest | None = None
    removed: set[int] = field(default_factory=set)


class Line:
    """A line of messages, first in, first out.

    Args:
        name: what the store calls it.

    Attributes:
        front: those in memory that come first. Empty while more is on disk: the next page is on its way.
        paged: the rest of a deep line; None for any other.
        pop: takes the first of `front`.
    """

    __slots__ = ("front", "name", "paged", "pop")

    def __init__(self, name: str) -> None:
        self.name = name
        self.front: deque[Message] = deque()
        self.paged: PagedPart | None = None
        self.pop: Callable[[], Message] = self.front.popleft

    def __len__(self) -> int:
        paged = self.paged
        return len(self.front) + (0 if paged is None else paged.count + len(paged.behind))

    @property
    def lines(self) -> Sequence[Line]:
        """The lines that it consists of."""
        return (self,)

    @property
    def parts(self) -> Sequence[deque[Message]]:
        """What is in memory, in order: the front, and what waits behind the part on disk."""
        return (self.front,) if self.paged is None else (self.front, self.paged.behind)

    def in_memory(self) -> Iterator[Message]:
        """All but what is on disk alone."""
        return chain.from_iterable(self.parts)

    def name_of(self, message: Message) -> str:  # noqa: ARG002
        """What the store calls the line of this message."""
        return self.name

    def append(self, message: Message) -> None:
        """Put the newest message at the end."""
        (self.front if self.paged is None else self.paged.behind).append(message)

    def shed(self) -> Message:
        """Take what is missed least: of `front`, the oldest."""
        return self.pop()

    def put_back(self, messages: Iterable[Message]) -> None:
        """Put back messages that were taken, each in its place; no paged message comes before it."""
        front = self.front
        returned = list(messages)
        if len(returned) == 1 and front and front[0].number < returned[0].number:
            # A consumer that NACKs its window one by one: merging it each time would be quadratic.
            front.insert(bisect(front, returned[0].number, key=_by_number), returned[0])
            return
        # Others may have come back before them, from another consumer: merge with those.
        last = max(message.number for message in returned)
        while front and front[0].number < last:
            returned.append(front.popleft())
        returned.sort(key=_by_number)
        front.extendleft(reversed(returned))

    def take_out(self, messages: Collection[Message]) -> list[Message]:
        """Take these out, as far as they wait here in memory. Returns them, in order.

        Looks only at what lies between the first and the last of them: of a hundred thousand some hundreds
        go at a time, and the others must not be looked at each time. Turning a deque costs a nanosecond for
        each message that passes, far less than to make it anew.
        """
        taken: list[Message] = []
        numbers = {message.number for message in messages}
        for part in self.parts if numbers else ():
            start = bisect_left(part, min(numbers), key=_by_number)
            end = bisect(part, max(numbers), key=_by_number)
            part.rotate(-start)
            between = [part.popleft() for _ in range(end - start)]
            part.extendleft([message for message in reversed(between) if message.number not in numbers])
            part.rotate(start)
            taken += [message for message in between if message.number in numbers]
        if self.paged is not None:
            self.paged.removed.update(message.number for message in taken)
        return taken

    def refresh(self) -> None:
        """Something was done to one of `lines`."""


class PriorityLine:
    """Ten lines of which the highest that has something comes first. To a queue it is what a `Line` is.

    While the highest level waits for its page, so do those below.

    Args:
        name: of the queue. The line of the default level has it in the store, so that a queue's messages are
            found again when it is given priorities, or loses them.
    """

    __slots__ = ("front", "lines", "paged")

    def __init__(self, name: str) -> None:
        self.lines = tuple(Line(level_name(name, level)) for level in range(PRIORITIES))
        self.front: deque[Message] = self.lines[0].front
        self.paged: PagedPart | None = None

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
        for level, returned in _by_level(messages).items():
            self.lines[level].put_back(returned)
        self.refresh()

    def take_out(self, messages: Iterable[Message]) -> list[Message]:
        """As `Line.take_out`, level by level."""
        taken: list[Message] = []
        for level, wanted in _by_level(messages).items():
            taken += self.lines[level].take_out(wanted)
        self.refresh()
        return taken

    def refresh(self) -> None:
        """Something was done to one of `lines`: find the highest that is not empty."""
        line = next((each for each in reversed(self.lines) if each.front or each.paged), self.lines[0])
        self.front, self.paged = line.front, line.paged


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


def _by_level(messages: Iterable[Message]) -> dict[int, list[Message]]:
    levels: dict[int, list[Message]] = {}
    for message in messages:
        levels.setdefault(message.head.priority, []).append(message)
    return levels
