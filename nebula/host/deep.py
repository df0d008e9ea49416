"""Reads of a deep queue for operators: messages that are only on disk, and the newest dead letters."""

from __future__ import annotations

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


# Rows that one list reads from disk: a second's work. With a filter that fits few, older ones are not found.
_MOST_READ: Final = 100_000


async def newest_letters(server: Server, wanted: Filter, limit: int) -> Letters:
    """Dead letters in memory and on disk, the newest first.

    Args:
        wanted: `after` is the number below which to begin; 0: the newest.
    """
    memory = DeadLetters(server.broker, server.runtime.administration.arrivals).newest(wanted, limit)
    found = {row.number: row for row in await server.runtime.walk(memory)}
    queue = server.broker.queues.get(server.broker.queues.dead_letter)
    unread, down_to = 0, 0
    for line in () if queue is None else queue.store.line.lines:
        rows, read_count, end = await _newest_on_disk(server, line, wanted, limit)
        # One that was paged in meanwhile is found twice.
        found = {row.number: row for row in rows} | found
        if line.paged is not None:
            unread += max(0, line.paged.count - read_count)
        # Between the last one that was read and those in memory there may be others.
        down_to = max(down_to, end)
    shown = nlargest(limit, (each for each in found.values() if each.number > down_to), key=_by_number)
    return Letters(shown, unread)


async def _newest_on_disk(
    server: Server, line: Line, wanted: Filter, limit: int
) -> tuple[list[DeadLetter], int, int]:
    """The newest that are wanted of those on disk alone; how many were read; and where the reads ended before
    the limit was reached and before all were read, or 0.
    """
    # Theory. The store reads a page upwards from a number. So a window of numbers is read, then the one below
    # it, and so on. A window that has more rows than a page is read again as a smaller one; after one with
    # few rows they grow. The first is as large as it needs to be if dead letters come evenly.
    paged, journal = line.paged, server.broker.journal
    if paged is None or journal is None or not paged.count:
        return [], 0, 0
    low, high = paged.after, min(paged.up_to, wanted.after - 1 if wanted.after else paged.up_to)
    span = max(1, (paged.up_to - paged.after) * min(limit, paged.count) // paged.count)
    found: list[DeadLetter] = []
    read_count = 0
    while high > low and len(found) < limit:
        if read_count >= _MOST_READ:
            return found, read_count, high
        begin = max(low, high - span)
        rows = await _page(server, line, begin, high, PAGE_MESSAGES)
        if rows and rows[-1].number < high and await _page(server, line, rows[-1].number, high, 1):
            span = max(1, span // 4)
            continue
        letters = (journal.restore(row, QUEUE_KIND) for row in reversed(rows))
        found += [dead_letter(each, is_at_hand=False) for each in letters if wanted.lets_through(each)]
        read_count += len(rows)
        high = begin
        if len(rows) < PAGE_MESSAGES // 8:
            span *= 2
    return found, read_count, 0


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
