"""The table of an instance's jobs in SQLite, in its folder."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

from nebula.rpc.jobs.registry import JobRegistry
from nebula.rpc.jobs.rows import COLUMNS

__all__ = ["REGISTRY_FILE", "SqliteJobRegistry", "peek"]

_T = TypeVar("_T")

REGISTRY_FILE: Final = "jobs.sqlite"

_VERSION: Final = 4

_LINES: Final = """
CREATE TABLE lines (job TEXT NOT NULL, number INTEGER NOT NULL, at REAL NOT NULL, text TEXT NOT NULL,
    PRIMARY KEY (job, number)) WITHOUT ROWID;
"""
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
}

_SCHEMA: Final = f"""
CREATE TABLE jobs (number INTEGER PRIMARY KEY, {", ".join(COLUMNS)});
CREATE UNIQUE INDEX job_ids ON jobs (id);
CREATE UNIQUE INDEX job_keys ON jobs (owner, verb, dedupe) WHERE dedupe IS NOT NULL;
CREATE INDEX job_states ON jobs (state);
{_LINES}
{_INDICES}
PRAGMA user_version = {_VERSION};
"""


class SqliteJobRegistry(JobRegistry):
    """An instance's jobs, on disk.

    Not for several threads at once. What was written inside `transaction` is on the disk when that
    ends; what is read is what was written. Each change of state is checked against the table of
    transitions.

    Args:
        path: of the file, made if it is not there. One process at a time may write it.
        is_read_only: it has to be there, and whoever writes it is not disturbed.
        connect: opens it.

    Raises:
        sqlite3.Error: it cannot be opened. Each method may raise it too.
    """

    def __init__(
        self,
        path: Path,
        *,
        is_read_only: bool = False,
        connect: Callable[..., sqlite3.Connection] = sqlite3.connect,
    ) -> None:
        super().__init__(str(path))
        mode = "ro" if is_read_only else "rwc"
        # Calls come from worker threads, one at a time.
        self._db = connect(
            f"{path.absolute().as_uri()}?mode={mode}", uri=True, isolation_level=None, check_same_thread=False
        )
        try:
            self._prepare(path, is_read_only=is_read_only)
        except BaseException:
            self._db.close()
            raise

    def _prepare(self, path: Path, *, is_read_only: bool) -> None:
        version = self._db.execute("PRAGMA user_version").fetchone()[0]
        if version != _VERSION and (is_read_only or version not in (0, *_UPGRADES)):
            raise sqlite3.DatabaseError(f"{path} was written by another version of Nebula ({version})")
        if not is_read_only:
            self._db.execute("PRAGMA journal_mode = WAL")
            # An early success is a promise that a power cut does not break.
            self._db.execute("PRAGMA synchronous = FULL")
        if version == 0:
            self._db.executescript(f"BEGIN;{_SCHEMA}COMMIT;")
        elif version in _UPGRADES:
            steps = "".join(_UPGRADES[one] for one in range(version, _VERSION))
            self._db.executescript(f"BEGIN;{steps}PRAGMA user_version = {_VERSION};COMMIT;")

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All that is written in the block is on the disk when it ends, or nothing of it if it raises."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            # SQLite has rolled back by itself where the disk is full.
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    @contextmanager
    def part(self) -> Iterator[None]:
        """Inside a transaction: what the block wrote is undone if it raises, and nothing else is."""
        self._db.execute("SAVEPOINT part")
        try:
            yield
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK TO part")
                self._db.execute("RELEASE part")
            raise
        self._db.execute("RELEASE part")

    def lock(self) -> None:
        """See `JobRegistry`: each transaction begins with it."""

    def _all(self, sql: str, *values: Any) -> Iterable[Sequence[Any]]:
        return self._db.execute(sql, values)

    def _do(self, sql: str, *values: Any) -> int:
        return self._db.execute(sql, values).rowcount

    def _do_all(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        self._db.executemany(sql, rows)


def peek(folder: Path, read: Callable[[JobRegistry], _T]) -> _T | None:
    """Look for jobs in another instance's folder, which may be in use, without changing it.

    A folder that cannot be read holds nothing that anybody could be sent to.
    """
    file = folder / REGISTRY_FILE
    if not file.exists():
        return None
    try:
        registry = SqliteJobRegistry(file, is_read_only=True)
    except sqlite3.Error:
        return None
    try:
        return read(registry)
    except sqlite3.Error:
        return None
    finally:
        registry.close()
