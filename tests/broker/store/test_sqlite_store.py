"""What the store on disk does beside what any store does: folder, lock, faults, crashes."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nebula.broker.core.storage import PageRequest, StoredMessage
from nebula.broker.core.tables import DuplicateRow, PostponedRow, Write
from nebula.broker.store.sqlite import STORE_FILE, SqliteStore
from nebula.broker.store.store import Store
from nebula.broker.store.tools import open_store
from nebula.errors import StoreError
from nebula.testing.stored import (
    PENDING,
    SESSION,
    SUBSCRIPTION,
    drop_message,
    drop_messages,
    lines,
    message,
    put,
    put_delayed,
    put_message,
    put_shared,
    put_value,
    reloaded,
    set_attempts,
)


def test_folder_and_file_are_for_one_user_alone(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "state" / "nebula")
    store.load()
    store.apply([SESSION])

    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*")}
    assert modes == {
        "state": 0o700,
        "nebula": 0o700,
        "lock": 0o600,
        "nebula.db": 0o600,
        "nebula.db-wal": 0o600,
        "nebula.db-shm": 0o600,
    }
    store.close()


@pytest.mark.parametrize("umask", [0o000, 0o077, 0o777])
def test_files_and_folders_are_for_one_user_alone_with_any_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        store = SqliteStore(tmp_path / "state" / "nebula")
        store.load()
        store.apply([SESSION])
        store.backup(tmp_path / "state" / "copy.db")
    finally:
        os.umask(before)

    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*")}
    assert modes == {
        **dict.fromkeys(("state", "nebula"), 0o700),
        **dict.fromkeys(("lock", "nebula.db", "nebula.db-wal", "nebula.db-shm", "copy.db"), 0o600),
    }
    store.close()


def test_purge_writes_much_less_than_it_frees(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    store.load()
    store.apply([put_message("/queue/a", message(number, b"x" * 100_000)) for number in range(1, 51)])
    with closing(sqlite3.connect(tmp_path / STORE_FILE)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    store.apply(drop_messages("/queue/a", 0, 50))

    assert (tmp_path / f"{STORE_FILE}-wal").stat().st_size < 200_000
    store.close()


def test_files_that_others_could_read_are_theirs_no_more_after_a_start(tmp_path: Path) -> None:
    _crash(tmp_path / "data", tmp_path / "crashed", [put_message("/queue/a", message(1))])
    files = list((tmp_path / "crashed").iterdir())
    for file in files:
        file.chmod(0o644)

    store = SqliteStore(tmp_path / "crashed")
    found = store.load()
    assert {file.name for file in files} == {"nebula.db", "nebula.db-wal", "nebula.db-shm", "lock"}
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    assert lines(found) == {"/queue/a": [message(1)]}
    store.close()


def test_nothing_is_touched_before_load(tmp_path: Path) -> None:
    SqliteStore(tmp_path / "data").close()

    assert list(tmp_path.iterdir()) == []


def test_second_broker_is_told_which_folder_is_taken(tmp_path: Path) -> None:
    first, second = SqliteStore(tmp_path), SqliteStore(tmp_path)
    first.load()

    with pytest.raises(StoreError, match=f"^{tmp_path}: another broker keeps its messages there"):
        second.load()
    first.close()
    assert second.load().run == 1
    second.close()


def test_store_of_a_newer_nebula_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    _fill(tmp_path, messages=1)
    _alter(tmp_path, "PRAGMA user_version = 99")
    before = (tmp_path / STORE_FILE).read_bytes()

    with pytest.raises(StoreError, match=r"nebula\.db: a newer Nebula wrote it \(version 99, this one"):
        SqliteStore(tmp_path).load()
    assert (tmp_path / STORE_FILE).read_bytes() == before


def test_store_with_a_version_that_none_has_is_damaged(tmp_path: Path) -> None:
    _fill(tmp_path, messages=1)
    _alter(tmp_path, "PRAGMA user_version = -2147483644")

    refusal = _refusal(SqliteStore(tmp_path))
    assert refusal is not None
    assert "nebula.db: is damaged, its version is -2147483644; restore the folder" in refusal


# As the first version made them.
VERSION_1 = """
CREATE TABLE broker (incarnation TEXT NOT NULL, runs INTEGER NOT NULL, is_clean INTEGER NOT NULL);
CREATE TABLE messages (queue TEXT NOT NULL, number INTEGER NOT NULL, destination TEXT NOT NULL,
    headers TEXT NOT NULL, body BLOB NOT NULL, expires_at REAL, attempts INTEGER NOT NULL,
    PRIMARY KEY (queue, number));
