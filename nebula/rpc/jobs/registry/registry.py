"""Registry of jobs: the table of jobs in any SQL database, and the rules for its writes."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from nebula.rpc.jobs.model.record import MAX_LOG_LINES, JobRecord, LogLine
from nebula.rpc.jobs.model.states import require_transition
from nebula.rpc.jobs.registry.counting import ENDED, HELD_BYTES, LINE_BYTES
from nebula.rpc.jobs.registry.errors import Superseded
from nebula.rpc.jobs.registry.job_filter import JobFilter, conditions_of
from nebula.rpc.jobs.registry.rows import COLUMNS, byte_count, record_of, row_of, size_of

__all__ = ["SELECT", "Disk", "DoOnRegistry", "JobRegistry", "Kept", "OwnerBytes"]

_T = TypeVar("_T")

# Jobs of one owner that are removed at once; more are removed the next time.
_MOST_AT_ONCE: Final = 1000

_LISTED: Final = ", ".join(COLUMNS)
_WRITTEN: Final = (*COLUMNS, "bytes")
_INSERT: Final = f"INSERT INTO jobs ({', '.join(_WRITTEN)}) VALUES ({', '.join('?' * len(_WRITTEN))})"  # noqa: S608 - our names
_UPDATE: Final = f"UPDATE jobs SET {', '.join(f'{one} = ?' for one in _WRITTEN)} WHERE id = ? AND seq = ?"  # noqa: S608
SELECT: Final = f"SELECT {_LISTED} FROM jobs"  # noqa: S608
_SELECT_SIZED: Final = f"SELECT {', '.join(_WRITTEN)} FROM jobs"  # noqa: S608
_COUNT: Final = """
INSERT INTO owners VALUES (?, ?, ?, ?) ON CONFLICT (owner) DO UPDATE SET jobs = owners.jobs + excluded.jobs,
bytes = owners.bytes + excluded.bytes, held_bytes = owners.held_bytes + excluded.held_bytes
"""
_OLD: Final = f"{SELECT} WHERE state IN ({ENDED}) AND ended_at < ?"
_SUPERFLUOUS: Final = f"""
{SELECT} WHERE owner = ? AND state IN ({ENDED}) AND NOT coalesce(is_owed, false) AND number <=
(SELECT number FROM jobs WHERE owner = ? AND state IN ({ENDED}) ORDER BY number DESC LIMIT 1 OFFSET ?)
"""  # noqa: S608


# Stands for any instance: none has this name.
_ANYBODY: Final = ""


class OwnerBytes(NamedTuple):
    """The jobs of one owner in a registry.

    Attributes:
        owner: the principal; empty if principals are not verified.
        jobs: the number of jobs.
        bytes: approximate size of their rows and logs.
        held_bytes: size of the rows that cannot be removed: the job is open, or the notice of its end has not
            been delivered yet.
    """

    owner: str
    jobs: int = 0
    bytes: int = 0
    held_bytes: int = 0


class Kept(NamedTuple):
    """An ended job that may be removed: its ULID, where its result is, and its bytes."""

    id: str
    path: str | None
    bytes: int


class Disk(NamedTuple):
    """Free space for a registry: on the disk, and inside the registry's file."""

    free_bytes: int
    spare_bytes: int


