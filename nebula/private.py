"""Files and folders that only their owner can read, whatever the umask; durable names; free space."""

from __future__ import annotations

import errno
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

_OTHERS: Final = 0o077

# We do not own it, there are no modes, or it is read-only.
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
    """Open a file. A missing one is created with mode 0600; an existing one becomes inaccessible to others.

    Args:
        path: of the file.
        flags: of `os.open`, without `O_CREAT`, which is added.

    Returns:
        The file descriptor.

    Raises:
        OSError: it cannot be opened.
    """
    file = os.open(path, flags | os.O_CREAT, 0o600)
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
    """Remove all permissions of others from a file or folder.

    A file that its owner may not open either, as a umask of 0777 makes it, gets mode 0600. A file of another
    user stays as it is, as does one on a file system that does not let modes be changed.

    Raises:
        OSError: it does not exist.
    """
    # There, a file is as readable as its folder, and the user's own folders are private.
    if sys.platform == "win32":
        return
    found = os.stat(file)  # noqa: PTH116 - a descriptor has no path
    mode = found.st_mode & 0o7777 & ~_OTHERS
    if not mode & 0o700:
        mode |= 0o600
    if mode == found.st_mode & 0o7777:
        return
    try:
        os.chmod(file, mode)  # noqa: PTH101
    except OSError as error:
        if error.errno not in _UNCHANGEABLE:
            raise


def make_private_database(file: Path) -> None:
    """Create a file for SQLite with mode 0600. An existing one, and those next to it, become inaccessible to
    others.

    SQLite itself would let others read it. Files that it makes next to it get the same mode. If the file
    cannot be created, nothing is raised: SQLite reports the reason when it opens it.
    """
    # An existing file is not opened: closing it would release the locks that this process has on it.
    if not file.exists():
        with suppress(OSError):
            os.close(open_private(file, os.O_RDWR))
    for suffix in ("", "-wal", "-shm", "-journal"):
        with suppress(OSError):
            tighten(file.with_name(file.name + suffix))


def free_bytes_at(folder: Path) -> int:
    """Bytes that this user may still write to the folder's file system. Raises OSError."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def sync_folder(folder: Path) -> None:
    """Write a folder's entries to the disk, so that a power cut does not undo a new name in it.

    Raises:
        OSError: the disk fails, or the folder is not there.
    """
    # There, folders cannot be opened; their entries are in the file system's own journal.
    if sys.platform == "win32":
        return
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