CREATE TABLE last_values (destination TEXT NOT NULL, number INTEGER NOT NULL, headers TEXT NOT NULL,
    body BLOB NOT NULL, expires_at REAL, attempts INTEGER NOT NULL, PRIMARY KEY (destination));
CREATE TABLE sessions (id TEXT NOT NULL, principal TEXT NOT NULL, away_since REAL, PRIMARY KEY (id));
CREATE TABLE subscriptions (session TEXT NOT NULL, id TEXT NOT NULL, destination TEXT NOT NULL,
    ack TEXT NOT NULL, prefetch INTEGER NOT NULL, seen_number INTEGER NOT NULL, PRIMARY KEY (session, id));
CREATE TABLE pending (session TEXT NOT NULL, id TEXT NOT NULL, destinations TEXT NOT NULL,
    PRIMARY KEY (session, id));
PRAGMA user_version = 1;
INSERT INTO broker VALUES ('0000feed', 4, 1);
INSERT INTO messages VALUES ('/queue/DLQ', 7, '/queue/a', '[["sender","alice"]]', x'00ff', NULL, 2);
INSERT INTO messages VALUES ('/queue/a', 8, '/queue/a', '[["sender","alice"]]', x'', 1.75e9, 0);
INSERT INTO last_values VALUES ('X/a', 9, '[]', x'61', NULL, 0);
INSERT INTO sessions VALUES ('till-1', 'ab12', NULL);
INSERT INTO subscriptions VALUES ('till-1', '0', 'X/*', 'client', 10, 77);
INSERT INTO pending VALUES ('till-1', '0', '["X/a","X/ü"]');
"""


def test_store_of_the_first_version_is_brought_up_to_date_with_all_it_holds(tmp_path: Path) -> None:
    _write_version_1(tmp_path)

    found = reloaded(lambda: SqliteStore(tmp_path), [put_delayed(message(10), 2e9)])

    sender = (("sender", "alice"),)
    assert lines(found) == {
        "/queue/DLQ": [StoredMessage(7, "/queue/a", sender, b"\x00\xff", None, 2)],
        # What could expire then was a request.
        "/queue/a": [StoredMessage(8, "/queue/a", sender, b"", 1.75e9, 0, is_request=True)],
    }
    assert found.values == [StoredMessage(9, "X/a", (), b"a")]
    assert found.delayed == [(message(10), 2e9)]
    assert (found.sessions, found.subscriptions) == ([SESSION.row], [SUBSCRIPTION.row])
    assert found.pending == {("till-1", "0"): ("X/a", "X/ü")}
    assert (found.run, found.incarnation) == (5, "0000feed")


# As the second version made them, with an id that was used.
VERSION_2 = """
CREATE TABLE broker (incarnation TEXT NOT NULL, runs INTEGER NOT NULL, is_clean INTEGER NOT NULL,
    is_copy INTEGER NOT NULL DEFAULT 0);
CREATE TABLE messages (line TEXT NOT NULL, number INTEGER NOT NULL, destination TEXT NOT NULL,
    headers TEXT NOT NULL, body BLOB NOT NULL, expires_at REAL, attempts INTEGER NOT NULL,
    is_request INTEGER NOT NULL, PRIMARY KEY (line, number));
CREATE TABLE delayed (number INTEGER NOT NULL, destination TEXT NOT NULL, deliver_at REAL NOT NULL,
    headers TEXT NOT NULL, body BLOB NOT NULL, expires_at REAL, attempts INTEGER NOT NULL,
    is_request INTEGER NOT NULL, PRIMARY KEY (number));
CREATE TABLE duplicates (destination TEXT NOT NULL, id TEXT NOT NULL, until REAL NOT NULL,
    PRIMARY KEY (destination, id));
CREATE TABLE last_values (destination TEXT NOT NULL, number INTEGER NOT NULL, headers TEXT NOT NULL,
    body BLOB NOT NULL, expires_at REAL, attempts INTEGER NOT NULL, is_request INTEGER NOT NULL,
    PRIMARY KEY (destination));
CREATE TABLE sessions (id TEXT NOT NULL, principal TEXT NOT NULL, away_since REAL, PRIMARY KEY (id));
CREATE TABLE subscriptions (session TEXT NOT NULL, id TEXT NOT NULL, destination TEXT NOT NULL,
    ack TEXT NOT NULL, prefetch INTEGER NOT NULL, seen_number INTEGER NOT NULL, PRIMARY KEY (session, id));
CREATE TABLE pending (session TEXT NOT NULL, id TEXT NOT NULL, destinations TEXT NOT NULL,
    PRIMARY KEY (session, id));
