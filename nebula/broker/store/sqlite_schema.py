"""SQL schema of the store, its versions and the migrations between them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from nebula.broker.core.tables import TABLES, Table
from nebula.broker.store.columns import Column, ColumnType, columns_of, key_of

__all__ = ["MIGRATIONS", "SQL_TYPES", "VERSION", "encode_json"]

VERSION: Final = 4
"""The version of the tables. It rises with every change."""

SQL_TYPES: Final[Mapping[ColumnType, str]] = {
    ColumnType.TEXT: "TEXT",
    ColumnType.INTEGER: "INTEGER",
    ColumnType.BOOLEAN: "INTEGER",
    ColumnType.REAL: "REAL",
    ColumnType.BLOB: "BLOB",
    ColumnType.PAIRS: "TEXT",
    ColumnType.TEXTS: "TEXT",
}
"""The SQL types of columns. Lists are JSON (`encode_json`)."""

# Readable with SQLite's own shell. A length-prefixed form was as long, and not faster on the whole.
# `ensure_ascii=False` keeps headers in UTF-8 short.
encode_json: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode
"""How headers and lists of names are written."""


def _declaration(table: Table) -> str:
    columns = ", ".join(map(_declared, columns_of(table)))
    key = ", ".join(column.name for column in key_of(table))
    return f"CREATE TABLE {table.name} ({columns}, PRIMARY KEY ({key}))"


def _declared(column: Column) -> str:
    return f"{column.name} {SQL_TYPES[column.type]}" + ("" if column.is_optional else " NOT NULL")


# With row ids: a body of some kilobytes inside the tree of the key cost more than half of the rate.
_NEW: Final = (
    """CREATE TABLE broker (incarnation TEXT NOT NULL, runs INTEGER NOT NULL, is_clean INTEGER NOT NULL,
    is_copy INTEGER NOT NULL DEFAULT 0)""",
    *map(_declaration, TABLES),
    "CREATE INDEX shared_numbers ON shared_messages (number)",
    # The rows that refer to a body are its reference count, so the count cannot be wrong, and no statement
    # that drops them can leave the body behind.
    """CREATE TRIGGER unused_bodies AFTER DELETE ON shared_messages
    WHEN NOT EXISTS (SELECT 1 FROM shared_messages WHERE number = OLD.number)
    BEGIN DELETE FROM bodies WHERE number = OLD.number; END""",
)

# Migrations spell out their tables: a declaration that changes in a later version must not change what a
# migration to an earlier one makes.
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

# From each version directly to the present one, in one transaction.
MIGRATIONS: Final = {0: _NEW, 1: (*_FROM_1, *_TO_4), 2: _TO_4, 3: _FROM_3}
"""By version (0: a new file): the statements that lead to the present tables."""
