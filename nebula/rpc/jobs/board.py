"""The open jobs of one instance: what each waits for, and what follows from what happens to it.

Deterministic and without I/O: time comes in with each call, and what has to be done goes out as work
(`take_work`), which says what to write before what is done. So a decision is never told, and never
acted upon, before it is kept.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from nebula.rpc.jobs.record import JobRecord, LogLine
from nebula.rpc.jobs.registry import MAX_LOG_LINES
from nebula.rpc.jobs.runner import JobFailure, JobOutput, JobTask, Progress
from nebula.rpc.jobs.states import JobState
from nebula.rpc.jobs.verb import JobVerb
from nebula.rpc.jobs.work import Cancel, Effect, Ended, Moment, Submit, Work

__all__ = ["JobBoard"]

# Until it is done a job is not done.
_MOST_BEFORE_THE_END: Final = 0.99

# Seconds that a line waits for others: a job that logs in a loop costs one write in this time.
_LOG_EVERY: Final = 0.5

_MAX_NOTE: Final = 300
_MAX_LINE: Final = 4000

_IN_WORK: Final = (JobState.STARTING, JobState.RUNNING)


Key = tuple[str, int]


@dataclass(slots=True, eq=False)
class _Open:
    record: JobRecord
    verb: JobVerb | None
    # On the steady clock. What happens then follows from the state: expiry, time limit, end of grace.
    ends_at: float | None = None
    told_at: float = float("-inf")
    is_behind: bool = False
    lines: deque[LogLine] = field(default_factory=lambda: deque(maxlen=MAX_LOG_LINES))
    lines_due: float | None = None

    @property
    def key(self) -> Key:
        return self.record.id, self.record.attempt

    @property
    def place(self) -> tuple[int, float, str]:
        """Its order among those that wait."""
        return -self.record.priority, self.record.accepted_at, self.record.id

    @property
    def engine(self) -> str | None:
        return self.verb.engine if self.verb is not None else None

    def due(self) -> Iterator[float]:
        """When time alone changes something."""
        if self.ends_at is not None:
            yield self.ends_at
        if self.is_behind:
            yield self.told_at + self.record.progress_every
        if self.lines_due is not None:
            yield self.lines_due


class JobBoard:
    """The open jobs.

    Args:
        verbs: by name.
        capacity: how many jobs a runner takes at a time.
        cancel_grace: seconds for a cancelled job to end before it is called cancelled all the same.
    """

    def __init__(
        self,
        verbs: Mapping[str, JobVerb],
        capacity: Callable[[str | None], int],
        *,
        cancel_grace: float,
    ) -> None:
        self._verbs, self._capacity, self._cancel_grace = verbs, capacity, cancel_grace
        self._open: dict[str, _Open] = {}
        # Those that time alone may change: a thousand that wait for nothing but their turn cost nothing.
        self._timed: dict[str, _Open] = {}
        self._waiting: dict[str | None, list[_Open]] = {}
        # What runners have in their hands, also beyond the end of the job that it was.
        self._held: dict[Key, JobVerb] = {}
        self._settling: dict[Key, _Open] = {}
        self._work: list[Work] = []
        self._is_stopping = False

    # --- looking ---

    @property
    def queued(self) -> int:
        """How many jobs wait for their turn."""
        return sum(map(len, self._waiting.values()))

    def position(self, job: str) -> int | None:
        """1 for the job whose turn is next, None for one that does not wait."""
        found = self._open.get(job)
        if found is None or found.record.state is not JobState.QUEUED:
            return None
        return self._waiting[found.engine].index(found) + 1

    def open_records(self) -> list[JobRecord]:
        """The open jobs as they were last told."""
        return [job.record for job in self._open.values()]

    def take_work(self) -> list[Work]:
        """What has to be done since the last call, in order."""
        work, self._work = self._work, []
        return work

    def next_due(self) -> float | None:
        """When `advance` has something to do, on the steady clock."""
        return min((due for job in self._timed.values() for due in job.due()), default=None)

    # --- from the service ---

    def add(self, record: JobRecord, now: Moment) -> None:
        """A job was recorded: it waits for its turn. Nothing is begun before `dispatch`."""
        job = self._open[record.id] = _Open(record, self._verbs.get(record.verb), told_at=now.steady)
        self._enqueue(job, now)

    def recover(self, record: JobRecord, now: Moment) -> None:
        """An open job was found at the start of the service: its run, if any, died with the last process."""
        job = self._open[record.id] = _Open(record, self._verbs.get(record.verb))
        if record.state is not JobState.QUEUED:
            self._lose(job, "the service was restarted", now)
        elif job.verb is None:
            error = JobFailure("unknown-verb", f"the service has no job {record.verb!r} any more")
            self._end(job, JobState.FAILED, now, error=error)
        else:
            self._enqueue(job, now)

    def dispatch(self, now: Moment) -> None:
        """Begin what may begin. A job counts as begun once that is written: what runs is never unknown."""
        for engine, waiting in self._waiting.items():
            while not self._is_stopping and self._held_by(engine) < self._capacity(engine):
                job = next(filter(self._may_begin, waiting), None)
                if job is None:
                    break
                waiting.remove(job)
                self._begin(job, now)

    def cancel(self, job: str, now: Moment) -> None:
        """A caller wants this job to end. Nothing happens to one that is ending or has ended."""
        found = self._open.get(job)
        if found is not None:
            self._cancel(found, JobState.CANCELLED, now)

    def advance(self, now: Moment) -> None:
        """Let time pass: what is due now happens."""
        for job in list(self._timed.values()):
            if next(job.due(), None) is None:
                del self._timed[job.record.id]
            elif job.ends_at is not None and job.ends_at <= now.steady:
                self._time_is_over(job, now)
            elif job.is_behind and job.told_at + job.record.progress_every <= now.steady:
                self._change(job, now)
            elif job.lines_due is not None and job.lines_due <= now.steady:
                self.flush_log(job.record.id)
        self.dispatch(now)

    def flush_log(self, job: str) -> None:
        """Write the lines that wait."""
        found = self._open.get(job)
        if found is not None and found.lines:
            self._put(found, is_told=False)

    def stop(self) -> None:
        """Begin nothing any more. What waits, waits for the next start of the service."""
        self._is_stopping = True

    # --- from the runners ---

    def starting(self, key: Key, incarnation: str) -> None:
        """It was handed to the engine whose start bears this name."""
        if (job := self._find(key)) is not None:
            job.record = replace(job.record, incarnation=incarnation)

    def started(self, key: Key, now: Moment) -> None:
        """Its code runs."""
        job = self._find(key)
        if job is not None and job.record.state is JobState.STARTING:
            limit = job.record.timeout
            self._end_at(job, None if limit is None else now.steady + limit)
            self._change(job, now, state=JobState.RUNNING, started_at=now.wall)

    def progress(self, key: Key, progress: Progress, now: Moment) -> None:
        """It is so far."""
        job = self._find(key)
        if job is None:
            return
        seen = replace(
            job.record,
            progress=_further(job.record.progress, progress.fraction),
            note=_short(progress.note),
            step=progress.step,
            tasks=progress.tasks,
        )
        if seen != job.record:
            job.record, job.is_behind = seen, True
            self._timed[job.record.id] = job
            if job.told_at + seen.progress_every <= now.steady:
                self._change(job, now)

    def done(self, key: Key, output: JobOutput, now: Moment) -> None:
        """Its code returned."""
        if (job := self._take_back(key)) is not None:
            self.started(key, now)
            self._end(job, JobState.DONE, now, output=output, note="", progress=1.0)
        self.dispatch(now)

    def failed(self, key: Key, failure: JobFailure, now: Moment) -> None:
        """Its code raised, or could not be run."""
        if (job := self._take_back(key)) is not None:
            if failure.trace:
                self._note_line(job, failure.trace, now)
            error = replace(failure, message=_short(failure.message), trace="")
            self._end(job, JobState.FAILED, now, error=error)
        self.dispatch(now)

    def cancelled(self, key: Key, now: Moment, *, slots_free: bool) -> None:
        """It was ended by a cancel."""
        verb = self._held.get(key)
        job = self._take_back(key)
        if job is not None and job.record.state is JobState.CANCELLING:
            self._end_as_wanted(job, now, note="" if slots_free else "ended; its resources come free soon")
        elif job is not None:
            self._lose(job, "it was ended by what ran it", now)
        if not slots_free and verb is not None:
            self._held[key] = verb
            if job is not None:
                self._settling[key] = job
        self.dispatch(now)

    def slots_free(self, key: Key, now: Moment) -> None:
        """What a cancelled job still held is free."""
        if self._find(key) is None:
            self._held.pop(key, None)
        if (job := self._settling.pop(key, None)) is not None:
            self._change(job, now, note="")
        self.dispatch(now)

    def lost(self, key: Key, reason: str, now: Moment) -> None:
        """What ran it is gone."""
        if (job := self._take_back(key)) is not None:
            self._lose(job, reason, now)
        self.dispatch(now)

    def log(self, key: Key, text: str, now: Moment) -> None:
        """A line for its log."""
        if (job := self._find(key)) is not None:
            self._note_line(job, text, now)

    # --- inside ---

    def _find(self, key: Key) -> _Open | None:
        # What an earlier attempt still says, or one that has ended, is late.
        job = self._open.get(key[0])
        return job if job is not None and job.key == key else None

    def _take_back(self, key: Key) -> _Open | None:
        """The runner has done with an attempt: what it held is free."""
        self._held.pop(key, None)
        return self._find(key)

    def _held_by(self, engine: str | None) -> int:
        return sum(verb.engine == engine for verb in self._held.values())

    def _may_begin(self, job: _Open) -> bool:
        verb = job.verb
        assert verb is not None
        most = verb.max_running
        return most is None or sum(one.name == verb.name for one in self._held.values()) < most

    def _enqueue(self, job: _Open, now: Moment) -> None:
        record = job.record
        # Only what never ran expires.
        expires_at = record.expires_at if record.attempt == 1 else None
        self._end_at(job, None if expires_at is None else now.steady + expires_at - now.wall)
        insort(self._waiting.setdefault(job.engine, []), job, key=lambda one: one.place)

    def _end_at(self, job: _Open, steady: float | None) -> None:
        job.ends_at = steady
        if steady is not None:
            self._timed[job.record.id] = job

    def _begin(self, job: _Open, now: Moment) -> None:
        record, verb = job.record, job.verb
        assert verb is not None
        what = (verb.name, verb.address, record.parameters, record.timeout, record.trace)
        task = JobTask(record.id, record.attempt, *what)
        self._end_at(job, None)
        self._held[job.key] = verb
        self._change(job, now, Submit(verb.engine, task), state=JobState.STARTING)

    def _cancel(self, job: _Open, ends_as: JobState, now: Moment) -> None:
        if job.record.state is JobState.QUEUED:
            job.record = replace(job.record, ends_as=ends_as)
            self._end_as_wanted(job, now)
        elif job.record.state in _IN_WORK:
            reason: Literal["cancelled", "timed-out"]
            reason = "timed-out" if ends_as is JobState.TIMED_OUT else "cancelled"
            self._end_at(job, now.steady + self._cancel_grace)
            then = Cancel(job.engine, *job.key, reason)
            self._change(job, now, then, state=JobState.CANCELLING, ends_as=ends_as)

    def _time_is_over(self, job: _Open, now: Moment) -> None:
        match job.record.state:
            case JobState.QUEUED:
                error = JobFailure("deadline-exceeded", "its turn did not come in time")
                self._end(job, JobState.EXPIRED, now, error=error)
            case JobState.CANCELLING:
                self._note_line(job, "it was cancelled, but its code did not stop", now)
                self._end_as_wanted(job, now, note="its code did not stop")
            case _:
                self._cancel(job, JobState.TIMED_OUT, now)

    def _lose(self, job: _Open, reason: str, now: Moment) -> None:
        record, verb = job.record, job.verb
        self._note_line(job, f"attempt {record.attempt} was lost: {reason}", now)
        if record.state is JobState.CANCELLING:
            # Whoever wanted it to end has that: it runs no more.
            self._end_as_wanted(job, now)
        elif verb is not None and verb.may_run_again(record.attempt):
            self._change(
                job,
                now,
                state=JobState.QUEUED,
                attempt=record.attempt + 1,
                note=f"to be run again: {_short(reason)}",
                **_UNRUN,
            )
            self._enqueue(job, now)
        else:
            self._end(job, JobState.LOST, now, error=JobFailure("engine-lost", _short(reason)))

    def _end_as_wanted(self, job: _Open, now: Moment, note: str = "") -> None:
        state = job.record.ends_as or JobState.CANCELLED
        if state is JobState.TIMED_OUT:
            error = JobFailure("deadline-exceeded", f"it ran longer than {job.record.timeout:g} s")
        else:
            error = JobFailure("cancelled", "it was cancelled")
        self._end(job, state, now, error=error, note=note)

    def _end(self, job: _Open, state: JobState, now: Moment, **changes: Any) -> None:
        if job.record.state is JobState.QUEUED and job in (waiting := self._waiting.get(job.engine, [])):
            waiting.remove(job)
        del self._open[job.record.id]
        self._timed.pop(job.record.id, None)
        self._change(job, now, Ended(job.record.id), state=state, ended_at=now.wall, **changes)

    def _change(self, job: _Open, now: Moment, then: Effect | None = None, **changes: Any) -> None:
        job.record = replace(job.record, seq=job.record.seq + 1, **changes)
        job.told_at, job.is_behind = now.steady, False
        self._put(job, then)

    def _put(self, job: _Open, then: Effect | None = None, *, is_told: bool = True) -> None:
        self._work.append(Work(job.record, tuple(job.lines), then, is_told))
        job.lines.clear()
        job.lines_due = None

    def _note_line(self, job: _Open, text: str, now: Moment) -> None:
        # A trace is cut in the middle of nowhere: its end says what happened.
        job.lines.append(LogLine(now.wall, text if len(text) <= _MAX_LINE else "…" + text[-_MAX_LINE:]))
        if job.lines_due is None:
            job.lines_due = now.steady + _LOG_EVERY
            self._timed[job.record.id] = job


_UNRUN: Final[Mapping[str, None]] = {
    "started_at": None,
    "step": None,
    "tasks": None,
    "incarnation": None,
}


def _further(old: float | None, new: float | None) -> float | None:
    """Progress never falls: a plan that turns out longer stands still for a while."""
    if new is None:
        return old
    return max(old or 0.0, min(new, _MOST_BEFORE_THE_END), 0.0)


def _short(text: str) -> str:
    """One line, for people."""
    line = " ".join(text.split())
    return line if len(line) <= _MAX_NOTE else line[: _MAX_NOTE - 1] + "…"
