"""SQLite registry: the table of one instance's jobs, in its state folder."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

from nebula.private import free_bytes_at, make_private_database
from nebula.rpc.jobs.registry.counting import SQLITE_COUNTING
from nebula.rpc.jobs.registry.errors import RegistryFailed, RegistryFull
from nebula.rpc.jobs.registry.registry import Disk, JobRegistry
from nebula.rpc.jobs.registry.rows import COLUMNS

__all__ = ["REGISTRY_FILE", "SqliteJobRegistry", "peek"]

_T = TypeVar("_T")

REGISTRY_FILE: Final = "jobs.sqlite"

_VERSION: Final = 5

# The text of SQLITE_FULL.
_FULL: Final = "database or disk is full"

# Size to which the write-ahead log is truncated.
_LOG_BYTES: Final = 16 * 1024 * 1024

_LINES: Final = """
CREATE TABLE lines (job TEXT NOT NULL, number INTEGER NOT NULL, at REAL NOT NULL, text TEXT NOT NULL,
    PRIMARY KEY (job, number)) WITHOUT ROWID;
"""
# `job.list` filters by owner or verb and sorts by `accepted_at`: with both in one index, a page needs no
# sort.
_INDICES: Final = """
CREATE INDEX job_verbs ON jobs (verb, accepted_at);
CREATE INDEX job_owners ON jobs (owner, accepted_at);
CREATE INDEX job_times ON jobs (accepted_at);
CREATE INDEX jobs_owed ON jobs (number) WHERE is_owed;
"""

# From each version to the next: what it lacks.
_UPGRADES: Final = {
    1: "ALTER TABLE jobs ADD COLUMN traceparent; ALTER TABLE jobs ADD COLUMN tracestate;",
    2: f"""
        ALTER TABLE jobs ADD COLUMN steps;
        ALTER TABLE jobs ADD COLUMN counters;
        ALTER TABLE jobs ADD COLUMN rerun_of;
        ALTER TABLE jobs ADD COLUMN is_owed;
        ALTER TABLE jobs ADD COLUMN exclusive;
        ALTER TABLE jobs ADD COLUMN not_before;
        ALTER TABLE jobs ADD COLUMN holder;
        ALTER TABLE lines RENAME TO old_lines;
        {_LINES}
        INSERT INTO lines SELECT job, row_number() OVER (PARTITION BY job ORDER BY number), at, text
            FROM old_lines;
        DROP TABLE old_lines;
        {_INDICES}
    """,  # noqa: S608 - our own words
    3: """
        DROP INDEX job_verbs;
        DROP INDEX job_owners;
        CREATE INDEX job_verbs ON jobs (verb, accepted_at);
        CREATE INDEX job_owners ON jobs (owner, accepted_at);
    """,
    4: SQLITE_COUNTING,
}

_SCHEMA: Final = f"""
CREATE TABLE jobs (number INTEGER PRIMARY KEY, {", ".join(COLUMNS)});
CREATE UNIQUE INDEX job_ids ON jobs (id);
CREATE UNIQUE INDEX job_keys ON jobs (owner, verb, dedupe) WHERE dedupe IS NOT NULL;
CREATE INDEX job_states ON jobs (state);
{_LINES}
{_INDICES}
{SQLITE_COUNTING}
PRAGMA user_version = {_VERSION};
"""


# WAL, because other instances look into this file while its owner writes (`peek`): in WAL mode readers
# and the writer do not wait for each other. `synchronous = FULL`, because the early `success` promises
# that the job survives a power cut; NORMAL could lose the last commits.
class SqliteJobRegistry(JobRegistry):
    """An instance's jobs, on disk.

    Not for several threads at once. What was written inside `transaction` is on the disk when that
    ends; what is read is what was written. Each change of state is checked against the table of
    transitions.

    Args:
        path: of the file. A missing one is created for this user alone. Only one process at a time may write
            it.
        is_read_only: the file must exist, and its writer is not disturbed.
        connect: opens it.
        free_bytes: returns the free space on the disk of a path.

    Raises:
        RegistryFull: the disk is full. Opening it and transactions raise it.
        sqlite3.Error: it cannot be opened. Each method may raise it too.
    """

    def __init__(
        self,
        path: Path,
        *,
        is_read_only: bool = False,
        connect: Callable[..., sqlite3.Connection] = sqlite3.connect,
        free_bytes: Callable[[Path], int] = free_bytes_at,
    ) -> None:
        super().__init__(str(path))
        self._path, self._free_bytes = path, free_bytes
        mode = "ro" if is_read_only else "rwc"
        if not is_read_only:
            # Before SQLite opens it, which would create it with the rights of the umask. SQLite gives its log
            # and shared memory the rights of the file.
            make_private_database(path)
        # Calls come from worker threads, one at a time.
        self._db = connect(
            f"{path.absolute().as_uri()}?mode={mode}", uri=True, isolation_level=None, check_same_thread=False
        )
        try:
            self._prepare(path, is_read_only=is_read_only)
        except BaseException as error:
            self._db.close()
            self._raise_full(error)
            raise

    def _prepare(self, path: Path, *, is_read_only: bool) -> None:
        version = self._db.execute("PRAGMA user_version").fetchone()[0]
        # A reader never upgrades: the file is another instance's, which may be of an older version and
        # running. Its jobs are not found until it is restarted (`peek` returns None).
        if version != _VERSION and (is_read_only or version not in (0, *_UPGRADES)):
            raise sqlite3.DatabaseError(f"{path} was written by another version of Nebula ({version})")
        if not is_read_only:
            self._db.execute("PRAGMA journal_mode = WAL")
            # An early success is a promise that a power cut does not break.
            self._db.execute("PRAGMA synchronous = FULL")
            # After a burst the log gives its room back.
            self._db.execute(f"PRAGMA journal_size_limit = {_LOG_BYTES}")
        if version == 0:
            self._db.executescript(f"BEGIN;{_SCHEMA}COMMIT;")
        elif version in _UPGRADES:
            # All steps in one transaction: a crash leaves the old version, never something in between.
            steps = "".join(_UPGRADES[one] for one in range(version, _VERSION))
            self._db.executescript(f"BEGIN;{steps}PRAGMA user_version = {_VERSION};COMMIT;")

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All that is written in the block is on the disk when it ends, or nothing of it if it raises."""
        try:
            # IMMEDIATE takes the write lock now: a transaction that begins by reading may find later that it
            # cannot write.
            self._db.execute("BEGIN IMMEDIATE")
            yield
            self._db.execute("COMMIT")
        except BaseException as error:
            # SQLite has rolled back by itself where the disk is full.
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            self._raise_full(error)
            raise

    @contextmanager
    def part(self) -> Iterator[None]:
        """Inside a transaction: what the block wrote is undone if it raises, and nothing else is."""
        try:
            self._db.execute("SAVEPOINT part")
            yield
        except BaseException as error:
            self._raise_full(error)
            if not self._db.in_transaction:
                # The other parts are rolled back as well, and what follows would be outside a transaction.
                raise RegistryFailed(f"{self.place}: {error}") from error
            # ROLLBACK TO leaves the savepoint open; RELEASE ends it.
            self._db.execute("ROLLBACK TO part")
            self._db.execute("RELEASE part")
            raise
        self._db.execute("RELEASE part")

    def lock(self) -> None:
        """See `JobRegistry`: each transaction begins with it."""

    def disk(self) -> Disk:
        """See `JobRegistry`. Space that the log will need in the file does not count as free."""
        # Pages in the log take space on the disk now, and again in the file at the next checkpoint.
        log = self._path.with_name(self._path.name + "-wal")
        try:
            log_bytes = log.stat().st_size
        except FileNotFoundError:
            log_bytes = 0
        pages, size = (
            self._db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("freelist_count", "page_size")
        )
        return Disk(self._free_bytes(self._path.parent) - log_bytes, pages * size)

    def _raise_full(self, error: BaseException) -> None:
        """Raise an error that says what to do, if SQLite reports a full disk."""
        if not isinstance(error, sqlite3.OperationalError) or _FULL not in str(error):
            return
        try:
            free = f"{self._free_bytes(self._path.parent):,} bytes are free"
        except OSError:
            free = "how much is free is not known"
        raise RegistryFull(
            f"{self.place}: the disk is full ({free}): jobs cannot be recorded, and the service ends; "
            "make room and start it again, what was accepted is kept"
        ) from error

    def _all(self, sql: str, *values: Any) -> Iterable[Sequence[Any]]:
        return self._db.execute(sql, values)

    def _do(self, sql: str, *values: Any) -> int:
        return self._db.execute(sql, values).rowcount

    def _do_all(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        self._db.executemany(sql, rows)


def peek(folder: Path, read: Callable[[JobRegistry], _T]) -> _T | None:
    """Look for jobs in another instance's folder, which may be in use, without changing it.

    A folder that cannot be read holds no job that a caller could be referred to.
    """
    file = folder / REGISTRY_FILE
    if not file.exists():
        return None
    try:
        # In WAL mode a reader sees the last commit and does not block the writer.
        registry = SqliteJobRegistry(file, is_read_only=True)
    except (sqlite3.Error, RegistryFull):
        return None
    try:
        return read(registry)
    except sqlite3.Error:
        return None
    finally:
        registry.close()
