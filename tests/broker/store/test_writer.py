"""The store's threads: batches one after another, pages beside them, and the end of both."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from nebula.broker.core.journal import Journal
from nebula.broker.core.storage import PageRequest, StoredMessage
from nebula.broker.core.tables import SessionRow, Write
from nebula.broker.server.server import Listener, Server
from nebula.broker.store.sqlite import SqliteStore
from nebula.broker.store.writer import StoreStuck, Writer
from nebula.errors import StoreError
from nebula.testing.stored import lines, message, put, put_message, reloaded

pytestmark = pytest.mark.anyio

_SECONDS = 20.0

ALL = PageRequest("q", 0, 99, 99, 9999)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Gated(SqliteStore):
    """A store whose batches and pages can be held up."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        super().__init__(folder, **settings)
        self.may_write, self.may_read = threading.Event(), threading.Event()
        self.may_write.set()
        self.may_read.set()
        self.is_writing, self.is_reading = threading.Event(), threading.Event()
        self.pages = 0
        self.was_closed_under_a_page = False
        self._page_is_read = False

    def apply(self, writes: Sequence[Write]) -> None:
        self.is_writing.set()
        assert self.may_write.wait(_SECONDS)
        super().apply(writes)

    def page(self, request: PageRequest) -> list[StoredMessage]:
        self.pages += 1
        self._page_is_read = True
        self.is_reading.set()
        assert self.may_read.wait(_SECONDS)
        page = super().page(request)
        self._page_is_read = False
        return page

    def close(self) -> None:
        self.was_closed_under_a_page |= self._page_is_read
        super().close()


class Shell:
    """A writer, and what it told."""

    def __init__(self, store: SqliteStore) -> None:
        self.journal = Journal()
        self.committed: list[int] = []
        self.failures: list[Exception] = []
        self.pages: list[list[StoredMessage]] = []
        self.writer = Writer(store, self.committed.append, self.failures.append)

    def write(self, session: str) -> None:
        """A batch of one row."""
        self.journal.put(put(SessionRow(session, "", None)))
        self.writer.write(self.journal)

    def read(self) -> None:
        self.writer.read(ALL, lambda _request, page: self.pages.append(page))


async def _until(condition: Any) -> None:
    with anyio.fail_after(_SECONDS):
        while not condition():
            await anyio.sleep(0.005)


async def test_page_waits_for_no_batch(tmp_path: Path) -> None:
    store = Gated(tmp_path)
    shell = Shell(store)
    await shell.writer.start()
    store.apply([put_message("q", message(1))])
    store.may_write.clear()
    shell.write("a")
    shell.read()
    await _until(lambda: shell.pages)

    assert (shell.pages, shell.committed) == ([[message(1)]], [])
    store.may_write.set()
    await shell.writer.close([])


async def test_batch_waits_for_no_page(tmp_path: Path) -> None:
    store = Gated(tmp_path)
    shell = Shell(store)
    await shell.writer.start()
    store.may_read.clear()
    shell.read()
    await _until(store.is_reading.is_set)
    shell.write("a")
    await _until(lambda: shell.committed)

    assert (shell.pages, shell.committed) == ([], [1])
    store.may_read.set()
    await shell.writer.close([])


