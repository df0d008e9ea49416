"""What a recorder and a spool write is readable by their owner alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from nebula.avro import encode
from nebula.record.sorting import Sorter
from nebula.record.spool import Spool
from nebula.record.status import RecorderStatus, write_status
from nebula.record.store import RecordStore, state_folder
from nebula.spark.source.bookmark import Bookmark
from tests.record.messages import READING, SCHEMAS, files, hidden, message


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


def modes(folder: Path) -> dict[str, str]:
    """What is not for its owner alone, by path."""
    found = [folder, *folder.rglob("*")]
    wanted = {path: 0o700 if path.is_dir() else 0o600 for path in found}
    actual = {path: path.stat().st_mode & 0o777 for path in found}
    return {str(path): oct(actual[path]) for path in found if actual[path] != wanted[path]}


def record(folder: Path, number: int) -> RecordStore:
    """A store with a file that readers see and one that is still open."""
    store = RecordStore(folder, Sorter(SCHEMAS.get))
    body = encode({"machine": "m", "turnover": number}, READING)
    store.take([(message(f"m{number}", body), 1_763_812_800_000)])
    store.sync()
    return store


def loosen(folder: Path) -> None:
    """As an earlier version left it, under a umask of 0."""
    for path in folder.rglob("*"):
        path.chmod(0o777 if path.is_dir() else 0o666)


@pytest.mark.usefixtures("umask")
def test_what_a_recorder_writes_is_for_its_owner_alone(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "recorded"
    store = record(folder, 1)
    write_status(state_folder(folder, "recorder"), RecorderStatus("recorder"))
    while_open = modes(tmp_path / "deep")
    store.finish()
    store.close()

    assert (while_open, modes(tmp_path / "deep")) == ({}, {})


@pytest.mark.usefixtures("umask")
def test_what_a_spool_holds_is_for_its_owner_alone(tmp_path: Path) -> None:
    with Spool(tmp_path / "deep" / "spool") as spool:
        spool.append("m1", b"\0")
        spool.sync()
        Bookmark(spool.folder).commit(1)

        assert modes(tmp_path / "deep") == {}


def test_files_that_a_recorder_goes_on_with_are_closed_to_others(tmp_path: Path) -> None:
    folder = tmp_path / "recorded"
    record(folder, 1).close()
    assert len(hidden(folder)) == 1
    loosen(folder)

    store = record(folder, 2)
    write_status(state_folder(folder, "recorder"), RecorderStatus("recorder"))
    store.close()

    assert len(files(folder)) == 1
    left = {Path(path).name for path in modes(folder)}
    assert left == {"_schema.avsc"}, "a schema is no message, and nobody writes to it again"


def test_segments_that_a_spool_goes_on_with_are_closed_to_others(tmp_path: Path) -> None:
    with Spool(tmp_path / "spool") as spool:
        spool.append("m1", b"\0")
        spool.sync()
    loosen(tmp_path / "spool")

    with Spool(tmp_path / "spool"):
        assert modes(tmp_path / "spool") == {}


def test_folder_that_was_there_before_stays_as_its_owner_made_it(tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o755)

    record(folder, 1).close()

    assert folder.stat().st_mode & 0o777 == 0o755
    assert set(modes(folder)) == {str(folder)}
