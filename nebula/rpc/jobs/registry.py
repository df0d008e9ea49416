"""The table of an instance's jobs: SQLite, which outlives the process."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from nebula.rpc.jobs.record import JobRecord, LogLine
from nebula.rpc.jobs.runner import JobOutput
from nebula.rpc.jobs.states import (
    END_STATES,
    JobState,
    error_from_json,
    require_transition,
    tasks_from_json,
)

__all__ = ["MAX_LOG_LINES", "REGISTRY_FILE", "JobFilter", "JobRegistry", "peek"]

REGISTRY_FILE: Final = "jobs.sqlite"

# A job that logs in a loop must not fill the disk.
MAX_LOG_LINES: Final = 1000

_VERSION: Final = 2

# From each version to the next: what it lacks.
_UPGRADES: Final = {
    1: "ALTER TABLE jobs ADD COLUMN traceparent; ALTER TABLE jobs ADD COLUMN tracestate;",
}

# One column for each field of a record, so that a new field is one line in one place.
_COLUMNS: Final = tuple(one.name for one in fields(JobRecord))
_JSON_COLUMNS: Final = frozenset({"parameters", "step", "tasks", "output", "error"})

_SCHEMA: Final = f"""
CREATE TABLE jobs (number INTEGER PRIMARY KEY, {", ".join(_COLUMNS)});
CREATE UNIQUE INDEX job_ids ON jobs (id);
CREATE UNIQUE INDEX job_keys ON jobs (owner, verb, dedupe) WHERE dedupe IS NOT NULL;
CREATE INDEX job_states ON jobs (state);
CREATE TABLE lines (number INTEGER PRIMARY KEY, job TEXT NOT NULL, at REAL NOT NULL, text TEXT NOT NULL);
CREATE INDEX job_lines ON lines (job, number);
PRAGMA user_version = {_VERSION};
"""

_LISTED: Final = ", ".join(_COLUMNS)
_INSERT: Final = f"INSERT INTO jobs ({_LISTED}) VALUES ({', '.join('?' * len(_COLUMNS))})"  # noqa: S608 - our names
_UPDATE: Final = f"UPDATE jobs SET {', '.join(f'{one} = ?' for one in _COLUMNS)} WHERE id = ?"  # noqa: S608
_SELECT: Final = f"SELECT {_LISTED} FROM jobs"  # noqa: S608
_ENDED: Final = ", ".join(f"'{state}'" for state in sorted(END_STATES))
_OLD: Final = f"""
{_SELECT} WHERE state IN ({_ENDED}) AND (ended_at < ? OR number IN
(SELECT number FROM jobs WHERE state IN ({_ENDED}) ORDER BY number DESC LIMIT -1 OFFSET ?))
"""  # noqa: S608


class JobFilter(NamedTuple):
    """Which jobs to list; None asks for any."""

    state: JobState | None = None
    verb: str | None = None
    owner: str | None = None


class JobRegistry:
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

    # --- reading ---

    def find(self, job: str) -> JobRecord | None:
        """The job with this ULID."""
        return _only(self._db.execute(f"{_SELECT} WHERE id = ?", (job,)))

    def find_same(self, wanted: JobRecord) -> JobRecord | None:
        """The job that this one would be if it were asked for again: of its id, else of its key."""
        found = self.find(wanted.id)
        if found is None and wanted.dedupe is not None:
            query = f"{_SELECT} WHERE owner = ? AND verb = ? AND dedupe = ?"
            return _only(self._db.execute(query, (wanted.owner, wanted.verb, wanted.dedupe)))
        return found

    def open_jobs(self) -> list[JobRecord]:
        """The jobs that have not ended, in the order they were accepted."""
        query = f"{_SELECT} WHERE state NOT IN ({_ENDED}) ORDER BY number"
        return list(map(_record, self._db.execute(query)))

    def page(self, chosen: JobFilter, limit: int, before: str | None = None) -> list[JobRecord]:
        """Some jobs, the latest first.

        Args:
            chosen: which.
            limit: how many at most.
            before: only those accepted before this one.
        """
        wanted = {name: value for name, value in chosen._asdict().items() if value is not None}
        clauses = [f"{name} = ?" for name in wanted]
        values = list(wanted.values())
        if before is not None:
            clauses.append("number < (SELECT number FROM jobs WHERE id = ?)")
            values.append(before)
        where = f"WHERE {' AND '.join(clauses)}" if clauses else ""
        query = f"{_SELECT} {where} ORDER BY number DESC LIMIT ?"
        return list(map(_record, self._db.execute(query, (*values, limit))))

    def old_jobs(self, ended_before: float, keep: int) -> list[JobRecord]:
        """The jobs that ended before this time, and the oldest beyond `keep`; never an open one."""
        return list(map(_record, self._db.execute(_OLD, (ended_before, keep))))

    def lines(self, job: str, limit: int) -> list[LogLine]:
        """The last lines of a job's log, the oldest first."""
        query = "SELECT at, text FROM lines WHERE job = ? ORDER BY number DESC LIMIT ?"
        return [LogLine(*row) for row in self._db.execute(query, (job, limit))][::-1]

    # --- writing ---

    def insert(self, record: JobRecord) -> None:
        """Add a job.

        Raises:
            sqlite3.IntegrityError: its id, or its key for this owner and verb, is taken.
        """
        self._db.execute(_INSERT, _row(record))

    def save(self, record: JobRecord, lines: Sequence[LogLine] = ()) -> None:
        """Replace what is known of a job, and add to its log.

        Raises:
            IllegalTransition: its state may not follow the one that is written.
            LookupError: there is no such job.
        """
        row = self._db.execute("SELECT state FROM jobs WHERE id = ?", (record.id,)).fetchone()
        if row is None:
            raise LookupError(f"no job {record.id}")
        require_transition(record.id, JobState(row[0]), record.state)
        self._db.execute(_UPDATE, (*_row(record), record.id))
        self.add_lines(record.id, lines)

    def add_lines(self, job: str, lines: Iterable[LogLine]) -> None:
        """Add to a job's log; of more than `MAX_LOG_LINES` the oldest go."""
        rows = [(job, *line) for line in lines]
        if not rows:
            return
        self._db.executemany("INSERT INTO lines (job, at, text) VALUES (?, ?, ?)", rows)
        self._db.execute(
            "DELETE FROM lines WHERE job = ?1 AND number <= "
            "(SELECT number FROM lines WHERE job = ?1 ORDER BY number DESC LIMIT 1 OFFSET ?2)",
            (job, MAX_LOG_LINES),
        )

    def forget(self, jobs: Iterable[str]) -> None:
        """Remove jobs, by ULID, with their logs."""
        names = [(job,) for job in jobs]
        self._db.executemany("DELETE FROM lines WHERE job = ?", names)
        self._db.executemany("DELETE FROM jobs WHERE id = ?", names)


