"""Actions that follow from a decision of the scheduler, as values compared with `==`.

An action is carried out in a fixed order: write to the registry, publish the status, do what follows
(`then`). So no status is published, and no runner told, before the decision is durable.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Literal, NamedTuple

from nebula.rpc.contract.job_runner import JobTask
from nebula.rpc.jobs.model.record import JobRecord, LogLine

__all__ = ["Action", "Cancel", "Ended", "FollowUp", "Keep", "Moment", "Submit"]


# Two clocks: recorded times must make sense after a restart (`wall`), and a time limit must not fire because
# the clock was set (`steady`).
class Moment(NamedTuple):
    """The time, by two clocks.

    Attributes:
        wall: seconds since the epoch, for people; it may jump.
        steady: seconds to measure durations with; it never jumps.
    """

    wall: float
    steady: float


# `most` is part of the action, because only the registry sees all instances: it counts the verb's running
# jobs in the transaction that begins this one (`JobRegistry.begin`).
class Submit(NamedTuple):
    """Give a task to the runner of this engine.

    Attributes:
        most: how many jobs of the verb run at a time, over all instances that share the registry.
    """

    engine: str | None
    task: JobTask
    most: int | None = None


class Cancel(NamedTuple):
    """Have the runner of this engine end an attempt."""

    engine: str | None
    job: str
    attempt: int
    reason: Literal["cancelled", "timed-out"]


class Ended(NamedTuple):
    """Wake the callers that wait for the end of this job."""

    job: str


FollowUp = Submit | Cancel | Ended


class Keep(Enum):
    """What to write of a job."""

    # Only RECORD has a new `seq`: lines have numbers of their own, and a release only changes the holder of a
    # job that has ended.
    RECORD = auto()
    """The record and its log lines; then its status is published."""

    LINES = auto()
    """Log lines only."""

    NOTHING = auto()
    """Nothing; its status is published again because something unwritten changed, such as its position."""

    RELEASE = auto()
    """An ended job holds nothing any more. Its note is written; its end was published before."""


@dataclass(frozen=True, slots=True)
class Action:
    """One action: write the record, add the lines to its log, publish its status, do `then`.

    Attributes:
        held_by: the instance that held the job before, as far as is known here. If the registry knows another
            one, the action is refused.
    """

    record: JobRecord
    lines: tuple[LogLine, ...] = ()
    then: FollowUp | None = None
    keep: Keep = Keep.RECORD
    # `seq` does not show a change of holder, since `release` makes no new status: without this an action on a
    # job that was released and taken over meanwhile would pass.
    held_by: str | None = None

    @property
    def is_told(self) -> bool:
        """Whether the status is published."""
        return self.keep in (Keep.RECORD, Keep.NOTHING)