PRAGMA user_version = 2;
INSERT INTO broker VALUES ('0000feed', 4, 1, 0);
INSERT INTO messages VALUES ('/queue/a', 8, '/queue/a', '[["sender","alice"]]', x'', 1.75e9, 0, 1);
INSERT INTO messages SELECT CAST(x'00' || 'till-1' || x'00' || id AS TEXT), 9, '/topic/t', '[]', x'6869',
    NULL, 3, 0 FROM (SELECT 's' AS id UNION SELECT 't');
INSERT INTO delayed VALUES (7, '/queue/a', 2e9, '[]', x'00ff', NULL, 0, 0);
INSERT INTO duplicates VALUES ('/queue/a', 'used', 2e9);
INSERT INTO last_values VALUES ('X/a', 9, '[]', x'61', NULL, 0, 0);
INSERT INTO sessions VALUES ('till-1', 'ab12', NULL);
INSERT INTO subscriptions VALUES ('till-1', '0', 'X/*', 'client', 10, 77);
INSERT INTO pending VALUES ('till-1', '0', '["X/a","X/ü"]');
"""


def test_store_of_the_second_version_is_brought_up_to_date_with_all_it_holds(tmp_path: Path) -> None:
    _write(tmp_path, VERSION_2)
    lines_of_both = ("\0till-1\0s", "\0till-1\0t")
    old = StoredMessage(9, "/topic/t", (), b"hi", None, 3)

    found = reloaded(lambda: SqliteStore(tmp_path), [*put_shared(lines_of_both, message(10))])
    later = reloaded(lambda: SqliteStore(tmp_path), [*drop_messages(lines_of_both[0], 0, 10)])

    request = StoredMessage(8, "/queue/a", (("sender", "alice"),), b"", 1.75e9, 0, is_request=True)
    assert lines(found) == {"/queue/a": [request], **{key: [old, message(10)] for key in lines_of_both}}
    assert lines(later) == {"/queue/a": [request], lines_of_both[1]: [old, message(10)]}
    assert found.delayed == [(StoredMessage(7, "/queue/a", (), b"\x00\xff"), 2e9)]
    assert [row.id for row in found.duplicates] == ["used"]
    assert found.values == [StoredMessage(9, "X/a", (), b"a")]
    assert (found.sessions, found.subscriptions) == ([SESSION.row], [SUBSCRIPTION.row])
    assert found.pending == {("till-1", "0"): ("X/a", "X/ü")}
    assert (found.run, found.incarnation) == (5, "0000feed")


def test_store_stays_of_the_second_version_when_it_cannot_all_be_changed(tmp_path: Path) -> None:
    _write(tmp_path, VERSION_2)

    with pytest.raises(StoreError, match="cannot be used, disk I/O error; see to the disk"):
        SqliteStore(tmp_path, connect=_opener("CREATE TRIGGER")).load()
    with closing(sqlite3.connect(tmp_path / STORE_FILE)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (2,)
    assert set(reloaded(lambda: SqliteStore(tmp_path)).lines) > {"/queue/a"}


def test_store_of_the_third_version_is_brought_up_to_date_with_all_it_holds(tmp_path: Path) -> None:
    _fill(tmp_path, messages=2)
    before = reloaded(lambda: SqliteStore(tmp_path))
    # All that the fourth version added.
    _alter(tmp_path, "DROP TABLE postponed")
    _alter(tmp_path, "PRAGMA user_version = 3")

    line, kept = next(iter(lines(before).items()))
    postponed = PostponedRow(line, kept[0].number, 2e9)
    found = reloaded(lambda: SqliteStore(tmp_path), [put(postponed)])
    assert lines(found) == lines(before)
    assert found.postponed == [postponed]


def test_ids_of_the_second_version_are_kept_and_count_for_everybody(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / STORE_FILE)) as db:
        db.executescript(VERSION_2)

    own = DuplicateRow("/queue/a", "alice", "used", 2.5e9)
    assert reloaded(lambda: SqliteStore(tmp_path), [put(own)]).duplicates == [
        DuplicateRow("/queue/a", "", "used", 2e9),
        own,
    ]


@pytest.mark.parametrize("step", ["ALTER TABLE messages ADD", "UPDATE messages", "PRAGMA user_version = "])
def test_store_stays_of_the_first_version_when_it_cannot_all_be_changed(tmp_path: Path, step: str) -> None:
    _write_version_1(tmp_path)

    with pytest.raises(StoreError, match="cannot be used, disk I/O error; see to the disk"):
        SqliteStore(tmp_path, connect=_opener(step)).load()
    again = reloaded(lambda: SqliteStore(tmp_path))
    assert (again.run, set(again.lines)) == (5, {"/queue/DLQ", "/queue/a"})


@pytest.mark.parametrize("version", ["VERSION_1", "VERSION_2"])
def test_migrated_store_is_declared_as_a_new_one(tmp_path: Path, version: str) -> None:
    _write(tmp_path, globals()[version])
    reloaded(lambda: SqliteStore(tmp_path))
    reloaded(lambda: SqliteStore(tmp_path / "new"))

    def others(folder: Path) -> list[str]:
        with closing(sqlite3.connect(folder / STORE_FILE)) as db:
            find = "SELECT sql FROM sqlite_master WHERE type <> 'table' AND sql IS NOT NULL ORDER BY name"
            return [" ".join(sql.split()) for (sql,) in db.execute(find)]

    def columns(folder: Path) -> list[Any]:
        db = sqlite3.connect(folder / STORE_FILE)
        with closing(db):
            return db.execute(
                'SELECT t.name, c.name, c.type, c."notnull", c.pk FROM pragma_table_list AS t'
                " JOIN pragma_table_info(t.name) AS c WHERE t.schema = 'main' ORDER BY t.name, c.cid"
            ).fetchall()

    assert columns(tmp_path) == columns(tmp_path / "new")
    assert len(others(tmp_path)) == 2
    assert others(tmp_path) == others(tmp_path / "new")


def test_file_that_is_no_database_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / STORE_FILE).write_bytes(b"not a database, but long enough to look like one " * 100)

    with pytest.raises(StoreError, match=r"nebula\.db: cannot be used, file is not a database; restore"):
        SqliteStore(tmp_path).load()
    assert (tmp_path / STORE_FILE).read_bytes().startswith(b"not a database")


def test_refused_load_lets_go_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / STORE_FILE).write_bytes(b"not a database, but long enough to look like one " * 100)
    with pytest.raises(StoreError):
        SqliteStore(tmp_path).load()
    (tmp_path / STORE_FILE).unlink()

    again = SqliteStore(tmp_path)
    assert again.load().run == 0
    again.close()


def test_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(StoreError, match="file/data: messages cannot be kept there, Not a directory"):
        SqliteStore(tmp_path / "file" / "data").load()


@pytest.mark.parametrize(
    "change",
    [
        "headers = '[1]'",
        "headers = '{'",
        "headers = CAST(x'736563726574ff' AS TEXT)",
        "body = 'secret'",
        "attempts = 'secret'",
        "expires_at = 'secret'",
    ],
)
def test_row_that_makes_no_sense_is_refused_and_not_quoted(tmp_path: Path, change: str) -> None:
    _fill(tmp_path, messages=1)
    _alter(tmp_path, f"UPDATE messages SET {change}")

    refusal = _refusal(SqliteStore(tmp_path))
    assert refusal is not None
    assert "nebula.db: cannot be used, a row makes no sense; restore the folder" in refusal


@settings(deadline=None)
@given(place=st.floats(0, 1, exclude_max=True), flip=st.integers(1, 255))
def test_broken_file_is_read_or_refused_in_our_words(
    tmp_path_factory: pytest.TempPathFactory, place: float, flip: int
) -> None:
    folder = tmp_path_factory.mktemp("broken")
    file = folder / STORE_FILE
    _fill(folder, messages=30)
    octets = bytearray(file.read_bytes())
    octets[int(place * len(octets))] ^= flip
    file.write_bytes(octets)

    refusal = _refusal(SqliteStore(folder))
    assert refusal is None or refusal.startswith(f"{file}: ")


# --- one message in several lines ---


DURABLES = tuple(f"\0till-1\0{number}" for number in range(300))


def _bodies(folder: Path) -> list[int]:
    """The numbers of the bodies that are kept for several lines."""
    with closing(sqlite3.connect(folder / STORE_FILE)) as db:
        return [number for (number,) in db.execute("SELECT number FROM bodies ORDER BY number")]


def test_body_of_three_hundred_durable_subscriptions_is_on_the_disk_once(tmp_path: Path) -> None:
    body = bytes(1_000_000)

    found = reloaded(lambda: SqliteStore(tmp_path), [*put_shared(DURABLES, message(1, body))])

    assert {name: line.count for name, line in found.lines.items()} == dict.fromkeys(DURABLES, 1)
    assert (tmp_path / STORE_FILE).stat().st_size < 1_200_000


@pytest.mark.parametrize(
    "last",
    [
        [*drop_message(DURABLES[1], 1)],
        [*drop_messages(DURABLES[1], 0, 1)],
        [
            *set_attempts(DURABLES[1], 1, 3),
            *drop_message(DURABLES[1], 1),
            put_message("/queue/DLQ", message(3)),
        ],
    ],
)
def test_body_goes_with_the_last_line_that_it_is_in(tmp_path: Path, last: list[Write]) -> None:
    puts: list[Write] = [write for number in (1, 2) for write in put_shared(DURABLES[:2], message(number))]

    reloaded(lambda: SqliteStore(tmp_path), puts, [*drop_message(DURABLES[0], 1)])
    assert _bodies(tmp_path) == [1, 2]
    reloaded(lambda: SqliteStore(tmp_path), last)
    assert _bodies(tmp_path) == [2]


def test_body_that_comes_and_goes_in_one_batch_is_not_kept(tmp_path: Path) -> None:
    drops: list[Write] = [write for line in DURABLES[:2] for write in drop_message(line, 1)]

    reloaded(lambda: SqliteStore(tmp_path), [*put_shared(DURABLES[:2], message(1)), *drops])

    assert _bodies(tmp_path) == []


@pytest.mark.parametrize("messages", [1, 5000])
def test_message_without_its_body_is_found_at_the_start(tmp_path: Path, messages: int) -> None:
    puts: list[Write] = [
        write for number in range(messages) for write in put_shared(DURABLES[:2], message(number))
    ]
    reloaded(lambda: SqliteStore(tmp_path), puts)
    _alter(tmp_path, "DELETE FROM bodies WHERE number = (SELECT MAX(number) FROM bodies)")

    refusal = _refusal(SqliteStore(tmp_path))
    assert refusal is not None
    assert "nebula.db: cannot be used, a row makes no sense; restore the folder" in refusal


# --- the disk fails ---


def test_failed_write_leaves_what_was_there_and_no_clean_end(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path, connect=_opener("INSERT INTO last_values"))
    store.load()
    store.apply([put_message("/queue/a", message(1))])

    with pytest.raises(StoreError, match=r"nebula\.db: cannot be written, disk I/O error; see to the disk"):
        store.apply([put_message("/queue/a", message(2)), put_value(message(3, destination="X/a"))])
    store.close()
    again = SqliteStore(tmp_path)
    found = again.load()
    assert lines(found) == {"/queue/a": [message(1)]}
    assert not found.is_clean
    again.close()


def test_run_that_was_not_counted_is_not_begun(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be used, disk I/O error; see to the disk"):
        SqliteStore(tmp_path, connect=_opener("COMMIT")).load()

    again = SqliteStore(tmp_path)
    assert again.load().run == 0
    again.close()


def test_commits_wait_for_the_disk(tmp_path: Path) -> None:
    opened: list[sqlite3.Connection] = []

    def connect(*args: Any, **settings: Any) -> sqlite3.Connection:
        opened.append(sqlite3.connect(*args, **settings))
        return opened[-1]

    store = SqliteStore(tmp_path, connect=connect)
    store.load()

    found = [opened[0].execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")]
    assert found == ["wal", 2]  # FULL
    store.close()


def test_threads_may_take_turns(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    for number, call in enumerate((store.load, lambda: store.apply([SESSION]), store.close)):
        with ThreadPoolExecutor(1, thread_name_prefix=f"turn-{number}") as pool:
            pool.submit(call).result()

    assert reloaded(lambda: SqliteStore(tmp_path)).sessions == [SESSION.row]


# --- a start after a bad end ---


def test_damaged_pages_are_found_at_the_start_after_a_bad_end(tmp_path: Path) -> None:
    _fill(tmp_path, messages=200)
    _alter(tmp_path, "UPDATE broker SET is_clean = 0")
    _damage(tmp_path, "last_values")

    with pytest.raises(StoreError, match=r"nebula\.db: is damaged, .*; restore the folder from a backup, or"):
        SqliteStore(tmp_path).load()


def test_index_that_lost_an_entry_is_found_at_the_start_after_a_bad_end(tmp_path: Path) -> None:
    _fill(tmp_path, messages=3)
    _alter(tmp_path, "UPDATE broker SET is_clean = 0")
    db = sqlite3.connect(tmp_path / STORE_FILE, isolation_level=None)
    with closing(db):
        db.execute("PRAGMA writable_schema = 1")
        # The index of the messages is taken for that of the sessions: no page is wrong, and rows are missing.
        [(root,)] = db.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = 'sqlite_autoindex_sessions_1'"
        )
        db.execute(
            "UPDATE sqlite_master SET rootpage = ? WHERE name = 'sqlite_autoindex_messages_1'", (root,)
        )

    with pytest.raises(StoreError, match=r"nebula\.db: is damaged, "):
        SqliteStore(tmp_path).load()


@pytest.mark.parametrize(("is_clean", "steps"), [(1, ["reading"]), (0, ["checking", "reading"])])
def test_start_tells_what_it_is_at_and_checks_only_after_a_bad_end(
    tmp_path: Path, is_clean: int, steps: list[str]
) -> None:
    _fill(tmp_path, messages=3)
    _alter(tmp_path, f"UPDATE broker SET is_clean = {is_clean}")
    told: list[tuple[str, float | None]] = []
    store = SqliteStore(tmp_path, on_progress=lambda *progress: told.append(progress))
    store.load()
    store.close()

    assert list(dict.fromkeys(step for step, _ in told)) == steps
    assert told[-1] == ("reading", 1.0)


# --- a copy beside the log of another store ---


@pytest.fixture
def crashed(tmp_path: Path) -> Path:
    """What a broker that was killed has left: the last messages are in the log alone."""
    folder = tmp_path / "crashed"
    _crash(tmp_path / "data", folder, [put_message("/queue/a", message(number)) for number in (1, 2)])
    assert (folder / "nebula.db-wal").stat().st_size
    return folder


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A backup of another store."""
    other = SqliteStore(tmp_path / "other")
    other.load()
    other.apply([put_message("/queue/b", message(7, b"x" * 3000))])
    other.backup(tmp_path / "copy.db")
    other.close()
    return tmp_path / "copy.db"


