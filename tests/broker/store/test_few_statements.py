"""A batch and a page take few steps of SQLite: at each of them a thread may wait for the interpreter."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from nebula.broker.core.storage import PageRequest
from nebula.broker.store.sqlite import STORE_FILE, SqliteStore
from nebula.testing.stored import drop_message, lines, message, put_message

QUEUE = "/queue/a"
NUMBERS = range(1, 1001)
ROW = "a row"


def noting(steps: list[str]) -> Callable[..., sqlite3.Connection]:
    """Opens databases; a step is a statement that is executed or a row that is fetched."""

    class Cursor(sqlite3.Cursor):
        def fetchone(self) -> Any:
            steps.append(ROW)
            return super().fetchone()

        def fetchmany(self, size: int | None = 1) -> list[Any]:
            rows = super().fetchmany(size)
            steps.extend(ROW for _ in rows)
            return rows

        def fetchall(self) -> list[Any]:
            rows = super().fetchall()
            steps.extend(ROW for _ in rows)
            return rows

        def __next__(self) -> Any:
            steps.append(ROW)
            return super().__next__()

    class Connection(sqlite3.Connection):
        def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
            steps.append(sql)
            return self.cursor(Cursor).execute(sql, parameters)

        def executemany(self, sql: str, parameters: Any, /) -> sqlite3.Cursor:
            rows = list(parameters)
            steps.extend(sql for _ in rows)
            return super().executemany(sql, rows)

    return partial(sqlite3.connect, factory=Connection)


def test_batch_of_many_rows_is_few_statements(tmp_path: Path) -> None:
    steps: list[str] = []
    store = SqliteStore(tmp_path, connect=noting(steps))
    store.load()
    # Each second one, as a run of drops is one range.
    odd = [write for number in NUMBERS[::2] for write in drop_message(QUEUE, number)]
    for writes in ([put_message(QUEUE, message(number)) for number in NUMBERS], odd):
        steps.clear()
        store.apply(writes)
        # 512, 256, 128, 64, 32 and 8 rows at most; and BEGIN and COMMIT.
        assert 2 < len(steps) <= 8
    store.close()

    again = SqliteStore(tmp_path)
    kept = lines(again.load())[QUEUE]
    again.close()
    assert [each.number for each in kept] == list(NUMBERS[1::2])


def test_headers_on_disk_are_a_json_list_of_pairs(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    store.load()
    store.apply([put_message(QUEUE, message(1))])
    store.close()

    with closing(sqlite3.connect(tmp_path / STORE_FILE)) as db:
        (text,) = db.execute("SELECT headers FROM messages").fetchone()
    assert json.loads(text) == [list(pair) for pair in message(1).headers]


@pytest.mark.parametrize("are_alike", [True, False])
def test_page_of_many_messages_is_two_rows(tmp_path: Path, are_alike: bool) -> None:
    steps: list[str] = []
    messages = [message(number, b"%d" % number) for number in NUMBERS]
    if not are_alike:
        messages = [each._replace(attempts=each.number % 2) for each in messages]
    store = SqliteStore(tmp_path, connect=noting(steps))
    store.load()
    store.apply([put_message(QUEUE, each) for each in messages])
    steps.clear()

    page = store.page(PageRequest(QUEUE, 0, NUMBERS[-1], len(NUMBERS), 1 << 20))

    assert page == messages
    assert (steps.count(ROW), len(steps)) == (2, 4)
    store.close()
