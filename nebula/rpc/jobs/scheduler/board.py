"""The open jobs of one instance: what each waits for, and what follows from what happens to it.

Deterministic and without I/O: time comes in with each call, and what has to be done goes out as work
(`take_work`), which says what to write before what is done. So a decision is never told, and never
acted upon, before it is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any, Final, Literal, NamedTuple

from nebula.rpc.contract.job_runner import ENGINE_LOST, JobFailure, JobOutput, Progress
from nebula.rpc.jobs.model.record import JobRecord
from nebula.rpc.jobs.model.states import JobState
from nebula.rpc.jobs.model.steps import with_steps_over
from nebula.rpc.jobs.scheduler.open_job import UNRUN, Key, OpenJob, short
from nebula.rpc.jobs.scheduler.order import Turns
from nebula.rpc.jobs.scheduler.waiting import Standing
from nebula.rpc.jobs.scheduler.work import Cancel, Effect, Ended, Keep, Moment, Submit, Work
from nebula.rpc.jobs.service.verb import JobVerb

__all__ = ["JobBoard", "Reserved"]

_IN_WORK: Final = (JobState.STARTING, JobState.RUNNING)


class Reserved(NamedTuple):
    """A job that has a place, and is recorded together with its beginning.

    Attributes:
        standing: where it would have stood.
        begin: to be kept with it, and done then.
    """

    job: OpenJob
    standing: Standing
    begin: Work


class JobBoard:
    """The open jobs.

    Args:
        verbs: by name.
        capacity: how many jobs a runner takes at a time.
        cancel_grace: seconds for a cancelled job to end before it is called cancelled all the same.
        instance: whose board it is.
        left_to_others: verbs, by name, that cannot be run here now, and can by another instance.
        is_shared: others have the same jobs on their boards. Then no move in the line is told: of what is
            not written nobody could say which is the last of it.
    """

    def __init__(
        self,
        verbs: Mapping[str, JobVerb],
        capacity: Callable[[str | None], int],
        *,
        cancel_grace: float,
        instance: str | None = None,
        left_to_others: Callable[[], Collection[str]] = tuple,
        is_shared: bool = False,
    ) -> None:
        self._instance, self._is_shared = instance, is_shared
        self._verbs, self._cancel_grace = verbs, cancel_grace
        self._open: dict[str, OpenJob] = {}
        # Those that time alone may change: a thousand that wait for nothing but their turn cost nothing.
        self._timed: dict[str, OpenJob] = {}
        self._turns = Turns(capacity, left_to_others)
        self._waiting, self._places = self._turns.line, self._turns.places
        # Jobs that have ended while something of them may still run.
        self._settling: dict[Key, OpenJob] = {}
        # Attempts that other instances run, by job.
        self._elsewhere: dict[str, Key] = {}
        self._work: list[Work] = []
        self._is_stopping = False

    # --- looking ---

    @property
    def queued(self) -> int:
        """How many jobs wait for their turn or for their time."""
        return len(self._waiting)

    def queued_by(self, owner: str | None) -> int:
        """Number of waiting jobs of one owner."""
        return sum(job.record.owner == owner for job in self._waiting)

    def standing(self, job: str) -> Standing:
        """Where a job stands in its line, and what it waits for."""
        found = self._open.get(job)
        return Standing() if found is None else self._turns.standing(found)

    def verbs(self) -> list[str]:
        """The names of those that can be run here."""
        return list(self._verbs)

    def open_record(self, job: str) -> JobRecord | None:
        """A job as it was last told, while it is open."""
        found = self._open.get(job)
        return None if found is None else found.record

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
        job = self._open[record.id] = OpenJob(record, self._verbs.get(record.verb), told_at=now.steady)
        self._enqueue(job, now)

    def reserve(self, record: JobRecord, now: Moment) -> Reserved | None:
        """Take a runner's place for a job that nobody has recorded yet, where it may begin at once.

        So one commit keeps that it is accepted and that it begins. It is not on the board before that: then
        comes `begun`, or `give_back` where it was not recorded.

        Returns:
            what begins it, or None: it has to be recorded, and added, first.
        """
        job = OpenJob(record, self._verbs.get(record.verb))
        is_deferred = record.not_before is not None and record.not_before > now.wall
        is_known = record.id in self._open or record.id in self._elsewhere
        if self._is_stopping or is_deferred or is_known or not self._turns.may_begin(job):
            return None
        standing = Standing(self._waiting.count_before(job) + 1)
        self._begin(job, now)
        return Reserved(job, standing, self._work.pop())

    def begun(self, reserved: Reserved) -> None:
        """It was recorded, and that it begins: it is on the board."""
        self._open[reserved.job.record.id] = reserved.job

    def give_back(self, reserved: Reserved, now: Moment) -> None:
        """It was not recorded: others may have its place."""
        # Unless another instance turned out to have the same job.
        if self._places.has(reserved.job.key):
            self._places.free(reserved.job.key)
        self.dispatch(now)

    def recover(self, record: JobRecord, now: Moment, reason: str = "the service was restarted") -> None:
        """An open job was found whose run, if any, died with the process that had it."""
        self._drop(record.id)
        job = self._open[record.id] = OpenJob(record, self._verbs.get(record.verb))
        if record.state is not JobState.QUEUED:
            self._lose(job, reason, now)
        elif job.verb is None:
            error = JobFailure("unknown-verb", f"the service has no job {record.verb!r} any more")
            self._end(job, JobState.FAILED, now, error=error)
        else:
            self._enqueue(job, now)

    def dispatch(self, now: Moment) -> None:
        """Begin what may begin. A job counts as begun once that is written: what runs is never unknown."""
        if self._is_stopping:
            return
        for job in self._turns.take_next():
            self._begin(job, now)
        for job in () if self._is_shared else self._turns.moved():
            job.is_behind = True
            self._timed[job.record.id] = job

    def cancel(self, job: str, now: Moment) -> bool:
        """A caller wants this job to end. Nothing happens to one that is ending or has ended.

        Returns:
            whether it is on this board, and not another's to end.
        """
        found = self._open.get(job)
        if found is not None:
            self._cancel(found, JobState.CANCELLED, now)
        return found is not None

    def advance(self, now: Moment) -> None:
        """Let time pass: what is due now happens."""
        for job in list(self._timed.values()):
            if next(job.due(), None) is None:
                del self._timed[job.record.id]
            elif job.begins_at is not None and job.begins_at <= now.steady:
                self._waiting.admit(job)
            elif job.ends_at is not None and job.ends_at <= now.steady:
                self._time_is_over(job, now)
            elif job.is_behind and job.told_at + job.record.progress_every <= now.steady:
                self._tell(job, now)
            elif job.lines_due is not None and job.lines_due <= now.steady:
                self.flush_log(job.record.id)
        self.dispatch(now)

    def flush_log(self, job: str) -> None:
        """Write the lines that wait."""
        found = self._open.get(job)
        if found is not None and found.lines:
            self._put(found, keep=Keep.LINES)

    def stop(self) -> None:
        """Begin nothing any more. What waits, waits for the next start of the service."""
        self._is_stopping = True

    # --- from the other instances, where the registry is shared ---

    def learn(self, record: JobRecord, now: Moment) -> None:
        """This is in the registry: what waits may begin here, what others run counts for verbs and keys."""
        found = self._open.get(record.id)
        if found is not None and (found.record.seq >= record.seq or self._places.has(found.key)):
            # Written by ourselves, or to be refused when we write next.
            return
        if record.holder is not None and record.holder == self._instance:
            return
        self._drop(record.id)
        if record.state is JobState.QUEUED and record.verb in self._verbs:
            job = self._open[record.id] = OpenJob(record, self._verbs[record.verb], told_at=now.steady)
            self._enqueue(job, now)
        elif record.holder is not None:
            self._elsewhere[record.id] = record.id, record.attempt
            self._places.take_elsewhere(record)

    def keep_only(self, jobs: Collection[str]) -> None:
        """Nothing but these is open, or held by anybody: what waits or is held elsewhere is that no more."""
        waiting = [one.record.id for one in self._waiting]
        for job in [job for job in (*waiting, *self._elsewhere) if job not in jobs]:
            self._drop(job)

    def withdraw(self, work: Work) -> None:
        """Another instance has changed a job that was to be changed here: nothing of it is true here."""
        record = work.record
        if isinstance(work.then, Submit):
            # No runner was given it, whatever was decided of it since.
            key = record.id, record.attempt
            self._places.free(key)
            self._settling.pop(key, None)
        self._drop(record.id)

    def _drop(self, job: str) -> None:
        if (found := self._open.pop(job, None)) is not None:
            self._waiting.discard(found)
            self._timed.pop(job, None)
        if (key := self._elsewhere.pop(job, None)) is not None:
            self._places.free(key)

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
        seen = job.after(progress, now.wall)
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
            error = replace(failure, message=short(failure.message), trace="")
            delay = None if job.verb is None else job.verb.retry_after(failure.code, job.record.attempt)
            if delay is None or job.record.state is JobState.CANCELLING:
                self._end(job, JobState.FAILED, now, error=error)
            else:
                self._run_again(job, f"{error.code}: {error.message}", now, delay)
        self.dispatch(now)

    def cancelled(self, key: Key, now: Moment, *, slots_free: bool) -> None:
        """It was ended by a cancel."""
        job = self._take_back(key) if slots_free else self._find(key)
        if job is not None and job.record.state is JobState.CANCELLING:
            self._end_as_wanted(job, now, note="" if slots_free else "ended; its resources come free soon")
        elif job is not None:
            self._lose(job, "it was ended by what ran it", now)
        self.dispatch(now)

    def slots_free(self, key: Key, now: Moment) -> None:
        """What a cancelled job still held is free."""
        if self._find(key) is None:
            self._release(key, note="")
        self.dispatch(now)

    def running(self, key: Key) -> JobRecord | None:
        """The record of an attempt that has not ended, or None."""
        job = self._find(key)
        return None if job is None else job.record

    def lost(self, key: Key, reason: str, now: Moment, *, code: str = ENGINE_LOST) -> None:
        """What ran it is gone."""
        if (job := self._take_back(key)) is not None:
            self._lose(job, reason, now, code)
        self.dispatch(now)

    def log(self, key: Key, text: str, now: Moment) -> None:
        """A line for its log."""
        if (job := self._find(key)) is not None:
            self._note_line(job, text, now)

    # --- inside ---

    def _find(self, key: Key) -> OpenJob | None:
        # What an earlier attempt still says, or one that has ended, is late.
        job = self._open.get(key[0])
        return job if job is not None and job.key == key else None

    def _take_back(self, key: Key) -> OpenJob | None:
        """The runner has done with an attempt: what it held is free."""
        self._release(key)
        return self._find(key)

    def _release(self, key: Key, note: str | None = None) -> None:
        self._places.free(key)
        if (ended := self._settling.pop(key, None)) is not None:
            record = ended.record if note is None else replace(ended.record, note=note)
            self._work.append(Work(record, keep=Keep.RELEASE))

    def _enqueue(self, job: OpenJob, now: Moment) -> None:
        record = job.record
        # Only what never ran expires.
        expires_at = record.expires_at if record.attempt == 1 else None
        self._end_at(job, None if expires_at is None else now.steady + expires_at - now.wall)
        if record.not_before is not None and record.not_before > now.wall:
            job.begins_at = now.steady + record.not_before - now.wall
            self._timed[record.id] = job
        self._waiting.add(job)
        job.told_position = self._waiting.position(job)

    def _end_at(self, job: OpenJob, steady: float | None) -> None:
        job.ends_at = steady
        if steady is not None:
            self._timed[job.record.id] = job

    def _begin(self, job: OpenJob, now: Moment) -> None:
        assert job.verb is not None
        then = Submit(job.engine, job.task, job.verb.max_running)
        self._end_at(job, None)
        self._places.take(job)
        self._change(job, now, then, state=JobState.STARTING, holder=self._instance)

    def _cancel(self, job: OpenJob, ends_as: JobState, now: Moment) -> None:
        if job.record.state is JobState.QUEUED:
            job.record = replace(job.record, ends_as=ends_as)
            self._end_as_wanted(job, now)
        elif job.record.state in _IN_WORK:
            reason: Literal["cancelled", "timed-out"]
            reason = "timed-out" if ends_as is JobState.TIMED_OUT else "cancelled"
            self._end_at(job, now.steady + self._cancel_grace)
            then = Cancel(job.engine, *job.key, reason)
            self._change(job, now, then, state=JobState.CANCELLING, ends_as=ends_as)

    def _time_is_over(self, job: OpenJob, now: Moment) -> None:
        match job.record.state:
            case JobState.QUEUED:
                error = JobFailure("deadline-exceeded", "its turn did not come in time")
                self._end(job, JobState.EXPIRED, now, error=error)
            case JobState.CANCELLING:
                self._note_line(job, "it was cancelled, but its code did not stop", now)
                self._end_as_wanted(job, now, note="its code did not stop")
            case _:
                self._cancel(job, JobState.TIMED_OUT, now)

    def _lose(self, job: OpenJob, reason: str, now: Moment, code: str = ENGINE_LOST) -> None:
        record = job.record
        self._note_line(job, f"attempt {record.attempt} was lost: {reason}", now)
        if record.state is JobState.CANCELLING:
            # Whoever wanted it to end has that: it runs no more.
            self._end_as_wanted(job, now)
            return
        delay = None if job.verb is None else job.verb.retry_after(code, record.attempt, is_lost=True)
        if delay is None:
            self._end(job, JobState.LOST, now, error=JobFailure(code, short(reason)))
        else:
            self._run_again(job, reason, now, delay)

    def _run_again(self, job: OpenJob, reason: str, now: Moment, delay: float) -> None:
        again = {"state": JobState.QUEUED, "attempt": job.record.attempt + 1, **UNRUN}
        not_before = now.wall + delay if delay > 0 else None
        self._end_at(job, None)
        self._change(job, now, note=short(f"to be run again: {reason}"), not_before=not_before, **again)
        self._enqueue(job, now)

    def _end_as_wanted(self, job: OpenJob, now: Moment, note: str = "") -> None:
        state, error = job.wanted_end
        self._end(job, state, now, error=error, note=note)

    def _end(self, job: OpenJob, state: JobState, now: Moment, **changes: Any) -> None:
        self._drop(job.record.id)
        if self._places.has(job.key):
            self._settling[job.key] = job
        else:
            changes["holder"] = None
        job.record = replace(with_steps_over(job.record, now.wall), is_owed=job.record.wants_notice)
        self._change(job, now, Ended(job.record.id), state=state, ended_at=now.wall, **changes)

    def _tell(self, job: OpenJob, now: Moment) -> None:
        """Tell what is known of it beyond what was told: of one that waits, where it stands."""
        if job.record.state is not JobState.QUEUED:
            self._change(job, now)
            return
        job.told_at, job.is_behind = now.steady, False
        # Not with its lines: this writes none.
        self._work.append(Work(job.record, keep=Keep.NOTHING))

    def _change(self, job: OpenJob, now: Moment, then: Effect | None = None, **changes: Any) -> None:
        before = job.record
        job.record = replace(before, seq=before.seq + 1, **changes)
        job.told_at, job.is_behind = now.steady, False
        self._put(job, then, held_by=before.holder)

    def _put(
        self, job: OpenJob, then: Effect | None = None, keep: Keep = Keep.RECORD, held_by: str | None = None
    ) -> None:
        self._work.append(Work(job.record, tuple(job.lines), then, keep, held_by))
        job.lines.clear()
        job.lines_due = None

    def _note_line(self, job: OpenJob, text: str, now: Moment) -> None:
        job.note_line(text, now)
        self._timed.setdefault(job.record.id, job)
