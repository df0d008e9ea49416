"""Backup of a store, also while a broker runs on it, by SQLite's backup interface.

SQLite copies the pages. This module adds: one read transaction, so that the copy is of one moment although
the broker writes on; a check of the copy; a name only when it is complete; and the mark that it is a copy.
(`VACUUM INTO` would do the first two, but reports no progress and cannot be ended when the broker stops.)
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Final, TypeAlias

from nebula.broker.store.folder import (
    STORE_FILE,
    keep_others_out,
    store_error,
)
from nebula.broker.store.sqlite_schema import VERSION
from nebula.errors import StoreError
from nebula.private import sync_folder

__all__ = ["OnFraction", "back_up", "check_pages"]

OnFraction: TypeAlias = Callable[[float], None]
"""Called with how much is done, of 1.0. If it raises, the work is given up."""

# A megabyte a step, during which the interpreter is free. A stop waits for one step at most.
_STEP_PAGES: Final = 256


def back_up(
    source: Path,
    target: Path,
    on_fraction: OnFraction,
    *,
    connect: Callable[..., sqlite3.Connection] = sqlite3.connect,
) -> Path:
    """Copy a store's file as it is at this moment, whole and checked.

    The broker writes on meanwhile. The copy has its name only when it is complete and on the disk.
    A broker that starts on it begins a new incarnation: it gives no message-id that the other one gave or
    will give (D.20).

    Args:
        source: the file.
        target: a file; or a folder, where it is named so that a broker can start there. An earlier copy
            is replaced.
        on_fraction: of the copying.
        connect: opens the files.

    Returns:
        The file that was made.

    Raises:
        StoreError: it cannot be copied, or the target exists and is not a copy.
    """
    target = target.absolute()
    if target.is_dir():
        target /= STORE_FILE
    try:
        with ExitStack() as held:
            # A folder is a place where a broker may start: none may run there, or start, during the copy.
            if target.name == STORE_FILE:
                held.enter_context(keep_others_out(target.parent))
            _check_free(target)
            # A crash leaves a `.part` behind, and never half a copy under the name of a whole one.
            part = _new_part(target)
            # After a success there is nothing to remove: `_name` has renamed the file.
            held.callback(_remove, part)
            _copy(source, part, on_fraction, connect)
            _name(part, target)
    except OSError as error:
        raise store_error(target, "written", error) from error
    return target


def check_pages(db: sqlite3.Connection, file: Path) -> None:
    """Check that the pages of a file are consistent.

    Raises:
        StoreError: they are not.
        sqlite3.Error: they cannot be read.
    """
    # One fault is enough: nothing is repaired.
    finding = str(db.execute("PRAGMA quick_check(1)").fetchone()[0])
    if finding != "ok":
        raise store_error(file, "read", " ".join(finding.split()))


def _check_free(target: Path) -> None:
    # SQLite would take a log that is left next to it for the new file's.
    # `-shm` does not matter: SQLite makes it again from the log.
    left = [target.with_name(target.name + end) for end in ("-wal", "-journal")]
    if not (target.exists() or any(each.exists() for each in left)):
        return
    is_copy = False
    if not any(each.exists() for each in left):
        # A file that cannot be read as a store's copy is left alone.
        with (
            contextlib.suppress(sqlite3.Error),
            closing(sqlite3.connect(f"{target.as_uri()}?mode=ro", uri=True)) as db,
        ):
            is_copy = bool(db.execute("SELECT is_copy FROM broker").fetchone()[0])
    if not is_copy:
        raise StoreError(
            f"{target}: something else than a copy of a store is there; move it away, or name another file"
        )


def _copy(
    source: Path, part: Path, on_fraction: OnFraction, connect: Callable[..., sqlite3.Connection]
) -> None:
    def on_step(_status: int, remaining: int, total: int) -> None:
        on_fraction(1.0 - remaining / max(total, 1))

    with (
        closing(_opened(source, connect, "read")) as origin,
        closing(_opened(part, connect, "written")) as copy,
    ):
        try:
            _hold(origin, source)
            # `sleep` is for a locked source, which this one never is.
            origin.backup(copy, pages=_STEP_PAGES, progress=on_step, sleep=0.0)
            # One file without companions. Otherwise it would have the source's mode, WAL, and begin with a
            # log of its own. `refuse_foreign_log` reads this mode in its header.
            copy.execute("PRAGMA journal_mode = DELETE")
            # The pages of the copy, because a disk may also fail while it writes.
            check_pages(copy, source)
            # The broker that starts on it checks it once more: it may have been damaged on its way there.
            copy.execute("UPDATE broker SET is_clean = 0, is_copy = 1")
        except sqlite3.Error as error:
            raise store_error(source, f"copied to {part.parent}", error) from error


def _hold(db: sqlite3.Connection, file: Path) -> None:
    """Begin to read the present state. Without that, each write of the broker would restart the copy."""
    # No bug here can change the store.
    db.execute("PRAGMA query_only = 1")
    db.execute("BEGIN")
    version = db.execute("PRAGMA user_version").fetchone()[0]
    if version != VERSION:
        raise StoreError(
            f"{file}: its tables are of version {version}, and this Nebula copies version {VERSION};"
            " use the one that wrote it, or start a broker on it, which brings it up to date"
        )
    # A transaction begins with its first read, not with BEGIN.
    db.execute("SELECT * FROM broker").fetchall()


def _opened(file: Path, connect: Callable[..., sqlite3.Connection], verb: str) -> sqlite3.Connection:
    try:
        return connect(file, isolation_level=None)
    except sqlite3.Error as error:
        raise store_error(file, verb, error) from error


def _new_part(target: Path) -> Path:
    """An empty file next to the target, for this user only. Two backups to one target do not share it."""
    descriptor, name = tempfile.mkstemp(prefix=f"{target.name}.", suffix=".part", dir=target.parent)
    os.fchmod(descriptor, 0o600)  # the umask may have removed our own permissions
    os.close(descriptor)
    return Path(name)


def _name(part: Path, target: Path) -> None:
    # The content is on disk before its name is: after a power cut the name must not lead to an empty file.
    opened = os.open(part, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
    part.replace(target)
    # The new name is an entry of the folder, and safe when the folder is.
    sync_folder(target.parent)


def _remove(part: Path) -> None:
    for end in ("", "-journal", "-wal", "-shm"):
        part.with_name(part.name + end).unlink(missing_ok=True)
