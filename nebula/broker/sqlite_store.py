"""The store on disk: one SQLite file, in a folder that one broker at a time may use."""

from __future__ import annotations

import fcntl
import os
import secrets
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from nebula.broker.sqlite_reads import read_into, read_page
from nebula.broker.sqlite_rows import MIGRATIONS, VERSION, Batch
from nebula.broker.store import PageRequest, Snapshot, StoredMessage, Write
from nebula.errors import StoreError

__all__ = ["STORE_FILE", "SqliteStore"]

STORE_FILE: Final = "nebula.db"

_LOCK: Final = "lock"
_INCARNATION_BYTES: Final = 4

# What is wrong with the machine and not with the file.
_OUTER_FAULTS: Final = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_READONLY,
    }
)


class SqliteStore:
    """A `Store` in the file `nebula.db` of a folder.

    What `apply` returned for survives the end of the process and of the machine's power. Nothing is
    touched before `load`; from then until `close` no other broker can use the folder.

    Args:
        folder: where; made for this user alone, with its parents, if it is not there.
        connect: opens the file: for what is written, and a second time for pages.
    """

    def __init__(self, folder: Path, *, connect: Callable[..., sqlite3.Connection] = sqlite3.connect) -> None:
        self.folder = folder.absolute()
        self._file = self.folder / STORE_FILE
        self._connect = connect
        self._lock: int | None = None
        self._opened: sqlite3.Connection | None = None
        self._pages: sqlite3.Connection | None = None
        self._has_failed = False

    def load(self) -> Snapshot:
        """Everything that is kept; the run is counted on disk before this returns.

        Raises:
            StoreError: another broker uses the folder, a newer Nebula wrote it, it may not be written, or
                what is in it cannot be read. Nothing has changed then and nothing stays open.
        """
        try:
            return self._load()
        except OSError as error:
            raise StoreError(
                f"{error.filename or self.folder}: messages cannot be kept there, "
                f"{error.strerror or error}; name a folder that this user may write to"
            ) from error
        # A broken page may also turn into values of a wrong type or shape.
        except (sqlite3.Error, ValueError, TypeError) as error:
            raise StoreError(f"{self._file}: {_diagnosis(error)}") from error

    def apply(self, writes: Sequence[Write]) -> None:
        """Make the writes durable, all or none, in this order.

        Raises:
            StoreError: the disk is full or broken. None of it is promised, and `close` will not call the
                end of this run a clean one.
        """
        if not writes:
            return
        batch = Batch(writes)
        try:
            with self._transaction() as db:
                batch.write(db)
        except sqlite3.Error as error:
            raise StoreError(
                f"{self._file}: cannot be written, {error}; make room or repair the disk, then start again"
            ) from error

    def page(self, request: PageRequest) -> list[StoredMessage]:
        """What is asked for, in order of number: of what is committed. It holds up no `apply`.

        Raises:
            StoreError: it cannot be read, and `close` will not call the end of this run a clean one.
        """
        assert self._pages is not None, "a store is loaded first, and closed last"
        try:
            return read_page(self._pages, request)
        except (sqlite3.Error, ValueError, TypeError) as error:
            self._has_failed = True
            raise StoreError(f"{self._file}: {_diagnosis(error)}") from error

    def close(self) -> None:
        """The run ends well, unless a write has failed. Idempotent.

        Raises:
            StoreError: the end could not be written; what was applied is safe.
        """
        try:
            if self._opened is not None and not self._has_failed:
                with self._transaction() as db:
                    db.execute("UPDATE broker SET is_clean = 1")
        except sqlite3.Error as error:
            raise StoreError(f"{self._file}: a clean end cannot be written, {error}") from error
        finally:
            self._release()

    # --- opening ---

    def _load(self) -> Snapshot:
        with ExitStack() as undo:
            undo.callback(self._release)
            self._lock = _locked(self.folder)
            # Before SQLite makes it, which would let others read it. Its companions take its mode.
            os.close(os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            self._opened = self._open()
            self._prepare(self._opened)
            snapshot = self._begin_run()
            self._pages = self._open()
            self._pages.execute("PRAGMA query_only = 1")
            undo.pop_all()
            return snapshot

    def _open(self) -> sqlite3.Connection:
        # Calls come from worker threads, for each connection one at a time.
        return self._connect(self._file, isolation_level=None, check_same_thread=False)

    def _prepare(self, db: sqlite3.Connection) -> None:
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if version > VERSION:
            raise StoreError(
                f"{self._file}: a newer Nebula wrote it (version {version}, this one knows {VERSION}); "
                "run that one, or name another folder"
            )
        db.execute("PRAGMA journal_mode = WAL")
        # WAL alone promises no more than that the file is whole: a power cut might undo a RECEIPT.
        db.execute("PRAGMA synchronous = FULL")
        if version < VERSION:
            self._migrate(version)

    def _migrate(self, version: int) -> None:
        """Make the present tables of what is there. A crash leaves either those or these."""
        with self._transaction() as db:
            for statement in MIGRATIONS[version]:
                db.execute(statement)
            db.execute(f"PRAGMA user_version = {VERSION}")

    def _begin_run(self) -> Snapshot:
        with self._transaction() as db:
            found = db.execute("SELECT runs, incarnation, is_clean, is_copy FROM broker").fetchone()
            if found is None:
                found = (0, "", True, True)
                db.execute(
                    "INSERT INTO broker (runs, incarnation, is_clean, is_copy) VALUES (?, ?, ?, ?)", found
                )
            run, incarnation, is_clean, is_copy = found
            if is_copy:
                # The store that it was made of goes on, and its messages' ids belong to it (D.20).
                incarnation = secrets.token_hex(_INCARNATION_BYTES)
            snapshot = Snapshot(run, incarnation, bool(is_clean))
            read_into(snapshot, db, lambda *_counts: None)
            db.execute(
                "UPDATE broker SET incarnation = ?, runs = ?, is_clean = 0, is_copy = 0",
                (incarnation, run + 1),
            )
        return snapshot

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """All that is written in the block is on the disk when it ends, or nothing of it if it raises."""
        db = self._opened
        assert db is not None, "a store is loaded first, and closed last"
        try:
            db.execute("BEGIN IMMEDIATE")
            yield db
            db.execute("COMMIT")
        except BaseException:
            self._has_failed = True
            # SQLite has rolled back by itself where the disk is full.
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise

    def _release(self) -> None:
        # The one that writes is the last one: it may have to put away SQLite's own files.
        for opened in (self._pages, self._opened):
            if opened is not None:
                opened.close()
        self._pages = self._opened = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _diagnosis(error: Exception) -> str:
    # Python's own errors have no code. They come while rows are read, and their texts quote what they read.
    code = getattr(error, "sqlite_errorcode", None)
    if code is not None and code & 0xFF in _OUTER_FAULTS:
        return f"cannot be used, {error}; see to the disk and to this user's permissions, then start again"
    fault = "a row makes no sense" if code is None else error
    return (
        f"cannot be read, {fault}; "
        "restore the folder from a backup, or move it away: a broker begins empty without it"
    )


# --- the folder ---


def _locked(folder: Path) -> int:
    """Make the folder if need be, and keep others out of it for as long as what this returns is open."""
    _make(folder)
    # The lock belongs to the open file: it ends with the process, however that ends.
    lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        if not isinstance(error, BlockingIOError):
            raise
        raise StoreError(
            f"{folder}: another broker keeps its messages there; stop that one, or name another folder"
        ) from error
    return lock


def _make(folder: Path) -> None:
    if folder.exists():
        return
    _make(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)
    # A power cut takes a new folder away until its parent is written. (For its files, SQLite sees to that.)
    parent = os.open(folder.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(parent)
    finally:
        os.close(parent)
