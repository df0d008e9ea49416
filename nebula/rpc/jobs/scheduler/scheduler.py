"""Scheduler: the state machine of one instance's open jobs.

What decides the order: each engine has a line of waiting jobs, see `order`. `dispatch` begins the first ones
that may begin. It runs after each event that may free a slot, an exclusive key or a verb's run count.

What happens on an event: the state follows from the table in `model.states`, which refuses what it does not
have. What has to be done goes out as actions, in the order of the decisions (`take_actions`):

| event | actions |
| --- | --- |
| a slot is free | record `starting`, then submit the attempt to its runner |
| started, progress | record; progress once in `progress_every` seconds at most |
| done | record `done`, then wake the callers that wait |
| failed, lost | record `queued` with the next attempt if the verb allows one; else the end, as for `done` |
| cancel, time limit | record `cancelling`, then cancel the attempt; after `cancel_grace` record its end |
| slots free | release what the attempt held beyond the end of its job |

Invariants:

- Write before deed: an action says what to write before what to do. So no runner begins, and no caller hears
  of, what a crash could undo.
- The state here is ahead of the disk. `withdraw` gives a job up if the registry refuses an action because
  another instance has changed the job first.
- An attempt (`Key`) holds its slot until its runner says that nothing of it runs any more, even if its job
  has ended. A runner's reports about an earlier attempt, or an ended job, are ignored.
- Only jobs with a timer are looked at when time passes: a thousand waiting jobs cost nothing.

Pure: time comes in with each call, actions go out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any, NamedTuple, assert_never

from nebula.rpc.contract.job_runner import ENGINE_LOST, JobFailure, JobOutput, Progress
from nebula.rpc.jobs.model.record import JobRecord, with_steps_over
from nebula.rpc.jobs.model.states import JobEvent, JobState
from nebula.rpc.jobs.scheduler.actions import Action, Cancel, Ended, FollowUp, Keep, Moment, Submit
from nebula.rpc.jobs.scheduler.open_job import CANCELLED, UNRUN, JobRules, Key, OpenJob, short
from nebula.rpc.jobs.scheduler.order import JobOrder, WaitingState

__all__ = ["Reserved", "Scheduler"]


class Reserved(NamedTuple):
    """A job that has a slot, and is recorded together with its beginning.

    Attributes:
        waiting: the position that it would have had.
        begin: the action to write with it.
    """

    job: OpenJob
    waiting: WaitingState
    begin: Action


# The shape is that of a protocol without I/O: the service calls in with events, and takes actions out. So
# every order of events can be tried by a test (`tests/rpc/jobs/test_scheduler.py`) without runners, a
# disk or a clock.
#
# Three places hold a job, and each says something else of it:
# - `_open`: is the job open here? The record is the newest that we decided, written or not.
# - `_settling`: has its end been decided while something of it still runs? Its slot is not free yet.
# - `_elsewhere`: does another instance run it? It counts for its verb's limit and its key, nothing else.
# A job is in `_open` or in `_elsewhere`, never in both; `_drop` takes it out of either.
class Scheduler:
    """Schedules the open jobs of one instance.

    Args:
        verbs: by name.
        capacity: how many jobs a runner takes at a time.
        cancel_grace: seconds that a cancelled run has to end; then its job ends all the same.
        instance: name of this instance, which holds what it runs.
        left_to_others: verbs, by name, that cannot be run here now, and can by another instance.
        is_shared: other instances schedule the same jobs. Then no move in a line is published: without a
            write, no order between what several instances publish exists.
    """

    def __init__(
        self,
        verbs: Mapping[str, JobRules],
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
        # Jobs with a timer.
        self._timed: dict[str, OpenJob] = {}
        self._order = JobOrder(capacity, left_to_others)
        self._waiting, self._slots = self._order.line, self._order.slots
        # Ended jobs whose attempts still hold a slot.
        self._settling: dict[Key, OpenJob] = {}
        # Attempts that other instances run, by job.
        self._elsewhere: dict[str, Key] = {}
        self._actions: list[Action] = []
        self._is_stopping = False

    # --- looking ---

    @property
    def queued(self) -> int:
        """Number of waiting jobs, deferred ones included."""
        return len(self._waiting)

    def queued_by(self, owner: str | None) -> int:
        """Number of waiting jobs of one owner."""
        return sum(job.record.owner == owner for job in self._waiting)

    def waiting_state(self, job: str) -> WaitingState:
        """Position of a job in its line, and what it waits for."""
        found = self._open.get(job)
        return WaitingState() if found is None else self._order.waiting_state(found)

    def verbs(self) -> list[str]:
        """Names of the declared verbs."""
        return list(self._verbs)

    def open_record(self, job: str) -> JobRecord | None:
        """The record of a job while it is open."""
        found = self._open.get(job)
        return None if found is None else found.record

    def open_records(self) -> list[JobRecord]:
        """The records of the open jobs."""
        return [job.record for job in self._open.values()]

    def take_actions(self) -> list[Action]:
        """The actions decided since the last call, in order."""
        actions, self._actions = self._actions, []
        return actions

    def next_due(self) -> float | None:
        """When the next timer is due, on the steady clock."""
        return min((due for job in self._timed.values() for due in job.due()), default=None)

    # --- from the service ---

    def add(self, record: JobRecord, now: Moment) -> None:
        """Queue a recorded job. Nothing begins before `dispatch`."""
        job = self._open[record.id] = OpenJob(record, self._verbs.get(record.verb), told_at=now.steady)
        self._enqueue(job, now)

    def reserve(self, record: JobRecord, now: Moment) -> Reserved | None:
        """Take a slot for a job that is not recorded yet, if it may begin at once.

        So one commit records that it is accepted and that it begins. The caller ends the reservation: with
        `begun` after the commit, with `give_back` if the job was not recorded.

        Returns:
            the reservation; None: record the job first, then `add` it.
        """
        job = OpenJob(record, self._verbs.get(record.verb))
        is_deferred = record.not_before is not None and record.not_before > now.wall
        is_known = record.id in self._open or record.id in self._elsewhere
        if self._is_stopping or is_deferred or is_known or not self._order.may_begin(job):
            return None
        # The first published status is `queued`, with the position that the job would have had.
        waiting = WaitingState(self._waiting.count_before(job) + 1)
        self._begin(job, now)
        # Removed from the actions, because one commit writes the job and its beginning (docs/decisions/0036).
        return Reserved(job, waiting, self._actions.pop())

    def begun(self, reserved: Reserved) -> None:
        """Add a reserved job: it was recorded, with its beginning."""
        self._open[reserved.job.record.id] = reserved.job

    def give_back(self, reserved: Reserved, now: Moment) -> None:
        """Free the slot of a reserved job that was not recorded."""
        # `learn` has freed it if another instance has the same job.
        if self._slots.has(reserved.job.key):
            self._slots.free(reserved.job.key)
        self.dispatch(now)

    def recover(self, record: JobRecord, now: Moment, reason: str = "the service was restarted") -> None:
        """Take over an open job. Its run, if any, died with the process that had it."""
        self._drop(record.id)
        job = self._open[record.id] = OpenJob(record, self._verbs.get(record.verb))
        if record.state is not JobState.QUEUED:
            self._lose(job, reason, now)
        # A new version of the service may lack the verb. Its waiting jobs end, or they would wait for ever.
        elif job.rules is None:
            error = JobFailure("unknown-verb", f"the service has no job {record.verb!r} any more")
            self._end(job, JobEvent.FAIL, now, error=error)
        else:
            self._enqueue(job, now)

    def dispatch(self, now: Moment) -> None:
        """Begin the jobs that may begin. Runners get them after the write, so no run is unknown."""
        if self._is_stopping:
            return
        # All that may begin, not only the first: one event (the end of an exclusive job) can free
        # several.
        for job in self._order.take_next():
            self._begin(job, now)
        # Only noted: `advance` publishes a position once per `progress_every` seconds, however fast the line
        # moves.
        for job in () if self._is_shared else self._order.moved():
            job.is_behind = True
            self._timed[job.record.id] = job

    def cancel(self, job: str, now: Moment) -> bool:
        """Cancel a job. One that is being cancelled already, or has ended, stays as it is.

        Returns:
            whether the job is open here; else another instance has to end it.
        """
        found = self._open.get(job)
        if found is not None:
            self._cancel(found, JobEvent.CANCEL, now)
        return found is not None

    def advance(self, now: Moment) -> None:
        """Run the timers that are due."""
        for job in list(self._timed.values()):
            # Dropped only here, so that code that clears a timer need not know whether the job has another
            # one.
            if next(job.due(), None) is None:
                del self._timed[job.record.id]
            # One timer of a job in each round, because it may end the job or change what is due.
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
        """Write the log lines of a job that wait for their batch."""
        found = self._open.get(job)
        if found is not None and found.lines:
            self._actions.append(found.write(keep=Keep.LINES))

    def stop(self) -> None:
        """Begin no more jobs. Those that wait, wait for the next start of the service."""
        self._is_stopping = True

    # --- from other instances that share the registry ---

    def learn(self, record: JobRecord, now: Moment) -> None:
        """Learn of a change: a waiting job may begin here, a running one counts for its verb and key."""
        found = self._open.get(record.id)
        # `seq` grows with each change of a record, in whichever instance it is made.
        if found is not None and (found.record.seq >= record.seq or self._slots.has(found.key)):
            # Either our own write, or our next write will be refused.
            return
        # Our own write, or a job that an earlier process of this instance left, which `recover` gets.
        if record.holder is not None and record.holder == self._instance:
            return
        self._drop(record.id)
        if record.state is JobState.QUEUED and record.verb in self._verbs:
            job = self._open[record.id] = OpenJob(record, self._verbs[record.verb], told_at=now.steady)
            self._enqueue(job, now)
        elif record.holder is not None:
            self._elsewhere[record.id] = record.id, record.attempt
            self._slots.take_elsewhere(record)

    def keep_only(self, jobs: Collection[str]) -> None:
        """Drop the waiting jobs, and those of other instances, that are not among these open or held ones."""
        waiting = [one.record.id for one in self._waiting]
        for job in [job for job in (*waiting, *self._elsewhere) if job not in jobs]:
            self._drop(job)

    def withdraw(self, action: Action) -> None:
        """Give a job up: the registry refused the action because another instance has changed the job."""
        record = action.record
        if isinstance(action.then, Submit):
            # No runner has got the attempt, whatever was decided since.
            key = record.id, record.attempt
            self._slots.free(key)
            self._settling.pop(key, None)
        self._drop(record.id)

    def _drop(self, job: str) -> None:
        if (found := self._open.pop(job, None)) is not None:
            self._waiting.discard(found)
            self._timed.pop(job, None)
        if (key := self._elsewhere.pop(job, None)) is not None:
            self._slots.free(key)

    # --- from the runners ---

    def starting(self, key: Key, incarnation: str) -> None:
        """Note the engine process that has got the attempt."""
        if (job := self._find(key)) is not None:
            job.record = replace(job.record, incarnation=incarnation)

    def started(self, key: Key, now: Moment) -> None:
        """The code of an attempt runs."""
        job = self._find(key)
        # A job that was cancelled while it started still reports its start, and stays CANCELLING.
        if job is not None and job.record.state is JobState.STARTING:
            limit = job.record.timeout
            self._end_at(job, None if limit is None else now.steady + limit)
            self._change(job, now, JobEvent.START, started_at=now.wall)

    def progress(self, key: Key, progress: Progress, now: Moment) -> None:
        """Progress of an attempt."""
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
        """The code of an attempt has returned."""
        if (job := self._take_back(key)) is not None:
            # A short run may return before its `started` was heard: the table has no RETURN for STARTING.
            self.started(key, now)
            self._end(job, JobEvent.RETURN, now, output=output, note="", progress=1.0)
        self.dispatch(now)

    def failed(self, key: Key, failure: JobFailure, now: Moment) -> None:
        """The code of an attempt raised, or could not be run."""
        if (job := self._take_back(key)) is not None:
            # The trace goes to the log, which only the owner reads. All may read the status, so it has one
            # line.
            if failure.trace:
                self._note_line(job, failure.trace, now)
            error = replace(failure, message=short(failure.message), trace="")
            delay = None if job.rules is None else job.rules.retry_after(failure.code, job.record.attempt)
            # A cancelled job that fails on its way out has ended, and does not run again.
            if delay is None or job.record.state is JobState.CANCELLING:
                self._end(job, JobEvent.FAIL, now, error=error)
            else:
                self._run_again(job, f"{error.code}: {error.message}", now, delay)
        self.dispatch(now)

    def cancelled(self, key: Key, now: Moment, *, slots_free: bool) -> None:
        """An attempt was ended by a cancel."""
        job = self._take_back(key) if slots_free else self._find(key)
        if job is not None and job.record.state is JobState.CANCELLING:
            self._stop_as_wanted(job, now, note="" if slots_free else "ended; its resources come free soon")
        # No caller has cancelled it: a run that its engine ended by itself is lost.
        elif job is not None:
            self._lose(job, "it was ended by what ran it", now)
        self.dispatch(now)

    def slots_free(self, key: Key, now: Moment) -> None:
        """A cancelled attempt holds nothing any more."""
        if self._find(key) is None:
            self._release(key, note="")
        self.dispatch(now)

    def running(self, key: Key) -> JobRecord | None:
        """The record of an attempt that has not ended, or None."""
        job = self._find(key)
        return None if job is None else job.record

    def lost(self, key: Key, reason: str, now: Moment, *, code: str = ENGINE_LOST) -> None:
        """What ran an attempt is gone."""
        if (job := self._take_back(key)) is not None:
            self._lose(job, reason, now, code)
        self.dispatch(now)

    def log(self, key: Key, text: str, now: Moment) -> None:
        """Add a line to the log of a job."""
        if (job := self._find(key)) is not None:
            self._note_line(job, text, now)

    # --- inside ---

    def _find(self, key: Key) -> OpenJob | None:
        # None for an earlier attempt or an ended job: what their runners still say is late.
        job = self._open.get(key[0])
        return job if job is not None and job.key == key else None

    def _take_back(self, key: Key) -> OpenJob | None:
        """Free what an attempt held: its runner is done with it."""
        self._release(key)
        return self._find(key)

    def _release(self, key: Key, note: str | None = None) -> None:
        self._slots.free(key)
        if (ended := self._settling.pop(key, None)) is not None:
            record = ended.record if note is None else replace(ended.record, note=note)
            self._actions.append(Action(record, keep=Keep.RELEASE))

    def _enqueue(self, job: OpenJob, now: Moment) -> None:
        record = job.record
        # Only a job that never ran expires.
        expires_at = record.expires_at if record.attempt == 1 else None
        # The record has wall-clock times and timers are steady, so times are converted once, here.
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
        assert job.rules is not None
        then = Submit(job.engine, job.task, job.rules.max_running)
        self._end_at(job, None)
        # Taken now and not when it is written: otherwise the next job of this round would get the slot, too.
        self._slots.take(job)
        self._change(job, now, JobEvent.BEGIN, then, holder=self._instance)

    def _cancel(self, job: OpenJob, event: JobEvent, now: Moment) -> None:
        state = job.record.state
        is_time_out = event is JobEvent.TIME_OUT
        ends_as = JobState.TIMED_OUT if is_time_out else JobState.CANCELLED
        if state is JobState.QUEUED:
            self._end(job, event, now, error=CANCELLED, note="", ends_as=ends_as)
        elif state is not JobState.CANCELLING:
            # The timer of the time limit now limits the grace: code that ignores the cancel must not keep a
            # caller waiting.
            self._end_at(job, now.steady + self._cancel_grace)
            then = Cancel(job.engine, *job.key, "timed-out" if is_time_out else "cancelled")
            self._change(job, now, event, then, ends_as=ends_as)

    def _time_is_over(self, job: OpenJob, now: Moment) -> None:
        match job.record.state:
            case JobState.QUEUED:
                error = JobFailure("deadline-exceeded", "its turn did not come in time")
                self._end(job, JobEvent.EXPIRE, now, error=error)
            case JobState.CANCELLING:
                self._note_line(job, "it was cancelled, but its code did not stop", now)
                self._stop_as_wanted(job, now, note="its code did not stop")
            case JobState.STARTING | JobState.RUNNING:
                # Not an end yet: first its code has to be ended, which gets `cancel_grace` seconds.
                self._cancel(job, JobEvent.TIME_OUT, now)
            case (
                JobState.DONE | JobState.FAILED | JobState.CANCELLED
                | JobState.TIMED_OUT | JobState.LOST | JobState.EXPIRED
            ):  # fmt: skip
                raise AssertionError(f"{job.record.id} has ended, but still has a deadline")
            case state:
                assert_never(state)

    def _lose(self, job: OpenJob, reason: str, now: Moment, code: str = ENGINE_LOST) -> None:
        record = job.record
        self._note_line(job, f"attempt {record.attempt} was lost: {reason}", now)
        if record.state is JobState.CANCELLING:
            # It does not run any more, which is what its caller wanted.
            self._stop_as_wanted(job, now)
            return
        delay = None if job.rules is None else job.rules.retry_after(code, record.attempt, is_lost=True)
        if delay is None:
            self._end(job, JobEvent.LOSE, now, error=JobFailure(code, short(reason)))
        else:
            self._run_again(job, reason, now, delay)

    def _run_again(self, job: OpenJob, reason: str, now: Moment, delay: float) -> None:
        again = {"attempt": job.record.attempt + 1, **UNRUN}
        # Recorded, so that a restart does not cut the delay short.
        not_before = now.wall + delay if delay > 0 else None
        self._end_at(job, None)
        note = short(f"to be run again: {reason}")
        self._change(job, now, JobEvent.RERUN, note=note, not_before=not_before, **again)
        self._enqueue(job, now)

    def _stop_as_wanted(self, job: OpenJob, now: Moment, note: str = "") -> None:
        event, error = job.wanted_end
        self._end(job, event, now, error=error, note=note)

    def _end(self, job: OpenJob, event: JobEvent, now: Moment, **changes: Any) -> None:
        self._drop(job.record.id)
        # Its run has not been told to be over: the end is recorded now, the slot comes free when the
        # runner says so (`_release`).
        if self._slots.has(job.key):
            self._settling[job.key] = job
        else:
            changes["holder"] = None
        # One write records the end and the notice that is owed, so a crash cannot separate them.
        job.record = replace(with_steps_over(job.record, now.wall), is_owed=job.record.wants_notice)
        self._change(job, now, event, Ended(job.record.id), ended_at=now.wall, **changes)

    def _tell(self, job: OpenJob, now: Moment) -> None:
        """Publish what is known of a job beyond what was published: of a waiting one, its position."""
        if job.record.state is not JobState.QUEUED:
            self._change(job, now)
            return
        # `seq` stays, because nothing is written.
        job.told_at, job.is_behind = now.steady, False
        # Without its log lines: this action writes nothing.
        self._actions.append(Action(job.record, keep=Keep.NOTHING))

    def _change(
        self,
        job: OpenJob,
        now: Moment,
        event: JobEvent | None = None,
        then: FollowUp | None = None,
        **changes: Any,
    ) -> None:
        self._actions.append(job.change(now, event, then, **changes))

    def _note_line(self, job: OpenJob, text: str, now: Moment) -> None:
        job.note_line(text, now)
        self._timed.setdefault(job.record.id, job)
