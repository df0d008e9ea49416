"""What the shell counts as it goes: as little as an addition for each read, write and commit."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

# Seconds. A commit is a sync of the disk: below a millisecond on some, a second where one is dying.
BOUNDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


class Traffic:
    """Octets and frames of a connection, or of many together.

    Attributes:
        read_bytes, written_bytes: what was handed over by and to the transport.
        sent_frames: deliveries, and what the protocol itself has said.
    """

    __slots__ = ("read_bytes", "sent_frames", "written_bytes")

    def __init__(self) -> None:
        self.read_bytes = 0
        self.written_bytes = 0
        self.sent_frames = 0

    def add(self, other: Traffic) -> None:
        """Count what another has counted."""
        self.read_bytes += other.read_bytes
        self.written_bytes += other.written_bytes
        self.sent_frames += other.sent_frames


class Commits:
    """How many batches the store has taken, of how many rows, and how long it took for each.

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
