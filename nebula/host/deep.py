"""Reads of a deep queue for operators: messages that are only on disk, and the newest dead letters."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import nlargest
from math import inf
from typing import TYPE_CHECKING, Final

from nebula.broker.core.destinations.line import Line
from nebula.broker.core.destinations.queue import Queue
from nebula.broker.core.messages import QUEUE_KIND, Message
from nebula.broker.core.storage import PAGE_BYTES, PAGE_MESSAGES, PageRequest, StoredMessage
from nebula.broker.operations.dead_letters import DeadLetters, Filter, Letters, dead_letter, peek, view
from nebula.broker.operations.views import DeadLetter, MessageView
from nebula.errors import Refused

if TYPE_CHECKING:
    from nebula.broker.server.server import Server


async def peek_deep(
    server: Server, queue: Queue, *, after: int, limit: int, max_bytes: int
) -> list[MessageView]:
    """Messages that wait, in memory and on disk; as `nebula.broker.operations.dead_letters.peek`."""
    # Theory. A deep queue has some of its messages in memory, the others only on disk. A page is read for
    # each line (level of priority), and `peek` merges all by number. If a page ends before its line does,
    # messages with higher numbers than its last row are not shown, because others may come before them
    # (`up_to`). The queue goes on while this waits for the disk, so a message may be found twice, and `peek`
    # drops one.
    read: list[tuple[Message, int]] = []
    up_to: float = inf
    for line in queue.store.line.lines:
        paged, journal = line.paged, server.broker.journal
        # Nothing that was requested is only on disk.
        if paged is None or journal is None or after >= paged.up_to:
            continue
        last = paged.up_to
        request = PageRequest(line.name, max(after, paged.after), last, limit, PAGE_BYTES, None)
        rows = await server.runtime.read_page(request)
        read += [(journal.restore(row, QUEUE_KIND), row.attempts) for row in rows]
        # The page was cut by its limit of messages or bytes.
        if rows and rows[-1].number < last:
            up_to = min(up_to, rows[-1].number)
    return peek(
        queue,
        server.runtime.administration.arrivals,
        server.runtime.time(),
        after=after,
        limit=limit,
        max_bytes=max_bytes,
        from_disk=read,
        up_to=up_to,
    )


# What one list reads from disk: a third of a second's work. With a filter that matches few, older ones are
# not looked at.
_MOST_READ: Final = 20_000
_MOST_READ_BYTES: Final = 64 * 1024 * 1024


async def newest_letters(server: Server, wanted: Filter, limit: int) -> Letters:
    """Dead letters in memory and on disk, the newest first.

    Args:
        wanted: `after` is the number below which to begin; 0: the newest.
    """
    queue = server.broker.queues.get(server.broker.queues.dead_letter)
    lines = [] if queue is None else list(queue.store.line.lines)
    # Noted before memory is walked: what is paged in meanwhile is still on disk, and would be missed.
    began = {line.name: line.paged.after for line in lines if line.paged is not None}
    memory = DeadLetters(server.broker, server.runtime.administration.arrivals).newest(wanted, limit)
    found = {row.number: row for row in await server.runtime.walk(memory)}
    unread, down_to = 0, 0
    for line in lines:
        if line.paged is None or server.broker.journal is None:
            continue
        read = await _newest_on_disk(server, line, began.get(line.name, line.paged.after), wanted, limit)
        # In memory and on disk at once: it was paged in meanwhile.
        found = {row.number: row for row in read.rows} | found
        if read.stopped_at:
            unread += max(0, line.paged.count - read.count)
        # Between the last one that was read and those in memory there may be others.
        down_to = max(down_to, read.stopped_at)
    shown = nlargest(limit, (each for each in found.values() if each.number > down_to), key=_by_number)
    return Letters(shown, unread)


@dataclass(frozen=True, slots=True)
class _Read:
    """Letters that were found on disk, the newest first.

    Attributes:
        count: how many were looked at.
        stopped_at: the number at which reading stopped early; 0: it did not.
    """

    rows: list[DeadLetter]
    count: int
    stopped_at: int = 0


async def _newest_on_disk(server: Server, line: Line, low: int, wanted: Filter, limit: int) -> _Read:
    """The newest letters that are wanted among those on disk with a number above `low`."""
    # Theory. The store reads a page upwards from a number. So a window of numbers is read, then the one below
    # it, and so on. A window that has more rows than a page is read again as a smaller one; after one with
    # few rows they grow. The first is as large as it needs to be if dead letters come evenly.
    paged, journal = line.paged, server.broker.journal
    assert paged is not None
    assert journal is not None
    high = min(paged.up_to, wanted.after - 1 if wanted.after else paged.up_to)
    span = max(1, (paged.up_to - paged.after) * min(limit, paged.count) // max(1, paged.count))
    found: list[DeadLetter] = []
    count = read_count = read_bytes = 0
    while high > low and len(found) < limit:
        # Never before something was looked at, however often the first window had to shrink.
        if count and (read_count >= _MOST_READ or read_bytes >= _MOST_READ_BYTES):
            return _Read(found, count, high)
        begin = max(low, high - span)
        rows = await _page(server, line, begin, high, PAGE_MESSAGES)
        read_count += len(rows)
        read_bytes += sum(len(row.body) for row in rows)
        if rows and rows[-1].number < high and await _page(server, line, rows[-1].number, high, 1):
            span = max(1, span // 4)
            continue
        letters = (journal.restore(row, QUEUE_KIND) for row in reversed(rows))
        found += [
            dead_letter(each, is_at_hand=each.number <= paged.after)
            for each in letters
            if wanted.lets_through(each)
        ]
        count += len(rows)
        high = begin
        if len(rows) < PAGE_MESSAGES // 8:
            span *= 2
    return _Read(found, count)


async def _page(server: Server, line: Line, after: int, up_to: int, count: int) -> list[StoredMessage]:
    return await server.runtime.read_page(PageRequest(line.name, after, up_to, count, PAGE_BYTES, None))


def _by_number(row: DeadLetter) -> int:
    return row.number


async def show_letter(server: Server, number: int, max_bytes: int) -> MessageView:
    """One dead letter in memory or on disk, with the beginning of its body.

    Raises:
        Refused: no dead letter has this number.
    """
    now, arrivals = server.runtime.time(), server.runtime.administration.arrivals
    letters = DeadLetters(server.broker, arrivals)
    queue = server.broker.queues.get(server.broker.queues.dead_letter)
    try:
        return letters.show(number, now, max_bytes)
    except Refused:
        journal = server.broker.journal
        for line in () if queue is None else queue.store.line.lines:
            paged = line.paged
            if journal is not None and paged is not None and paged.after < number <= paged.up_to:
                for row in await _page(server, line, number - 1, number, 1):
                    return view(journal.restore(row, QUEUE_KIND), row.attempts, arrivals, now, max_bytes)
        raise
