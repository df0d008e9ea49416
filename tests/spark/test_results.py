"""Where the outputs of an attempt are written, before they are to be seen."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame

from nebula.rpc.jobs.context import Job
from nebula.rpc.jobs.placing import ASIDE
from nebula.rpc.jobs.unfinished import sweep
from nebula.rpc.signature import job_signature
from nebula.spark.host.results import Results


def results(folder: Path, attempt: int) -> Results:
    # Not in the folder itself: the tests look at what is there.
    return Results(folder, "J", attempt, max_rows=10, max_bytes=100, notes=notes_of(folder))


def notes_of(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}-notes")


def test_output_that_is_asked_for_again_keeps_what_was_written(tmp_path: Path) -> None:
    ours = results(tmp_path, 1)

    (ours.reserve(tmp_path / "table") / "part-0").parent.mkdir()
    (ours.reserve(tmp_path / "table") / "part-0").write_text("first")
    (ours.reserve(tmp_path / "table") / "part-1").write_text("second")
    ours.publish()

    assert sorted(path.name for path in (tmp_path / "table").iterdir()) == ["part-0", "part-1"]
    assert list(tmp_path.iterdir()) == [tmp_path / "table"]


def test_what_a_killed_attempt_left_is_gone_when_the_next_one_asks(tmp_path: Path) -> None:
    left = results(tmp_path, 1).reserve(tmp_path / "table")
    left.mkdir()
    (left / "part-0").write_text("half")

    results(tmp_path, 2).reserve(tmp_path / "table")

    assert list(tmp_path.iterdir()) == []


def _killed(folder: Path) -> None:
    """An attempt that writes at two places, and is killed in the middle."""
    ours = results(folder, 1)
    (left := ours.reserve(folder / "table")).mkdir()
    (left / "part-0").write_text("half")
    ours.reserve(folder / "elsewhere.csv").write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)


def _kill_one(folder: Path) -> None:
    process = multiprocessing.get_context("spawn").Process(target=_killed, args=(folder,))
    process.start()
    process.join(30)
    assert process.exitcode == -signal.SIGKILL


def test_what_a_killed_attempt_left_anywhere_is_swept(tmp_path: Path) -> None:
    _kill_one(tmp_path)
    (tmp_path / "table").write_text("of another one")
    before = len(list(tmp_path.iterdir()))

    removed = sweep(notes_of(tmp_path))

    assert (before, len(removed)) == (3, 2)
    assert [path.name for path in tmp_path.iterdir()] == ["table"]


def test_what_is_written_on_after_the_kill_is_swept_the_next_time(tmp_path: Path) -> None:
    _kill_one(tmp_path)
    (late,) = [path for path in sweep(notes_of(tmp_path)) if path.name.startswith("table")]
    late.mkdir()
    (late / "part-1").write_text("late")

    assert sweep(notes_of(tmp_path)) == [late]
    assert sweep(notes_of(tmp_path)) == []
    assert list(notes_of(tmp_path).iterdir()) == []


def test_what_an_attempt_that_lives_writes_is_not_swept(tmp_path: Path) -> None:
    ours = results(tmp_path, 1)
    written = ours.reserve(tmp_path / "table")
    written.write_text("half")

    assert sweep(notes_of(tmp_path)) == []
    ours.publish()
    ours.close()
    assert [path.name for path in tmp_path.iterdir()] == ["table"]
    assert list(notes_of(tmp_path).iterdir()) == []


def test_what_is_left_at_the_end_is_swept(tmp_path: Path) -> None:
    ours = results(tmp_path, 1)
    left = ours.reserve(tmp_path / "table")
    left.write_text("half")
    ours.close()

    assert sweep(notes_of(tmp_path)) == [left]


def test_what_was_replaced_by_two_renames_has_its_name_again(tmp_path: Path) -> None:
    ours = results(tmp_path, 1)
    unfinished = ours.reserve(tmp_path / "table")
    unfinished.with_name(unfinished.name + ASIDE).write_text("before")
    ours.close()

    sweep(notes_of(tmp_path))

    assert (tmp_path / "table").read_text() == "before"


def test_note_that_is_torn_or_forged_removes_nothing(tmp_path: Path) -> None:
    notes_of(tmp_path).mkdir()
    (mine := tmp_path / "mine").write_text("mine")
    forged = json.dumps([str(tmp_path / "a"), str(mine)])
    (notes_of(tmp_path) / "J.1").write_text(f'{forged}\n["{tmp_path}/a')

    assert sweep(notes_of(tmp_path)) == []
    assert mine.read_text() == "mine"


class _Statement(DataFrame):
    """What Spark gives for a statement that has no rows; it cannot be written as a table."""

    def __new__(cls) -> _Statement:
        return object.__new__(cls)

    def __init__(self) -> None: ...

    @property
    def columns(self) -> list[str]:
        return []


def _untyped(ctx: Job) -> Any: ...
def _as_table(ctx: Job) -> DataFrame: ...  # type: ignore[empty-body]
def _as_list(ctx: Job) -> list[dict[str, Any]]: ...  # type: ignore[empty-body]


@pytest.mark.parametrize(("function", "expected"), [(_untyped, None), (_as_table, None), (_as_list, [])])
def test_statement_that_a_job_returns_is_a_result_without_rows(
    tmp_path: Path, function: Callable[..., Any], expected: Any
) -> None:
    signature = job_signature(function, context=(Job,))

    output = results(tmp_path, 1).take(_Statement(), signature, function)

    assert (output.value, output.path) == (expected, None)
