"""Count and duration of the store's commits, for metrics and `status`."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

# Seconds. A commit is a sync of the disk: below a millisecond on some disks, a second on a dying one.
BOUNDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


class Commits:
    """Counts the batches that the store has committed, their rows, and their durations.

    Attributes:
        rows: written.
        seconds: of all commits together.
        by_bound: a histogram: commits that took at most each of `BOUNDS`, and longer than the one before; the
            last number counts those above all bounds.
    """

    __slots__ = ("by_bound", "rows", "seconds")

    def __init__(self) -> None:
        self.rows = 0
        self.seconds = 0.0
        self.by_bound = [0] * (len(BOUNDS) + 1)

    @property
    def count(self) -> int:
        """The number of batches."""
        return sum(self.by_bound)

    def note(self, rows: int, seconds: float) -> None:
        """One more batch."""
        self.rows += rows
        self.seconds += seconds
        # `bisect_left`, because Prometheus's bounds are inclusive (`le`).
        self.by_bound[bisect_left(BOUNDS, seconds)] += 1
