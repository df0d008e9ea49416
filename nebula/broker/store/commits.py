"""Count and duration of the store's commits, for metrics and `status`."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

# Seconds. A commit is a sync of the disk: below a millisecond on some, a second where one is dying.
BOUNDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


class Commits:
    """How many batches the store has taken, of how many writes, and how long it took for each.

    Attributes:
        rows: written.
        seconds: of all commits together.
        by_bound: how many took no longer than each of `BOUNDS`, and longer than the one before; at the end
            those that took longer than all.
    """

    __slots__ = ("by_bound", "rows", "seconds")

    def __init__(self) -> None:
        self.rows = 0
        self.seconds = 0.0
        self.by_bound = [0] * (len(BOUNDS) + 1)

    @property
    def count(self) -> int:
        """Batches."""
        return sum(self.by_bound)

    def note(self, rows: int, seconds: float) -> None:
        """One more batch."""
        self.rows += rows
        self.seconds += seconds
        self.by_bound[bisect_left(BOUNDS, seconds)] += 1