def peek(folder: Path, read: Callable[[JobRegistry], JobRecord | None]) -> JobRecord | None:
    """Look for a job in another instance's folder, which may be in use, without changing it.

    A folder that cannot be read holds nothing that anybody could be sent to.
    """
    file = folder / REGISTRY_FILE
    if not file.exists():
        return None
    try:
        registry = JobRegistry(file, is_read_only=True)
    except sqlite3.Error:
        return None
    try:
        return read(registry)
    except sqlite3.Error:
        return None
    finally:
        registry.close()


def _only(rows: Iterable[Sequence[Any]]) -> JobRecord | None:
    return next(map(_record, rows), None)


def _row(record: JobRecord) -> tuple[Any, ...]:
    return tuple(
        _json(getattr(record, name)) if name in _JSON_COLUMNS else getattr(record, name) for name in _COLUMNS
    )


def _json(value: Any) -> str | None:
    if value is None:
        return None
    plain = asdict(value) if hasattr(value, "__dataclass_fields__") else value
    return json.dumps(plain, separators=(",", ":"))


def _record(row: Sequence[Any]) -> JobRecord:
    values = dict(zip(_COLUMNS, row, strict=True))
    for name in _JSON_COLUMNS:
        if values[name] is not None:
            values[name] = json.loads(values[name])
    values["state"] = JobState(values["state"])
    record = JobRecord(**values)
    return replace(
        record,
        step=record.step and (record.step[0], record.step[1], record.step[2]),
        tasks=values["tasks"] and tasks_from_json(values["tasks"]),
        output=values["output"] and JobOutput(**values["output"]),
        error=values["error"] and error_from_json(values["error"]),
        ends_as=values["ends_as"] and JobState(values["ends_as"]),
    )