async def test_page_that_cannot_be_read_is_told_once_and_nothing_is_written_after_it(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    shell = Shell(store)
    await shell.writer.start()
    store.apply([put_message("q", message(1))])
    with sqlite3.connect(store.folder / "nebula.db") as db:
        db.execute("UPDATE messages SET attempts = 'many'")
    db.close()
    shell.read()
    shell.read()
    await _until(lambda: shell.failures)
    shell.write("a")
    shell.read()
    await shell.writer.close([put(SessionRow("b", "", None))])

    assert [type(failure) for failure in shell.failures] == [StoreError]
    assert (shell.pages, shell.committed) == ([], [])
    with pytest.raises(StoreError, match="a row makes no sense"):
        SqliteStore(tmp_path).load()
    with sqlite3.connect(store.folder / "nebula.db") as db:
        assert db.execute("SELECT is_clean FROM broker").fetchone() == (0,)
        assert db.execute("SELECT * FROM sessions").fetchall() == []
    db.close()


async def test_close_waits_for_the_page_that_is_read_and_drops_those_behind_it(tmp_path: Path) -> None:
    store = Gated(tmp_path)
    shell = Shell(store)
    await shell.writer.start()
    store.may_read.clear()
    for _ in range(3):
        shell.read()
    await _until(store.is_reading.is_set)
    closing = asyncio.ensure_future(shell.writer.close([]))
    # Time enough for a close that would not wait.
    for _ in range(5):
        await anyio.to_thread.run_sync(lambda: None)

    assert not closing.done()
    store.may_read.set()
    with anyio.fail_after(_SECONDS):
        await closing
    assert not store.was_closed_under_a_page
    assert (shell.pages, store.pages, shell.failures) == ([], 1, [])
    assert reloaded(partial(SqliteStore, tmp_path)).is_clean


async def test_close_writes_the_last_batch_behind_the_one_under_way(tmp_path: Path) -> None:
    store = Gated(tmp_path)
    shell = Shell(store)
    await shell.writer.start()
    store.may_write.clear()
    shell.write("a")
    await _until(store.is_writing.is_set)
    closing = asyncio.ensure_future(shell.writer.close([put(SessionRow("a", "last", None))]))
    await anyio.sleep(0)
    shell.write("b")
    store.may_write.set()
    with anyio.fail_after(_SECONDS):
        await closing
        await shell.writer.close([put(SessionRow("c", "", None))])

    found = reloaded(partial(SqliteStore, tmp_path))
    assert found.sessions == [SessionRow("a", "last", None)]
    assert found.is_clean


@pytest.mark.parametrize("hangs_in", ["the batch under way", "the last one"])
async def test_close_has_an_end_where_the_disk_hangs(tmp_path: Path, hangs_in: str) -> None:
    store = Gated(tmp_path)
    shell = Shell(store)
    await shell.writer.start()
    store.may_write.clear()
    if hangs_in == "the batch under way":
        shell.write("a")
        await _until(store.is_writing.is_set)

    try:
        with anyio.fail_after(_SECONDS), pytest.raises(StoreStuck, match="the disk has not taken"):
            await shell.writer.close([put(SessionRow("a", "last", None))], 0.01)
    finally:
        store.may_write.set()


async def test_store_that_failed_is_let_go(tmp_path: Path) -> None:
    class Full(sqlite3.Connection):
        def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
            if sql.startswith("INSERT INTO sessions"):
                raise sqlite3.OperationalError("no room")
            return super().execute(sql, parameters)

    shell = Shell(SqliteStore(tmp_path, connect=partial(sqlite3.connect, factory=Full)))
    await shell.writer.start()
    shell.write("a")
    await _until(lambda: shell.failures)
    await shell.writer.close([])

    again = SqliteStore(tmp_path)
    assert not again.load().is_clean
    again.close()


# --- with a broker ---

_CONNECT = b"CONNECT\naccept-version:1.2\nhost:h\n\n\0"
_SUBSCRIBE = b"SUBSCRIBE\nid:1\ndestination:/queue/a\nack:client-individual\n\n\0"


def _send(body: bytes, queue: bytes = b"a") -> bytes:
    return b"SEND\ndestination:/queue/%b\npersistent:true\nreceipt:%b\n\n%b\0" % (queue, body, body)


async def test_message_that_is_acked_before_its_batch_begins_never_touches_the_disk(tmp_path: Path) -> None:
    statements: list[tuple[str, Any]] = []

    class Noting(sqlite3.Connection):
        def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
            statements.append((sql, parameters))
            return super().execute(sql, parameters)

    store = Gated(tmp_path, connect=partial(sqlite3.connect, factory=Noting))
    server = Server([Listener(port=0)], store=store)
    with anyio.fail_after(_SECONDS):
        await server.start()
        reader, writer = await asyncio.open_connection(*server.urls[0].removeprefix("stomp://").split(":"))
        store.may_write.clear()
        writer.write(_CONNECT + _send(b"first", b"b"))
        await _until(store.is_writing.is_set)
        writer.write(_SUBSCRIBE + _send(b"second") + _send(b"third"))
        said = await reader.readuntil(b"third\0")
        ack = next(line for line in said.splitlines() if line.startswith(b"ack:"))
        writer.write(b"ACK\nid:" + ack.removeprefix(b"ack:") + b"\nreceipt:acked\n\n\0")
        # Frames are read in order: what answers this one has read the ACK.
        writer.write(b"SEND\ndestination:/queue/a\n\nlast\0")
        await reader.readuntil(b"last\0")
        store.may_write.set()
        for receipt in (b"first", b"second", b"third", b"acked"):
            await reader.readuntil(b"receipt-id:" + receipt + b"\n")
        writer.close()
        await server.stop()

    bodies = [each for sql, values in statements if sql.startswith("INSERT INTO messages") for each in values]
    assert b"first" in bodies
    assert b"third" in bodies
    assert b"second" not in bodies
    assert not [sql for sql, _ in statements if sql.startswith("DELETE FROM messages")]
    kept = lines(reloaded(partial(SqliteStore, tmp_path)))
    assert {name: [one.body for one in line] for name, line in kept.items()} == {
        "/queue/a": [b"third"],
        "/queue/b": [b"first"],
    }
