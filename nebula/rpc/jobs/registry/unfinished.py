"""Notes of unfinished outputs, by which those of killed attempts are removed.

An attempt that is killed cannot tidy up, and only it knows where its job's code wanted to write. So each
place is noted before it is given out, in a file of the attempt's, which its process has locked for as long as
the attempt lives. The system ends the lock with the process: a note without a lock has no living writer.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from nebula.file_locks import LOCK_EX, LOCK_NB, flock
from nebula.logs import get_logger
from nebula.rpc.jobs.registry.atomic_publish import ASIDE, restore

__all__ = ["UNFINISHED", "AttemptNote", "notes_of", "sweep", "sweep_all"]

_log = get_logger(__name__)

# Between an output's name and the attempt's, as long as it is not whole.
UNFINISHED: Final = ".__"

_MODE: Final = 0o600


class _Noted(NamedTuple):
    final: Path
    unfinished: Path

    def left(self) -> Iterator[Path]:
        """What is there of it, under the names that it has as long as it is not whole."""
        aside = self.unfinished.with_name(self.unfinished.name + ASIDE)
        return (path for path in (self.unfinished, aside) if os.path.lexists(path))


# A lock says whether the attempt is alive. A pid may be reused, and a timestamp says nothing about a run of
# days. `flock` belongs to the open file, so a child that inherits it would keep the lock; hence O_CLOEXEC.
class AttemptNote:
    """The note of one attempt. Not for several threads at once.

    Args:
        folder: of notes; it is made if need be.
        name: the attempt's, which no other one has.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._path = folder / name
        self._file: int | None = None
        self._noted: list[_Noted] = []

    def add(self, final: Path, unfinished: Path) -> None:
        """Note the place of an output before it is written. The note survives if this process is killed.

        Raises:
            OSError: the note cannot be written.
        """
        if self._file is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = _locked(self._path)
        line = json.dumps([os.fspath(final), os.fspath(unfinished)])
        # Unbuffered, so that the note survives a killed process. Not synced: a power cut may leave an
        # unfinished output without its note, which only costs space.
        os.write(self._file, f"{line}\n".encode())
        self._noted.append(_Noted(final, unfinished))

    def close(self) -> None:
        """The attempt is over. The note goes, unless something is left that the next sweep has to remove."""
        if self._file is None:
            return
        if not any(path for one in self._noted for path in one.left()):
            self._path.unlink(missing_ok=True)
        os.close(self._file)
        self._file = None


def notes_of(state: Path) -> Path:
    """The folder of notes in an instance's folder: on a disk whose locks hold."""
    return state / "unfinished"


def sweep_all(state: Path) -> None:
    """`sweep` for this instance of a service and its others: one that is gone may never come back."""
    for folder in state.parent.glob("*/unfinished"):
        sweep(folder)


def sweep(folder: Path) -> list[Path]:
    """Remove what attempts left that do not live any more, and their notes. Blocks; safe at any time.

    A note goes only when nothing of it was there: what a killed attempt had begun elsewhere, on a cluster for
    one, may be written for a little longer, and goes the next time.

    Returns:
        what was removed.
    """
    removed: list[Path] = []
    for note in sorted(folder.glob("*")):
        try:
            file = os.open(note, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            # A living attempt holds the lock, so this fails at once and the attempt is left alone.
            flock(file, LOCK_EX | LOCK_NB)
            left = [(path, one.final) for one in _read(note) for path in one.left()]
            for path, final in left:
                restore(path, final)
                removed.append(path)
            if not left:
                note.unlink(missing_ok=True)
        except BlockingIOError:
            continue
        except OSError as error:
            _log.warning("unfinished outputs not removed", note=str(note), error=str(error))
        finally:
            os.close(file)
    if removed:
        _log.info("unfinished outputs removed", outputs=len(removed), first=str(removed[0]))
    return removed


def _locked(path: Path) -> int:
    while True:
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, _MODE)
        flock(file, LOCK_EX)
        # A sweep may have taken it for an old one, and removed it, before it was locked.
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file), path.stat()):
                return file
        os.close(file)


def _read(note: Path) -> Iterator[_Noted]:
    for line in note.read_text(encoding="utf-8").splitlines():
        try:
            final, unfinished = map(Path, json.loads(line))
        except (ValueError, TypeError):
            # The last one, of a process that was killed while it wrote: nothing was given out for it.
            continue
        # A damaged or forged note must not remove other files: only names of this form are removed.
        if UNFINISHED in unfinished.name:
            yield _Noted(final, unfinished)
