"""Files and folders that only their owner may read, whatever the umask; and what is free on their disk."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
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


def make_private_database(file: Path) -> None:
    """Make a file for SQLite with mode 0600; an existing one and those beside it lose what others may do.

    SQLite itself would let others read it. What it makes beside a file gets the same mode. Where the file
    cannot be made nothing is raised: SQLite says why when it opens it.
    """
    # A file that is there is not opened: to close it would end the locks that this process has on it.
    if not file.exists():
        with suppress(OSError):
            os.close(open_private(file, os.O_RDWR))
    for suffix in ("", "-wal", "-shm"):
        with suppress(OSError):
            tighten(file.with_name(file.name + suffix))


def free_bytes_at(folder: Path) -> int:
    """What this user may still write on the folder's file system. Raises OSError."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize
