"""Copies of a store: whole, checked, and never in the way of the one they are made of."""

from __future__ import annotations

import os
import sqlite3
import stat
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from nebula.broker.core.tables import Write
from nebula.broker.store.sqlite import STORE_FILE, SqliteStore
from nebula.errors import StoreError
from nebula.testing.stored import (
    PENDING,
    SESSION,
    SUBSCRIPTION,
    drop_message,
    lines,
    message,
    put_message,
    reloaded,
)


def _running(folder: Path, *, messages: int = 3, body: bytes = b"hello") -> SqliteStore:
    store = SqliteStore(folder)
    store.load()
    store.apply([put_message("/queue/a", message(number, body)) for number in range(1, messages + 1)])
    store.apply([SESSION, SUBSCRIPTION, PENDING])
    return store


def _restored(copy: Path, folder: Path) -> SqliteStore:
    folder.mkdir()
    copy.rename(folder / STORE_FILE)
    return SqliteStore(folder)


def test_copy_holds_what_was_committed_and_the_store_goes_on(tmp_path: Path) -> None:
    store = _running(tmp_path / "data")
    copy = store.backup(tmp_path / "copy.db")
    store.apply([put_message("/queue/a", message(4)), *drop_message("/queue/a", 1)])
    store.close()

    restored = _restored(copy, tmp_path / "restored")
    found = restored.load()
    restored.close()
    assert lines(found) == {"/queue/a": [message(1), message(2), message(3)]}
    assert (found.sessions, found.subscriptions) == ([SESSION.row], [SUBSCRIPTION.row])
    assert not found.is_clean
    after = lines(reloaded(lambda: SqliteStore(tmp_path / "data")))
    assert after == {"/queue/a": [message(2), message(3), message(4)]}


def test_copy_is_one_file_for_one_user(tmp_path: Path) -> None:
    store = _running(tmp_path / "data")
    (tmp_path / "copies").mkdir()
    copy = store.backup(tmp_path / "copies" / "copy.db")
    store.close()

    assert list((tmp_path / "copies").iterdir()) == [copy]
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600


def test_broker_that_starts_on_a_copy_gives_no_message_id_of_the_first_one(tmp_path: Path) -> None:
    store = _running(tmp_path / "data")
    copies = [store.backup(tmp_path / name) for name in ("one", "other")]
    store.close()
    first = reloaded(lambda: SqliteStore(tmp_path / "data"))

    incarnations = {first.incarnation}
    for number, copy in enumerate(copies):
        restored = _restored(copy, tmp_path / f"restored-{number}")
        incarnations.add(restored.load().incarnation)
        restored.close()
        again = reloaded(lambda: restored)  # noqa: B023 - called at once
        assert again.incarnation in incarnations - {first.incarnation}
    assert len(incarnations) == 3


def test_file_copied_to_two_places_becomes_two_incarnations(tmp_path: Path) -> None:
    store = _running(tmp_path / "data")
    copy = store.backup(tmp_path / "copy.db")
    store.close()
    octets = copy.read_bytes()

    found = set()
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        (tmp_path / name / STORE_FILE).write_bytes(octets)
        found.add(reloaded(partial(SqliteStore, tmp_path / name)).incarnation)
    assert len(found) == 2


def test_copy_in_a_folder_can_be_started_there_and_is_then_not_replaced(tmp_path: Path) -> None:
    standby = tmp_path / "standby"
    standby.mkdir()
    store = _running(tmp_path / "data")
    assert store.backup(standby) == standby / STORE_FILE
    store.apply([put_message("/queue/a", message(4))])
    store.backup(standby)  # over the earlier one

    second = SqliteStore(standby)
    assert lines(second.load())["/queue/a"][-1] == message(4)
    with pytest.raises(StoreError, match=f"^{standby}: another broker keeps its messages there"):
        store.backup(standby)
    second.close()
    with pytest.raises(StoreError, match=f"^{standby / STORE_FILE}: something else than a copy"):
        store.backup(standby)
    store.close()


def test_store_is_not_copied_over_itself(tmp_path: Path) -> None:
    store = _running(tmp_path / "data")

    with pytest.raises(StoreError, match="another broker keeps its messages there"):
        store.backup(tmp_path / "data")
    store.close()
    assert len(lines(reloaded(lambda: SqliteStore(tmp_path / "data")))["/queue/a"]) == 3


