"""Rows to be stored, and what a broker finds of them when it starts again."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias

from nebula.broker.core.storage import StoredMessage
from nebula.broker.core.tables import (
    BODIES,
    DELAYED,
    MESSAGES,
    SHARED_MESSAGES,
    TABLES,
    VALUES,
    BodyRow,
    DelayedRow,
    Drop,
    DropRange,
    MessageRow,
    PendingRow,
    Put,
    SessionRow,
    SetAttempts,
    SharedMessageRow,
    SubscriptionRow,
    ValueRow,
    Write,
    tables_of,
)
from nebula.broker.store.store import Snapshot, Store

NewStore: TypeAlias = Callable[[], Store]
"""Makes another store over the same rows."""

# Each row type belongs to one table, so a test names the row alone.
_TABLES_BY_ROW: Final[dict[Any, Any]] = {table.row: table for table in TABLES}


def put(row: tuple[Any, ...]) -> Put:
    """Put a row into its table."""
    return Put(_TABLES_BY_ROW[type(row)], row)


def put_message(line: str, message: StoredMessage) -> Put:
    return Put(MESSAGES, MessageRow(line, *message))


def put_shared(lines: Iterable[str], message: StoredMessage) -> list[Write]:
    """One message for several lines."""
    rows = [SharedMessageRow(line, message.number, message.attempts) for line in lines]
    body = BodyRow(*message[:5], message.is_request)
    return [Put(BODIES, body), *(Put(SHARED_MESSAGES, row) for row in rows)]


def drop_message(line: str, number: int) -> list[Write]:
    # From both tables if the line may share messages, because a drop does not say which table has the
    # message.
    return [Drop(table, (line, number)) for table in tables_of(line)]


def drop_messages(line: str, after: int, up_to: int) -> list[Write]:
    return [DropRange(table, line, after, up_to) for table in tables_of(line)]


def set_attempts(line: str, number: int, attempts: int) -> list[Write]:
    return [SetAttempts(table, (line, number), attempts) for table in tables_of(line)]


def put_delayed(message: StoredMessage, deliver_at: float) -> Put:
    return Put(DELAYED, DelayedRow(message.number, message.destination, deliver_at, *message[2:]))


def put_value(message: StoredMessage) -> Put:
    return Put(VALUES, ValueRow(message.destination, message.number, *message[2:]))


SESSION = put(SessionRow("till-1", "ab12", None))
SUBSCRIPTION = put(SubscriptionRow("till-1", "0", "X/*", "client", 10, 77))
PENDING = put(PendingRow("till-1", "0", ("X/a", "X/ü")))


def message(number: int, body: bytes = b"hello", *, destination: str = "/queue/a") -> StoredMessage:
    return StoredMessage(number, destination, (("content-type", "text/plain"), ("sender", "alice")), body)


def reloaded(new_store: NewStore, *batches: list[Write]) -> Snapshot:
    """What a broker finds that starts after one which wrote this."""
    # Closed between the two: a store may hold a lock on its folder.
    first = new_store()
    first.load()
    for batch in batches:
        first.apply(batch)
    first.close()
    second = new_store()
    try:
        return second.load()
    finally:
        second.close()


def lines(snapshot: Snapshot) -> dict[str, list[StoredMessage]]:
    """The first page of each line."""
    return {name: line.first for name, line in snapshot.lines.items()}
