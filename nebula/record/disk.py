"""Disk operations: durable files and names, a lock, and the test for a full disk."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from time import monotonic, sleep
from typing import Final

from nebula import private
from nebula.errors import NebulaError, SettingsError
from nebula.file_locks import LOCK_EX, LOCK_NB, LOCK_SH, flock
from nebula.private import make_private, open_private, tighten

# A quota, or a limit on files, is as good as a full disk: it passes when room is made.
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})

LOCK_SECONDS: Final = 0.2
"""A process that only checks whether a folder is locked, or that is ending, holds the lock for a moment."""
_LOCK_PAUSE: Final = 0.002


class SyncFailed(NebulaError):
    """The disk did not keep what it had taken. Only a new start finds out what there is.

    A second try would succeed: the system has marked as clean what it could not write.
    """


def is_full(error: OSError) -> bool:
    """Whether a write may succeed later, when there is room."""
    return error.errno in _FULL


def sync_file(file: int, path: Path) -> None:
    """Make what was written durable. Raises SyncFailed; never OSError, which would pass for a full disk."""
    try:
        # `fdatasync` and not `fsync`: the length is written as well, and only times of the file may be old.
        os.fdatasync(file)
    except OSError as error:
        raise SyncFailed(f"{path} could not be synced: {error.strerror}") from error


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable. Raises SyncFailed."""
    try:
        # A new name is an entry of its folder, and is lost with it in a power cut, though the file itself
        # was synced.
        private.sync_folder(folder)
    except OSError as error:
        raise SyncFailed(f"{folder} could not be synced: {error.strerror}") from error


def make_folders(folder: Path, root: Path) -> None:
    """Make a folder below `root` with mode 0700, durably, with all folders in between.

    Existing folders below `root` become inaccessible to others. `root` itself keeps its mode: it may be
    shared for other purposes.

    Raises:
        OSError, SyncFailed: of the disk.
    """
    if folder != root:
        make_folders(folder.parent, root)
    if not folder.is_dir():
        make_private(folder)
        # Parents first: a power cut could lose a folder whose parent was not synced, with all its contents.
        sync_folder(folder.parent)
    elif folder != root:
        tighten(folder)


def truncate(path: Path, size_bytes: int) -> None:
    """Cut a file at an offset, and make that durable. Raises OSError, SyncFailed."""
    file = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.ftruncate(file, size_bytes)
        sync_file(file, path)
    finally:
        os.close(file)


def write_at(file: int, data: bytes, offset: int) -> int:
    """Write all bytes at an offset, which is where the file ends, or nothing.

    Returns:
        The offset behind them.

    Raises:
        OSError: they could not be written. The file ends at `offset` again.
    """
    rest, position = memoryview(data), offset
    try:
        while rest:
            # `pwrite` at our own offset: a failed write leaves the file's position undefined.
            done = os.pwrite(file, rest, position)
            rest, position = rest[done:], position + done
    except OSError:
        # Cut back, so that the offsets in the ledger stay right and the next try begins where this one did.
        os.ftruncate(file, offset)
        raise
    return position


def lock_folder(folder: Path, what: str, seconds: float = LOCK_SECONDS) -> int:
    """Lock a folder for this process, until what is returned is closed, or the process ends.

    Args:
        folder: which is there.
        what: it is for, in the error.
        seconds: how long another process is waited for.

    Raises:
        SettingsError: another process has it.
        OSError: there can be no lock in it.
    """
    # The lock file stays: after a removal another process could lock a new file of the same name.
    lock = open_private(folder / "lock", os.O_RDWR)
    until = monotonic() + seconds
    while not _is_locked_by_us(lock):
        if monotonic() > until:
            os.close(lock)
            # The wait has an end: the other process may run for days.
            raise SettingsError(f"{what} {folder} is in use by another process: end that, or take another")
        sleep(_LOCK_PAUSE)
    return lock


def _is_locked_by_us(lock: int) -> bool:
    try:
        flock(lock, LOCK_EX | LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_locked(folder: Path) -> bool | None:
    """Whether a process has locked a folder by `lock_folder`; None: we may not look, as another user."""
    try:
        lock = os.open(folder / "lock", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError:
        return None
    try:
        # A shared lock, so that processes that only look do not take each other for a recorder.
        flock(lock, LOCK_SH | LOCK_NB)
    except BlockingIOError:
        return True
    # Closing releases the lock if it was acquired.
    finally:
        os.close(lock)
    return False
