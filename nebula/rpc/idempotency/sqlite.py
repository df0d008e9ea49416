"""Answers kept in one SQLite file: for all instances on one machine, and over their restarts."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Final, TypeVar

import anyio
import anyio.to_thread

from nebula.rpc.idempotency.store import Claim, Reach, StoreFailed

_T = TypeVar("_T")

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS answers (
    key TEXT PRIMARY KEY,
    fingerprint TEXT NOT NULL,
    owner TEXT NOT NULL,
    until REAL NOT NULL,
    answer BLOB
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS answers_until ON answers (until);
"""

# Seconds to wait for another process that writes.
_PATIENCE: Final = 5.0

# What is over is deleted with every so many answers kept.
_PRUNE_EVERY: Final = 100


class SqliteStore:
    """Keeps answers in a file that all instances on this machine share.

    What it keeps survives the processes. After a power failure the last few answers may be missing.

    Args:
        path: of the file. It is made, and so is its folder; the file must be on a local disk.
        max_answers: kept at a time; beyond them those go first that would end first.
        clock: the wall clock, in seconds; the processes share it.
    """

    def __init__(
        self, path: Path | str, *, max_answers: int = 100_000, clock: Callable[[], float] = time.time
    ) -> None:
        self._path = Path(path)
        self._max_answers = max_answers
        self._clock = clock
        self._connection: sqlite3.Connection | None = None
        self._limiter: anyio.CapacityLimiter | None = None
        self._until_prune = 1

    @property
    def reach(self) -> Reach:
        """All instances on this machine."""
        return Reach.MACHINE

    async def claim(self, key: str, fingerprint: str, owner: str, lease: float) -> Claim:
        """Take a key, or tell what it stands for; see `IdempotencyStore`."""

        def claim(db: sqlite3.Connection) -> Claim:
            now = self._clock()
            row = db.execute(
                "SELECT fingerprint, until, answer FROM answers WHERE key = ?", (key,)
            ).fetchone()
            if row is not None and now < row[1]:
                return Claim(row[0], answer=row[2])
            db.execute(
                "INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?, NULL)",
                (key, fingerprint, owner, now + lease),
            )
            return Claim(fingerprint, is_mine=True)

        return await self._do(claim)

    async def renew(self, claims: Iterable[tuple[str, str]], lease: float) -> None:
        """Keep claims from ending."""
        rows = [(key, owner) for key, owner in claims]

        def renew(db: sqlite3.Connection) -> None:
            until = self._clock() + lease
            db.executemany(
                "UPDATE answers SET until = ? WHERE key = ? AND owner = ? AND answer IS NULL",
                [(until, key, owner) for key, owner in rows],
            )

        await self._do(renew)

    async def keep(self, key: str, owner: str, answer: bytes, window: float) -> None:
        """Keep an answer."""

        def keep(db: sqlite3.Connection) -> None:
            now = self._clock()
            db.execute(
                "UPDATE answers SET answer = ?, until = ? WHERE key = ? AND owner = ? AND answer IS NULL",
                (answer, now + window, key, owner),
            )
            self._until_prune -= 1
            if not self._until_prune:
                self._until_prune = _PRUNE_EVERY
                self._prune(db, now)

        await self._do(keep)

    async def release(self, key: str, owner: str) -> None:
        """Give up a claim."""
        await self._do(
            lambda db: db.execute(
                "DELETE FROM answers WHERE key = ? AND owner = ? AND answer IS NULL", (key, owner)
            )
        )

    async def close(self) -> None:
        """Close the file."""
        if self._connection is not None:
            await anyio.to_thread.run_sync(self._close, limiter=self._turns())

    def _prune(self, db: sqlite3.Connection, now: float) -> None:
        db.execute("DELETE FROM answers WHERE until <= ?", (now,))
        (count,) = db.execute("SELECT count(*) FROM answers").fetchone()
        db.execute(
            "DELETE FROM answers WHERE key IN "
            "(SELECT key FROM answers WHERE answer IS NOT NULL ORDER BY until LIMIT ?)",
            (max(0, count - self._max_answers),),
        )

    def _turns(self) -> anyio.CapacityLimiter:
        # Made on the loop that uses it; one thread at a time uses the connection.
        if self._limiter is None:
            self._limiter = anyio.CapacityLimiter(1)
        return self._limiter

    async def _do(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        """Do work in one transaction, in a thread."""

        def do() -> _T:
            try:
                db = self._opened()
                # From the start of it: what is read must still hold when it is written.
                db.execute("BEGIN IMMEDIATE")
                with db:
                    return work(db)
            except (sqlite3.Error, OSError) as error:
                raise StoreFailed(f"{self._path}: {error}") from error

        return await anyio.to_thread.run_sync(do, limiter=self._turns())

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            db = sqlite3.connect(self._path, timeout=_PATIENCE, check_same_thread=False, isolation_level=None)
            with closing(db.execute("PRAGMA journal_mode = WAL")):
                db.execute("PRAGMA synchronous = NORMAL")
            db.executescript(_SCHEMA)
            self._connection = db
        return self._connection

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
            self._limiter = None