# How writes stay safe with several writers. Every record has a `seq`, which grows by one with each
# change. `save` writes a record only over its predecessor (`UPDATE … WHERE id = ? AND seq = ?`): a writer
# that missed a change updates no row, and is refused with `Superseded`. So no lock has to be held between
# reading a record and deciding what follows from it. With one SQLite file per instance this never fails;
# with a shared database it decides who begins a job.
#
# `save` is idempotent: a record that is already there as it should be counts as written. The writer needs
# this, as it repeats a batch when the reply to its COMMIT was lost.
#
# Sizes are counted in tables of their own (`owners`, `stored`), in the same transaction: `capacity` asks
# for them before each job, and a sum over all rows would grow with the number of jobs.
class JobRegistry(ABC):
    """Jobs in a database, by SQL that every one of them understands.

    Not for several threads at once. What was written inside `transaction` is on the disk when that
    ends; what is read is what was written. Each change of state is checked against the table of
    transitions, and each write of a record against its `seq`: a writer that has not seen the last one is
    refused.

    Errors are those of the database's module.

    Attributes:
        place: where they are, for people.
    """

    # What the dialects disagree on.
    _like = "LIKE"
    _message_of_error = "json_extract(error, '$.message')"
    _text_bytes = "length(CAST(text AS BLOB))"
    _counts_itself = True

    def __init__(self, place: str) -> None:
        self.place = place

    @abstractmethod
    def close(self) -> None:
        """Let go of the database. Idempotent."""

    def reconnect(self) -> None:
        """Open a new connection to a database server if the old one is broken."""
        return

    def instances(self) -> frozenset[str]:
        """The names of those that share it and live; none where it is one instance's alone."""
        return frozenset()

    def abort(self) -> None:
        """End all use, from any thread: calls under way in another thread fail, and so do later ones."""
        return

    @abstractmethod
    def transaction(self) -> AbstractContextManager[None]:
        """All that is written in the block is on the disk when it ends, or nothing of it if it raises."""

    @abstractmethod
    def part(self) -> AbstractContextManager[None]:
        """Inside a transaction: what the block wrote is undone if it raises, and nothing else is."""

    @abstractmethod
    def lock(self) -> None:
        """Keep other writers out until the transaction ends: what is read now stays so. Writes call it."""

    @abstractmethod
    def _all(self, sql: str, *values: Any) -> Iterable[Sequence[Any]]:
        """The rows that a statement gives; `?` stands for the values."""

    @abstractmethod
    def _do(self, sql: str, *values: Any) -> int:
        """Do a statement: how many rows it changed."""

    @abstractmethod
    def _do_all(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        """Do a statement once for each row of values."""

    # --- reading ---

    def find(self, job: str) -> JobRecord | None:
        """The job with this ULID."""
        return _only(self._all(f"{SELECT} WHERE id = ?", job))

    def find_same(self, wanted: JobRecord) -> JobRecord | None:
        """The job that this one would be if it were asked for again: of its id, else of its key."""
        found = self.find(wanted.id)
        if found is None and wanted.dedupe is not None:
            query = f"{SELECT} WHERE owner = ? AND verb = ? AND dedupe = ?"
            return _only(self._all(query, wanted.owner, wanted.verb, wanted.dedupe))
        return found

    def find_alike(self, wanted: JobRecord, key: str) -> JobRecord | None:
        """The last job of this one's owner and verb whose key begins so; no sign of LIKE is in the key."""
        query = f"{SELECT} WHERE owner = ? AND verb = ? AND dedupe LIKE ? ORDER BY number DESC LIMIT 1"
        return _only(self._all(query, wanted.owner, wanted.verb, f"{key}%"))

    def open_jobs(self) -> list[JobRecord]:
        """The jobs that have not ended, in the order they were accepted."""
        query = f"{SELECT} WHERE state NOT IN ({ENDED}) ORDER BY number"
        return list(map(record_of, self._all(query)))

    def page(self, chosen: JobFilter, limit: int, before: str | None = None) -> list[JobRecord]:
        """Some jobs, the last accepted first.

        Args:
            chosen: which.
            limit: how many at most.
            before: only those accepted before this one.
        """
        clauses, values = conditions_of(chosen, self._like, self._message_of_error)
        if before is not None:
            clauses.append("(accepted_at, number) < (SELECT accepted_at, number FROM jobs WHERE id = ?)")
            values.append(before)
        where = f"WHERE {' AND '.join(clauses)}" if clauses else ""
        # Not by number alone: a job that was taken over has a new one.
        query = f"{SELECT} {where} ORDER BY accepted_at DESC, number DESC LIMIT ?"
        return list(map(record_of, self._all(query, *values, limit)))

    def old_jobs(self, ended_before: float, keep: int) -> list[JobRecord]:
        """The jobs that ended before this time, and the oldest beyond `keep`; never an open one.

        Where there are more than `keep`, the owners that have the most lose theirs, so that no number of jobs
        makes a service forget those of another owner. One whose end is still owed is not old by number.
        """
        found = {one.id: one for one in map(record_of, self._all(_OLD, ended_before))}
        ended = f"SELECT owner, count(*) FROM jobs WHERE state IN ({ENDED}) GROUP BY owner"  # noqa: S608
        counts: dict[str, int] = dict(map(tuple, self._all(ended)))
        # An equal share for each owner: one that starts thousands of jobs pushes out its own, not those
        # of others.
        each = _equal_part(counts.values(), keep)
        for owner in [owner for owner, count in counts.items() if count > each]:
            found |= {one.id: one for one in map(record_of, self._all(_SUPERFLUOUS, owner, owner, each))}
        return list(found.values())

    def owed_queues(self) -> list[str]:
        """Where ends of jobs go that `notify` has not confirmed; first where the oldest one goes."""
        query = "SELECT notify FROM jobs WHERE is_owed GROUP BY notify ORDER BY min(number)"
        return [queue for (queue,) in self._all(query)]

    def owed_jobs(self, limit: int, queue: str | None = None) -> list[JobRecord]:
        """Some of the jobs whose end `notify` has not confirmed, the oldest first; or of one queue's."""
        where, values = ("is_owed", ()) if queue is None else ("is_owed AND notify = ?", (queue,))
        query = f"{SELECT} WHERE {where} ORDER BY number LIMIT ?"
        return list(map(record_of, self._all(query, *values, limit)))

    def lines(self, job: str, limit: int, after: int | None = None) -> list[LogLine]:
        """Lines of a job's log, the oldest first: the last ones, or the first that follow a number."""
        if after is None:
            query = "SELECT at, text, number FROM lines WHERE job = ? ORDER BY number DESC LIMIT ?"
            return [LogLine(*row) for row in self._all(query, job, limit)][::-1]
        query = "SELECT at, text, number FROM lines WHERE job = ? AND number > ? ORDER BY number LIMIT ?"
        return [LogLine(*row) for row in self._all(query, job, after, limit)]

    def disk(self) -> Disk | None:
        """Free space, if the registry is on a disk of this machine."""
        return None

    def stored_bytes(self) -> int:
        """About how many bytes all jobs take."""
        found: int = next(iter(self._all("SELECT bytes FROM stored")))[0]
        return found

    def stored_by(self, owner: str) -> OwnerBytes:
        """The jobs of one owner."""
        rows = self._all("SELECT owner, jobs, bytes, held_bytes FROM owners WHERE owner = ?", owner)
        return next((OwnerBytes(*row) for row in rows), OwnerBytes(owner))

    def owners(self, limit: int | None = None) -> list[OwnerBytes]:
        """Owners with the size of their jobs, the largest first; all of them, or up to a limit."""
        query = "SELECT owner, jobs, bytes, held_bytes FROM owners ORDER BY bytes DESC, owner"
        rows = self._all(query) if limit is None else self._all(f"{query} LIMIT ?", limit)
        return [OwnerBytes(*row) for row in rows]

    def may_make_way(self, owner: str) -> Iterator[Kept]:
        """Some of an owner's ended jobs, the oldest first; none that is held or whose notice is owed."""
        log = f"(SELECT {self._log_bytes} FROM lines WHERE job = jobs.id)"  # noqa: S608
        query = (
            f"SELECT id, output, bytes + {log} FROM jobs WHERE owner = ? AND state IN ({ENDED}) "  # noqa: S608
            "AND NOT coalesce(is_owed, false) AND holder IS NULL ORDER BY number LIMIT ?"
        )
        for job, output, size in self._all(query, owner, _MOST_AT_ONCE):
            path = None if output is None else json.loads(output).get("path")
            yield Kept(job, path, int(size))

    # --- writing ---

    def insert(self, record: JobRecord) -> None:
        """Add a job. The database refuses one whose id, or whose key for its owner and verb, is taken."""
        self.lock()
        row = row_of(record)
        size = size_of(row)
        self._do(_INSERT, *row, size)
        self._count(record.owner, size, _held(record, size), jobs=1)

    def save(
        self, record: JobRecord, lines: Sequence[LogLine] = (), *, held_by: str | None = _ANYBODY
    ) -> None:
        """Replace what is known of a job, and add to its log.

        Args:
            record: what is known now.
            lines: for its log.
            held_by: the instance, or None, that holds it in the status that this one follows.

        Raises:
            IllegalTransition: its state may not follow the one that is written.
            Superseded: this is not the status that follows the one that is written.
            LookupError: there is no such job.
        """
        self.lock()
        rows = iter(self._all(f"{_SELECT_SIZED} WHERE id = ?", record.id))
        if (known := next(rows, None)) is None:
            raise LookupError(f"no job {record.id}")
        found, before = record_of(known[:-1]), known[-1]
        if found == record:
            # Written already, by a commit whose reply was lost on the way.
            return
        # `seq` alone is not enough: `release` changes the holder without a new status.
        if found.seq != record.seq - 1 or held_by not in (_ANYBODY, found.holder):
            raise _superseded(record)
        require_transition(record.id, found.state, record.state)
        row = row_of(record)
        size = size_of(row)
        if not self._do(_UPDATE, *row, size, record.id, found.seq):
            raise _superseded(record)
        self._count(record.owner, size - before, _held(record, size) - _held(found, before))
        self.add_lines(record.id, lines)

    def begin(self, record: JobRecord, lines: Sequence[LogLine] = (), *, most: int | None = None) -> None:  # noqa: ARG002 - for those that are shared
        """Save a job that begins now, if its key allows it and fewer than `most` of its verb are running.

        Raises:
            Superseded: it may not, or not now, or another instance has begun it.
        """
        self.save(record, lines)

    def release(self, job: str, note: str) -> None:
        """Record that nothing of an ended job runs any more. This is no new status; only its note changes."""
        self.lock()
        self._do("UPDATE jobs SET holder = NULL, note = ? WHERE id = ?", note, job)

    def add_lines(self, job: str, lines: Iterable[LogLine]) -> None:
        """Add to a job's log, numbered on from the last one; of more than `MAX_LOG_LINES` the oldest go.

        What has a number already, from another registry, keeps it.
        """
        added = list(lines)
        if not added:
            return
        self.lock()
        last = next(iter(self._all("SELECT max(number) FROM lines WHERE job = ?", job)))[0] or 0
        rows = []
        for line in added:
            # Numbers never go back: callers ask for the lines after a number, also across a takeover.
            last = max(last + 1, line.number)
            rows.append((job, last, line.at, line.text))
        self._do_all("INSERT INTO lines (job, number, at, text) VALUES (?, ?, ?, ?)", rows)
        dropped = last - MAX_LOG_LINES
        self._count_lines(job, rows, dropped)
        self._do("DELETE FROM lines WHERE job = ? AND number <= ?", job, dropped)

    def settle_notice(self, job: str) -> None:
        """Record that the notice of this job's end has been delivered, or cannot be delivered."""
        self.lock()
        if self._counts_itself:
            held = f"SELECT owner, CASE WHEN state IN ({ENDED}) AND is_owed THEN bytes ELSE 0 END FROM jobs"  # noqa: S608
            for owner, size in list(self._all(f"{held} WHERE id = ?", job)):
                self._count(owner, 0, -size)
        self._do("UPDATE jobs SET is_owed = ? WHERE id = ?", False, job)

    def forget(self, jobs: Iterable[str]) -> None:
        """Remove jobs, by ULID, with their logs."""
        names = [(job,) for job in jobs]
        if names:
            self.lock()
            self._count_off(names)
            # In this order: with a job, a trigger subtracts the bytes of its whole log.
            self._do_all("DELETE FROM jobs WHERE id = ?", names)
            self._do_all("DELETE FROM lines WHERE job = ?", names)

    # --- counting, where no trigger does ---

    def _count(self, owner: str, size: int, held: int, jobs: int = 0) -> None:
        if self._counts_itself and (size or held or jobs):
            self._do(_COUNT, owner, jobs, size, held)
            self._do("UPDATE stored SET bytes = bytes + ?", size)

    def _count_lines(self, job: str, rows: Sequence[Sequence[Any]], dropped: int) -> None:
        """Count added lines, and subtract those up to a number, which are about to be deleted."""
        if not self._counts_itself:
            return
        added = sum(LINE_BYTES + byte_count(row[-1]) for row in rows)
        if dropped > 0:
            gone = f"SELECT {self._log_bytes} FROM lines WHERE job = ? AND number <= ?"  # noqa: S608
            added -= next(iter(self._all(gone, job, dropped)))[0]
        for (owner,) in list(self._all("SELECT owner FROM jobs WHERE id = ?", job)):
            self._count(owner, added, 0)

    def _count_off(self, jobs: Sequence[tuple[str]]) -> None:
        if not self._counts_itself:
            return
        log = f"(SELECT {self._log_bytes} FROM lines WHERE job = jobs.id)"  # noqa: S608
        query = f"SELECT owner, bytes + {log}, {HELD_BYTES} FROM jobs WHERE id = ?"  # noqa: S608
        gone: dict[str, list[int]] = {}
        # A job may be named twice.
        for job in dict.fromkeys(jobs):
            for owner, size, held in list(self._all(query, *job)):
                sums = gone.setdefault(owner, [0, 0, 0])
                sums[:] = sums[0] - size, sums[1] - held, sums[2] - 1
        for owner, (size, held, number) in gone.items():
            self._count(owner, size, held, number)
            self._do("DELETE FROM owners WHERE owner = ? AND jobs = 0", owner)

    @property
    def _log_bytes(self) -> str:
        return f"coalesce(sum({self._text_bytes} + {LINE_BYTES}), 0)"


def _held(record: JobRecord, size: int) -> int:
    """The bytes of a job if it cannot be removed, else 0."""
    return 0 if record.has_ended and not record.is_owed else size


def _equal_part(counts: Iterable[int], keep: int) -> int:
    """The most that each may have so that all together have at most `keep`; smaller counts stay."""
    ascending = sorted(counts)
    for place, count in enumerate(ascending):
        part = keep // (len(ascending) - place)
        if count > part:
            return part
        keep -= count
    return ascending[-1] if ascending else keep


def _superseded(record: JobRecord) -> Superseded:
    return Superseded(f"job {record.id} has been changed by another instance")


def _only(rows: Iterable[Sequence[Any]]) -> JobRecord | None:
    return next(map(record_of, rows), None)


class DoOnRegistry(Protocol):
    """Does work on the registry, in a thread that may block: `RegistryWriter.do`, for one."""

    def __call__(self, do: Callable[[JobRegistry], _T], /) -> Awaitable[_T]: ...
