"""Splits of files into tasks: whole files first, parts of them only where they are large."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from nebula.spark.reading.files import File

LEAST_BYTES: Final = 4 << 20
MOST_BYTES: Final = 64 << 20

# What it costs to open a file, as bytes that are read in the same time.
_OPENING_BYTES: Final = 1 << 20

_LOOK_BACK: Final = 8


@dataclass(frozen=True, slots=True)
class Part:
    """The blocks of a file that begin behind a sync marker in this range of bytes. The header's counts."""

    file: File
    start: int
    end: int


def target_bytes(files: Iterable[File], slots: int) -> int:
    """What a task is to read: enough tasks for each slot to have two, within limits."""
    # Opening counts as bytes, so that ten thousand tiny files are divided among many tasks.
    total = sum(file.size_bytes + _OPENING_BYTES for file in files)
    # A twentieth more, so that files of nearly one size need no task more for the larger ones.
    return min(MOST_BYTES, max(LEAST_BYTES, total * 21 // (40 * max(1, slots))))


def split(files: Iterable[File], most_bytes: int) -> list[list[Part]]:
    """Share files out among tasks, the largest first: each in one task, unless it is much too large.

    Args:
        files: of any size.
        most_bytes: that a task is to read.
    """
    parts = [part for file in files for part in _cut(file, most_bytes)]
    # Largest first, so that the last tasks to start are the short ones.
    parts.sort(key=lambda part: part.start - part.end)
    tasks: list[tuple[int, list[Part]]] = []
    for part in parts:
        size = part.end - part.start + _OPENING_BYTES
        # The largest come first, so what has room stands at the end: a look at a few is enough.
        latest = range(max(0, len(tasks) - _LOOK_BACK), len(tasks))
        place = next((at for at in latest if tasks[at][0] + size <= most_bytes), None)
        if place is None:
            tasks.append((size, [part]))
        else:
            used, held = tasks[place]
            held.append(part)
            tasks[place] = (used + size, held)
    return [held for _, held in tasks]


def _cut(file: File, most_bytes: int) -> list[Part]:
    # A file of little more than a task's share is not worth a second opening.
    if 2 * file.size_bytes <= 3 * most_bytes:
        return [Part(file, 0, file.size_bytes)]
    # Parts of equal size; where a block lies across a border, its marker decides whose it is.
    count = -(-file.size_bytes // most_bytes)
    bounds = [file.size_bytes * each // count for each in range(count + 1)]
    return [Part(file, start, end) for start, end in pairwise(bounds)]
