"""Values read from a store: messages, lines, and pages of deep lines.

Memory is the truth, the store its mirror. The core makes writes (`nebula.broker.core.tables`), and asks for
pages of what it does not hold in memory. It never calls a store itself: the shell does, through
`nebula.broker.store.store.Store`, and fills a new broker from the `Snapshot` that this loads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from nebula.broker.core.tables import Headers

# A page of a line: what one reading of the disk brings. Large enough that a reader who drains a deep queue
# seldom waits, small enough that thousands of deep queues fit into memory.
PAGE_MESSAGES: Final = 4096
PAGE_BYTES: Final = 2 * 1024 * 1024


class StoredMessage(NamedTuple):
    """A message as it is stored, whatever table it is in.

    Attributes:
        number: its place in the order of arrival, and in its message-id (D.20).
        destination: where its SEND went.
        headers: what is passed on, in order, without `destination`.
        body: bytes, never decoded.
        expires_at: wall clock, seconds since 1970, or None.
        attempts: earlier deliveries that failed.
        is_request: what expires is a request (`neb-timeout`), which is counted and no dead letter.
    """

    number: int
    destination: str
    headers: Headers
    body: bytes
    expires_at: float | None = None
    attempts: int = 0
    is_request: bool = False


@dataclass(frozen=True, slots=True)
class PageRequest:
    """The first messages of a line with `after < number <= up_to`. All of them are on disk, and stay until
    the page is there.

    Attributes:
        max_messages: the page has no more than this.
        max_bytes: of bodies. One message is in the page, however large it is.
        purpose: where the page goes; the store hands it back unread.
    """

    line: str
    after: int
    up_to: int
    max_messages: int
    max_bytes: int
    purpose: Any = None


@dataclass(frozen=True, slots=True)
class KeptLine:
    """What a line held.

    Attributes:
        first: its first messages, in order of number: a page, or all, or none where there is no room.
        count: of all of them.
        body_bytes: of all of them.
        last_number: of the last one.
    """

    first: list[StoredMessage]
    count: int
    body_bytes: int
    last_number: int
