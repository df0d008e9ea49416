"""What a decision on a job asks its service to do: values, compared with `==`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Literal, NamedTuple

from nebula.rpc.contract.job_runner import JobTask
from nebula.rpc.jobs.model.record import JobRecord, LogLine

__all__ = ["Cancel", "Effect", "Ended", "Keep", "Moment", "Submit", "Work"]


class Moment(NamedTuple):
    """Now, twice: seconds since the epoch, for people, and seconds that never jump, to count with."""

    wall: float
    steady: float


class Submit(NamedTuple):
    """Give this to the runner of that name.

    Attributes:
        most: of the verb run at a time, over all instances that share the registry.
    """

    engine: str | None
    task: JobTask
    most: int | None = None


class Cancel(NamedTuple):
    """Have the runner of that name end this attempt."""

    engine: str | None
    job: str
    attempt: int
    reason: Literal["cancelled", "timed-out"]


class Ended(NamedTuple):
    """Whoever waits for this job need not wait any more."""

    job: str


Effect = Submit | Cancel | Ended


class Keep(Enum):
    """What to write of a job."""

    RECORD = auto()
    """All, and its status is told then."""

    LINES = auto()
    """Those for its log alone."""

    NOTHING = auto()
    """Its status is told again: what of it is not written has changed, such as its position."""

    RELEASE = auto()
    """That nothing of it runs any more, and its note; it has ended before, and that is told once."""


@dataclass(frozen=True, slots=True)
class Work:
    """What to do, in this order: write the record, add the lines to its log, tell its status, do `then`.

    Attributes:
        held_by: held the job before, as far as is known here: what follows is true of that run alone.
    """

    record: JobRecord
    lines: tuple[LogLine, ...] = ()
    then: Effect | None = None
    keep: Keep = Keep.RECORD
    held_by: str | None = None

    @property
    def is_told(self) -> bool:
        """Whether its status is."""
        return self.keep in (Keep.RECORD, Keep.NOTHING)
