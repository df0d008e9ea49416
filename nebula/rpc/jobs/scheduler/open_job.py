"""One open job as the board holds it: its record, its verb, and what time alone will change of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from nebula.rpc.contract.job_runner import JobFailure, JobTask, Progress
from nebula.rpc.jobs.model.record import JobRecord, LogLine
from nebula.rpc.jobs.model.states import JobState
from nebula.rpc.jobs.model.steps import with_step
from nebula.rpc.jobs.registry.registry import MAX_LOG_LINES
from nebula.rpc.jobs.scheduler.work import Moment
from nebula.rpc.jobs.service.verb import JobVerb

__all__ = ["UNRUN", "Key", "OpenJob", "short"]

# Until it is done a job is not done.
_MOST_BEFORE_THE_END: Final = 0.99

# Seconds that a line waits for others: a job that logs in a loop costs one write in this time.
_LOG_EVERY: Final = 0.5

_MAX_NOTE: Final = 300
_MAX_LINE: Final = 4000

# What a record loses when its job is to be run again.
UNRUN: Final[Mapping[str, Any]] = {
    "started_at": None,
    "step": None,
    "tasks": None,
    "steps": (),
    "counters": {},
    "incarnation": None,
    "holder": None,
}

# Of one attempt: the job's ULID and the attempt's number.
Key = tuple[str, int]


@dataclass(slots=True, eq=False)
class OpenJob:
    """An open job. Times are on the steady clock.

    Attributes:
        ends_at: what happens then follows from the state: expiry, time limit, end of grace.
        begins_at: a waiting job is not begun before.
        told_at: when its status was last told.
        told_position: the position that was told then.
        is_behind: more is known of it than was told.
        lines: of its log, not written yet.
        lines_due: when they are.
    """

    record: JobRecord
    verb: JobVerb | None
    ends_at: float | None = None
    begins_at: float | None = None
    told_at: float = float("-inf")
    told_position: int | None = None
    is_behind: bool = False
    lines: deque[LogLine] = field(default_factory=lambda: deque(maxlen=MAX_LOG_LINES))
    lines_due: float | None = None

    @property
    def key(self) -> Key:
        """Of its present attempt."""
        return self.record.id, self.record.attempt

    @property
    def place(self) -> tuple[int, float, str]:
        """Its order among those that wait."""
        return -self.record.priority, self.record.accepted_at, self.record.id

    @property
    def engine(self) -> str | None:
        """What runs it."""
        return self.verb.engine if self.verb is not None else None

    @property
    def task(self) -> JobTask:
        """Its present attempt, for a runner."""
        record, verb = self.record, self.verb
        assert verb is not None
        what = (verb.name, verb.address, record.parameters, record.timeout, record.trace)
        return JobTask(
            record.id,
            record.attempt,
            *what,
            isolation=verb.isolation,
            priority=record.priority,
            owner=record.owner,
        )

    @property
    def wanted_end(self) -> tuple[JobState, JobFailure]:
        """How one ends that was told to."""
        if self.record.ends_as is JobState.TIMED_OUT:
            text = f"it ran longer than {self.record.timeout:g} s"
            return JobState.TIMED_OUT, JobFailure("deadline-exceeded", text)
        return JobState.CANCELLED, JobFailure("cancelled", "it was cancelled")

    def after(self, progress: Progress, at: float) -> JobRecord:
        """Its record when it is so far."""
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
        """Add to its log, to be written soon."""
        # A trace is cut in the middle of nowhere: its end says what happened.
        line = text if len(text) <= _MAX_LINE else "…" + text[-_MAX_LINE:]
        self.lines.append(LogLine(now.wall, line))
        if self.lines_due is None:
            self.lines_due = now.steady + _LOG_EVERY

    def due(self) -> Iterator[float]:
        """When time alone changes something."""
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
