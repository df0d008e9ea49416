"""A disk that fails, by the way SQLite's own connection reports it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import Any


class FaultyConnection(sqlite3.Connection):
    """Fails at some statement, and at all after it: as a disk does."""

    countdown: int = 10**9
    statement: str | None = None

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        self._fail(sql)
        return super().execute(sql, parameters)

    def executemany(self, sql: str, parameters: Iterable[Any], /) -> sqlite3.Cursor:
        self._fail(sql)
        return super().executemany(sql, parameters)

    @classmethod
    def _fail(cls, sql: str) -> None:
        # The end of a transaction that failed already is no new fault.
        if sql.startswith("ROLLBACK"):
            return
        if cls.statement is not None and sql.startswith(cls.statement):
            cls.countdown = 0
        cls.countdown -= 1
        if cls.countdown < 0:
            raise sqlite3.OperationalError("disk I/O error")


def failing_at(statement: str) -> type[FaultyConnection]:
    """A connection that fails at the first statement that begins so."""
    return type("Faulty", (FaultyConnection,), {"statement": statement})


def failing_after(statements: int) -> type[FaultyConnection]:
    """A connection that fails after a number of statements."""
    return type("Faulty", (FaultyConnection,), {"countdown": statements})


class FullDisk(sqlite3.Connection):
    """A disk that can be full: what is written then fails, and SQLite undoes the transaction by itself."""

    is_full: bool = False

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        if self.is_full and sql.startswith(("INSERT", "UPDATE", "DELETE", "COMMIT")):
            if self.in_transaction:
                super().execute("ROLLBACK")
            raise sqlite3.OperationalError("database or disk is full")
        return super().execute(sql, parameters)


def filling_disk() -> type[FullDisk]:
    """A connection of its own class, whose `is_full` is set for all that it makes."""
    return type("Filling", (FullDisk,), {})
