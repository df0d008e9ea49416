"""What must survive the process: the rows, and who keeps them.

The core only makes rows, takes them at start, and asks for pages of what it does not hold in memory. It
never reads a store itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol, TypeAlias

# What there is one of for each message is a named tuple, made in a third of a frozen dataclass's time.

# So many numbers has a run: enough for half a year of 300,000 messages a second, and the store's
# 63 bits hold two million runs.
_RUN_BITS: Final = 42


class StoredMessage(NamedTuple):
    """Content with its headers, as it is kept.

    Attributes:
        number: its place in the order of arrival, and in its message-id (D.20).
        destination: where its SEND went.
        headers: what is passed on, in order, without `destination`.
        body: octets.
        expires_at: wall clock, seconds since 1970, or None.
        attempts: earlier deliveries that failed.
        is_request: what expires is a request (`neb-timeout`), which is counted and no dead letter.
    """

    number: int
    destination: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    expires_at: float | None = None
    attempts: int = 0
    is_request: bool = False


class PutMessage(NamedTuple):
    """A message waits in a line, or is un-ACKed there. Replaces what has its number in that line.

    Attributes:
        line: the name of a queue; of one with priorities each level has a line of its own, and so has
            each durable subscription to topics.
    """

    line: str
    message: StoredMessage


@dataclass(frozen=True, slots=True)
class PutShared:
    """Put one message into several lines. Its content is kept once, until the last of them has dropped it.

    No line has had the number before.

    Attributes:
        lines: of durable subscriptions to topics: `may_share` is true of each.
    """

    lines: tuple[str, ...]
    message: StoredMessage


@dataclass(frozen=True, slots=True)
class PutAttempts:
    """Set how many deliveries of a requeued message have failed. No effect if it is not there.

    Attributes:
        line: of a durable subscription to topics: `may_share` is true of it.
    """

    line: str
    number: int
    attempts: int


def may_share(line: str) -> bool:
    """Whether messages of a line may share content with other lines: it belongs to a durable subscription to
    topics.

    No destination begins with a NUL.
    """
    return line.startswith("\0")


class DropMessage(NamedTuple):
    """A message of a line is settled."""

    line: str
    number: int


@dataclass(frozen=True, slots=True)
class DropMessages:
    """All messages of a line with `after < number <= up_to` are gone. All of them were put in earlier
    batches, and what this one puts of them comes after it."""

    line: str
    after: int
    up_to: int


@dataclass(frozen=True, slots=True)
class PutDelayed:
    """A message is to be sent to a queue later. Replaces what has its number.

    Attributes:
        message: `destination` is the queue.
        deliver_at: wall clock, seconds since 1970.
    """

    message: StoredMessage
    deliver_at: float


@dataclass(frozen=True, slots=True)
class DropDelayed:
    """A delayed message has been sent, or never will be."""

    number: int


@dataclass(frozen=True, slots=True)
class PutPostponed:
    """A message of a line is not to be delivered again before its time. Replaces what is known of it.

    Attributes:
        due: wall clock, seconds since 1970.
    """

    line: str
    number: int
    due: float


@dataclass(frozen=True, slots=True)
class DropPostponed:
    """A message of a line may be delivered again, or is gone."""

    line: str
    number: int


@dataclass(frozen=True, slots=True)
class PutDuplicate:
    """A `dedup-id` was used at a destination. Replaces what is known of it.

    Attributes:
        principal: who sent it; empty in rows of an older store, which apply to everybody.
        until: wall clock, seconds since 1970, when it may be used again.
    """

    destination: str
    principal: str
    id: str
    until: float


@dataclass(frozen=True, slots=True)
class DropDuplicate:
    """A `dedup-id` may be used again."""

    destination: str
    principal: str
    id: str


@dataclass(frozen=True, slots=True)
class PutValue:
    """The present value of a last-value destination. An empty body is a tombstone: what a durable
    subscription that is away has still to be told of."""

    message: StoredMessage


@dataclass(frozen=True, slots=True)
class DropValue:
    """A last-value destination has nothing to be kept any more."""

    destination: str


@dataclass(frozen=True, slots=True)
class PutSession:
    """A session with durable subscriptions.

    Attributes:
        id: its client-id.
        principal: whose it is.
        away_since: wall clock, seconds since 1970; None: it is connected.
    """

    id: str
    principal: str
    away_since: float | None


@dataclass(frozen=True, slots=True)
class DropSession:
    """A session and all its subscriptions are gone."""

    id: str


@dataclass(frozen=True, slots=True)
class PutSubscription:
    """A durable subscription. Replaces one of the same session and id.

    Attributes:
        session: its client-id.
        id: as in SUBSCRIBE.
        destination: a name or a glob.
        ack: `auto`, `client` or `client-individual`.
        prefetch: un-ACKed messages at most.
        seen_number: what was published up to this number it has had, save what `PutPending` says.
    """

    session: str
    id: str
    destination: str
    ack: str
    prefetch: int
    seen_number: int


@dataclass(frozen=True, slots=True)
class DropSubscription:
    """A durable subscription is gone for good."""

    session: str
    id: str


@dataclass(frozen=True, slots=True)
class PutPending:
    """At a clean stop: the last-value destinations that a durable subscription has still to be told of.

    Replaces what was said before of that subscription.
    """

    session: str
    id: str
    destinations: tuple[str, ...]


Write: TypeAlias = (
    PutMessage
    | PutShared
    | PutAttempts
    | DropMessage
    | DropMessages
    | PutDelayed
    | DropDelayed
    | PutPostponed
    | DropPostponed
    | PutDuplicate
    | DropDuplicate
    | PutValue
    | DropValue
    | PutSession
    | DropSession
    | PutSubscription
    | DropSubscription
    | PutPending
)


@dataclass(frozen=True, slots=True)
class PageRequest:
    """The first rows of a line with `after < number <= up_to`, so many at most, and no more bytes of bodies
    than that (but one row at least). All of them are on disk, and stay until the page is there.

    Attributes:
        purpose: for who asks: where the page is to go.
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


