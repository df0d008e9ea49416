"""Open job: its record, the rules of its verb, and its timers."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, Protocol

from nebula.rpc.contract.job_runner import JobFailure, JobTask, Progress
from nebula.rpc.jobs.model.record import MAX_LOG_LINES, JobRecord, LogLine, with_step
from nebula.rpc.jobs.model.states import JobEvent, JobState, next_state
from nebula.rpc.jobs.scheduler.actions import Action, FollowUp, Keep, Moment

__all__ = ["CANCELLED", "UNRUN", "JobRules", "Key", "OpenJob", "short"]

# Until it is done a job is not done.
_MOST_BEFORE_THE_END: Final = 0.99

# Seconds that a line waits for others: a job that logs in a loop costs one write in this time.
_LOG_EVERY: Final = 0.5

_MAX_NOTE: Final = 300
_MAX_LINE: Final = 4000

# The fields that a record resets when its job will run again.
UNRUN: Final[Mapping[str, Any]] = {
    "started_at": None,
    "step": None,
    "tasks": None,
    "steps": (),
    "counters": {},
    "incarnation": None,
    "holder": None,
}

CANCELLED: Final = JobFailure("cancelled", "it was cancelled")

# Of one attempt: the job's ULID and the attempt's number.
Key = tuple[str, int]


# A protocol and not `JobVerb` itself: the scheduler is pure, and `JobVerb` starts threads and reads
# signatures.
class JobRules(Protocol):
    """Rules of a verb that matter for its runs: see `JobVerb`."""

    @property
    def name(self) -> str: ...
    @property
    def address(self) -> str: ...
    @property
    def engine(self) -> str | None: ...
    @property
    def isolation(self) -> Literal["shared", "process"]: ...
    @property
    def max_running(self) -> int | None: ...

    def retry_after(self, code: str, attempt: int, *, is_lost: bool = False) -> float | None:
        """Seconds after which a job is run again whose attempt of this number ended so, or None."""


# Compared by identity, because `in` and `remove` compare with each job of a line.
@dataclass(slots=True, eq=False)
class OpenJob:
    """An open job. Times are on the steady clock.

    Attributes:
        rules: of its verb; None: the service does not declare the verb any more.
        ends_at: timer whose meaning follows from the state: expiry, time limit, end of the grace.
        begins_at: when a deferred job joins its line.
        told_at: when its status was last published.
        told_position: the position that was published then.
        is_behind: more is known of it than was published.
        lines: of its log, not written yet.
        lines_due: when they are written.
    """

    record: JobRecord
    rules: JobRules | None
    ends_at: float | None = None
    begins_at: float | None = None
    told_at: float = float("-inf")
    told_position: int | None = None
    is_behind: bool = False
    # As many as the registry keeps: it would delete older lines of the same write.
    lines: deque[LogLine] = field(default_factory=lambda: deque(maxlen=MAX_LOG_LINES))
    lines_due: float | None = None

    @property
    def key(self) -> Key:
        """Of its current attempt."""
        return self.record.id, self.record.attempt

    @property
    def order_key(self) -> tuple[int, float, str]:
        """Its order among the waiting jobs of its engine: priority, then age."""
        # The ULID breaks ties between jobs that were accepted at the same time.
        return -self.record.priority, self.record.accepted_at, self.record.id

    @property
    def engine(self) -> str | None:
        """What runs it."""
        return self.rules.engine if self.rules is not None else None

    @property
    def task(self) -> JobTask:
        """Its current attempt, for a runner."""
        record, rules = self.record, self.rules
        assert rules is not None
        what = (rules.name, rules.address, record.parameters, record.timeout, record.trace)
        return JobTask(
            record.id,
            record.attempt,
            *what,
            isolation=rules.isolation,
            priority=record.priority,
            owner=record.owner,
        )

    @property
    def wanted_end(self) -> tuple[JobEvent, JobFailure]:
        """How a job that is being cancelled ends once its run is over."""
        # CANCELLING does not say why. `ends_as` is in the record, so a service that is restarted meanwhile
        # still tells a time limit from a cancel.
        if self.record.ends_as is JobState.TIMED_OUT:
            text = f"it ran longer than {self.record.timeout:g} s"
            return JobEvent.STOP_LATE, JobFailure("deadline-exceeded", text)
        return JobEvent.STOP, CANCELLED

    # A change that is written without a new `seq` would lose against an older record in another folder or
    # instance, and callers could not tell which of two statuses is newer.
    def change(
        self, now: Moment, event: JobEvent | None = None, then: FollowUp | None = None, **changes: Any
    ) -> Action:
        """Change the record, and its state as the event says: the action that writes and publishes it.

        Raises:
            IllegalTransition: the event cannot happen in this state.
        """
        before = self.record
        if event is not None:
            changes["state"] = next_state(before.state, event)
        self.record = replace(before, seq=before.seq + 1, **changes)
        self.told_at, self.is_behind = now.steady, False
        return self.write(then, held_by=before.holder)

    def write(
        self, then: FollowUp | None = None, keep: Keep = Keep.RECORD, held_by: str | None = None
    ) -> Action:
        """The action that writes what there is to write, log lines included."""
        action = Action(self.record, tuple(self.lines), then, keep, held_by)
        self.lines.clear()
        self.lines_due = None
        return action

    def after(self, progress: Progress, at: float) -> JobRecord:
        """Its record with this progress."""
        seen = replace(
            self.record,
            progress=_further(self.record.progress, progress.fraction),
            note=short(progress.note),
            step=progress.step,
            tasks=progress.tasks,
            counters=dict(progress.counters),
        )
        return with_step(seen, progress.step, at if progress.at is None else progress.at)

    def note_line(self, text: str, now: Moment) -> None:
        """Add a line to its log, written with the next batch."""
        # The end of a long trace says what happened, so the beginning goes.
        line = text if len(text) <= _MAX_LINE else "…" + text[-_MAX_LINE:]
        self.lines.append(LogLine(now.wall, line))
        if self.lines_due is None:
            self.lines_due = now.steady + _LOG_EVERY

    def due(self) -> Iterator[float]:
        """When one of its timers is due."""
        if self.ends_at is not None:
            yield self.ends_at
        if self.begins_at is not None:
            yield self.begins_at
        if self.is_behind:
            yield self.told_at + self.record.progress_every
        if self.lines_due is not None:
            yield self.lines_due


def _further(old: float | None, new: float | None) -> float | None:
    """Progress never falls: a plan that turns out longer stands still for a while."""
    if new is None:
        return old
    return max(old or 0.0, min(new, _MOST_BEFORE_THE_END), 0.0)


def short(text: str) -> str:
    """One line, for people."""
    line = " ".join(text.replace("\0", " ").encode("utf-8", "replace").decode().split())
    return line if len(line) <= _MAX_NOTE else line[: _MAX_NOTE - 1] + "…"
