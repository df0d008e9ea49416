"""A real archive of Java's classes: made, used, refused where it is damaged."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nebula.rpc.contract.job_runner import JobOutput
from nebula.spark import lines
from nebula.spark.class_archive import MAKER_COMMAND, ClassArchive
from nebula.spark.settings import EngineSettings
from tests.spark.engine import Engine, engine, living, until

# Two engines at a time, and Java writes for long.
pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(180)]


def _at_once(settings: EngineSettings, idle_seconds: Callable[[], float]) -> ClassArchive:
    """Makes the archive as soon as the engine is up, in the cache where all tests' engines look for it."""
    return ClassArchive(settings, idle_seconds, niceness=0, patience=0.0)


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with engine(tmp_path_factory.mktemp("archive"), archive=_at_once) as running:
        running.until_ready()
        yield running


def _archive() -> Path:
    (archive,) = Path(os.environ["NEBULA_CACHE"], "spark").glob("*.jsa")
    return archive


def _restart(spark: Engine) -> None:
    starts = spark.status()["starts"]
    spark.restart()
    until(lambda: spark.status()["starts"] > starts, "the engine is replaced")
    spark.until_ready()


@pytest.mark.timeout(600)
def test_next_engine_starts_from_the_archive_that_was_made(spark: Engine) -> None:
    until(lambda: spark.status()["archive"] in ("made", "failed", "used"), "there is an archive", seconds=590)
    _restart(spark)
    status = spark.status()

    assert status["archive"] == "used"
    assert str(_archive()) in Path(f"/proc/{status['jvm_pid']}/maps").read_text()
    assert spark.run_job("from archive", "count") == JobOutput(value=10)


def test_damaged_archive_is_refused_and_set_aside_and_jobs_run(
    spark: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    damaged = tmp_path / "cache" / "spark" / _archive().name
    damaged.parent.mkdir(parents=True)
    content = bytearray(_archive().read_bytes())
    middle = len(content) // 2
    content[middle : middle + 1000] = os.urandom(1000)
    damaged.write_bytes(content)
    monkeypatch.setenv("NEBULA_CACHE", str(tmp_path / "cache"))

    with engine(tmp_path) as other:
        other.until_ready()

        assert other.status()["archive"] == "refused"
        assert other.run_job("without", "count") == JobOutput(value=10)
        until(lambda: not damaged.exists(), "it is set aside")
    assert damaged.with_suffix(".unusable").read_text() == "Java refused it\n"


@pytest.mark.parametrize("place", ["/dev/null/no/folder.jsa"])
def test_maker_says_why_it_cannot_write(place: str, tmp_path: Path) -> None:
    ended = _make(Path(place), tmp_path)

    assert ended.returncode == 1
    assert "Not a directory" in ended.stderr


def test_maker_leaves_an_archive_that_another_one_makes_or_has_made(tmp_path: Path) -> None:
    archive = tmp_path / "some.jsa"
    archive.write_text("classes")
    ended = _make(archive, tmp_path)

    assert (ended.returncode, ended.stderr) == (0, "")
    assert archive.read_text() == "classes"


def test_maker_that_is_left_alone_ends(tmp_path: Path) -> None:
    maker = subprocess.Popen([*MAKER_COMMAND, "0", str(tmp_path / "some.jsa")], stdin=subprocess.PIPE)
    assert maker.stdin is not None
    maker.stdin.write(_configuration(tmp_path))
    maker.stdin.flush()
    until(lambda: (tmp_path / "some.work").exists(), "it has begun")
    maker.stdin.close()

    assert maker.wait(30) == 1
    assert not living("maker")


def _make(archive: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """What the maker does with a service that stays, until it ends."""
    reading, writing = os.pipe()
    os.write(writing, _configuration(folder))
    try:
        # Its input stays open: it would take the end of it for the end of its service.
        command = [*MAKER_COMMAND, "0", str(archive)]
        return subprocess.run(command, stdin=reading, capture_output=True, text=True, check=False, timeout=60)
    finally:
        os.close(reading)
        os.close(writing)


def _configuration(folder: Path) -> bytes:
    where = {"folder": "", "results": "", "master": "local[1]", "memory": "512m", "archives": str(folder)}
    limits = {"max_rows": 0, "max_result_bytes": 0, "cancel_grace": 0.0}
    said = lines.Configure(name="archive", incarnation="maker", conf={}, **where, **limits)  # type: ignore[arg-type]
    return lines.LineWriter().encode(said)
