"""Atomic publishing of files and folders: readers see the old version or the new one, and nothing between."""

from __future__ import annotations

import ctypes
import os
import shutil
from contextlib import suppress
from pathlib import Path

# Called through ctypes: only `renameat2` can exchange two folders, and Python's `os` does not have it.
# `os.replace` replaces only an empty folder.
_HERE = -100  # AT_FDCWD: paths are as the process sees them
_EXCHANGE = 2  # RENAME_EXCHANGE of renameat2(2)
ASIDE = ".before"


def place(unfinished: Path, final: Path) -> None:
    """Move a file or folder to its name, and remove what had the name before.

    Both exchange names in one step where the system can do that, as Linux on its own file systems. Elsewhere
    a folder's name is missing between two renames; a process that is killed there leaves the old folder under
    a name that `restore` knows.

    Raises:
        OSError: a rename failed; the old version is still there.
    """
    if not final.is_dir() or final.is_symlink():
        unfinished.replace(final)
    # After the exchange the old version has the unfinished name: a crash before the next line leaves it for
    # `sweep`.
    elif _exchanged(unfinished, final):
        shutil.rmtree(unfinished, ignore_errors=True)
    else:
        aside = unfinished.with_name(unfinished.name + ASIDE)
        final.replace(aside)
        try:
            unfinished.replace(final)
        except OSError:
            aside.replace(final)
            raise
        shutil.rmtree(aside, ignore_errors=True)


def restore(left: Path, final: Path) -> None:
    """Give an old version that a killed `place` left its name back, or remove an unfinished one."""
    if left.name.endswith(ASIDE) and not final.exists():
        left.replace(final)
    else:
        remove(left)


def remove(unfinished: Path) -> None:
    """Remove a file or folder as far as possible, if it exists."""
    shutil.rmtree(unfinished, ignore_errors=True)
    with suppress(OSError):
        unfinished.unlink()


def _exchanged(one: Path, other: Path) -> bool:
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    # Network file systems refuse it.
    return rename is not None and rename(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE) == 0
