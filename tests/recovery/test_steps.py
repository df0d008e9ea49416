"""The store is stopped, or fails, at every single step: it holds all of a batch then, or nothing of it."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from nebula.broker.store.sqlite import SqliteStore
from nebula.broker.store.tools import open_store
from nebula.errors import StoreError
from tests.recovery.scripted import BATCHES, kept_in, states, write_all

_STATES = states()


class _Stepping(sqlite3.Connection):
    """Tells of each statement before and after it is executed."""

    on_step: Callable[[str], None] = staticmethod(lambda _: None)

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        self.on_step(f"before {sql}")
        cursor = super().execute(sql, parameters)
        try:
            self.on_step(f"after {sql}")
        except BaseException:
            # An unfinished one would keep the file open and locked.
            cursor.close()
            raise
        return cursor


def _store(folder: Path, on_step: Callable[[str], None]) -> SqliteStore:
    stepping = type("Stepping", (_Stepping,), {"on_step": staticmethod(on_step)})
    return SqliteStore(folder, connect=partial(sqlite3.connect, factory=stepping))


# --- the end of the process: what is in the files at that moment is all there is ---


class _Photographer:
    """Copies the folder at each step, and notes how many batches must be in the copy."""

    def __init__(self, folder: Path, images: Path) -> None:
        self._folder = folder
        self._images = images
        self._is_loaded = False
        self._is_committed = False
        self.written = 0
        self.expected: list[int] = []

    def on_step(self, step: str) -> None:
        # As SIGKILL leaves it: the page cache is the kernel's and stays.
        shutil.copytree(self._folder, self.image(len(self.expected)))
        self._is_committed |= self._is_loaded and step == "after COMMIT"
        self.expected.append(self.written + self._is_committed)

    def on_written(self, count: int) -> None:
        self.written, self._is_loaded, self._is_committed = count, True, False

    def image(self, step: int) -> Path:
        return self._images / str(step)


@pytest.mark.parametrize("is_copy", [False, True])
def test_end_of_the_process_at_any_step_leaves_whole_batches(tmp_path: Path, *, is_copy: bool) -> None:
    photographer = _Photographer(tmp_path / "data", tmp_path / "images")
    if is_copy:
        # On which no broker has started: its first log must not be taken for another store's.
        with_nothing = SqliteStore(tmp_path / "empty")
        with_nothing.load()
        (tmp_path / "data").mkdir()
        with_nothing.backup(tmp_path / "data")
        with_nothing.close()
    store = _store(tmp_path / "data", photographer.on_step)
    write_all(store, photographer.on_written)
    steps = len(photographer.expected)
    store.close()

    assert photographer.written == len(BATCHES)
    assert steps > 4 * len(BATCHES)
    for step, count in enumerate(photographer.expected[:steps]):
        assert kept_in(photographer.image(step)) == _STATES[count], f"step {step}"
        assert _faults(photographer.image(step)) == [], f"step {step}"


def _faults(folder: Path) -> list[str]:
    with open_store(folder) as store:
        return [finding for finding in store.check() if finding is not None]


# --- an error of the disk ---


def _steps_of_a_whole_run(folder: Path) -> list[str]:
    seen: list[str] = []
    store = _store(folder, seen.append)
    write_all(store)
    store.close()
    return seen


@pytest.mark.slow
def test_error_at_any_step_is_told_and_leaves_whole_batches(tmp_path: Path) -> None:
    steps = _steps_of_a_whole_run(tmp_path / "whole")
    for at in range(len(steps)):
        folder = tmp_path / str(at)

        written, error = _run_into(folder, at)

        assert str(error).startswith(f"{folder / 'nebula.db'}: "), steps[at]
        # What was reported as failed may be there all the same, but whole.
        allowed = _STATES[written : written + 1 + (steps[at] == "after COMMIT")]
        assert kept_in(folder) in allowed, f"{steps[at]}, {written} batches written"
        assert _faults(folder) == [], steps[at]


def _run_into(folder: Path, at: int) -> tuple[int, StoreError]:
    """Write until the fault at step `at`: how many batches were written, and what was said of the next."""
    count = written = 0

    def on_step(step: str) -> None:
        nonlocal count
        count += 1
        if count == at + 1:
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR
            raise error

    def on_written(number: int) -> None:
        nonlocal written
        written = number

    store = _store(folder, on_step)
    try:
        write_all(store, on_written)
        store.close()
    except StoreError as error:
        with contextlib.suppress(StoreError):
            store.close()
        return written, error
    raise AssertionError("the error was not told")


def test_run_that_met_an_error_is_no_clean_one(tmp_path: Path) -> None:
    steps = _steps_of_a_whole_run(tmp_path / "whole")
    in_batches = [at for at, step in enumerate(steps) if step == "before COMMIT"][2:-1]
    assert len(in_batches) == len(BATCHES)
    for at in in_batches:
        folder = tmp_path / str(at)
        _run_into(folder, at)

        again = SqliteStore(folder)
        assert not again.load().is_clean
        again.close()


def test_disk_that_is_full_is_told_with_the_file_and_what_to_do(tmp_path: Path) -> None:
    class Small(sqlite3.Connection):
        """SQLite itself says that the disk is full above so many pages."""

        def __init__(self, *words: Any, **options: Any) -> None:
            super().__init__(*words, **options)
            self.execute("PRAGMA max_page_count = 40")

    written: list[int] = []
    store = SqliteStore(tmp_path, connect=partial(sqlite3.connect, factory=Small))
    with pytest.raises(
        StoreError, match=r"nebula\.db: cannot be written, database or disk is full; make room"
    ):
        write_all(store, written.append)
    store.close()

    assert written[-1] == 3
    assert kept_in(tmp_path) == _STATES[3]
