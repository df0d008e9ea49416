"""How long a Spark session takes to be there, with an archive of Java's classes and without: in pairs.

    python -m benchmarks.engine_start --pairs 5

The first pair is not counted: it makes the archive, in a folder of its own, and warms the disk's cache.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

import anyio
import psutil

from nebula.rpc.contract.job_runner import JobTask
from nebula.spark import Spark, SparkRunner
from nebula.spark.class_archive import ClassArchive
from tests.spark.told import Told, running

_PATIENCE_SECONDS = 600.0


class Start(NamedTuple):
    """One start, in seconds: until the session is up, its JVM's processor time by then, and the first job.

    The processor time is what remains comparable on a busy machine.
    """

    session: float
    jvm_cpu: float
    first_job: float


async def measure(pairs: int, folder: Path) -> dict[bool, list[Start]]:
    """Starts with the archive (True) and without (False), in turns, so that both see the same machine."""
    archives = folder / "archives"
    await _make(folder / "first", archives)
    starts: dict[bool, list[Start]] = {True: [], False: []}
    for number in range(pairs):
        for with_archive in (True, False):
            place = folder / f"{number}-{with_archive}"
            starts[with_archive].append(await _start(place, archives if with_archive else None))
    return starts


async def _make(folder: Path, archives: Path) -> None:
    runner, told = _runner(folder, archives), Told()
    async with running(runner, told, seconds=_PATIENCE_SECONDS):
        while runner.status()["archive"] not in ("made", "failed"):
            await anyio.sleep(0.1)
        assert runner.status()["archive"] == "made", "see the log"


async def _start(folder: Path, archives: Path | None) -> Start:
    runner, told = _runner(folder, archives), Told()
    async with running(runner, told, seconds=_PATIENCE_SECONDS):
        while runner.status()["state"] != "ready":
            await anyio.sleep(0.01)
        status = runner.status()
        assert status["archive"] == ("off" if archives is None else "used")
        cpu = psutil.Process(status["jvm_pid"]).cpu_times()
        began = time.monotonic()
        runner.submit(JobTask("first", 1, "count", "tests.spark.jobs:count", {}, None))
        await told.until("first", "done")
        return Start(status["start_seconds"], cpu.user + cpu.system, time.monotonic() - began)


def _runner(folder: Path, archives: Path | None) -> SparkRunner:
    spark = Spark(master="local[2]", memory="1g", cds=archives is not None)
    return SparkRunner(
        spark, folder, "benchmark", archive=lambda *given: ClassArchive(*given, folder=archives, niceness=0)
    )


def report(starts: dict[bool, list[Start]]) -> str:
    """The medians, and how often the archive won."""
    lines = []
    for what in Start._fields:
        used, plain = ([getattr(start, what) for start in starts[each]] for each in (True, False))
        won = sum(one < other for one, other in zip(used, plain, strict=True))
        lines.append(
            f"{what:<10} {_range(used)} with, {_range(plain)} without; quicker in {won} of {len(used)} pairs"
        )
    return "\n".join(lines)


def _range(seconds: Sequence[float]) -> str:
    return f"{median(seconds):.2f} s ({min(seconds):.2f} to {max(seconds):.2f})"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=5)
    with tempfile.TemporaryDirectory(prefix="nebula-starts-") as folder:
        print(report(anyio.run(measure, parser.parse_args().pairs, Path(folder))))


if __name__ == "__main__":
    main()
