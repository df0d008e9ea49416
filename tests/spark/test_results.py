"""Where the outputs of an attempt are written, before they are to be seen."""

from __future__ import annotations

import math
from pathlib import Path

from nebula.spark.host.results import Results


def mean() -> dict[str, float]:
    return {"mean": math.nan}


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