def _refuses(folder: Path) -> str:
    """The sentence, after which everything is as it was."""
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    refusal = _refusal(SqliteStore(folder))
    assert refusal is not None
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before
    return refusal


def test_copy_beside_the_log_of_a_crashed_broker_is_refused_and_nothing_is_changed(
    crashed: Path, copy: Path
) -> None:
    store = (crashed / STORE_FILE).read_bytes()
    (crashed / STORE_FILE).write_bytes(copy.read_bytes())

    refusal = _refuses(crashed)
    assert refusal.startswith(
        f"{crashed / STORE_FILE}: is a copy, and nebula.db-wal next to it is the log of"
    )
    assert "move nebula.db-wal away and start again" in refusal
    # What it says to do, done: the one way, and the other.
    (crashed / "nebula.db-wal").rename(crashed / "away")
    assert lines(reloaded(lambda: SqliteStore(crashed))) == {"/queue/b": [message(7, b"x" * 3000)]}
    (crashed / "away").rename(crashed / "nebula.db-wal")
    (crashed / STORE_FILE).write_bytes(store)
    assert lines(reloaded(lambda: SqliteStore(crashed))) == {"/queue/a": [message(1), message(2)]}


def test_copy_beside_another_stores_shared_memory_alone_is_used(crashed: Path, copy: Path) -> None:
    (crashed / "nebula.db-wal").unlink()
    (crashed / STORE_FILE).write_bytes(copy.read_bytes())
    assert (crashed / "nebula.db-shm").exists()

    assert lines(reloaded(lambda: SqliteStore(crashed))) == {"/queue/b": [message(7, b"x" * 3000)]}


