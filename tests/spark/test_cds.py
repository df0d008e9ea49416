"""Which archive of Java's classes fits an engine, and what is kept of them."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nebula.spark import cds
from nebula.spark.java import Java

GIB = 1024**3


@pytest.fixture
def jars(tmp_path: Path) -> Path:
    (tmp_path / "jars").mkdir()
    for name in ("one.jar", "two.jar"):
        (tmp_path / "jars" / name).write_text(name)
    return tmp_path / "jars"


def path(jars: Path, **changes: Any) -> Path:
    """Of an archive for an engine that is as usual but for this."""
    home = jars.parent / "java"
    facts: dict[str, Any] = {"java": Java(home / "bin" / "java", "17.0.15", "PATH", home), "version": "4.3.0"}
    facts |= {"conf": {}, "heap_bytes": GIB} | changes
    return cds.archive_path(jars.parent, jars=jars, **facts)


def test_archive_is_named_after_what_it_fits(jars: Path) -> None:
    assert path(jars).name.startswith("spark-4.3.0-java-17.0.15-")
    assert path(jars) == path(jars)


@pytest.mark.parametrize(
    "changes",
    [
        {"version": "4.2.1"},
        {"java": Java(Path("/j/bin/java"), "17.0.16", "PATH", Path("/j"))},
        {"conf": {"spark.driver.extraJavaOptions": "-XX:+UseZGC"}},
        {"conf": {"spark.driver.extraClassPath": "/opt/mine.jar"}},
        {"heap_bytes": 40 * GIB},
    ],
)
def test_another_engine_has_another_archive(jars: Path, changes: dict[str, Any]) -> None:
    assert path(jars, **changes) != path(jars)


def test_other_jars_have_another_archive(jars: Path) -> None:
    before = path(jars)
    os.utime(jars / "one.jar", ns=(1, 1))
    touched = path(jars)
    (jars / "three.jar").touch()

    assert len({before, touched, path(jars)}) == 3


def test_settings_that_change_no_class_share_an_archive(jars: Path) -> None:
    assert path(jars, conf={"spark.sql.shuffle.partitions": "7"}, heap_bytes=2 * GIB) == path(jars)


def test_archive_that_was_set_aside_is_so_for_a_day(tmp_path: Path) -> None:
    archive = tmp_path / "some.jsa"
    archive.touch()
    cds.set_aside(archive, "Java refused it")

    assert cds.is_set_aside(archive)
    assert not archive.exists()
    os.utime(tmp_path / "some.unusable", (1, 1))
    assert not cds.is_set_aside(archive)


def test_archive_in_a_folder_that_cannot_be_written_is_set_aside_without_a_word(tmp_path: Path) -> None:
    cds.set_aside(tmp_path / "missing" / "some.jsa", "because")

    assert not cds.is_set_aside(tmp_path / "missing" / "some.jsa")


def _others_write(path: Path) -> None:
    path.chmod(0o777 if path.is_dir() else 0o664)


def _is_a_link(path: Path) -> None:
    other = path.with_name("other")
    path.rename(other)
    path.symlink_to(other)


@pytest.mark.parametrize("harm", [_others_write, _is_a_link])
@pytest.mark.parametrize("what", [".", "some.jsa", "some.base"])
def test_archive_that_others_could_have_written_is_distrusted(
    tmp_path: Path, what: str, harm: Callable[[Path], None]
) -> None:
    archive = tmp_path / "spark" / "some.jsa"
    archive.parent.mkdir(mode=0o700)
    for file in (archive, cds.base_of(archive)):
        file.touch(mode=0o644)
    before = cds.why_distrusted(archive)
    harm(archive.parent / what)

    assert before is None
    assert str(archive.parent / what) in str(cds.why_distrusted(archive))
    cds.set_aside(archive, "Java refused it")
    assert archive.exists()
    assert not cds.is_set_aside(archive)


def test_archive_of_another_user_is_distrusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "some.jsa"
    archive.touch()
    if os.getuid() == 0:
        # What is root's is trusted by all.
        os.chown(tmp_path, 12345, 12345)
    monkeypatch.setattr(os, "geteuid", lambda: 54321)

    assert cds.why_distrusted(archive) == f"{tmp_path} belongs to another user"


def test_archive_that_is_not_there_is_trusted(tmp_path: Path) -> None:
    assert cds.why_distrusted(tmp_path / "missing" / "some.jsa") is None


def test_archives_that_were_used_last_are_kept(tmp_path: Path) -> None:
    for number in range(6):
        (tmp_path / f"{number}.jsa").touch()
        os.utime(tmp_path / f"{number}.jsa", (number, number))
    cds.note_use(tmp_path / "0.jsa")
    cds.forget_old(tmp_path)

    assert sorted(one.name for one in tmp_path.glob("*.jsa")) == ["0.jsa", "3.jsa", "4.jsa", "5.jsa"]


def test_what_killed_makers_left_is_forgotten_with_the_old_archives(tmp_path: Path) -> None:
    for stem in ("kept", "aside", "making", "killed", "failed-long-ago"):
        cds.work_of(tmp_path / f"{stem}.jsa").mkdir()
        (tmp_path / f"{stem}.lock").touch()
        (tmp_path / f"{stem}.base").touch()
    for name in ("kept.jsa", "aside.unusable", "failed-long-ago.unusable"):
        (tmp_path / name).touch()
    os.utime(tmp_path / "failed-long-ago.unusable", (1, 1))
    with (tmp_path / "making.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        cds.forget_old(tmp_path)

    assert {one.stem for one in tmp_path.iterdir()} == {"kept", "aside", "making"}
    assert len(list(tmp_path.glob("making.*"))) == 3
