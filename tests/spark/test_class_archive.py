"""The archive of Java's classes is made once, in the background; a program pretends to make it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from nebula.spark import Spark, lines
from nebula.spark.cds import is_set_aside
from nebula.spark.class_archive import MAKER_COMMAND, ClassArchive
from nebula.spark.lines import ArchiveState
from nebula.spark.processes import MARKER
from tests.own_logs import own_logs

pytestmark = pytest.mark.anyio

# Reads what it is told, as the real one does, and writes the archive's path into a file beside it.
MAKER = """
import os, pathlib, sys
archive = pathlib.Path(sys.argv[-1])
line = sys.stdin.buffer.readline()
assert b'"line":"configure"' in line
{then}
"""
MAKES = "archive.write_text('classes')"
WAITS = "archive.with_suffix('.pid').write_text(os.environ['NEBULA_ENGINE']); sys.stdin.buffer.read()"
FAILS = "sys.exit('no room left')"


def maker(then: str) -> Sequence[str]:
    return [sys.executable, "-c", MAKER.format(then=then)]


def class_archive(folder: Path, then: str, idle: float = 100.0) -> ClassArchive:
    return ClassArchive(Spark(), lambda: idle, command=maker(then), folder=folder, patience=0.01)


def ready(archive: Path, state: ArchiveState = "missing") -> lines.Ready:
    return lines.Ready("4.3.0", "Java 17", 1, 2.0, str(archive), state)


@asynccontextmanager
async def at_work(one: ClassArchive) -> AsyncIterator[None]:
    with anyio.fail_after(20):
        async with anyio.create_task_group() as group:
            group.start_soon(one.run)
            yield
            group.cancel_scope.cancel()


async def until(one: ClassArchive, state: str) -> None:
    while one.state != state:
        await anyio.sleep(0.01)


async def test_missing_archive_is_made(tmp_path: Path) -> None:
    archive, one = tmp_path / "some.jsa", class_archive(tmp_path, MAKES)
    async with at_work(one):
        one.hear(ready(archive))
        await until(one, "made")

    assert archive.read_text() == "classes"


@pytest.mark.parametrize("state", ["used", "unused", "off"])
async def test_archive_that_is_not_missed_is_not_made(tmp_path: Path, state: ArchiveState) -> None:
    archive, one = tmp_path / "some.jsa", class_archive(tmp_path, MAKES)
    async with at_work(one):
        one.hear(ready(archive, state))
        await anyio.wait_all_tasks_blocked()

    assert one.state == state
    assert not archive.exists()


async def test_archive_that_others_could_have_written_is_neither_used_nor_made_and_the_log_says_why(
    tmp_path: Path,
) -> None:
    archive, one = tmp_path / "some.jsa", class_archive(tmp_path, MAKES)
    archive.write_text("whose?")
    archive.chmod(0o666)
    with own_logs() as log:
        async with at_work(one):
            one.hear(ready(archive, "distrusted"))
            await anyio.wait_all_tasks_blocked()

    assert one.state == "distrusted"
    assert [entry["reason"] for entry in log] == [f"others can write to {archive}: chmod go-w"]
    assert archive.read_text() == "whose?"


def test_maker_writes_to_no_folder_that_others_can_write_to(tmp_path: Path) -> None:
    folder, victim = tmp_path / "spark", tmp_path / "victim"
    victim.write_text("dear")
    folder.mkdir()
    folder.chmod(0o777)
    (folder / "some.lock").symlink_to(victim)
    configure = lines.Configure("a", "none", "", "", "local[1]", "1g", {}, 0, 0, 0.0)
    command = [*MAKER_COMMAND, "0", str(folder / "some.jsa")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as maker:
        assert maker.stdin is not None
        assert maker.stderr is not None
        maker.stdin.write(lines.LineWriter().encode(configure))
        maker.stdin.flush()
        said = maker.stderr.read().decode()

    assert maker.returncode == 1
    assert f"others can write to {folder}: chmod go-w" in said
    assert victim.read_text() == "dear"
    assert [path.name for path in folder.iterdir()] == ["some.lock"]


async def test_nothing_is_made_while_the_engine_works(tmp_path: Path) -> None:
    archive, one = tmp_path / "some.jsa", class_archive(tmp_path, MAKES, idle=0.0)
    async with at_work(one):
        one.hear(ready(archive))
        await anyio.wait_all_tasks_blocked()

    assert one.state == "missing"


async def test_maker_that_fails_is_left_alone_for_a_day_and_the_engine_is_none_the_worse(
    tmp_path: Path,
) -> None:
    archive, one = tmp_path / "some.jsa", class_archive(tmp_path, FAILS)
    async with at_work(one):
        one.hear(ready(archive))
        await until(one, "failed")

    assert is_set_aside(archive)
    assert (tmp_path / "some.unusable").read_text() == "no room left\n"


async def test_maker_that_cannot_be_started_is_no_more_than_that(tmp_path: Path) -> None:
    one = ClassArchive(Spark(), lambda: 100.0, command=["/nowhere/maker"], folder=tmp_path, patience=0.01)
    async with at_work(one):
        one.hear(ready(tmp_path / "some.jsa"))
        await until(one, "failed")


async def test_maker_that_another_service_was_quicker_than_is_no_failure(tmp_path: Path) -> None:
    one = class_archive(tmp_path, "pass")
    async with at_work(one):
        one.hear(ready(tmp_path / "some.jsa"))
        await until(one, "elsewhere")

    assert not is_set_aside(tmp_path / "some.jsa")


async def test_refused_archive_is_set_aside(tmp_path: Path) -> None:
    archive, one = tmp_path / "some.jsa", class_archive(tmp_path, MAKES)
    archive.write_text("damaged")
    async with at_work(one):
        one.hear(ready(archive, "refused"))
        while archive.exists():
            await anyio.sleep(0.01)
        # A next start misses it, and nobody makes it again.
        one.hear(ready(archive, "missing"))
        await anyio.wait_all_tasks_blocked()

    assert not archive.exists()


async def test_archive_without_which_alone_the_engine_starts_is_set_aside(tmp_path: Path) -> None:
    archive, one = tmp_path / "some.jsa", class_archive(tmp_path, MAKES)
    archive.write_text("deadly")
    async with at_work(one):
        one.hear(ready(archive, "unused"), suspects_it=True)
        while archive.exists():
            await anyio.sleep(0.01)

    assert is_set_aside(archive)


async def test_maker_ends_with_its_service(tmp_path: Path) -> None:
    archive, one = tmp_path / "some.jsa", class_archive(tmp_path, WAITS)
    async with at_work(one):
        one.hear(ready(archive))
        mark = tmp_path / "some.pid"
        while not (mark.exists() and mark.read_text()):
            await anyio.sleep(0.01)
        incarnation = mark.read_text()

    assert [one for one in Path("/proc").glob("[0-9]*") if _bears(one, incarnation)] == []


@pytest.mark.parametrize("spark", [Spark(cds=False), Spark(remote="sc://localhost:15002")])
async def test_engine_that_wants_none_has_no_folder_for_archives(spark: Spark) -> None:
    assert ClassArchive(spark, lambda: 0.0).folder is None


async def test_archives_are_kept_in_the_cache_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NEBULA_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    of_user = ClassArchive(Spark(), lambda: 0.0).folder
    monkeypatch.setenv("NEBULA_CACHE", str(tmp_path / "mine"))

    assert of_user == tmp_path / "nebula" / "spark"
    assert ClassArchive(Spark(), lambda: 0.0).folder == tmp_path / "mine" / "spark"


def _bears(process: Path, incarnation: str) -> bool:
    try:
        return f"{MARKER}={incarnation}".encode() in (process / "environ").read_bytes()
    except OSError:
        return False
