"""The tables of the store on disk, and how writes become their rows."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain
from typing import Any, Final, TypeAlias, assert_never

from nebula.broker.core.storage import (
    DropDelayed,
    DropDuplicate,
    DropMessage,
    DropMessages,
    DropPostponed,
    DropSession,
    DropSubscription,
    DropValue,
    PutAttempts,
    PutDelayed,
    PutDuplicate,
    PutMessage,
    PutPending,
    PutPostponed,
    PutSession,
    PutShared,
    PutSubscription,
    PutValue,
    StoredMessage,
    Write,
    may_share,
)

__all__ = ["MIGRATIONS", "TABLES", "VERSION", "Batch", "Table", "encode_json"]

VERSION: Final = 4
"""Of the tables. It rises with every change of them."""

# A thread lets go of the interpreter at each statement, and waits a switch interval to have it back from
# a loop that is busy (docs/decisions/0010 has the figures). A statement of so many rows is not much
# quicker with more of them, and stays far below SQLite's limit on parameters.
_MAX_ROWS: Final = 512

_Row: TypeAlias = tuple[Any, ...]
_Headers: TypeAlias = tuple[tuple[str, str], ...]

# Readable with SQLite's own shell. A length-prefixed form was as long, and no quicker on the whole.
encode_json: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode
"""What headers and lists of names are written with."""


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """A table whose rows are put and dropped by their key.

    Attributes:
        name: in SQL.
        key: its first columns, as SQL declares them.
        others: the rest of them.
        usual: what the last columns hold, in SQL, of a row that leaves them out.
    """

    name: str
    key: tuple[str, ...]
    others: tuple[str, ...]
    usual: tuple[str, ...] = ()

    @property
    def declaration(self) -> str:
        """The statement that makes it."""
        columns = ", ".join((*self.key, *self.others))
        return f"CREATE TABLE {self.name} ({columns}, PRIMARY KEY ({', '.join(_names(self.key))}))"


def _names(columns: tuple[str, ...]) -> list[str]:
    return [column.partition(" ")[0] for column in columns]


_CONTENT: Final = (
    "headers TEXT NOT NULL",
    "body BLOB NOT NULL",
    "expires_at REAL",
    "attempts INTEGER NOT NULL",
    "is_request INTEGER NOT NULL",
)
# Of the last three. Not bound for each row, they let a put take a quarter less time.
_USUAL: Final = ("NULL", "0", "0")
_NUMBER: Final = "number INTEGER NOT NULL"
_DESTINATION: Final = "destination TEXT NOT NULL"
_SUBSCRIPTION_KEY: Final = ("session TEXT NOT NULL", "id TEXT NOT NULL")
_HOW: Final = ("ack TEXT NOT NULL", "prefetch INTEGER NOT NULL", "seen_number INTEGER NOT NULL")

_MESSAGES: Final = Table("messages", ("line TEXT NOT NULL", _NUMBER), (_DESTINATION, *_CONTENT), _USUAL)
_SHARED: Final = Table("shared_messages", ("line TEXT NOT NULL", _NUMBER), ("attempts INTEGER NOT NULL",))
_BODIES: Final = Table(
    "bodies",
    (_NUMBER,),
    (
        _DESTINATION,
        "headers TEXT NOT NULL",
        "body BLOB NOT NULL",
        "expires_at REAL",
        "is_request INTEGER NOT NULL",
    ),
)
_DELAYED: Final = Table("delayed", (_NUMBER,), (_DESTINATION, "deliver_at REAL NOT NULL", *_CONTENT), _USUAL)
_POSTPONED: Final = Table("postponed", ("line TEXT NOT NULL", _NUMBER), ("due REAL NOT NULL",))
_DUPLICATES: Final = Table(
    "duplicates", (_DESTINATION, "principal TEXT NOT NULL", "id TEXT NOT NULL"), ("until REAL NOT NULL",)
)
_VALUES: Final = Table("last_values", (_DESTINATION,), (_NUMBER, *_CONTENT), _USUAL)
_SESSIONS: Final = Table("sessions", ("id TEXT NOT NULL",), ("principal TEXT NOT NULL", "away_since REAL"))
_SUBSCRIPTIONS: Final = Table("subscriptions", _SUBSCRIPTION_KEY, (_DESTINATION, *_HOW))
_PENDING: Final = Table("pending", _SUBSCRIPTION_KEY, ("destinations TEXT NOT NULL",))
TABLES: Final = (
    _MESSAGES,
    _SHARED,
    _BODIES,
    _DELAYED,
    _POSTPONED,
    _DUPLICATES,
    _VALUES,
    _SESSIONS,
    _SUBSCRIPTIONS,
    _PENDING,
)

# With row ids: a body of some kilobytes inside the tree of the key cost more than half of the rate.
_NEW: Final = (
    """CREATE TABLE broker (incarnation TEXT NOT NULL, runs INTEGER NOT NULL, is_clean INTEGER NOT NULL,
    is_copy INTEGER NOT NULL DEFAULT 0)""",
    *(table.declaration for table in TABLES),
    "CREATE INDEX shared_numbers ON shared_messages (number)",
    # The rows that refer to a body are its reference count, so the count cannot be wrong, and no statement
    # that drops them can leave the body behind.
    """CREATE TRIGGER unused_bodies AFTER DELETE ON shared_messages
    WHEN NOT EXISTS (SELECT 1 FROM shared_messages WHERE number = OLD.number)
    BEGIN DELETE FROM bodies WHERE number = OLD.number; END""",
)

# In words of their own: what a later version declares must not change what an older one becomes.
_FROM_1: Final = (
    "ALTER TABLE broker ADD COLUMN is_copy INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE messages RENAME COLUMN queue TO line",
    "ALTER TABLE messages ADD COLUMN is_request INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE last_values ADD COLUMN is_request INTEGER NOT NULL DEFAULT 0",
    # Nothing else could expire.
    "UPDATE messages SET is_request = 1 WHERE expires_at IS NOT NULL",
    """CREATE TABLE delayed (number INTEGER NOT NULL, destination TEXT NOT NULL, deliver_at REAL NOT NULL,
    headers TEXT NOT NULL, body BLOB NOT NULL, expires_at REAL, attempts INTEGER NOT NULL,
    is_request INTEGER NOT NULL, PRIMARY KEY (number))""",
    """CREATE TABLE duplicates (destination TEXT NOT NULL, id TEXT NOT NULL, until REAL NOT NULL,
    PRIMARY KEY (destination, id))""",
)
_FROM_2: Final = (
    """CREATE TABLE shared_messages (line TEXT NOT NULL, number INTEGER NOT NULL, attempts INTEGER NOT NULL,
    PRIMARY KEY (line, number))""",
    """CREATE TABLE bodies (number INTEGER NOT NULL, destination TEXT NOT NULL, headers TEXT NOT NULL,
    body BLOB NOT NULL, expires_at REAL, is_request INTEGER NOT NULL, PRIMARY KEY (number))""",
    "CREATE INDEX shared_numbers ON shared_messages (number)",
    """CREATE TRIGGER unused_bodies AFTER DELETE ON shared_messages
    WHEN NOT EXISTS (SELECT 1 FROM shared_messages WHERE number = OLD.number)
    BEGIN DELETE FROM bodies WHERE number = OLD.number; END""",
)

# A key cannot be changed in place. The owners of the ids are not known.
_DUPLICATES_BY_PRINCIPAL: Final = (
    "ALTER TABLE duplicates RENAME TO former_duplicates",
    """CREATE TABLE duplicates (destination TEXT NOT NULL, principal TEXT NOT NULL, id TEXT NOT NULL,
    until REAL NOT NULL, PRIMARY KEY (destination, principal, id))""",
    "INSERT INTO duplicates SELECT destination, '', id, until FROM former_duplicates",
    "DROP TABLE former_duplicates",
)

_FROM_3: Final = (
    """CREATE TABLE postponed (line TEXT NOT NULL, number INTEGER NOT NULL, due REAL NOT NULL,
    PRIMARY KEY (line, number))""",
)

_TO_4: Final = (*_FROM_2, *_DUPLICATES_BY_PRINCIPAL, *_FROM_3)

MIGRATIONS: Final = {0: _NEW, 1: (*_FROM_1, *_TO_4), 2: _TO_4, 3: _FROM_3}
"""By version (0: there is nothing yet): the statements that make the present tables of what is there."""


# --- writing ---


class Batch:
    """Writes of which only the last word on each row is left, so that their order no longer matters."""

    def __init__(self, writes: Sequence[Write]) -> None:
        self._rows: dict[Table, dict[_Row, _Row | None]] = {table: {} for table in TABLES}
        self._gone: list[tuple[str, int, int]] = []
        self._attempts: dict[_Row, int] = {}
        self._ended: list[str] = []
        self._texts: dict[_Headers, str] = {}
        messages, content = self._rows[_MESSAGES], self._content
        shared = self._rows[_SHARED]
        for write in writes:
            # Most are of these two types. Found by a match among all, they took two to five times as long.
            if type(write) is PutMessage:
                line, message = write.line, write.message
                key = (line, message.number)
                messages[key] = (*key, message.destination, *content(message))
            elif type(write) is DropMessage:
                line, number = write
                messages[line, number] = None
                if line[:1] == "\0":  # `may_share` inlined
                    shared[line, number] = None
            else:
                self._add(write)

    def _add(self, write: Write) -> None:
        rows = self._rows
        match write:
            case PutShared(lines, message):
                text, body, *_ = self._content(message)
                row = (
                    message.number,
                    message.destination,
                    text,
                    body,
                    message.expires_at,
                    message.is_request,
                )
                rows[_BODIES][message.number,] = row
                for line in lines:
                    rows[_SHARED][line, message.number] = (line, message.number, message.attempts)
            case PutAttempts(line, number, attempts):
                self._count(line, number, attempts)
            case DropMessages(line, after, up_to):
                self._gone.append((line, after, up_to))
            case PutDelayed() | DropDelayed() | PutPostponed() | DropPostponed():
                self._add_later(write)
            case PutDuplicate(destination, principal, id, until):
                rows[_DUPLICATES][destination, principal, id] = (destination, principal, id, until)
            case DropDuplicate(destination, principal, id):
                rows[_DUPLICATES][destination, principal, id] = None
            case PutValue(message):
                row = (message.destination, message.number, *self._content(message))
                rows[_VALUES][message.destination,] = row
            case DropValue(destination):
                rows[_VALUES][destination,] = None
            case PutMessage() | DropMessage():
                raise AssertionError("the loop has seen to them")
            case _:
                self._add_session(write)

    def _add_later(self, write: PutDelayed | DropDelayed | PutPostponed | DropPostponed) -> None:
        rows = self._rows
        match write:
            case PutDelayed(message, deliver_at):
                row = (message.number, message.destination, deliver_at, *self._content(message))
                rows[_DELAYED][message.number,] = row
            case DropDelayed(number):
                rows[_DELAYED][number,] = None
            case PutPostponed(line, number, due):
                rows[_POSTPONED][line, number] = (line, number, due)
            case DropPostponed(line, number):
                rows[_POSTPONED][line, number] = None
            case _:
                assert_never(write)

    def _add_session(
        self, write: PutSession | DropSession | PutSubscription | DropSubscription | PutPending
    ) -> None:
        rows = self._rows
        match write:
            case PutSession(id, principal, away_since):
                rows[_SESSIONS][id,] = (id, principal, away_since)
            case DropSession(id):
                self._end(id)
            case PutSubscription(session, id, destination, ack, prefetch, seen_number):
                rows[_SUBSCRIPTIONS][session, id] = (session, id, destination, ack, prefetch, seen_number)
            case DropSubscription(session, id):
                rows[_SUBSCRIPTIONS][session, id] = rows[_PENDING][session, id] = None
            case PutPending(session, id, destinations):
                rows[_PENDING][session, id] = (session, id, encode_json(destinations))
            case _:
                assert_never(write)

    def _count(self, line: str, number: int, attempts: int) -> None:
        """Change the attempts of a message: in this batch if it is put here, else in its row."""
        key = (line, number)
        put, shared = self._rows[_MESSAGES].get(key), self._rows[_SHARED].get(key)
        if put is not None:
            columns = len(_MESSAGES.key) + len(_MESSAGES.others)
            *content, _, is_request = (*put, None, 0, 0)[:columns]
            self._rows[_MESSAGES][key] = (*content, attempts, is_request)
        elif shared is not None:
            self._rows[_SHARED][key] = (*key, attempts)
        else:
            self._attempts[key] = attempts

    def _content(self, message: StoredMessage) -> _Row:
        # Messages that follow each other often have the very same headers.
        text = self._texts.get(message.headers)
        if text is None:
            text = self._texts[message.headers] = encode_json(message.headers)
        if message.expires_at is None and not message.attempts and not message.is_request:
            return text, message.body
        return text, message.body, message.expires_at, message.attempts, message.is_request

    def _end(self, session: str) -> None:
        """Drop a session: what was said of its subscriptions so far is void, what is said later is not."""
        self._rows[_SESSIONS][session,] = None
        self._ended.append(session)
        for table in (_SUBSCRIPTIONS, _PENDING):
            rows = self._rows[table]
            self._rows[table] = {key: row for key, row in rows.items() if key[0] != session}

    def write(self, db: sqlite3.Connection) -> None:
        """Write it all, inside a transaction."""
        for gone in self._gone:
            db.execute("DELETE FROM messages WHERE line = ? AND number > ? AND number <= ?", gone)
            if may_share(gone[0]):
                db.execute("DELETE FROM shared_messages WHERE line = ? AND number > ? AND number <= ?", gone)
        for session in self._ended:
            db.execute("DELETE FROM subscriptions WHERE session = ?", (session,))
            db.execute("DELETE FROM pending WHERE session = ?", (session,))
        self._write_attempts(db)
        self._leave_out_unused()
        for table, rows in self._rows.items():
            _execute_many(db, partial(_drop, table), [key for key, row in rows.items() if row is None])
            by_width: dict[int, list[_Row]] = {}
            for row in rows.values():
                if row is not None:
                    by_width.setdefault(len(row), []).append(row)
            for width, puts in by_width.items():
                _execute_many(db, partial(_put, table, width), puts)

    def _write_attempts(self, db: sqlite3.Connection) -> None:
        by_count: dict[int, list[_Row]] = {}
        for key, attempts in self._attempts.items():
            by_count.setdefault(attempts, []).append(key)
        for attempts, keys in by_count.items():
            for table in (_MESSAGES, _SHARED):
                _execute_many(db, partial(_count, table), keys, attempts)

    def _leave_out_unused(self) -> None:
        """Drop bodies that were put and dropped within this batch: no row will refer to them."""
        bodies = self._rows[_BODIES]
        if bodies:
            used = {number for (_, number), row in self._rows[_SHARED].items() if row is not None}
            self._rows[_BODIES] = {key: row for key, row in bodies.items() if key[0] in used}


def _execute_many(
    db: sqlite3.Connection, statement: Callable[[int], str], rows: Sequence[_Row], *first: Any
) -> None:
    """Execute a statement for all rows in few steps, whose sizes are powers of two, so that each is prepared
    once.

    Args:
        first: what is bound before the rows.
    """
    begin = 0
    while begin < len(rows):
        count = min(_MAX_ROWS, 1 << (len(rows) - begin).bit_length() - 1)
        part = rows[begin : begin + count]
        db.execute(statement(count), (*first, *chain.from_iterable(part)))
        begin += count


@cache
def _put(table: Table, width: int, count: int) -> str:
    columns = _names((*table.key, *table.others))
    left_out = len(columns) - width
    row = ", ".join(("?",) * width + table.usual[len(table.usual) - left_out :])
    # In place, not as REPLACE does by dropping the old row: nearly half as quick again for changing values.
    changes = ", ".join(f"{name} = excluded.{name}" for name in _names(table.others))
    keys = ", ".join(_names(table.key))
    rows = _times(count, row)
    return f"INSERT INTO {table.name} VALUES {rows} ON CONFLICT ({keys}) DO UPDATE SET {changes}"  # noqa: S608 - our names


@cache
def _drop(table: Table, count: int) -> str:
    return f"DELETE FROM {table.name} WHERE rowid IN ({_chosen(table, count)})"  # noqa: S608


@cache
def _count(table: Table, count: int) -> str:
    return f"UPDATE {table.name} SET attempts = ? WHERE rowid IN ({_chosen(table, count)})"  # noqa: S608


def _chosen(table: Table, count: int) -> str:
    """The row ids of this many keys."""
    # `(line, number) IN (VALUES …)` would read the whole table; CROSS JOIN holds SQLite to this order.
    on = " AND ".join(
        f"kept.{name} = chosen.column{place}" for place, name in enumerate(_names(table.key), 1)
    )
    rows = _times(count, ", ".join("?" * len(table.key)))
    return f"SELECT kept.rowid FROM (VALUES {rows}) AS chosen CROSS JOIN {table.name} AS kept ON {on}"  # noqa: S608


def _times(count: int, row: str) -> str:
    return ", ".join([f"({row})"] * count)
