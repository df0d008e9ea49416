"""Operator's tools for a store: check, compact, export, import and backup.

All but the backup need a store that no broker runs on.

An export is lines of JSON and not SQLite's own dump, which is SQL to be executed: an import checks each value
and the sums before there is a store.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, Final

from nebula.broker.core.tables import TABLES, Table
from nebula.broker.store.backup import OnFraction, back_up
from nebula.broker.store.columns import key_of
from nebula.broker.store.export import line_of, object_of, row_of
from nebula.broker.store.folder import (
    STORE_FILE,
    keep_others_out,
    make_file,
    refuse_foreign_log,
    store_error,
)
from nebula.broker.store.sqlite_schema import MIGRATIONS, VERSION
from nebula.broker.store.store import Snapshot
from nebula.errors import StoreError
from nebula.private import make_private_database

__all__ = ["ClosedStore", "back_up_store", "import_lines", "open_store"]

_MAX_FINDINGS: Final = 100

# Versions whose exports can still be read.
_IMPORTED: Final = (2, 3, VERSION)

_HEAD: Final = "broker"
_END: Final = "end"

# Faults that no constraint of the tables prevents, each with the statement that counts them.
_SUMS: Final = {
    **{
        f"in {name} with a number that is still to be given out": (
            f"SELECT COUNT(*) FROM {name} WHERE number >= :highest"  # noqa: S608 - our names
        )
        for name in ("messages", "bodies", "delayed", "last_values")
    },
    "shared messages without their body": (
        "SELECT COUNT(*) FROM shared_messages WHERE number NOT IN (SELECT number FROM bodies)"
    ),
    "bodies that no shared message refers to": (
        "SELECT COUNT(*) FROM bodies WHERE number NOT IN (SELECT number FROM shared_messages)"
    ),
    "shared messages in lines of queues, which share nothing": (
        "SELECT COUNT(*) FROM shared_messages WHERE SUBSTR(CAST(line AS BLOB), 1, 1) <> x'00'"
    ),
    "messages that are in their line twice": (
        "SELECT COUNT(*) FROM shared_messages CROSS JOIN messages USING (line, number)"
    ),
    "missing trigger, which drops bodies with their last message": (
        "SELECT 1 - COUNT(*) FROM sqlite_master WHERE type = 'trigger' AND name = 'unused_bodies'"
    ),
    "postponed rows without their message": (
        "SELECT COUNT(*) FROM postponed WHERE NOT EXISTS ("
        "SELECT 1 FROM messages WHERE line = postponed.line AND number = postponed.number) AND NOT EXISTS ("
        "SELECT 1 FROM shared_messages WHERE line = postponed.line AND number = postponed.number)"
    ),
    "durable subscriptions without their session": (
        "SELECT COUNT(*) FROM subscriptions WHERE session NOT IN (SELECT id FROM sessions)"
    ),
    "pending rows without their durable subscription": (
        "SELECT COUNT(*) FROM pending LEFT JOIN subscriptions USING (session, id) WHERE destination IS NULL"
    ),
}


def back_up_store(folder: Path, target: Path, on_fraction: OnFraction) -> Path:
    """Copy the store of a folder, where a broker may run meanwhile, as `sqlite_backup.back_up`.

    Raises:
        StoreError: it cannot be copied, or there is something else than a copy at the target.
    """
    # Not locked: a broker may use the store meanwhile.
    file = _file_in(folder)
    with _in_our_words(file):
        refuse_foreign_log(file)
        make_private_database(file)
    return back_up(file, target, on_fraction)


@contextmanager
def open_store(folder: Path) -> Iterator[ClosedStore]:
    """Open the store of a folder; no broker can start there meanwhile.

    Raises:
        StoreError: the folder has no store, a broker runs on it, or it is of another version. Also raised in
            place of errors with the file inside the block.
    """
    file = _file_in(folder)
    with keep_others_out(file.parent), _in_our_words(file), _opened(file) as db:
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if version != VERSION:
            raise StoreError(
                f"{file}: its tables are of version {version}, and this Nebula knows version {VERSION}; "
                + (
                    "start a broker on it, which brings it up to date"
                    if version < VERSION
                    else "use a newer one"
                )
            )
        yield ClosedStore(file, db)


class ClosedStore:
    """A store without a broker. Made by `open_store`.

    Attributes:
        file: its SQLite file.
    """

    def __init__(self, file: Path, db: sqlite3.Connection) -> None:
        self.file = file
        self._db = db

    def counts(self) -> dict[str, int]:
        """How many rows each table has."""
        return {
            table.name: self._db.execute(f"SELECT COUNT(*) FROM {table.name}").fetchone()[0]  # noqa: S608
            for table in TABLES
        }

    def check(self) -> Iterator[str | None]:
        """Check pages, rows and sums: None for each sound row, a sentence for each fault.

        It ends after a hundred findings.
        """
        findings = 0
        # Pages first: broken pages cause faults in rows.
        for finding in chain(self._page_findings(), self._row_findings(), self.check_sums()):
            yield finding
            findings += finding is not None
            if findings == _MAX_FINDINGS:
                return

    def check_sums(self) -> Iterator[str]:
        """A sentence for each fault of all rows together, each of which may be sound by itself."""
        try:
            runs = self._head()["runs"]
        except StoreError as error:
            yield str(error)
            return
        highest = Snapshot(runs, "", is_clean=True).first_number
        for what, statement in _SUMS.items():
            try:
                count = self._db.execute(statement, {"highest": highest}).fetchone()[0]
            except sqlite3.Error as error:
                yield f"rows {what} cannot be counted, {error}"
                continue
            if count:
                yield f"{count} {what}"

    def compact(self) -> tuple[int, int]:
        """Give free pages back to the file system. While it runs, it needs as much space again.

        Returns:
            The file's size before and after, in bytes.
        """
        # `VACUUM` writes the file through the log. Emptied before, so that `before` includes the log's
        # content, and after, so that the space is given back.
        self._empty_log()
        before = self.file.stat().st_size
        self._db.execute("VACUUM")
        self._empty_log()
        return before, self.file.stat().st_size

    def lines(self) -> Iterator[str]:
        """An export: a line of JSON for the store, one for each row, and one that says how many there were.

        Raises:
            StoreError: a row makes no sense.
        """
        # The count at the end keeps a truncated export from being imported as a smaller store.
        yield line_of({"table": _HEAD, "version": VERSION, **self._head()})
        count = 0
        for table in TABLES:
            for number, row in self._rows(table):
                try:
                    fields = object_of(table, row)
                except ValueError as error:
                    where = f"{self.file}: {table.name}, row {number}"
                    raise StoreError(f"{where}: {error}; see what `nebula store check` finds") from error
                yield line_of(fields)
                count += 1
        yield line_of({"table": _END, "rows": count})

    def _head(self) -> dict[str, Any]:
        names = ("incarnation", "runs", "is_clean")
        rows = self._db.execute(f"SELECT {', '.join(names)} FROM broker").fetchall()  # noqa: S608
        if len(rows) != 1:
            raise StoreError(f"{self.file}: the table {_HEAD} has {len(rows)} rows")
        return dict(zip(names, rows[0], strict=True))

    def _rows(self, table: Table) -> Iterator[tuple[int, tuple[Any, ...]]]:
        """Each with its number in the file, in order of the key."""
        key = ", ".join(column.name for column in key_of(table))
        for number, *row in self._db.execute(f"SELECT rowid, * FROM {table.name} ORDER BY {key}"):  # noqa: S608
            yield number, tuple(row)

    def _page_findings(self) -> Iterator[str]:
        # This also finds a key that is there twice, and rows that an index has lost.
        try:
            for (finding,) in self._db.execute(f"PRAGMA integrity_check({_MAX_FINDINGS})"):
                if finding != "ok":
                    yield " ".join(finding.split())
        except sqlite3.Error as error:
            yield f"the pages cannot all be read, {error}"

    def _row_findings(self) -> Iterator[str | None]:
        for table in TABLES:
            try:
                for number, row in self._rows(table):
                    yield _fault(table, number, row)
            except sqlite3.Error as error:
                yield f"{table.name}: the rest cannot be read, {error}"

    def _empty_log(self) -> None:
        self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def import_lines(folder: Path, lines: Iterable[str]) -> int:
    """Make a store of an export: all of it or nothing.

    Args:
        folder: where there is no store yet; made if it is not there.
        lines: as `ClosedStore.lines` gave them.

    Returns:
        The number of rows.

    Raises:
        StoreError: there is a store, or the lines are not those of a whole export.
    """
    file = folder.absolute() / STORE_FILE
    with _in_our_words(file), keep_others_out(file.parent):
        if file.exists():
            raise StoreError(f"{file}: is there already; move it away, or name another folder")
        refuse_foreign_log(file)
        make_file(file)
        try:
            with closing(_connected(file)) as db:
                return _import(db, file, lines)
        except BaseException:
            file.unlink()
            raise


def _import(db: sqlite3.Connection, file: Path, lines: Iterable[str]) -> int:
    # One transaction, so that a failed import leaves nothing that looks like a store.
    db.execute("BEGIN")
    for statement in MIGRATIONS[0]:
        db.execute(statement)
    db.execute(f"PRAGMA user_version = {VERSION}")
    count = _put_lines(db, lines)
    for finding in ClosedStore(file, db).check_sums():
        raise StoreError(f"the export cannot be right, {finding}")
    db.execute("COMMIT")
    return count


def _put_lines(db: sqlite3.Connection, lines: Iterable[str]) -> int:
    """Write the rows between a head, which it writes too, and an end that agrees."""
    # From -1, because the first line is the head.
    for count, line in enumerate(lines, -1):
        try:
            fields = json.loads(line)
            if count < 0:
                _put_head(db, fields)
            elif fields.get("table") != _END:
                if fields.get("table") == "duplicates":
                    fields.setdefault("principal", "")  # version 2 has no principals
                table, row = row_of(fields)
                db.execute(f"INSERT INTO {table.name} VALUES ({', '.join('?' * len(row))})", row)  # noqa: S608
            elif fields.get("rows") == count:
                return count
            else:
                raise ValueError(f"it says that there are other than the {count} rows so far")
        except (ValueError, TypeError, AttributeError, OverflowError, sqlite3.IntegrityError) as error:
            fault = "it is no JSON" if isinstance(error, json.JSONDecodeError) else error
            raise StoreError(f"line {count + 2}: is no line of an export, {fault}") from error
    raise StoreError("the export has no last line: it is not whole")


def _put_head(db: sqlite3.Connection, fields: Any) -> None:
    match fields:
        case {"table": "broker", "version": int(version)} if version not in _IMPORTED:
            raise ValueError(f"it is of version {version}, and this Nebula knows version {VERSION}")
        case {
            "table": "broker",
            "incarnation": str(incarnation),
            "runs": int(runs),
            "is_clean": int(is_clean),
        }:
            pass
        case _:
            # Without a quotation of the line, which may have a body.
            raise ValueError("it has to say first what it is an export of")
    # Counted as a copy: the store that was exported may go on, and message-ids are given once (D.20).
    db.execute(
        "INSERT INTO broker (incarnation, runs, is_clean, is_copy) VALUES (?, ?, ?, 1)",
        (incarnation, runs, is_clean),
    )


def _fault(table: Table, number: int, row: tuple[Any, ...]) -> str | None:
    try:
        object_of(table, row)
    except ValueError as error:
        return f"{table.name}, row {number}: {error}"
    return None


def _file_in(folder: Path) -> Path:
    file = folder.absolute() / STORE_FILE
    if not file.exists():
        raise StoreError(f"{file}: there is no store; name the folder of one")
    return file


@contextmanager
def _opened(file: Path) -> Iterator[sqlite3.Connection]:
    refuse_foreign_log(file)
    make_private_database(file)
    with closing(_connected(file)) as db:
        yield db


def _connected(file: Path) -> sqlite3.Connection:
    return sqlite3.connect(file, isolation_level=None)


@contextmanager
def _in_our_words(file: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        if isinstance(error, OSError) and error.filename is None:
            raise  # of a file of the caller's
        raise store_error(file, "used", error) from error
