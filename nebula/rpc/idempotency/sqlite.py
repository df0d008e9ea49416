"""Replies kept in an SQLite file, for idempotency keys of all instances on one machine."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, TypeVar

import anyio.to_thread

from nebula.logs import get_logger
from nebula.private import free_bytes_at, make_private, make_private_database
from nebula.rpc.idempotency.store import Claim, Reach, StoreFailed, sender_of
from nebula.threads import ThreadLimit

_log = get_logger(__name__)

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

# Between two tries where it does not wait by itself.
_LOOK_SECONDS: Final = 0.01

# The sender whose replies take most; and, of those, as many as take that many bytes, the first to end first.
_LARGEST: Final = """
SELECT sender(key) AS whose FROM answers WHERE answer IS NOT NULL
GROUP BY whose ORDER BY sum(length(answer) + 200) DESC LIMIT 1
"""
_FORGET: Final = """
DELETE FROM answers WHERE key IN (
    SELECT key FROM (
        SELECT key, length(answer) AS size, sum(length(answer)) OVER (ORDER BY until, key) AS so_far
        FROM answers WHERE answer IS NOT NULL AND sender(key) = ?
    ) WHERE so_far - size < ?
)
"""

# Replies between deletions of expired ones.
_PRUNE_EVERY: Final = 100

# A full file makes room for more than the next reply: to see whose are the most is to look at all of them.
_ROOM: Final = 1 / 64


# The tables keep the word "answers" of the first version: files of running services have it.
class SqliteStore:
    """Keeps replies in a file that all instances on this machine share, if they run as the same user.

    What it keeps survives the processes. After a power failure the last few replies may be missing.

    Args:
        path: of the file. It is made for this user alone, and so is its folder; the file must be on a local
            disk.
        max_bytes: of the file, roughly. When it is full, the replies that would expire first are dropped, of
            the sender with the most; the log says so, once. Those requests are handled again when they come
            again.
        clock: the wall clock, in seconds; the processes share it.
        min_free_disk_bytes: with less free space on its disk the file counts as full and does not grow.
        free_bytes: returns the free space on the disk of a folder.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        max_bytes: int = 1024**3,
        clock: Callable[[], float] = time.time,
        min_free_disk_bytes: int = 256 * 1024**2,
        free_bytes: Callable[[Path], int] = free_bytes_at,
    ) -> None:
        self._path = Path(path)
        self._max_bytes = max_bytes
        self._min_free_disk_bytes, self._free_bytes = min_free_disk_bytes, free_bytes
        self._clock = clock
        self._connection: sqlite3.Connection | None = None
        # One thread at a time uses the connection, and of each loop one at most waits for it.
        self._lock = threading.Lock()
        self._thread_limit = ThreadLimit(1)
        self._until_prune = 1
        self._has_told = False

    @property
    def reach(self) -> Reach:
        """All instances on this machine."""
        return Reach.MACHINE

    async def claim(self, key: str, fingerprint: str, owner: str, lease: float) -> Claim:
        """Claim a key, or return what it stands for; see `IdempotencyStore`."""

        def claim(db: sqlite3.Connection) -> Claim:
            now = self._clock()
            row = db.execute(
                "SELECT fingerprint, until, answer FROM answers WHERE key = ?", (key,)
            ).fetchone()
            # A claim whose lease is over, and a reply whose window is over, count as absent, whether or
            # not they were deleted.
            if row is not None and now < row[1]:
                return Claim(row[0], reply=row[2])
            db.execute(
                "INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?, NULL)",
                (key, fingerprint, owner, now + lease),
            )
            return Claim(fingerprint, is_mine=True)

        return await self._do(claim)

    async def renew(self, claims: Iterable[tuple[str, str]], lease: float) -> None:
        """Extend claims."""
        rows = [(key, owner) for key, owner in claims]

        def renew(db: sqlite3.Connection) -> None:
            until = self._clock() + lease
            db.executemany(
                "UPDATE answers SET until = ? WHERE key = ? AND owner = ? AND answer IS NULL",
                [(until, key, owner) for key, owner in rows],
            )

        await self._do(renew)

    async def keep(self, key: str, owner: str, reply: bytes, window: float) -> None:
        """Keep a reply."""

        def keep(db: sqlite3.Connection) -> None:
            now = self._clock()
            most = self._most_bytes(db)
            db.execute(
                "UPDATE answers SET answer = ?, until = ? WHERE key = ? AND owner = ? AND answer IS NULL",
                (reply, now + window, key, owner),
            )
            self._until_prune -= 1
            is_full = _used_bytes(db) > most
            if not self._until_prune or is_full:
                self._until_prune = _PRUNE_EVERY
                db.execute("DELETE FROM answers WHERE until <= ?", (now,))
            if is_full:
                self._make_room(db, most)

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
            await anyio.to_thread.run_sync(self._close, limiter=self._thread_limit.limiter)

    def _most_bytes(self, db: sqlite3.Connection) -> int:
        """How many bytes of the file may be in use.

        On a nearly full disk, three quarters of its present size. That leaves room for the next replies,
        which are written before others are removed.
        """
        if self._free_bytes(self._path.parent) >= self._min_free_disk_bytes:
            return self._max_bytes
        return min(self._max_bytes, _pragma(db, "page_count") * _pragma(db, "page_size") * 3 // 4)

    def _make_room(self, db: sqlite3.Connection, most: int) -> None:
        while (over := _used_bytes(db) - most) > 0:
            largest = db.execute(_LARGEST).fetchone()
            if largest is None:
                return  # claims alone
            if not self._has_told:
                self._has_told = True
                _log.warning("replies dropped before their time", file=str(self._path))
            db.execute(_FORGET, (largest[0], max(over, int(most * _ROOM))))

    async def _do(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        """Do work in one transaction, in a thread."""

        def do() -> _T:
            try:
                with self._lock:
                    db = self._opened()
                    # From the start of it: what is read must still hold when it is written.
                    db.execute("BEGIN IMMEDIATE")
                    with db:
                        return work(db)
            except (sqlite3.Error, OSError) as error:
                raise StoreFailed(f"{self._path}: {error}") from error

        return await anyio.to_thread.run_sync(do, limiter=self._thread_limit.limiter)

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            make_private(self._path.parent)
            make_private_database(self._path)
            db = sqlite3.connect(self._path, timeout=_PATIENCE, check_same_thread=False, isolation_level=None)
            try:
                write_ahead(db)
                # Not FULL, as for jobs: a lost reply means that a request is handled again after a power
                # failure, as it would be without a key. FULL would cost each request a wait for the disk.
                db.execute("PRAGMA synchronous = NORMAL")
                db.executescript(_SCHEMA)
                db.create_function("sender", 1, sender_of, deterministic=True)
            except BaseException:
                db.close()
                raise
            self._connection = db
        return self._connection

    def _close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None


def write_ahead(db: sqlite3.Connection) -> None:
    """Have a file written ahead: SQLite waits for others everywhere but here, where two may do so at once."""
    until = time.monotonic() + _PATIENCE
    while True:
        try:
            db.execute("PRAGMA journal_mode = WAL").close()
        except sqlite3.OperationalError:
            if time.monotonic() > until:
                raise
            time.sleep(_LOOK_SECONDS)
        else:
            return


def _used_bytes(db: sqlite3.Connection) -> int:
    return (_pragma(db, "page_count") - _pragma(db, "freelist_count")) * _pragma(db, "page_size")


def _pragma(db: sqlite3.Connection, name: str) -> int:
    found: int = db.execute(f"PRAGMA {name}").fetchone()[0]
    return found
