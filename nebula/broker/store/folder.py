"""Folder of a store: lock, file permissions, and errors that say what to do.

One broker at a time uses the folder, and this user alone can read it.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from nebula.errors import StoreError
from nebula.file_locks import LOCK_EX, LOCK_NB, flock
from nebula.private import make_private_database, open_private, sync_folder

__all__ = [
    "STORE_FILE",
    "keep_others_out",
    "lock_folder",
    "make_file",
    "refuse_foreign_log",
    "store_error",
    "tell_holder",
    "urls_of_holder",
]

STORE_FILE: Final = "nebula.db"

_LOCK: Final = "lock"

# The holder's note in a lock file is short; anything longer is not ours.
_HOLDER_BYTES: Final = 4096

# Suffix of SQLite's write-ahead log, which has changes that the file lacks.
_LOG: Final = "-wal"

# The field of the header with the write version, and its value for no log
# (https://sqlite.org/fileformat.html, 1.3.3).
_WRITE_VERSION: Final = 18
_WITHOUT_LOG: Final = 1

# Remedies for SQLite's primary result codes that say that the machine is at fault, not the file.
_REMEDIES: Final = {
    sqlite3.SQLITE_FULL: "make room on the disk, then start again",
    sqlite3.SQLITE_IOERR: "see to the disk and the system's log, then start again",
    sqlite3.SQLITE_BUSY: "see which other program uses the file, then start again",
    **dict.fromkeys(
        (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_READONLY),
        "see to this user's permissions, then start again",
    ),
}
_RESTORE: Final = "restore the folder from a backup, or move it away: a broker begins empty without it"


def store_error(file: Path, verb: str, error: Exception | str) -> StoreError:
    """An error about a file: what happened, why, and what to do.

    Args:
        verb: what could not be done: "read", "written".
        error: of SQLite or the operating system; of Python, if a broken page became invalid values; or the
            finding of a check.
    """
    if isinstance(error, OSError):
        return StoreError(f"{error.filename or file}: cannot be {verb}, {error.strerror or error}")
    if isinstance(error, str):
        return StoreError(f"{file}: is damaged, {error}; {_RESTORE}")
    code = getattr(error, "sqlite_errorcode", None)
    # Python's own errors have no code, and their texts quote what was read.
    fault = "a row makes no sense" if code is None else error
    # `& 0xFF` reduces SQLite's extended code to the primary one.
    remedy = _RESTORE if code is None else _REMEDIES.get(code & 0xFF, _RESTORE)
    return StoreError(f"{file}: cannot be {verb}, {fault}; {remedy}")


def lock_folder(folder: Path) -> int:
    """Create the folder if it is missing, and lock it.

    Returns:
        A file descriptor. The lock lasts as long as it is open.

    Raises:
        StoreError: a broker, or one of the tools, uses the folder.
    """
    _make(folder)
    # The lock belongs to the open file: it ends with the process, however that ends.
    lock = open_private(folder / _LOCK, os.O_RDWR)
    try:
        # `flock` instead of a process id in the file: the system releases it even after a kill, and process
        # ids are reused.
        flock(lock, LOCK_EX | LOCK_NB)
    except OSError as error:
        os.close(lock)
        if not isinstance(error, BlockingIOError):
            raise
        raise StoreError(
            f"{folder}: another broker keeps its messages there{_holder_of(folder)}; stop that one, or name "
            "another folder with --data DIR"
        ) from error
    tell_holder(lock)
    return lock


def tell_holder(lock: int, urls: Sequence[str] = ()) -> None:
    """Write our process id and addresses into the lock, for brokers that find the folder locked.

    Args:
        lock: what `lock_folder` returned.
        urls: of the broker, once it listens.
    """
    said = json.dumps({"pid": os.getpid(), "urls": list(urls)}).encode()
    # On a full disk the note is missing, and everything else works.
    with suppress(OSError):
        # Truncated first, so that no rest of a longer note remains.
        os.ftruncate(lock, 0)
        os.pwrite(lock, said[:_HOLDER_BYTES], 0)


def _holder_of(folder: Path) -> str:
    """The holder of a lock, as ` (pid 17, stomp://…)`; empty if it is not known."""
    match _note_of(folder):
        case {"pid": int(pid), "urls": [*urls]}:
            return f" ({', '.join([f'pid {pid}', *map(str, urls)])})"
    return ""


def urls_of_holder(folder: Path) -> list[str]:
    """The addresses of the broker that uses a folder, or used it last; empty if they are not known."""
    match _note_of(folder):
        case {"urls": [*urls]}:
            return [str(url) for url in urls]
    return []


def _note_of(folder: Path) -> Any:
    with suppress(OSError, ValueError), (folder / _LOCK).open("rb") as lock:
        return json.loads(lock.read(_HOLDER_BYTES))
    return None


@contextmanager
def keep_others_out(folder: Path) -> Iterator[None]:
    """`lock_folder` for a block."""
    lock = lock_folder(folder)
    try:
        yield
    finally:
        os.close(lock)


def make_file(file: Path) -> None:
    """Create a store's file if it is missing, and make it accessible to this user only.

    Raises:
        OSError: it cannot be created.
    """
    os.close(open_private(file, os.O_RDWR))
    make_private_database(file)


def refuse_foreign_log(file: Path) -> None:
    """Check that a log next to a file belongs to it: SQLite would write the log of any other store into it.

    The file of a store that has been started says that it is written through a log. A backup or an import
    does not say so until a broker has started on it.

    Raises:
        StoreError: it belongs to another store.
    """
    log = file.with_name(file.name + _LOG)
    # In this order: the file of a broker that is starting says so before the log exists.
    if not log.exists() or not log.stat().st_size:
        return
    # Next to an empty file SQLite would delete the log as well.
    if not file.exists() or not file.stat().st_size:
        raise StoreError(
            f"{log}: is the log of a store whose {file.name} is missing, and has messages; "
            f"put {file.name} back, or move the log away"
        )
    with file.open("rb") as opened:
        head = opened.read(_WRITE_VERSION + 1)
    # Of a file shorter than the header the slice is empty, and SQLite refuses the file later.
    if head[_WRITE_VERSION:] == bytes([_WITHOUT_LOG]):
        raise StoreError(
            f"{file}: is a copy, and {log.name} next to it is the log of another store, which would "
            f"damage it; move {log.name} away and start again, or put back the file that it belongs to"
        )


def _make(folder: Path) -> None:
    if folder.exists():
        return
    # Each folder is synced in its parent, or a power cut could lose the folder with the store in it.
    _make(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)
    folder.chmod(0o700)  # the umask may have removed our own permissions
    # SQLite does so for the files that it makes.
    sync_folder(folder.parent)
