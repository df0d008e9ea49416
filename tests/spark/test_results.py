"""Where the outputs of an attempt are written, before they are to be seen."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from nebula.rpc.jobs import Job
from nebula.rpc.jobs.verb import JobVerb
from nebula.rpc.signature import job_signature
from nebula.spark.failures import ResultError
from nebula.spark.host.results import Results


def mean() -> dict[str, float]:
    return {"mean": math.nan}


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


def test_value_that_is_not_what_the_job_declares_is_refused_with_its_place(tmp_path: Path) -> None:
    with pytest.raises(ResultError, match="mean: Input should be a finite number") as caught:
        results(tmp_path, 1).take(mean(), job_signature(mean, context=(Job,)), mean)

    assert caught.value.code == "bad-result"


def test_job_may_leave_its_results_unchecked_in_the_engine_too(tmp_path: Path) -> None:
    def loose() -> dict[str, float]:
        return {"mean": math.nan}

    JobVerb("loose", loose, engine="default", validate_results=False)

    output = results(tmp_path, 1).take(loose(), job_signature(loose, context=(Job,)), loose)

    assert output.value == {"mean": None}
