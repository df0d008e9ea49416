"""Peeking at messages of a deep queue that are only on disk."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from nebula.broker.core.destinations.queue import Queue
from nebula.broker.core.messages import QUEUE_KIND, Message
from nebula.broker.core.storage import PAGE_BYTES, PageRequest
from nebula.broker.operations.dead_letters import peek
from nebula.broker.operations.views import MessageView

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