# A page of a line: what one reading of the disk brings. Large enough that a reader who drains a deep
# queue seldom waits, small enough that thousands of deep queues fit into memory.
PAGE_MESSAGES: Final = 4096
PAGE_BYTES: Final = 2 * 1024 * 1024


@dataclass(slots=True)
class Snapshot:
    """Everything that was kept, of each line the first page only.

    Attributes:
        run: counts the starts of this store, from 0. See `first_number`.
        incarnation: what every message-id of this store begins with.
        is_clean: the last run ended by `close`, so that `pending` is all there is.
        lines: by name.
        delayed: with when they are due, wall clock; in order of that.
        postponed: of the lines' messages.
        duplicates: those which may not be used yet, in order of `until`.
        pending: by (session, subscription).
    """

    run: int
    incarnation: str
    is_clean: bool
    lines: dict[str, KeptLine] = field(default_factory=dict)
    delayed: list[PutDelayed] = field(default_factory=list)
    postponed: list[PutPostponed] = field(default_factory=list)
    duplicates: list[PutDuplicate] = field(default_factory=list)
    values: list[StoredMessage] = field(default_factory=list)
    sessions: list[PutSession] = field(default_factory=list)
    subscriptions: list[PutSubscription] = field(default_factory=list)
    pending: dict[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)

    @property
    def first_number(self) -> int:
        """Of this run's messages: above all that earlier runs can have used."""
        return max(1, self.run << _RUN_BITS)


class Store(Protocol):
    """Keeps what must survive the process.

    `load` comes first and once, `close` last. They and `apply` are called from one worker thread,
    never two at once; `page` and `backup` from others, beside them.
    """

    def load(self) -> Snapshot:
        """Everything that is kept; the run is counted before this returns.

        Raises:
            StoreError: it cannot be had: says where, why and what to do.
        """
        ...

    def apply(self, writes: Sequence[Write]) -> None:
        """Make the writes durable, all or none, in this order.

        When this returns, a crash does not undo them. If it raises, the broker stops.
        """
        ...

    def page(self, request: PageRequest) -> list[StoredMessage]:
        """What is asked for, in order of number.

        Raises:
            StoreError: it cannot be read. The broker stops.
        """
        ...

    def close(self) -> None:
        """The run ends well: `Snapshot.is_clean` of the next one. Idempotent."""
        ...
