"""Puts what is finished where it is to be seen, so that its name always has something whole."""

from __future__ import annotations

import ctypes
import os
import shutil
from pathlib import Path

_HERE = -100  # AT_FDCWD: paths are as the process sees them
_EXCHANGE = 2  # RENAME_EXCHANGE of renameat2(2)
_ASIDE = ".before"


def place(unfinished: Path, final: Path) -> None:
    """Move a file or folder to its name; what had the name before goes.

    Both trade names in one step where the system can do that, as Linux on its own file systems. Elsewhere
    the name has nothing between two renames, if it was that of a folder.

    Raises:
        OSError: as renaming does; then what was there is there.
    """
    if not final.is_dir() or final.is_symlink():
        unfinished.replace(final)
    elif _exchanged(unfinished, final):
        shutil.rmtree(unfinished)
    else:
        aside = unfinished.with_name(unfinished.name + _ASIDE)
        final.replace(aside)
        unfinished.replace(final)
        shutil.rmtree(aside)


def _exchanged(one: Path, other: Path) -> bool:
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    # Network file systems refuse it.
    return rename is not None and rename(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE) == 0
