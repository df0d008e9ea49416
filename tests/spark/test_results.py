"""Where the outputs of an attempt are written, before they are to be seen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame

from nebula.rpc.jobs.context import Job
from nebula.rpc.signature import job_signature
from nebula.spark.host.results import Results


def results(folder: Path, attempt: int) -> Results:
    return Results(folder, "J", attempt, max_rows=10, max_bytes=100)


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
