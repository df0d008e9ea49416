"""Store in an SQLite file, in a folder that one broker at a time may use.

SQLite's own means are used: WAL mode for batches that survive a power cut, `quick_check` after a crash, the
backup interface for copies. Statements are in `sqlite_writes` and `sqlite_reads`.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final, TypeAlias

from nebula.broker.core.limits import Limits
from nebula.broker.core.storage import PageRequest, StoredMessage
from nebula.broker.core.tables import Write
from nebula.broker.store.backup import OnFraction, back_up, check_pages
from nebula.broker.store.folder import (
    STORE_FILE,
    lock_folder,
    make_file,
    refuse_foreign_log,
    store_error,
    tell_holder,
)
from nebula.broker.store.sqlite_reads import read_into, read_page
from nebula.broker.store.sqlite_schema import MIGRATIONS, VERSION
from nebula.broker.store.sqlite_writes import Batch
from nebula.broker.store.store import Snapshot
from nebula.errors import StoreError
from nebula.private import free_bytes_at

__all__ = ["STORE_FILE", "OnProgress", "SqliteStore"]

OnProgress: TypeAlias = Callable[[str, float | None], None]
"""Called with the step of a start ("checking", "reading"), and the fraction that is done, if known."""

_INCARNATION_BYTES: Final = 4

# A backlog may make the log long for a moment. SQLite cuts it to this size afterwards.
_KEPT_LOG_BYTES: Final = 64 * 1024 * 1024


class SqliteStore:
    """A `Store` in the file `nebula.db` of a folder.

    When `apply` has returned, its batch survives a crash and a power cut. Nothing is touched before `load`;
    from then until `close` no other broker can use the folder.

    Args:
        folder: created for this user only, with its parents, if it is missing.
        connect: opens the file: for writes, for pages, and for each backup.
        on_progress: of `load`, on its thread.
        most_first_bytes: the approximate maximum that `load` reads of all queues together.
    """

    def __init__(
        self,
        folder: Path,
        *,
        connect: Callable[..., sqlite3.Connection] = sqlite3.connect,
        on_progress: OnProgress | None = None,
        most_first_bytes: int = Limits().max_memory_bytes // 2,
    ) -> None:
        self.folder = folder.absolute()
        self._file = self.folder / STORE_FILE
        self._connect = connect
        self._on_progress = on_progress
        self._most_first_bytes = most_first_bytes
        self._lock: int | None = None
        self._opened: sqlite3.Connection | None = None
        self._pages: sqlite3.Connection | None = None
        self._has_failed = False

    def load(self) -> Snapshot:
        """Read everything that is stored; the run is counted on disk before this returns.

        If the last run did not end cleanly, the file is checked first.

        Raises:
            StoreError: another broker uses the folder, a newer Nebula wrote it, it is not writable, it is a
                copy next to the log of another store, or it cannot be read. Nothing is changed then, and
                nothing stays open.
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
            raise store_error(self._file, "used", error) from error

    def apply(self, writes: Sequence[Write]) -> None:
        """Make the writes durable, all or none, in this order.

        Raises:
            StoreError: the disk is full or broken. The batch may be lost, and `close` does not mark the run
            as ended cleanly.
        """
        # A RECEIPT may wait for a commit without changes (`Pump.work`); that needs no transaction.
        if not writes:
            return
        batch = Batch(writes)
        try:
            with self._transaction() as db:
                batch.write(db)
        except sqlite3.Error as error:
            raise store_error(self._file, "written", error) from error

    def page(self, request: PageRequest) -> list[StoredMessage]:
        """Read a page of committed messages, in order of number. It does not delay an `apply`.

        Raises:
            StoreError: it cannot be read; `close` does not mark the run as ended cleanly.
        """
        assert self._pages is not None, "a store is loaded first, and closed last"
        try:
            return read_page(self._pages, request)
        except (sqlite3.Error, ValueError, TypeError) as error:
            self._has_failed = True
            raise store_error(self._file, "read", error) from error

    def backup(self, target: Path, on_fraction: OnFraction | None = None) -> Path:
        """Copy what is committed at this moment. It does not delay an `apply`; closing the store ends it.

        Args:
            target: see `backup.back_up`.
            on_fraction: called with the fraction that is done, on this thread.

        Returns:
            The file that was made.

        Raises:
            StoreError: it cannot be copied; the store goes on.
        """

        def on_step(fraction: float) -> None:
            # A thread cannot be cancelled, so each step of the copy checks whether `close` was called.
            if self._opened is None:
                raise StoreError(f"{target}: not finished, for the broker stops")
            if on_fraction is not None:
                on_fraction(fraction)

        return back_up(self._file, target, on_step, connect=self._connect)

    def free_bytes(self) -> int:
        """Free space on the folder's file system.

        Raises:
            OSError: it cannot be read.
        """
        return free_bytes_at(self.folder)

    def tell_urls(self, urls: Sequence[str]) -> None:
        """Note the broker's addresses in the folder, for brokers that find it locked."""
        if self._lock is not None:
            tell_holder(self._lock, urls)

    def close(self) -> None:
        """End the run; it is a clean end unless something has failed. Idempotent.

        Raises:
            StoreError: the end could not be written; what was applied is safe.
        """
        try:
            if self._opened is not None and not self._has_failed:
                with self._transaction() as db:
                    # The last write of a run: after any other end the next start checks the store.
                    db.execute("UPDATE broker SET is_clean = 1")
        except sqlite3.Error as error:
            raise StoreError(f"{self._file}: a clean end cannot be written, {error}") from error
        finally:
            self._release()

    # --- opening ---

    def _load(self) -> Snapshot:
        with ExitStack() as undo:
            # Releases the lock and the connections if anything below raises.
            undo.callback(self._release)
            self._lock = lock_folder(self.folder)
            refuse_foreign_log(self._file)
            make_file(self._file)
            self._has_failed = False
            self._opened = self._open()
            self._prepare(self._opened)
            # A second connection, because the first is busy while a batch is synced.
            self._pages = self._open()
            # Nothing that reads pages can change the store, whatever bug it has.
            self._pages.execute("PRAGMA query_only = 1")
            snapshot = self._begin_run()
            undo.pop_all()
            return snapshot

    def _open(self) -> sqlite3.Connection:
        # Calls come from worker threads, for each connection one at a time.
        # `isolation_level=None`: otherwise Python's module would begin and commit transactions by itself.
        return self._connect(self._file, isolation_level=None, check_same_thread=False)

    def _prepare(self, db: sqlite3.Connection) -> None:
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if version > VERSION:
            raise StoreError(
                f"{self._file}: a newer Nebula wrote it (version {version}, this one knows {VERSION}); "
                "run that one, or name another folder"
            )
        if version < 0:
            raise store_error(self._file, "used", f"its version is {version}")
        db.execute("PRAGMA journal_mode = WAL")
        # WAL alone only keeps the file consistent: a power cut might undo batches that have their RECEIPTs.
        # FULL in WAL mode syncs the log at each commit. NORMAL would sync only at a checkpoint.
        db.execute("PRAGMA synchronous = FULL")
        db.execute(f"PRAGMA journal_size_limit = {_KEPT_LOG_BYTES}")
        # By default, Debian's SQLite overwrites everything that is deleted with zeros. A purge would then
        # write as much to the log as it frees, and might fill the disk.
        db.execute("PRAGMA secure_delete = FAST")
        if version:
            self._check(db)
        if version < VERSION:
            self._migrate(version)

    def _check(self, db: sqlite3.Connection) -> None:
        found = db.execute("SELECT is_clean FROM broker").fetchone()
        if found is None or not found[0]:
            # Linear in the size of the file, so it is skipped after a clean end.
            self._tell("checking", None)
            check_pages(db, self._file)

    def _migrate(self, version: int) -> None:
        """Bring the tables to the present version, all in one transaction."""
        with self._transaction() as db:
            for statement in MIGRATIONS[version]:
                db.execute(statement)
            db.execute(f"PRAGMA user_version = {VERSION}")

    def _begin_run(self) -> Snapshot:
        with self._transaction() as db:
            found = db.execute("SELECT runs, incarnation, is_clean, is_copy FROM broker").fetchone()
            if found is None:
                found = (0, "", True, True)
                insert = "INSERT INTO broker (runs, incarnation, is_clean, is_copy) VALUES (?, ?, ?, ?)"
                db.execute(insert, found)
            run, incarnation, is_clean, is_copy = found
            # True for a new store as well, which gets its first incarnation here.
            if is_copy:
                # The original store goes on, and its message-ids belong to it (D.20).
                incarnation = secrets.token_hex(_INCARNATION_BYTES)
            snapshot = Snapshot(run, incarnation, bool(is_clean))
            self._tell("reading", 0.0)
            read_into(
                snapshot, db, lambda done, total: self._tell("reading", done / total), self._most_first_bytes
            )
            begin = "UPDATE broker SET incarnation = ?, runs = ?, is_clean = 0, is_copy = 0"
            # In the same transaction as the reads, so that a run that fails to read is not counted.
            db.execute(begin, (incarnation, run + 1))
        return snapshot

    def _tell(self, step: str, fraction: float | None) -> None:
        if self._on_progress is not None:
            self._on_progress(step, fraction)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """A transaction: everything written in the block is on disk when it ends, or nothing if it raises."""
        db = self._opened
        assert db is not None, "a store is loaded first, and closed last"
        try:
            # IMMEDIATE takes the lock for writing now. A transaction that begins as a reader may find at
            # its first write that it cannot have the lock.
            db.execute("BEGIN IMMEDIATE")
            yield db
            db.execute("COMMIT")
        except BaseException:
            self._has_failed = True
            # SQLite has rolled back by itself where the disk is full; where the disk is gone it cannot, and
            # the next start does.
            if db.in_transaction:
                with suppress(sqlite3.Error):
                    db.execute("ROLLBACK")
            raise

    def _release(self) -> None:
        # The connection that writes is closed last: it may have to remove SQLite's own files.
        opened = (self._pages, self._opened)
        self._pages = self._opened = None
        for each in opened:
            if each is not None:
                each.close()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