def test_copy_beside_an_empty_log_is_used(crashed: Path, copy: Path) -> None:
    (crashed / "nebula.db-wal").write_bytes(b"")
    (crashed / STORE_FILE).write_bytes(copy.read_bytes())

    assert lines(reloaded(lambda: SqliteStore(crashed))) == {"/queue/b": [message(7, b"x" * 3000)]}


@pytest.mark.parametrize("is_there", [False, True])
def test_log_without_its_store_is_not_thrown_away(crashed: Path, *, is_there: bool) -> None:
    (crashed / STORE_FILE).unlink()
    if is_there:
        (crashed / STORE_FILE).touch()  # as where a copy did not fit on the disk

    assert _refuses(crashed).startswith(
        f"{crashed / 'nebula.db-wal'}: is the log of a store whose nebula.db is missing"
    )


def test_broker_that_was_killed_on_a_copy_finds_what_it_wrote(tmp_path: Path, copy: Path) -> None:
    restored = tmp_path / "restored"
    restored.mkdir()
    copy.rename(restored / STORE_FILE)
    before = (restored / STORE_FILE).read_bytes()

    _crash(restored, tmp_path / "again", [put_message("/queue/b", message(8))])

    # Not one of its rows is in the file yet, which says nevertheless that there is a log.
    assert len((tmp_path / "again" / STORE_FILE).read_bytes()) == len(before)
    found = reloaded(lambda: SqliteStore(tmp_path / "again"))
    assert [each.number for each in lines(found)["/queue/b"]] == [7, 8]


