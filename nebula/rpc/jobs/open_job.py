"""One open job as the board holds it: its record, its verb, and what time alone will change of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from nebula.rpc.jobs.record import JobRecord, LogLine
from nebula.rpc.jobs.registry import MAX_LOG_LINES
from nebula.rpc.jobs.verb import JobVerb

__all__ = ["Key", "OpenJob"]

# Of one attempt: the job's ULID and the attempt's number.
Key = tuple[str, int]


@dataclass(slots=True, eq=False)
class OpenJob:
    """An open job. Times are on the steady clock.

    Attributes:
        ends_at: what happens then follows from the state: expiry, time limit, end of grace.
        begins_at: a waiting job is not begun before.
        told_at: when its status was last told.
        is_behind: more is known of it than was told.
        lines: of its log, not written yet.
        lines_due: when they are.
    """

    record: JobRecord
    verb: JobVerb | None
    ends_at: float | None = None
    begins_at: float | None = None
    told_at: float = float("-inf")
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
