"""PostgreSQL registry: the table of a service's jobs, shared by its instances (docs/decisions/0034)."""

# ruff: noqa: S608 - the statements are built from constants; values are passed separately

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

import psycopg
from psycopg.pq import TransactionStatus

from nebula.errors import SettingsError
from nebula.extras.postgres_database import Database, one_line
from nebula.extras.postgres_tables import CHANNEL, OPEN_OR_HELD, TABLES, UPGRADES, VERSION
from nebula.rpc.jobs.model.record import JobRecord, LogLine
from nebula.rpc.jobs.registry.counting import ENDED
from nebula.rpc.jobs.registry.errors import Fenced, RegistryAway, Superseded
from nebula.rpc.jobs.registry.registry import SELECT
from nebula.rpc.jobs.registry.rows import COLUMNS, record_of
from nebula.rpc.jobs.registry.shared import Changes, Heard, SharedRegistry

__all__ = ["PostgresJobRegistry"]

# "neb" in ASCII: advisory locks are one space for all programs of a database.
_LOCK_CLASS: Final = 0x6E6562

# PostgreSQL cuts longer names off.
_LONGEST_SCHEMA: Final = 63

# The transaction is over, and nothing of it was written: to be tried again. How their SQLSTATEs begin:
# conflicts and locks, a standby that is not promoted yet, no resources (53), an operator's hand (57).
_PASSING: Final = ("40001", "40P01", "55P03", "25P03", "25006", "53", "57")

# No right to the database, to the schema, or to look into it.
_NO_RIGHT: Final = ("42501", "3F000")

# An instance without a row has left, or the others have given it up. A job in work without a holder came
# from a folder, and the instance that found it there died before it continued the job.
_ORPHANED: Final = f"""(holder NOT IN (SELECT name FROM instances)
OR holder IS NULL AND state <> 'queued' AND state NOT IN ({ENDED}))"""

# Those that wait, or whose instance is gone, of a verb that no instance has.
_DESERTED: Final = f"""(state NOT IN ({ENDED}) AND (holder IS NULL OR {_ORPHANED}) AND verb NOT IN
(SELECT name FROM verbs WHERE seen_at > clock_timestamp() - make_interval(secs => ?)))"""

# An engine that is broken for long is no verb that is gone.
_SEEN: Final = """INSERT INTO verbs
SELECT name, clock_timestamp(), CASE WHEN name = ANY(?) THEN clock_timestamp() END FROM unnest(?::text[]) name
ON CONFLICT (name) DO UPDATE SET seen_at = EXCLUDED.seen_at,
worked_at = coalesce(EXCLUDED.worked_at, verbs.worked_at)"""

_LEASE: Final = "clock_timestamp() + make_interval(secs => ?)"


