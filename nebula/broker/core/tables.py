"""Tables of the store: their rows, and the writes that change them.

Each table that the core fills is declared once, here: its row is a named tuple whose fields are the columns
in their order, the key first. The store makes SQL's declarations and statements, the reads at a start and the
lines of an export from it, so that a new column is one line here and one migration in
`nebula.broker.store.sqlite_schema`.

A batch of writes says for each row what holds at its end. Of two writes to one row the later one counts, and
apart from that their order has no meaning: a store may write table by table. (`DropRange` is the exception:
it comes before all others.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

Headers: TypeAlias = tuple[tuple[str, str], ...]
Key: TypeAlias = tuple[str | int, ...]
Row: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """A table whose rows are put and dropped by their key. Compared by identity.

    Attributes:
        name: in SQL, and in an export.
        row: the named tuple of its columns, in order, those of the key first.
        key_width: how many columns the key has.
        usual: what the last columns hold in most rows.
    """

    name: str
    row: type[tuple[Any, ...]]
    key_width: int
    usual: Row = ()


# --- rows ---

# Times are of the wall clock, in seconds since 1970. What messages have in common:
# - number: the place in the order of arrival, and in the message-id (D.20).
# - headers: what is passed on, in order, without `destination`.
# - attempts: earlier deliveries that failed.
# - is_request: what expires is a request (`neb-timeout`), which is counted and no dead letter.


class MessageRow(NamedTuple):
    """A message that waits in a line, or is unacknowledged there.

    Attributes:
        line: the name of a queue. Each level of a queue with priorities has a line of its own, as has each
            durable subscription to topics.
        destination: where its SEND went.
    """

    line: str
    number: int
    destination: str
    headers: Headers
    body: bytes
    expires_at: float | None
    attempts: int
    is_request: bool


class SharedMessageRow(NamedTuple):
    """The same, of a message that was sent to several durable subscriptions: its content is in `BODIES`.

    A line has a message in one of the two tables, never in both.
    """

    line: str
    number: int
    attempts: int


class BodyRow(NamedTuple):
    """The content of a message that is in several lines.

    The store drops it with the last row of `SHARED_MESSAGES` that has its number. No write does.
    """

    number: int
    destination: str
    headers: Headers
    body: bytes
    expires_at: float | None
    is_request: bool


class DelayedRow(NamedTuple):
    """A message that is sent to a queue at `deliver_at`."""

    number: int
    destination: str
    deliver_at: float
    headers: Headers
    body: bytes
    expires_at: float | None
    attempts: int
    is_request: bool


class PostponedRow(NamedTuple):
    """A message of a line that is not delivered again before `due`."""

    line: str
    number: int
    due: float


class DuplicateRow(NamedTuple):
    """A `dedup-id` that was used at a destination.

    Attributes:
        principal: who sent it; empty in rows of an older store, which apply to all principals.
        until: when it may be used again.
    """

    destination: str
    principal: str
    id: str
    until: float


class ValueRow(NamedTuple):
    """The present value of a last-value destination. An empty body is a tombstone, which is kept until every
    durable subscription that is away has received it."""

    destination: str
    number: int
    headers: Headers
    body: bytes
    expires_at: float | None
    attempts: int
    is_request: bool


class SessionRow(NamedTuple):
    """A session with durable subscriptions.

    Attributes:
        id: its client-id.
        principal: whose it is.
        away_since: None: it is connected.
    """

    id: str
    principal: str
    away_since: float | None


class SubscriptionRow(NamedTuple):
    """A durable subscription.

    Attributes:
        session: its client-id.
        id: as in SUBSCRIBE.
        destination: a name or a glob.
        ack: `auto`, `client` or `client-individual`.
        prefetch: the most unacknowledged messages.
        seen_number: it has received what was published up to this number, except for what `PENDING` says.
    """

    session: str
    id: str
    destination: str
    ack: str
    prefetch: int
    seen_number: int


class PendingRow(NamedTuple):
    """Written at a clean stop: the last-value destinations whose change a durable subscription has not
    received yet."""

    session: str
    id: str
    destinations: tuple[str, ...]


# No expiry, no failed delivery, no request.
_USUAL: Final = (None, 0, False)

MESSAGES: Final = Table("messages", MessageRow, key_width=2, usual=_USUAL)
SHARED_MESSAGES: Final = Table("shared_messages", SharedMessageRow, key_width=2)
BODIES: Final = Table("bodies", BodyRow, key_width=1)
DELAYED: Final = Table("delayed", DelayedRow, key_width=1, usual=_USUAL)
POSTPONED: Final = Table("postponed", PostponedRow, key_width=2)
DUPLICATES: Final = Table("duplicates", DuplicateRow, key_width=3)
VALUES: Final = Table("last_values", ValueRow, key_width=1, usual=_USUAL)
SESSIONS: Final = Table("sessions", SessionRow, key_width=1)
SUBSCRIPTIONS: Final = Table("subscriptions", SubscriptionRow, key_width=2)
PENDING: Final = Table("pending", PendingRow, key_width=2)

TABLES: Final = (
    MESSAGES,
    SHARED_MESSAGES,
    BODIES,
    DELAYED,
    POSTPONED,
    DUPLICATES,
    VALUES,
    SESSIONS,
    SUBSCRIPTIONS,
    PENDING,
)


def may_share(line: str) -> bool:
    """Whether a line belongs to a durable subscription to topics, so that its messages may be rows of
    `SHARED_MESSAGES`. No destination begins with a NUL."""
    return line.startswith("\0")


def tables_of(line: str) -> tuple[Table, ...]:
    """The tables that may have messages of a line."""
    return (MESSAGES, SHARED_MESSAGES) if may_share(line) else (MESSAGES,)


# --- writes ---

# Named tuples: there is one for each message, and a frozen dataclass takes three times as long to make.


class Put(NamedTuple):
    """Insert a row, or replace the one with its key.

    Attributes:
        row: all columns of the table, as its row class has them.
    """

    table: Table
    row: Row


class Drop(NamedTuple):
    """Delete the row with this key. No effect if it is not there."""

    table: Table
    key: Key


class DropRange(NamedTuple):
    """Delete the rows of a line with `after < number <= up_to`, all of them put by earlier batches.

    Attributes:
        table: `MESSAGES` or `SHARED_MESSAGES`.
    """

    table: Table
    line: str
    after: int
    up_to: int


class SetAttempts(NamedTuple):
    """Set `attempts` of the row with this key. No effect if it is not there.

    It stands for a `Put` whose other columns are not at hand: the body of a redelivered message is not
    written again.

    Attributes:
        table: `MESSAGES` or `SHARED_MESSAGES`.
    """

    table: Table
    key: Key
    attempts: int


Write: TypeAlias = Put | Drop | DropRange | SetAttempts
