"""Check, compact, export and import of stores that no broker runs on."""

from __future__ import annotations

import json
import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from nebula.broker.core.storage import StoredMessage
from nebula.broker.core.tables import DuplicateRow, Write
from nebula.broker.store.sqlite import STORE_FILE, SqliteStore
from nebula.broker.store.tools import back_up_store, import_lines, open_store
from nebula.errors import StoreError
from nebula.testing.stored import (
    PENDING,
    SESSION,
    SUBSCRIPTION,
    drop_messages,
    message,
    put,
    put_delayed,
    put_message,
    put_shared,
    put_value,
    reloaded,
)

ODD = StoredMessage(
    7,
    "/queue/ü:\n",
    (("a", ""), ("a", "twice"), ("q", '" \\ \t\n')),
    bytes(range(256)),
    1.75e9 + 1 / 3,
    3,
    True,
)
ROWS: list[Write] = [
    put_message("/queue/DLQ", ODD),
    put_message("/queue/a", message(8, "grün\n".encode())),
    put_message("/queue/a", message(9, b"")),
    put_delayed(message(10), 2e9 + 0.1),
    put(DuplicateRow("/queue/a", "alice", "id", 2e9)),
    put_value(message(11, destination="X/a")),
    SESSION,
    SUBSCRIPTION,
    PENDING,
    *put_shared(("\0till-1\0a", "\0till-1\0b"), message(12, b"\x00shared")),
]
ROW_COUNT = len(ROWS)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A store that was closed well."""
    store = SqliteStore(tmp_path / "data")
    store.load()
    store.apply(ROWS)
    store.close()
    return tmp_path / "data"


def _exported(folder: Path) -> list[str]:
    with open_store(folder) as store:
        return list(store.lines())


def _findings(folder: Path) -> list[str]:
    with open_store(folder) as store:
        return [finding for finding in store.check() if finding is not None]


def _alter(folder: Path, *statements: str) -> None:
    with closing(sqlite3.connect(folder / STORE_FILE, isolation_level=None)) as db:
        for statement in statements:
            db.execute(statement)


# --- who may ---


def test_store_on_which_a_broker_runs_is_refused(folder: Path) -> None:
    store = SqliteStore(folder)
    store.load()

    with pytest.raises(
        StoreError, match=f"^{folder}: another broker keeps its messages there .pid {os.getpid()}.; stop"
    ):
        _findings(folder)
    store.close()
    assert _findings(folder) == []


def test_broker_is_refused_while_a_tool_is_at_work(folder: Path) -> None:
    with open_store(folder), pytest.raises(StoreError, match="another broker keeps its messages there"):
        SqliteStore(folder).load()


def test_folder_without_a_store_is_named_and_left_alone(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"nowhere/nebula\.db: there is no store"):
        _findings(tmp_path / "nowhere")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("version", "what"), [(1, "start a broker on it"), (99, "use a newer one")])
def test_store_of_another_version_is_refused(folder: Path, version: int, what: str) -> None:
    _alter(folder, f"PRAGMA user_version = {version}")

    with pytest.raises(StoreError, match=f"its tables are of version {version}, and this .*; {what}"):
        _exported(folder)


def test_files_that_others_could_read_are_theirs_no_more(folder: Path) -> None:
    (folder / STORE_FILE).chmod(0o644)

    assert _findings(folder) == []
    assert {stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()} == {0o600}


def test_copy_of_a_store_that_others_could_read_leaves_it_private(folder: Path, tmp_path: Path) -> None:
    (folder / STORE_FILE).chmod(0o644)
    copy = tmp_path / "copy.db"

    for _ in range(2):
        back_up_store(folder, copy, lambda _: None)
        modes = {stat.S_IMODE(file.stat().st_mode) for file in (*folder.iterdir(), copy)}
        assert modes == {0o600}
        copy.chmod(0o644)


def test_tools_keep_away_from_a_copy_beside_the_log_of_another_store(folder: Path, tmp_path: Path) -> None:
    exported = _exported(folder)
    back_up_store(folder, tmp_path / "copy.db", lambda _: None)
    running = SqliteStore(folder)
    running.load()
    log = (folder / f"{STORE_FILE}-wal").read_bytes()
    running.close()
    assert log
    (tmp_path / "copy.db").replace(folder / STORE_FILE)
    (folder / f"{STORE_FILE}-wal").write_bytes(log)
    before = (folder / STORE_FILE).read_bytes()

    for use in (
        _findings,
        _exported,
        lambda folder: back_up_store(folder, tmp_path / "x.db", lambda _: None),
    ):
        with pytest.raises(
            StoreError, match=r"nebula\.db: is a copy, and nebula\.db-wal next to it is the log"
        ):
            use(folder)
    assert ((folder / STORE_FILE).read_bytes(), (folder / f"{STORE_FILE}-wal").read_bytes()) == (before, log)
    (folder / STORE_FILE).unlink()
    with pytest.raises(StoreError, match=r"nebula\.db-wal: is the log of a store whose"):
        import_lines(folder, exported)
    assert (folder / f"{STORE_FILE}-wal").read_bytes() == log


def test_import_is_for_one_user_alone_with_any_umask(folder: Path, tmp_path: Path) -> None:
    exported = _exported(folder)
    before = os.umask(0)
    try:
        import_lines(tmp_path / "new", exported)
    finally:
        os.umask(before)

    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in (tmp_path / "new").iterdir()} == {0o600}


# --- check ---


def test_sound_store_has_no_findings_and_each_row_is_looked_at(folder: Path) -> None:
    with open_store(folder) as store:
        assert list(store.check()) == [None] * ROW_COUNT
        assert sum(store.counts().values()) == ROW_COUNT


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        (
            "UPDATE messages SET headers = '[1]' WHERE number = 8",
            "messages, row 2: headers is no list of pairs",
        ),
        ("UPDATE messages SET headers = 'secret' WHERE number = 8", "messages, row 2: headers holds no JSON"),
        ("UPDATE messages SET body = 'secret' WHERE number = 8", "messages, row 2: body is no BLOB"),
        ("UPDATE pending SET destinations = '[[]]'", "pending, row 1: destinations is no list of texts"),
        ("UPDATE messages SET attempts = 'x' WHERE number = 9", "messages, row 3: attempts is no INTEGER"),
        (
            "UPDATE messages SET number = 9 << 42 WHERE number = 9",
            "1 in messages with a number that is still to be given out",
        ),
        (
            "UPDATE last_values SET number = 9 << 42",
            "1 in last_values with a number that is still to be given out",
        ),
        ("DELETE FROM sessions", "1 durable subscriptions without their session"),
        ("DELETE FROM subscriptions", "1 pending rows without their durable subscription"),
        ("DELETE FROM broker", "the table broker has 0 rows"),
        ("DELETE FROM bodies", "2 shared messages without their body"),
        (
            "INSERT INTO bodies SELECT 13, destination, headers, body, expires_at, is_request FROM bodies",
            "1 bodies that no shared message refers to",
        ),
        (
            "UPDATE shared_messages SET line = '/queue/a' WHERE rowid = 2",
            "1 shared messages in lines of queues, which share nothing",
        ),
        (
            "INSERT INTO messages SELECT line, 12, '', '[]', x'', NULL, 0, 0 FROM shared_messages LIMIT 1",
            "1 messages that are in their line twice",
        ),
        ("DROP TRIGGER unused_bodies", "1 missing trigger, which drops bodies with their last message"),
        (
            "UPDATE shared_messages SET attempts = 'x' WHERE rowid = 2",
            "shared_messages, row 2: attempts is no",
        ),
        ("UPDATE bodies SET body = 'secret'", "bodies, row 12: body is no BLOB"),
    ],
)
def test_what_is_wrong_is_found_and_not_quoted(folder: Path, change: str, finding: str) -> None:
    _alter(folder, change)

    (found,) = _findings(folder)
    assert finding in found
    assert "secret" not in found


def test_damaged_page_is_a_finding_and_the_other_tables_are_looked_at(folder: Path) -> None:
    with closing(sqlite3.connect(folder / STORE_FILE)) as db:
        [(page,)] = db.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = 'sqlite_autoindex_messages_1'"
        )
    with (folder / STORE_FILE).open("r+b") as file:
        file.seek((page - 1) * 4096)
        file.write(b"\xff" * 4096)
    _alter(folder, "DELETE FROM sessions")

    found = _findings(folder)
    assert any("messages: the rest cannot be read" in finding for finding in found)
    assert "1 durable subscriptions without their session" in found


def test_check_gives_up_after_a_hundred_findings(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    store.load()
    store.apply([put_message("a", message(number)) for number in range(1, 200)])
    store.close()
    _alter(tmp_path, "UPDATE messages SET headers = '{}'")

    assert len(_findings(tmp_path)) == 100


# --- compact ---


def test_compacting_gives_room_back_and_keeps_every_row(folder: Path) -> None:
    store = SqliteStore(folder)
    store.load()
    store.apply([put_message("big", message(number, b"x" * 4000)) for number in range(20, 220)])
    store.apply([*drop_messages("big", 0, 220)])
    store.close()
    rows = _exported(folder)[1:]

    with open_store(folder) as opened:
        before, after = opened.compact()

    assert before > 800_000
    assert after == (folder / STORE_FILE).stat().st_size < 200_000
    assert _exported(folder)[1:] == rows
    assert _findings(folder) == []


# --- export and import ---


def test_export_of_an_imported_export_is_the_same(folder: Path, tmp_path: Path) -> None:
    exported = _exported(folder)

    assert import_lines(tmp_path / "new", exported) == ROW_COUNT
    assert _exported(tmp_path / "new") == exported
    assert _findings(tmp_path / "new") == []


def test_imported_store_holds_all_and_begins_an_incarnation_of_its_own(folder: Path, tmp_path: Path) -> None:
    import_lines(tmp_path / "new", _exported(folder))

    found, expected = (reloaded(partial(SqliteStore, each)) for each in (tmp_path / "new", folder))
    assert found.incarnation != expected.incarnation
    assert (found.lines, found.delayed, found.duplicates) == (
        expected.lines,
        expected.delayed,
        expected.duplicates,
    )
    assert (found.values, found.sessions) == (expected.values, expected.sessions)
    assert (found.subscriptions, found.pending) == (expected.subscriptions, expected.pending)
    assert (found.first_number, found.is_clean) == (expected.first_number, True)


def test_export_is_readable(folder: Path) -> None:
    head, *rows, end = map(json.loads, _exported(folder))

    assert head == {
        "table": "broker",
        "version": 4,
        "incarnation": head["incarnation"],
        "runs": 1,
        "is_clean": 1,
    }
    assert end == {"table": "end", "rows": ROW_COUNT}
    assert rows[1] == {
        "table": "messages",
        "line": "/queue/a",
        "number": 8,
        "destination": "/queue/a",
        "headers": [["content-type", "text/plain"], ["sender", "alice"]],
        "body": "grün\n",
        "expires_at": None,
        "attempts": 0,
        "is_request": 0,
    }
    assert set(rows[0]) - set(rows[1]) == {"body_base64"}


def _without(name: str) -> Any:
    def change(row: dict[str, Any]) -> None:
        del row[name]

    return change


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (_without("number"), "it has no number"),
        (_without("body"), "it has to have body or body_base64"),
        (lambda row: row.update(table="sqlite_master"), "it names none of our tables"),
        (lambda row: row.update(more=1), "it has a field that its table has not"),
        (lambda row: row.update(number="8"), "number is no INTEGER"),
        (lambda row: row.update(number=1 << 70), "too large"),
        (lambda row: row.update(is_request=True), "is_request is no INTEGER"),
        (lambda row: row.update(line=None), "line is missing"),
        (lambda row: row.update(headers={}), "headers is no list of pairs of texts"),
        (lambda row: row.update(body_base64=""), "it has to have body or body_base64"),
        (lambda row: row.update(line="/queue/DLQ", number=7), "UNIQUE constraint failed"),
    ],
)
def test_wrong_line_is_named_and_nothing_is_imported(
    folder: Path, tmp_path: Path, change: Any, fault: str
) -> None:
    lines = _exported(folder)
    row = json.loads(lines[2])
    change(row)
    lines[2] = json.dumps(row)

    with pytest.raises(StoreError, match=f"^line 3: is no line of an export, .*{fault}"):
        import_lines(tmp_path / "new", lines)
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["lock"]


@pytest.mark.parametrize(
    ("head", "fault"),
    [
        ("{}", "it has to say first what it is an export of"),
        ("[]", "it has to say first what it is an export of"),
        ("{", "it is no JSON"),
        ('{"table": "broker", "version": 1}', "it is of version 1"),
        ('{"table": "broker", "version": 5}', "it is of version 5"),
    ],
)
def test_wrong_head_is_refused(folder: Path, tmp_path: Path, head: str, fault: str) -> None:
    lines = [head, *_exported(folder)[1:]]

    with pytest.raises(StoreError, match=f"^line 1: is no line of an export, {fault}"):
        import_lines(tmp_path / "new", lines)


def test_export_that_was_cut_is_refused(folder: Path, tmp_path: Path) -> None:
    lines = _exported(folder)

    with pytest.raises(StoreError, match="the export has no last line"):
        import_lines(tmp_path / "new", lines[:-1])
    with pytest.raises(StoreError, match="it says that there are other than the 11 rows so far"):
        import_lines(tmp_path / "new", [*lines[:3], *lines[4:]])


def test_export_whose_numbers_are_still_to_be_given_out_is_refused(folder: Path, tmp_path: Path) -> None:
    lines = _exported(folder)
    lines[0] = lines[0].replace('"runs":1', '"runs":0')

    with pytest.raises(StoreError, match="the export cannot be right, 3 in messages with a number"):
        import_lines(tmp_path / "new", lines)


def test_export_of_the_version_before_is_imported(folder: Path, tmp_path: Path) -> None:
    head, *rows, end = _exported(folder)
    old = [row for row in rows if json.loads(row)["table"] not in ("shared_messages", "bodies")]
    head, end = head.replace('"version":3', '"version":2'), end.replace(str(len(rows)), str(len(old)))

    assert import_lines(tmp_path / "new", [head, *old, end]) == len(old)
    assert _exported(tmp_path / "new")[1:-1] == old


@pytest.mark.parametrize("table", ["bodies", "shared_messages"])
def test_export_that_lacks_a_body_or_what_refers_to_it_is_refused(
    folder: Path, tmp_path: Path, table: str
) -> None:
    head, *rows, end = _exported(folder)
    left = [row for row in rows if json.loads(row)["table"] != table]

    with pytest.raises(StoreError, match=r"the export cannot be right, . (bodies|shared messages)"):
        import_lines(tmp_path / "new", [head, *left, end.replace(str(len(rows)), str(len(left)))])


def test_nothing_is_imported_over_a_store(folder: Path) -> None:
    lines = _exported(folder)

    with pytest.raises(StoreError, match=r"nebula\.db: is there already; move it away"):
        import_lines(folder, lines)
    assert _exported(folder) == lines


def test_import_that_is_broken_off_leaves_no_store(folder: Path, tmp_path: Path) -> None:
    def cut() -> Iterator[str]:
        yield from _exported(folder)[:3]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        import_lines(tmp_path / "new", cut())
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["lock"]


def test_row_that_makes_no_sense_ends_an_export_with_its_place(folder: Path) -> None:
    _alter(folder, "UPDATE messages SET headers = 'secret' WHERE number = 8")

    with pytest.raises(StoreError, match=r"nebula\.db: messages, row 2: headers holds no JSON; see what"):
        _exported(folder)
