"""A few batches with every kind of row, and what a store holds after each of them.

`python -m tests.recovery.scripted FOLDER` writes them to a store there and says so after each: for those who
stop it on the way.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from nebula.broker.core.storage import StoredMessage
from nebula.broker.core.tables import (
    DELAYED,
    DUPLICATES,
    PENDING,
    SESSIONS,
    SUBSCRIPTIONS,
    VALUES,
    Drop,
    DuplicateRow,
    PendingRow,
    SessionRow,
    SubscriptionRow,
    Write,
)
from nebula.broker.store.sqlite import SqliteStore
from nebula.broker.store.store import Snapshot, Store
from nebula.errors import StoreError
from nebula.testing.stored import (
    drop_message,
    drop_messages,
    put,
    put_delayed,
    put_message,
    put_shared,
    put_value,
    set_attempts,
)
from tests.broker.memory_store import MemoryDisk, MemoryStore


def _message(number: int, destination: str = "/queue/a", size_bytes: int = 50) -> StoredMessage:
    return StoredMessage(number, destination, (("sender", "alice"),), b"x" * size_bytes)


def _puts(first: int, count: int, size_bytes: int = 50) -> list[Write]:
    numbers = range(first, first + count)
    return [put_message("/queue/a", _message(number, size_bytes=size_bytes)) for number in numbers]


_DURABLE: Final = tuple(f"\0till\0{name}" for name in "tuv")


BATCHES: Final[tuple[list[Write], ...]] = (
    _puts(1, 5),
    [
        put(SessionRow("till", "ab12", None)),
        put(SubscriptionRow("till", "s", "X/*", "client", 10, 5)),
        put(SubscriptionRow("till", "t", "/topic/t", "client", 10, 5)),
        put(PendingRow("till", "s", ("X/a",))),
    ],
    [put_value(_message(7, "X/a")), put_value(_message(8, "X/b")), *drop_message("/queue/a", 2)],
    # Of many pages, so that the log of SQLite is written in several steps.
    _puts(10, 40, size_bytes=3000),
    [
        put_delayed(_message(60), 2e9),
        put_delayed(_message(61), 2e9 + 1),
        put(DuplicateRow("/queue/a", "alice", "id", 2e9)),
    ],
    [
        *drop_messages("/queue/a", 9, 30),
        put_message("/queue/DLQ", _message(70)),
        *drop_message("/queue/a", 3),
    ],
    [
        put_value(_message(71, "X/a")),
        Drop(VALUES, ("X/b",)),
        Drop(DELAYED, (60,)),
        put_message("/queue/a", _message(60)),
    ],
    [Drop(SUBSCRIPTIONS, ("till", "t")), Drop(DUPLICATES, ("/queue/a", "alice", "id")), *_puts(80, 3)],
    # One message in several lines, some of many pages; and each of the ways in which it leaves one.
    [
        write
        for number in range(100, 106)
        for write in put_shared(_DURABLE, _message(number, "/topic/t", 9000))
    ],
    [
        *drop_message(_DURABLE[0], 100),
        *set_attempts(_DURABLE[1], 101, 2),
        *drop_messages(_DURABLE[2], 101, 104),
    ],
    [
        *drop_messages(_DURABLE[0], 100, 105),
        put_message(_DURABLE[0], _message(110)),
        *drop_message(_DURABLE[1], 103),
    ],
    [
        *drop_message(_DURABLE[2], 105),
        *drop_message(_DURABLE[1], 102),
        put_message("/queue/DLQ", _message(111)),
    ],
    [
        *(Drop(table, ("till", "s")) for table in (SUBSCRIPTIONS, PENDING)),
        Drop(SESSIONS, ("till",)),
        *drop_messages("/queue/a", 0, 79),
        *drop_messages(_DURABLE[1], 0, 106),
    ],
)


def rows_of(kept: Snapshot) -> tuple[object, ...]:
    """What two stores with the same rows agree on."""
    return (
        {name: (line.first, line.count, line.body_bytes) for name, line in kept.lines.items()},
        kept.delayed,
        kept.duplicates,
        kept.values,
        kept.sessions,
        sorted(kept.subscriptions, key=lambda row: (row.session, row.id)),
        kept.pending,
    )


def states() -> list[tuple[object, ...]]:
    """What there is before the first batch, and after each."""
    disk = MemoryDisk()
    found = [rows_of(MemoryStore(disk).load())]
    for batch in BATCHES:
        MemoryStore(disk).apply(batch)
        found.append(rows_of(MemoryStore(disk).load()))
    return found


def write_all(store: Store, on_written: Callable[[int], None] = lambda _: None) -> None:
    """Load the store, and write one batch after the other.

    Args:
        on_written: told how many are durable by now.
    """
    store.load()
    on_written(0)
    for count, batch in enumerate(BATCHES, 1):
        store.apply(batch)
        on_written(count)


def kept_in(folder: Path) -> tuple[object, ...]:
    """What a broker finds that starts now."""
    store = SqliteStore(folder)
    try:
        return rows_of(store.load())
    finally:
        store.close()


def main() -> int:
    """Write all; 1 when the store fails, with why."""
    store = SqliteStore(Path(sys.argv[1]))
    try:
        write_all(store, lambda count: print(count, flush=True))
        store.close()
    except StoreError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
