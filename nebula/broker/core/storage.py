"""Values read from a store: the snapshot at a start, and pages of deep lines.

Memory is the truth, the store its mirror. The core makes writes (`nebula.broker.core.tables`), takes up a
`Snapshot`, and asks for pages of what it does not hold in memory. It never calls a store itself: the shell
does, through `nebula.broker.store.store.Store`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from nebula.broker.core.tables import DuplicateRow, Headers, PostponedRow, SessionRow, SubscriptionRow

# Message numbers of one run: enough for half a year of 300,000 messages a second. The store's 63 bits hold
# two million runs.
_RUN_BITS: Final = 42

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
    purpose: object = None


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


@dataclass(slots=True)
class Snapshot:
    """Everything that was stored, of each line the first page only.

    Attributes:
        run: counts the starts of this store, from 0. See `first_number`.
        incarnation: what every message-id of this store begins with.
        is_clean: the last run ended by `close`, so that `pending` is complete.
        lines: by name.
        delayed: each with when it is due, wall clock; in order of that.
        postponed: of the lines' messages.
        duplicates: in order of `until`.
        values: in order of number.
        pending: by (session, subscription).
    """

    run: int
    incarnation: str
    is_clean: bool
    lines: dict[str, KeptLine] = field(default_factory=dict)
    delayed: list[tuple[StoredMessage, float]] = field(default_factory=list)
    postponed: list[PostponedRow] = field(default_factory=list)
    duplicates: list[DuplicateRow] = field(default_factory=list)
    values: list[StoredMessage] = field(default_factory=list)
    sessions: list[SessionRow] = field(default_factory=list)
    subscriptions: list[SubscriptionRow] = field(default_factory=list)
    pending: dict[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)

    @property
    def first_number(self) -> int:
        """The first message number of this run: above all that earlier runs can have used."""
        return max(1, self.run << _RUN_BITS)
