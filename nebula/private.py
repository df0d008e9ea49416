"""Files and folders that only their owner may read, whatever the umask."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Final

_OTHERS: Final = 0o077

# Not its owner, no modes, read-only.
_UNCHANGEABLE: Final = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.EROFS})


def make_private(folder: Path) -> None:
    """Make a folder and its missing parents with mode 0700. Existing ones stay as they are.

    Raises:
        OSError: it cannot be made.
    """
    # The mode of `mkdir(parents=True)` is for the last folder only.
    if not folder.exists():
        make_private(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def open_private(path: Path, flags: int) -> int:
    """Open a file, made with mode 0600 if it is missing; an existing one loses what others may do.

    Args:
        path: of the file.
        flags: of `os.open`, without `O_CREAT` and `O_CLOEXEC`, which are added.

    Returns:
        The file descriptor.

    Raises:
        OSError: it cannot be opened.
    """
    file = os.open(path, flags | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        tighten(file)
    except BaseException:
        os.close(file)
        raise
    return file


def write_private(path: Path, text: str) -> None:
    """Replace a file's text, see `open_private`.

    Raises:
        OSError: it cannot be written.
    """
    with open(open_private(path, os.O_WRONLY | os.O_TRUNC), "w", encoding="utf-8") as file:
        file.write(text)


def tighten(file: int | Path) -> None:
    """Take from a file or folder what others than its owner may do with it.

    Another user's file stays as it is, as does one on a file system whose modes cannot be changed.

    Raises:
        OSError: it is not there.
    """
    found = os.stat(file)  # noqa: PTH116 - a descriptor has no path
    if not found.st_mode & _OTHERS:
        return
    try:
        os.chmod(file, found.st_mode & 0o7777 & ~_OTHERS)  # noqa: PTH101
    except OSError as error:
        if error.errno not in _UNCHANGEABLE:
            raise