class PostgresJobRegistry(SharedRegistry):
    """A service's jobs in a schema of their own, for all its instances.

    All that write take one lock of the service, one after the other, as they do with SQLite: so what is read
    before writing holds, numbers rise in the order of commits, and nothing deadlocks. An instance that has
    joined writes only while its lease runs.

    Each method may raise `RegistryAway`: the transaction is lost, and may be done again after `reconnect`.

    Args:
        database: where.
        service: whose jobs.
        name: of this user of it, for the lists of the server.
        patience: seconds for which it may hang amid a transaction before the server ends that. Half of it is
            the time that an address of the server has to take a connection.

    Attributes:
        schema: where they are.
        backend: the server's process for the connection of now.

    Raises:
        SettingsError: the service's name is too long, or the schema cannot be made or is of another version.
        RegistryAway: there is no connection.
    """

    _like = "ILIKE"
    _message_of_error = "(error::json ->> 'message')"
    _text_bytes = "octet_length(text)"
    _counts_itself = False

    def __init__(
        self, database: Database, service: str, name: str = "registry", *, patience: float = 10.0
    ) -> None:
        super().__init__(database.place)
        self._database, self._service, self._patience = database, service, patience
        self.schema = f"nebula-jobs-{service}"
        if len(self.schema) > _LONGEST_SCHEMA:
            raise SettingsError(f"{service}: a name of 50 characters at most can be kept in PostgreSQL")
        self._name = f"nebula {service} {name}"
        self._me: tuple[str, str] | None = None
        self._is_locked = self._is_aborted = False
        # Between the thread that has another connection now, and one that ends it.
        self._guard = threading.Lock()
        self._connect()
        try:
            self._prepare()
        except BaseException as error:
            refused = self._refused(error) if isinstance(error, psycopg.Error) else error
            self._let_go()
            raise refused from None

    def _connect(self) -> None:
        db = self._database.connect(self._name, self._patience / 2)
        with self._guard:
            self._db, self.backend = db, db.info.backend_pid
        if self._is_aborted:
            self._let_go()
        # An instance that hangs amid a transaction holds up all the others.
        patience = str(int(self._patience * 1000))
        for name, value in (
            ("idle_in_transaction_session_timeout", patience), ("search_path", f'"{self.schema}"')
        ):  # fmt: skip
            self._do("SELECT set_config(?, ?, false)", name, value)

    def _let_go(self) -> None:
        with self._guard:
            self._db.close()

    def _refused(self, error: psycopg.Error) -> SettingsError:
        """The error for what the database refuses at the start, and how to fix it."""
        text = f"{self.place}: the tables of {self._service} cannot be made or used, {one_line(error)}"
        if error.sqlstate not in _NO_RIGHT:
            return SettingsError(text)
        user, name = self._db.info.user, self._db.info.dbname
        owner = "SELECT pg_get_userbyid(nspowner) FROM pg_namespace WHERE nspname = ?"
        for (role,) in self._all(owner, self.schema):
            return SettingsError(f"{text}; role {user} may not use this schema: connect as its owner, {role}")
        return SettingsError(f'{text}; have its owner say GRANT CREATE ON DATABASE "{name}" TO "{user}"')

    def _prepare(self) -> None:
        with self.transaction():
            self._take_lock()
            if not list(self._all("SELECT 1 FROM pg_namespace WHERE nspname = ?", self.schema)):
                self._db.execute(f'CREATE SCHEMA "{self.schema}"'.encode())
            if not list(self._all("SELECT to_regclass('version') WHERE to_regclass('version') IS NOT NULL")):
                self._db.execute(TABLES.encode())
            (version,) = next(iter(self._all("SELECT number FROM version")))
            while version in UPGRADES:
                self._db.execute(UPGRADES[version].encode())
                version += 1
                self._do("UPDATE version SET number = ?", version)
            if version != VERSION:
                text = f"schema {self.schema} was made by another version of Nebula ({version})"
                raise SettingsError(f"{self.place}: {text}")

    # --- the connection ---

    def close(self) -> None:
        """See `JobRegistry`. An instance that has joined leaves: the others have its waiting jobs at once."""
        if self._is_aborted:
            # A thread may hang with the connection. It ends with its socket, and the instance by its lease.
            return
        if self._me is not None and not self._db.closed:
            with suppress(RegistryAway, psycopg.Error), self.transaction():
                self._do("DELETE FROM instances WHERE name = ? AND incarnation = ?", *self._me)
        self._let_go()

    def reconnect(self) -> None:
        """Have a connection that works: the old one, if it is not broken.

        Raises:
            RegistryAway: the database cannot be reached yet.
        """
        if self._db.closed:
            self._connect()

    def abort(self) -> None:
        """See `JobRegistry`: running and later calls get `RegistryAway`, new connections too."""
        with self._guard:
            self._is_aborted = True
            with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(self._db.fileno())) as end:
                end.shutdown(socket.SHUT_RDWR)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """See `JobRegistry`."""
        self._is_locked = False
        self._do("BEGIN ISOLATION LEVEL READ COMMITTED")
        try:
            yield
            self._do("COMMIT")
        except BaseException:
            with suppress(RegistryAway, psycopg.Error):
                self._do("ROLLBACK")
            raise

    @contextmanager
    def part(self) -> Iterator[None]:
        """See `JobRegistry`."""
        was_locked = self._is_locked
        self._do("SAVEPOINT part")
        try:
            yield
        except RegistryAway:
            raise
        except BaseException:
            self._do("ROLLBACK TO part")
            self._do("RELEASE part")
            # PostgreSQL has let go of a lock that was taken in it.
            self._is_locked = was_locked
            raise
        self._do("RELEASE part")

    def _all(self, sql: str, *values: Any) -> Iterable[Sequence[Any]]:
        return self._execute(sql, values).fetchall()

    def _do(self, sql: str, *values: Any) -> int:
        return self._execute(sql, values).rowcount

    def _do_all(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        for row in rows:
            self._do(sql, *row)

    def _execute(self, sql: str, values: Sequence[Any]) -> psycopg.Cursor[Any]:
        try:
            return self._db.execute(sql.replace("?", "%s").encode(), [_storable(one) for one in values])
        except psycopg.Error as error:
            if not self._db.closed and not (error.sqlstate or "").startswith(_PASSING):
                raise
            # Another connection may lead to a server that does it.
            self._let_go()
            raise RegistryAway(f"{self.place}: {one_line(error)}") from None

    # --- writers ---

    def lock(self) -> None:
        """See `JobRegistry`.

        Raises:
            Fenced: this instance's time is over.
        """
        if self._is_locked:
            return
        self._take_lock()
        if self._me is not None:
            mine = "SELECT 1 FROM instances WHERE name = ? AND incarnation = ?"
            if not list(self._all(f"{mine} AND expires_at > clock_timestamp()", *self._me)):
                raise _fenced(self._me)
        # Outside of a transaction the lock is gone with the statement.
        self._is_locked = self._db.info.transaction_status is TransactionStatus.INTRANS

    def _take_lock(self) -> None:
        self._do("SELECT pg_advisory_xact_lock(?, hashtext(?))", _LOCK_CLASS, self._service)

    def join(self, name: str, incarnation: str, lease: float) -> list[JobRecord]:
        """See `SharedRegistry`."""
        self._take_lock()
        row = f"INSERT INTO instances VALUES (?, ?, {_LEASE})"
        self._do(
            f"{row} ON CONFLICT (name) DO UPDATE SET incarnation = EXCLUDED.incarnation, "
            "expires_at = EXCLUDED.expires_at",
            name, incarnation, lease,
        )  # fmt: skip
        self._me = name, incarnation
        self._do(f"UPDATE jobs SET holder = NULL WHERE holder = ? AND state IN ({ENDED})", name)
        return list(map(record_of, self._all(f"{SELECT} WHERE holder = ? ORDER BY number", name)))

    def beat(
        self,
        lease: float,
        verbs: Sequence[str],
        *,
        working: Collection[str] | None = None,
        unseen: float | None = None,
    ) -> Heard:
        """See `SharedRegistry`."""
        assert self._me is not None
        self._take_lock()
        mine = f"UPDATE instances SET expires_at = {_LEASE} WHERE name = ? AND incarnation = ?"
        if not self._do(mine, lease, *self._me):
            raise _fenced(self._me)
        lost = self._do("DELETE FROM instances WHERE expires_at < clock_timestamp()")
        self._do(f"UPDATE jobs SET holder = NULL WHERE {_ORPHANED} AND state IN ({ENDED})")
        self._do(_SEEN, list(verbs if working is None else working), sorted(verbs))
        recent = "SELECT name FROM verbs WHERE worked_at > clock_timestamp() - make_interval(secs => ?)"
        working_now = frozenset(name for (name,) in self._all(recent, lease))
        known = f"{SELECT} WHERE {_ORPHANED} AND verb = ANY(?) ORDER BY number"
        orphans = list(self._all(known, list(verbs)))
        if unseen is not None:
            orphans += self._all(f"{SELECT} WHERE {_DESERTED} ORDER BY number", unseen)
        return Heard(list(map(record_of, orphans)), lost > 0, working_now)

    def instances(self) -> frozenset[str]:
        """See `JobRegistry`."""
        alive = "SELECT name FROM instances WHERE expires_at > clock_timestamp()"
        return frozenset(name for (name,) in self._all(alive))

    # --- what is shared ---

    def add_lines(self, job: str, lines: Iterable[LogLine]) -> None:
        """See `JobRegistry`: followers at other instances hear of it."""
        if added := list(lines):
            super().add_lines(job, added)
            self._do("SELECT pg_notify(?, ?)", CHANNEL, f"{self.schema} {job}")

    def begin(self, record: JobRecord, lines: Sequence[LogLine] = (), *, most: int | None = None) -> None:
        """See `JobRegistry`: over all instances."""
        self.lock()
        if record.exclusive is not None:
            rivals = "SELECT 1 FROM jobs WHERE exclusive = ? AND holder IS NOT NULL AND id <> ?"
            if list(self._all(rivals, record.exclusive, record.id)):
                raise Superseded(f"another job runs with the key {record.exclusive!r}")
        if most is not None:
            count = "SELECT count(*) FROM jobs WHERE verb = ? AND holder IS NOT NULL AND id <> ?"
            if next(iter(self._all(count, record.verb, record.id)))[0] >= most:
                raise Superseded(f"{most} jobs of {record.verb} run already")
        self.save(record, lines)

    def ask_to_cancel(self, job: str) -> None:
        """See `SharedRegistry`."""
        self.lock()
        self._do(f"UPDATE jobs SET cancel_wanted = true WHERE id = ? AND state NOT IN ({ENDED})", job)

    def changes(self, after: int | None) -> Changes:
        """See `SharedRegistry`."""
        (last,) = next(iter(self._all("SELECT coalesce(max(change), 0) FROM jobs")))
        what, values = (OPEN_OR_HELD, ()) if after is None else ("change > ?", (after,))
        chosen = SELECT.replace(" FROM", ", cancel_wanted FROM")
        rows = list(self._all(f"{chosen} WHERE {what} ORDER BY change", *values))
        ids = frozenset(id_ for (id_,) in self._all(f"SELECT id FROM jobs WHERE {OPEN_OR_HELD}"))
        records = [record_of(row[: len(COLUMNS)]) for row in rows]
        unwanted = frozenset(one.id for one, row in zip(records, rows, strict=True) if row[-1])
        return Changes(records, unwanted, max(last, after or 0), ids)


def _fenced(me: tuple[str, str]) -> Fenced:
    return Fenced(f"instance {me[0]} was not heard of for too long: others have its jobs now")


def _storable(value: Any) -> Any:
    """Texts without what PostgreSQL cannot keep: NUL, and halves of characters."""
    if not isinstance(value, str):
        return value
    return value.replace("\0", "\ufffd").encode("utf-8", "replace").decode()