@pytest.mark.parametrize("left", ["copy.db", "copy.db-wal", "copy.db-journal"])
def test_nothing_else_is_replaced_and_nothing_stale_is_put_beside_a_copy(tmp_path: Path, left: str) -> None:
    (tmp_path / left).write_text("precious")
    store = _running(tmp_path / "data")

    with pytest.raises(StoreError, match=r"copy\.db: something else than a copy of a store is there"):
        store.backup(tmp_path / "copy.db")
    store.close()
    assert (tmp_path / left).read_text() == "precious"


def test_copy_is_of_one_moment_though_writes_go_on_beside_it(tmp_path: Path) -> None:
    store = _running(tmp_path / "data", messages=2000, body=b"x" * 2000)  # four steps
    batches = 0

    def write_more(_fraction: float) -> None:
        nonlocal batches
        batches += 1
        puts: list[Write] = [put_message("/queue/b", message(batches * 100 + each)) for each in range(10)]
        with ThreadPoolExecutor(1) as writer:
            writer.submit(store.apply, [*puts, *drop_message("/queue/a", batches)]).result()

    copy = store.backup(tmp_path / "copy.db", write_more)
    store.close()

    assert batches >= 3
    found = reloaded(partial(SqliteStore, _restored(copy, tmp_path / "restored").folder))
    assert {name: line.count for name, line in found.lines.items()} == {"/queue/a": 2000}
    after = reloaded(lambda: SqliteStore(tmp_path / "data"))
    assert {name: line.count for name, line in after.lines.items()} == {
        "/queue/a": 2000 - batches,
        "/queue/b": 10 * batches,
    }


def test_earlier_copy_stays_until_the_new_one_is_complete(tmp_path: Path) -> None:
    store = _running(tmp_path / "data")
    copy = store.backup(tmp_path / "copy.db")
    earlier = copy.read_bytes()

    def interrupt(_fraction: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.backup(copy, interrupt)
    store.close()
    assert copy.read_bytes() == earlier
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy.db", "data"]


def test_two_copies_to_one_place_do_not_mix(tmp_path: Path) -> None:
    store = _running(tmp_path / "data")
    inner: list[Path] = []

    def copy_too(_fraction: float) -> None:
        if not inner:
            store.apply([put_message("/queue/a", message(4))])
            inner.append(store.backup(tmp_path / "copy.db"))

    copy = store.backup(tmp_path / "copy.db", copy_too)
    store.close()

    # The outer one began earlier, and was named later.
    found = _restored(copy, tmp_path / "restored")
    assert lines(found.load()) == {"/queue/a": [message(1), message(2), message(3)]}
    found.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "restored"]


def test_close_gives_up_a_copy_under_way(tmp_path: Path) -> None:
    store = _running(tmp_path / "data", messages=2000, body=b"x" * 2000)

    def stop(_fraction: float) -> None:
        store.close()

    with pytest.raises(StoreError, match="not finished, for the broker stops"):
        store.backup(tmp_path / "copy.db", stop)
    assert not list(tmp_path.glob("copy*"))
    assert reloaded(lambda: SqliteStore(tmp_path / "data")).is_clean


def test_copy_that_finds_no_room_says_so_and_the_store_goes_on(tmp_path: Path) -> None:
    class Full(sqlite3.Connection):
        def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
            if sql == "PRAGMA journal_mode = DELETE":
                super().execute("PRAGMA max_page_count = 1")
                return super().execute("CREATE TABLE no_room AS SELECT zeroblob(100000)")
            return super().execute(sql, parameters)

    store = SqliteStore(tmp_path / "data", connect=partial(sqlite3.connect, factory=Full))
    store.load()

    with pytest.raises(StoreError, match=r"cannot be copied to .*, database or disk is full; make room"):
        store.backup(tmp_path / "copy.db")
    assert not list(tmp_path.glob("copy*"))
    store.apply([SESSION])
    store.close()
    assert reloaded(lambda: SqliteStore(tmp_path / "data")).is_clean


def test_copy_of_a_damaged_store_gets_no_name(tmp_path: Path) -> None:
    _running(tmp_path / "data", messages=200, body=b"x" * 500).close()
    file = tmp_path / "data" / STORE_FILE
    store = SqliteStore(tmp_path / "data")
    store.load()
    size = file.stat().st_size
    descriptor = os.open(file, os.O_WRONLY)
    os.pwrite(descriptor, b"\xff" * 4000, size // 2 // 4096 * 4096)

    with pytest.raises(StoreError, match=r"nebula\.db: is damaged, .*; restore the folder from a backup"):
        store.backup(tmp_path / "copy.db")
    assert not list(tmp_path.glob("copy*"))
    store.close()
    os.close(descriptor)
