"""Looking at the part of a deep queue that is on disk alone, and leaving it there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nebula.broker.dead_letters import MessageView, fit, peek, view
from nebula.broker.destinations.queue import Queue
from nebula.broker.messages import Kind
from nebula.broker.store import PAGE_BYTES, PageRequest

if TYPE_CHECKING:
    from nebula.broker.server import Server


async def peek_deep(
    server: Server, queue: Queue, *, after: int, limit: int, max_bytes: int
) -> list[MessageView]:
    """Messages that wait, in order of arrival, in memory and on disk; nothing happens to them.

    Args:
        after: begin behind this number.
        limit: how many at most; fewer where they are large.
        max_bytes: of each body.
    """
    arrivals, now = server.administration.arrivals, server.time()
    found = peek(queue, arrivals, now, after=after, limit=limit, max_bytes=max_bytes)
    for request in _requests(queue, found, after, limit):
        assert server.broker.journal is not None
        for row in await server.read_page(request):
            message = server.broker.journal.restore(row, Kind.QUEUE)
            found.append(view(message, row.attempts, arrivals, now, max_bytes))
    found.sort(key=lambda each: each.number)
    return list(fit(found[:limit]))


def _requests(queue: Queue, found: list[MessageView], after: int, limit: int) -> list[PageRequest]:
    """What is to be read beside what was found: of each level what may come before the last of that."""
    last = found[-1].number if len(found) == limit else None
    return [
        PageRequest(line.name, max(after, depot.after), depot.up_to, limit, PAGE_BYTES, None)
        for line in queue.lines
        if (depot := line.depot) is not None and (last is None or last > depot.after)
    ]
