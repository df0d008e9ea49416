"""Marks that a broker under test leaves in shared memory, to be read when it is dead.

A file that is mapped belongs to the kernel: what a process wrote there is there the moment after, also
when SIGKILL came in between. So they say without a doubt what the store was doing at the kill.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_LAYOUT: Final = struct.Struct("<QQQ")


@dataclass(frozen=True, slots=True)
class Marks:
    """What the store of a broker had begun when it died.

    Attributes:
        begun: batches that were handed to it.
        ended: those that it had returned from.
        commits: COMMITs that were begun in them; each ends before its batch does.
    """

    begun: int
    ended: int
    commits: int

    @property
    def in_flight(self) -> bool:
        """A batch was under way: some of it written, and nobody told."""
        return self.begun != self.ended

    @property
    def in_commit(self) -> bool:
        """SQLite was at the COMMIT of it, or had returned from that with nobody told yet."""
        return self.commits != self.ended


def read_marks(file: Path) -> Marks:
    """The marks of a broker that has ended."""
    return Marks(*_LAYOUT.unpack(file.read_bytes()))


class Marker:
    """The broker's end: counts up."""

    def __init__(self, file: Path) -> None:
        file.write_bytes(bytes(_LAYOUT.size))
        with file.open("r+b") as opened:
            self._memory = mmap.mmap(opened.fileno(), _LAYOUT.size)
        self._counts = [0, 0, 0]

    def count(self, place: int) -> None:
        """One more of the field at this place of `Marks`."""
        self._counts[place] += 1
        _LAYOUT.pack_into(self._memory, 0, *self._counts)
