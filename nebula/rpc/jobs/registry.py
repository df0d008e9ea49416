"""The table of an instance's jobs: SQLite, which outlives the process."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from nebula.rpc.jobs.record import JobRecord, JobStep, LogLine
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

_VERSION: Final = 3

_LINES: Final = """
CREATE TABLE lines (job TEXT NOT NULL, number INTEGER NOT NULL, at REAL NOT NULL, text TEXT NOT NULL,
    PRIMARY KEY (job, number)) WITHOUT ROWID;
"""
_INDICES: Final = """
CREATE INDEX job_verbs ON jobs (verb, number);
CREATE INDEX job_owners ON jobs (owner, number);
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
        ALTER TABLE lines RENAME TO old_lines;
        {_LINES}
        INSERT INTO lines SELECT job, row_number() OVER (PARTITION BY job ORDER BY number), at, text
            FROM old_lines;
        DROP TABLE old_lines;
        {_INDICES}
    """,  # noqa: S608 - our own words
}

# One column for each field of a record, so that a new field is one line in one place.
_COLUMNS: Final = tuple(one.name for one in fields(JobRecord))
_JSON_COLUMNS: Final = frozenset({"parameters", "step", "tasks", "output", "error", "steps", "counters"})

_SCHEMA: Final = f"""
CREATE TABLE jobs (number INTEGER PRIMARY KEY, {", ".join(_COLUMNS)});
CREATE UNIQUE INDEX job_ids ON jobs (id);
CREATE UNIQUE INDEX job_keys ON jobs (owner, verb, dedupe) WHERE dedupe IS NOT NULL;
CREATE INDEX job_states ON jobs (state);
{_LINES}
{_INDICES}
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


# In what is looked for they are signs like any other.
_LIKE_SIGNS: Final = re.compile(r"[%_~]")
_QUOTED: Final = r"~\g<0>"
_ESCAPED: Final = "ESCAPE '~'"


class JobFilter(NamedTuple):
    """Which jobs to list; None asks for any. Times are seconds since the epoch.

    Attributes:
        states: any of these.
        verb: the one that was asked for.
        owner: the principal that asked.
        since: accepted then or later.
        until: accepted before.
        text: is in their note or their error, in upper or lower case.
    """

    states: tuple[JobState, ...] | None = None
    verb: str | None = None
    owner: str | None = None
    since: float | None = None
    until: float | None = None
    text: str | None = None


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
        clauses, values = _conditions(chosen)
        if before is not None:
            clauses.append("number < (SELECT number FROM jobs WHERE id = ?)")
            values.append(before)
        where = f"WHERE {' AND '.join(clauses)}" if clauses else ""
        query = f"{_SELECT} {where} ORDER BY number DESC LIMIT ?"
        return list(map(_record, self._db.execute(query, (*values, limit))))

    def old_jobs(self, ended_before: float, keep: int) -> list[JobRecord]:
        """The jobs that ended before this time, and the oldest beyond `keep`; never an open one."""
        return list(map(_record, self._db.execute(_OLD, (ended_before, keep))))

    def owed_jobs(self, limit: int, after: str | None = None) -> list[JobRecord]:
        """Some of the jobs whose end `notify` has not confirmed, the oldest first; or those after one."""
        start = "coalesce((SELECT number FROM jobs WHERE id = ?), 0)"
        query = f"{_SELECT} WHERE is_owed AND number > {start} ORDER BY number LIMIT ?"
        return list(map(_record, self._db.execute(query, (after, limit))))

    def lines(self, job: str, limit: int, after: int | None = None) -> list[LogLine]:
        """Lines of a job's log, the oldest first: the last ones, or the first that follow a number."""
        if after is None:
            query = "SELECT at, text, number FROM lines WHERE job = ? ORDER BY number DESC LIMIT ?"
            return [LogLine(*row) for row in self._db.execute(query, (job, limit))][::-1]
        query = "SELECT at, text, number FROM lines WHERE job = ? AND number > ? ORDER BY number LIMIT ?"
        return [LogLine(*row) for row in self._db.execute(query, (job, after, limit))]

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
        """Add to a job's log, numbered on from the last one; of more than `MAX_LOG_LINES` the oldest go."""
        added = list(lines)
        if not added:
            return
        last = self._db.execute("SELECT max(number) FROM lines WHERE job = ?", (job,)).fetchone()[0] or 0
        rows = [(job, number, line.at, line.text) for number, line in enumerate(added, last + 1)]
        self._db.executemany("INSERT INTO lines (job, number, at, text) VALUES (?, ?, ?, ?)", rows)
        oldest = last + len(added) - MAX_LOG_LINES
        self._db.execute("DELETE FROM lines WHERE job = ? AND number <= ?", (job, oldest))

    def settle_notice(self, job: str) -> None:
        """The end of this job has been confirmed by where it was to be told; or nothing can be told there."""
        self._db.execute("UPDATE jobs SET is_owed = 0 WHERE id = ?", (job,))

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


def _conditions(chosen: JobFilter) -> tuple[list[str], list[Any]]:
    states = chosen.states or ()
    text = None if chosen.text is None else f"%{_LIKE_SIGNS.sub(_QUOTED, chosen.text)}%"
    wanted: list[tuple[str, tuple[Any, ...]]] = [
        (f"state IN ({', '.join('?' * len(states))})", states),
        ("verb = ?", (chosen.verb,)),
        ("owner = ?", (chosen.owner,)),
        ("accepted_at >= ?", (chosen.since,)),
        ("accepted_at < ?", (chosen.until,)),
        (f"(note LIKE ? {_ESCAPED} OR json_extract(error, '$.message') LIKE ? {_ESCAPED})", (text, text)),
    ]
    given = [(clause, values) for clause, values in wanted if values and values[0] is not None]
    return [clause for clause, _ in given], [value for _, values in given for value in values]


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
        steps=tuple(JobStep(*step) for step in values["steps"] or ()),
        counters=values["counters"] or {},
        is_owed=bool(values["is_owed"]),
    )