def test_copy_on_which_a_broker_was_started_and_stopped_is_used_as_any_store(
    tmp_path: Path, copy: Path
) -> None:
    restored = tmp_path / "restored"
    restored.mkdir()
    copy.rename(restored / STORE_FILE)
    reloaded(lambda: SqliteStore(restored))

    _crash(restored, tmp_path / "again", [put_message("/queue/b", message(8))])
    found = reloaded(lambda: SqliteStore(tmp_path / "again"))
    assert [each.number for each in lines(found)["/queue/b"]] == [7, 8]


# --- the disk fails while the broker runs ---


FULL_DISK = """
import resource, signal, sys
from pathlib import Path
from nebula.broker.store.sqlite import SqliteStore
from nebula.broker.core.storage import StoredMessage
from nebula.testing.stored import put_message
from nebula.errors import StoreError

store = SqliteStore(Path(sys.argv[1]))
store.load()
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))
try:
    for batch in range(10_000):
        puts = [put_message("q", StoredMessage(batch * 5 + each, "q", (), b"x" * 3000)) for each in range(5)]
        store.apply(puts)
except StoreError as error:
    print(batch)
    print(error)
store.close()
"""


def test_file_that_may_not_grow_loses_nothing_that_was_applied(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FULL_DISK, str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
    applied, said = ended.stdout.splitlines()

    assert said.startswith(f"{tmp_path}/nebula.db: cannot be written, disk I/O error; see to the disk")
    store = SqliteStore(tmp_path)
    found = store.load()
    store.close()
    assert [one.number for one in found.lines["q"].first] == list(range(5 * int(applied)))
    assert (int(applied) > 0, found.is_clean) == (True, False)


def test_full_disk_is_named_and_room_made_lets_it_start_again(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path, connect=_limited)
    store.load()
    store.apply([put_message("q", message(1))])

    with pytest.raises(
        StoreError, match=r"cannot be written, database or disk is full; make room on the disk"
    ):
        store.apply([put_message("q", message(number, b"x" * 5000)) for number in range(2, 100)])
    store.close()
    found = reloaded(lambda: SqliteStore(tmp_path), [put_message("q", message(2))])
    assert lines(found) == {"q": [message(1), message(2)]}


def test_page_that_is_damaged_while_the_broker_runs_is_named_and_the_end_is_no_clean_one(
    tmp_path: Path,
) -> None:
    store = SqliteStore(tmp_path)
    store.load()
    store.apply([put_message("q", message(number, b"x" * 3000)) for number in range(1000)])
    store.close()
    store.load()
    _damage(tmp_path, "messages")

    with pytest.raises(StoreError, match=r"nebula\.db: cannot be read, .*; restore the folder from a backup"):
        store.page(PageRequest("q", 500, 600, 100, 1_000_000))
    store.close()
    with closing(sqlite3.connect(tmp_path / STORE_FILE)) as db:
        assert db.execute("SELECT is_clean FROM broker").fetchone() == (0,)


@pytest.mark.parametrize(
    "change",
    [
        "headers = '[1]'",
        "headers = '{'",
        "headers = '[]' || char(10) || '[]'",
        "body = 'ü'",
        "attempts = 'many'",
        "is_request = 'x'",
        "expires_at = 'soon'",
        "destination = x'ff'",
    ],
)
def test_row_of_a_page_that_makes_no_sense_is_refused_and_not_quoted(tmp_path: Path, change: str) -> None:
    _fill(tmp_path, messages=5)
    store = SqliteStore(tmp_path)
    store.load()
    _alter(tmp_path, f"UPDATE messages SET {change} WHERE number = 3")

    with pytest.raises(StoreError, match=r"nebula\.db: cannot be read, .*; restore the folder"):
        store.page(PageRequest("/queue/a", 0, 9, 9, 9999))
    store.close()


def test_page_is_read_while_a_batch_is_written(tmp_path: Path) -> None:
    pages: list[list[StoredMessage]] = []

    class Reading(sqlite3.Connection):
        def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
            if sql == "COMMIT" and parts:
                with ThreadPoolExecutor(1) as reader:
                    pages.append(reader.submit(parts[0].page, PageRequest("q", 0, 9, 9, 999)).result())
            return super().execute(sql, parameters)

    parts: list[SqliteStore] = []
    store = SqliteStore(tmp_path, connect=partial(sqlite3.connect, factory=Reading))
    store.load()
    store.apply([put_message("q", message(1))])
    parts.append(store)
    store.apply([put_message("q", message(2))])

    assert pages == [[message(1)]]
    assert store.page(PageRequest("q", 0, 9, 9, 999)) == [message(1), message(2)]
    parts.clear()
    store.close()


def test_free_room_is_that_of_the_folder(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    store.load()

    assert 0 < store.free_bytes() <= shutil.disk_usage(tmp_path).total
    store.close()


CHILD = """
import sys
from pathlib import Path
from nebula.broker.store.sqlite import SqliteStore
from nebula.broker.core.storage import StoredMessage
from nebula.testing.stored import put_message

store = SqliteStore(Path(sys.argv[1]))
store.load()
for begin in range(0, 1_000_000, 5):
    numbers = range(begin, begin + 5)
    store.apply([put_message("q", StoredMessage(number, "q", (), b"x" * 100)) for number in numbers])
    print(begin, flush=True)
"""


def test_what_was_applied_is_there_after_a_kill(tmp_path: Path) -> None:
    command = [sys.executable, "-c", CHILD, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        said = [next(child.stdout) for _ in range(30)]
        child.kill()
        said += child.stdout.read().splitlines()

    store = SqliteStore(tmp_path)
    found = store.load()
    store.close()
    kept = [one.number for one in found.lines["q"].first]
    # The kill may have come between a commit and its word; it never takes a part of a batch.
    assert kept == list(range(len(kept)))
    assert len(kept) % 5 == 0
    assert len(kept) >= 5 * len(said)
    assert (found.run, found.is_clean) == (1, False)


SHARING_CHILD = """
import sys
from pathlib import Path
from nebula.broker.store.sqlite import SqliteStore
from nebula.broker.core.storage import StoredMessage
from nebula.testing.stored import drop_message, drop_messages, put_shared, set_attempts

LINES = ("\\0c\\0a", "\\0c\\0b", "\\0c\\0c")
store = SqliteStore(Path(sys.argv[1]))
store.load()
for number in range(1, 1_000_000):
    writes = put_shared(LINES, StoredMessage(number, "/topic/t", (), b"x" * 9000))
    writes += [*drop_message(LINES[0], number - 1), *drop_message(LINES[1], number - 3)]
    writes += set_attempts(LINES[1], number, 1)
    if number % 5 == 0:
        writes += drop_messages(LINES[2], number - 10, number - 5)
    store.apply(writes)
    print(number, flush=True)
"""


@pytest.mark.parametrize("said", range(3, 23, 4))
def test_references_are_right_after_a_kill(tmp_path: Path, said: int) -> None:
    command = [sys.executable, "-c", SHARING_CHILD, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        for _ in range(said):
            next(child.stdout)
        child.kill()
        told = said + len(child.stdout.read().splitlines())

    with open_store(tmp_path) as opened:
        assert set(opened.check()) == {None}
    found = lines(reloaded(lambda: SqliteStore(tmp_path)))
    last = found["\0c\0a"][-1].number
    numbers = {line: [each.number for each in kept] for line, kept in found.items()}
    assert last in (told, told + 1)
    assert numbers == {
        "\0c\0a": [last],
        "\0c\0b": [*range(max(1, last - 2), last + 1)],
        "\0c\0c": [*range(max(1, last // 5 * 5 - 4), last + 1)],
    }
    assert _bodies(tmp_path) == sorted(set().union(*numbers.values()))


def _opener(statement: str) -> Callable[..., sqlite3.Connection]:
    """Opens a disk that fails at such a statement, and says so as SQLite does."""

    class Failing(sqlite3.Connection):
        def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
            if sql.startswith(statement):
                error = sqlite3.OperationalError("disk I/O error")
                error.sqlite_errorcode = sqlite3.SQLITE_IOERR
                raise error
            return super().execute(sql, parameters)

    return partial(sqlite3.connect, factory=Failing)


def _limited(*args: Any, **settings: Any) -> sqlite3.Connection:
    """Opens a file that may have few pages."""
    db: sqlite3.Connection = sqlite3.connect(*args, **settings)
    db.execute("PRAGMA max_page_count = 50")
    return db


def _damage(folder: Path, table: str) -> None:
    """Overwrite the root page of a table."""
    with closing(sqlite3.connect(folder / STORE_FILE)) as db:
        find = "SELECT rootpage, page_size FROM sqlite_master, pragma_page_size WHERE name = ?"
        [(page, size)] = db.execute(find, (table,))
    with (folder / STORE_FILE).open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xff" * size)


def _fill(folder: Path, *, messages: int) -> None:
    store = SqliteStore(folder)
    store.load()
    store.apply([put_message("/queue/a", message(number)) for number in range(messages)])
    store.apply([put_value(message(99, destination="X/a")), SESSION, SUBSCRIPTION, PENDING])
    store.close()


def _crash(folder: Path, image: Path, writes: list[Write]) -> None:
    """Leave in `image` what a broker leaves that is killed after this."""
    store = SqliteStore(folder)
    store.load()
    store.apply(writes)
    shutil.copytree(folder, image)
    store.close()


def _write_version_1(folder: Path) -> None:
    _write(folder, VERSION_1)


def _write(folder: Path, script: str) -> None:
    with closing(sqlite3.connect(folder / STORE_FILE)) as db:
        db.executescript(script)


def _refusal(store: Store) -> str | None:
    try:
        store.load()
    except StoreError as refusal:
        return str(refusal)
    finally:
        store.close()
    return None


def _alter(folder: Path, statement: str) -> None:
    db = sqlite3.connect(folder / STORE_FILE)
    db.execute(statement)
    db.commit()
    db.close()
