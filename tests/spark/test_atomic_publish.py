"""What is finished takes its name in one step, whatever had it before."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from pathlib import Path

import pytest

from nebula.rpc.jobs.registry import atomic_publish as placing
from nebula.rpc.jobs.registry.atomic_publish import place, restore


@pytest.fixture(params=["a step", "two renames"])
def where(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder where names can be traded, and one where they cannot, as on a network."""
    if request.param == "two renames":
        monkeypatch.setattr(placing, "_exchanged", lambda _one, _other: False)
    return tmp_path


def _folder(path: Path, text: str) -> Path:
    path.mkdir()
    (path / "part-0").write_text(text)
    return path


def test_folder_takes_the_name_of_one_that_has_files(where: Path) -> None:
    final, unfinished = _folder(where / "table", "old"), _folder(where / "table.new", "new")

    place(unfinished, final)

    assert (final / "part-0").read_text() == "new"
    assert list(where.iterdir()) == [final]


@pytest.mark.parametrize("before", [None, Path.touch, Path.mkdir])
def test_file_takes_a_name_whether_or_not_it_was_there(
    where: Path, before: Callable[[Path], None] | None
) -> None:
    final, unfinished = where / "report", where / "report.new"
    unfinished.write_text("new")
    if before:
        before(final)

    place(unfinished, final)

    assert final.read_text() == "new"
    assert list(where.iterdir()) == [final]


def test_folder_that_was_there_is_there_again_where_the_new_one_cannot_have_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placing, "_exchanged", lambda _one, _other: False)
    final = _folder(tmp_path / "table", "old")

    with pytest.raises(FileNotFoundError):
        place(tmp_path / "gone", final)

    assert (final / "part-0").read_text() == "old"


def test_folder_that_a_killed_place_left_aside_has_its_name_again(tmp_path: Path) -> None:
    final, aside = tmp_path / "table", _folder(tmp_path / "table.new.before", "old")
    unfinished = _folder(tmp_path / "table.new", "new")

    restore(aside, final)
    restore(unfinished, final)

    assert (final / "part-0").read_text() == "old"
    assert list(tmp_path.iterdir()) == [final]


def test_name_of_a_folder_is_never_without_a_whole_one(tmp_path: Path) -> None:
    final = _folder(tmp_path / "table", "0")
    spawn = multiprocessing.get_context("spawn")
    with spawn.Pool(1) as pool:
        looking = pool.apply_async(_look_until, (final, "200"))
        for number in range(1, 201):
            place(_folder(tmp_path / f"table.{number}", str(number)), final)

        assert looking.get(timeout=60) == 0


def _look_until(final: Path, last: str) -> int:
    """How often there was no such name, by when it has the last one."""
    missing = 0
    while True:
        missing += not final.exists()
        if _text(final) == last:
            return missing


def _text(final: Path) -> str:
    try:
        return (final / "part-0").read_text()
    except FileNotFoundError:
        return ""  # this one was just removed, under its other name
