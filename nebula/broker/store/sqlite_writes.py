"""SQL statements of a batch: few of them, each for many rows.

A thread releases the interpreter at each statement, and waits up to a switch interval to get it back from a
busy loop. So the number of statements decides the rate, not the number of rows
(docs/decisions/0010 has the figures). A batch is first reduced to the last write of each row. After that the
order of the rows does not matter, and all rows of a table go into statements of up to `_MAX_ROWS` rows.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from itertools import chain
from typing import Any, Final

from nebula.broker.core.tables import (
    BODIES,
    SHARED_MESSAGES,
    TABLES,
    Drop,
    DropRange,
    Key,
    Put,
    Row,
    SetAttempts,
    Table,
    Write,
)
from nebula.broker.store.columns import Column, ColumnType, columns_of, key_of, others_of
from nebula.broker.store.sqlite_schema import encode_json

__all__ = ["Batch"]

# A statement is not much quicker with more rows, and stays far below SQLite's limit on parameters.
_MAX_ROWS: Final = 512

_LISTS: Final = (ColumnType.PAIRS, ColumnType.TEXTS)


class Batch:
    """The writes of a batch, reduced to the last one for each row."""

    def __init__(self, writes: Iterable[Write]) -> None:
        rows: dict[Table, dict[Key, Row | None]] = {table: {} for table in TABLES}
        self._rows = rows
        self._ranges: list[DropRange] = []
        self._attempts: list[SetAttempts] = []
        for write in writes:
            # Found by a `match` among all types, most writes took two to five times as long.
            if type(write) is Put:
                table, row = write
                rows[table][row[: table.key_width]] = row
            elif type(write) is Drop:
                table, key = write
                rows[table][key] = None
            elif type(write) is SetAttempts:
                self._set_attempts(write)
            else:
                assert type(write) is DropRange
                self._ranges.append(write)

    def _set_attempts(self, write: SetAttempts) -> None:
        """In the row if it is put here, else in the one on the disk."""
        table, key, attempts = write
        # A row that this batch puts has its count in it, and needs no statement for that.
        row = self._rows[table].get(key)
        if row is None:
            self._attempts.append(write)
        else:
            place = [column.name for column in columns_of(table)].index("attempts")
            self._rows[table][key] = (*row[:place], attempts, *row[place + 1 :])

    def write(self, db: sqlite3.Connection) -> None:
        """Write it all, inside a transaction."""
        # First: a range is of rows of earlier batches, and must not delete what this one puts.
        for table, *extent in self._ranges:
            statement = f"DELETE FROM {table.name} WHERE line = ? AND number > ? AND number <= ?"  # noqa: S608 - our names
            db.execute(statement, extent)
        self._write_attempts(db)
        self._leave_out_unused()
        for table, rows in self._rows.items():
            _execute_many(db, partial(_drop, table), [key for key, row in rows.items() if row is None])
            # Rows whose last columns have the usual values are bound without them: two widths for each table
            # at most.
            for width, puts in _by_width(table, filter(None, rows.values())).items():
                _execute_many(db, partial(_put, table, width), puts)

    def _write_attempts(self, db: sqlite3.Connection) -> None:
        last = {(table, key): attempts for table, key, attempts in self._attempts}
        alike: dict[tuple[Table, int], list[Key]] = {}
        for (table, key), attempts in last.items():
            alike.setdefault((table, attempts), []).append(key)
        for (table, attempts), keys in alike.items():
            _execute_many(db, partial(_update_attempts, table), keys, attempts)

    def _leave_out_unused(self) -> None:
        """Drop bodies that were put and dropped within this batch: no row will refer to them."""
        bodies = self._rows[BODIES]
        if bodies:
            used = {number for (_, number), row in self._rows[SHARED_MESSAGES].items() if row is not None}
            self._rows[BODIES] = {key: row for key, row in bodies.items() if key[0] in used}


def _by_width(table: Table, rows: Iterable[Row]) -> dict[int, list[Row]]:
    """What is bound for each row: without the last columns where they hold what is usual, which lets a put
    take a quarter less time; and lists as JSON."""
    width, narrow = len(columns_of(table)), len(columns_of(table)) - len(table.usual)
    found: dict[int, list[Row]] = {}
    # Messages that follow each other often have the same headers.
    texts: dict[Row, str] = {}
    place = next((place for place, column in enumerate(columns_of(table)) if column.type in _LISTS), None)
    for row in rows:
        end = narrow if row[narrow:] == table.usual else width
        if place is None:
            found.setdefault(end, []).append(row[:end])
            continue
        value = row[place]
        text = texts.get(value)
        if text is None:
            text = texts[value] = encode_json(value)
        found.setdefault(end, []).append((*row[:place], text, *row[place + 1 : end]))
    return found


def _execute_many(
    db: sqlite3.Connection, statement: Callable[[int], str], rows: Sequence[Row], *first: Any
) -> None:
    """Execute a statement for all rows in few steps, whose sizes are powers of two, so that each is prepared
    once.

    Args:
        first: what is bound before the rows.
    """
    begin = 0
    while begin < len(rows):
        # The largest power of two that is left: SQLite compiles a statement for each number of rows, and
        # Python keeps few of them compiled.
        # 1,000 rows are 512 + 256 + 128 + 64 + 32 + 8, so there are ten statements for each kind at most.
        count = min(_MAX_ROWS, 1 << (len(rows) - begin).bit_length() - 1)
        part = rows[begin : begin + count]
        db.execute(statement(count), (*first, *chain.from_iterable(part)))
        begin += count


@cache
def _put(table: Table, width: int, count: int) -> str:
    left_out = ("NULL" if value is None else str(int(value)) for value in table.usual)
    row = ", ".join(("?",) * width + (tuple(left_out) if width < len(columns_of(table)) else ()))
    # In place, not as REPLACE does by dropping the old row: nearly half as quick again for changing values.
    changes = ", ".join(f"{name} = excluded.{name}" for name in _names(others_of(table)))
    return (
        f"INSERT INTO {table.name} VALUES {_times(count, row)}"  # noqa: S608 - our names
        f" ON CONFLICT ({', '.join(_names(key_of(table)))}) DO UPDATE SET {changes}"
    )


@cache
def _drop(table: Table, count: int) -> str:
    return f"DELETE FROM {table.name} WHERE rowid IN ({_chosen(table, count)})"  # noqa: S608


@cache
def _update_attempts(table: Table, count: int) -> str:
    return f"UPDATE {table.name} SET attempts = ? WHERE rowid IN ({_chosen(table, count)})"  # noqa: S608


def _chosen(table: Table, count: int) -> str:
    """The row ids of this many keys."""
    # `(line, number) IN (VALUES …)` would read the whole table; CROSS JOIN holds SQLite to this order.
    on = " AND ".join(
        f"kept.{name} = chosen.column{place}" for place, name in enumerate(_names(key_of(table)), 1)
    )
    rows = _times(count, ", ".join("?" * table.key_width))
    return f"SELECT kept.rowid FROM (VALUES {rows}) AS chosen CROSS JOIN {table.name} AS kept ON {on}"  # noqa: S608


def _names(columns: Sequence[Column]) -> list[str]:
    return [column.name for column in columns]


def _times(count: int, row: str) -> str:
    return ", ".join([f"({row})"] * count)
