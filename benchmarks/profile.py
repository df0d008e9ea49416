"""Where a program spends its time in a row: py-spy's samples, by the line that was running."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil

from benchmarks.processes import Unavailable
from benchmarks.row import Row
from benchmarks.rows import BROKERS

_SECONDS = 5.0
_SAMPLES_PER_SECOND = 400
_START_SECONDS = 10.0
# A program's imports are no part of the row.
_SETTLE_SECONDS = 2.0


class Program(StrEnum):
    """Whose time is looked at."""

    BROKER = "broker"
    SERVICE = "service"
    CALLER = "caller"


# How to know the programs of the RPC rows among our children, by their command lines.
_MARKS = {Program.SERVICE: "nebula run ", Program.CALLER: "benchmarks.rpc.with_nebula "}


def top_lines(row: Row, program: Program, count: int = 10) -> list[tuple[str, float]]:
    """Run the row on our broker and return the busiest lines with their part of the time, self time only.

    Raises:
        Unavailable: py-spy is not installed or may not look into another process here, or the row has no
            such program.
    """
    contestant = row.contestants[0]
    with BROKERS[contestant.broker]() as broker, ThreadPoolExecutor(1) as threads:
        # Longer than py-spy looks, so that it never sees a program idle at the end.
        load = threads.submit(contestant.measure, broker, _SECONDS + _SETTLE_SECONDS + 3)
        pid = broker.pid if program is Program.BROKER else _child(program, load)
        try:
            time.sleep(_SETTLE_SECONDS)
            return self_times(_sample(pid))[:count]
        finally:
            load.result()


def _child(program: Program, load: Future[Any]) -> int:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and not load.done():
        for child in psutil.Process().children():
            try:
                if _MARKS[program] in " ".join(child.cmdline()):
                    return child.pid
            except psutil.Error:
                pass  # it has ended since
        time.sleep(0.05)
    raise Unavailable(f"this row has no {program}")


def _sample(pid: int) -> str:
    options = ["--duration", f"{_SECONDS:g}", "--rate", str(_SAMPLES_PER_SECOND), "--format", "raw"]
    with TemporaryDirectory(prefix="nebula-") as folder:
        samples = Path(folder, "samples")
        command = [str(Path(sys.executable).with_name("py-spy")), "record", "--pid", str(pid)]
        try:
            done = subprocess.run(
                [*command, "--output", str(samples), *options], capture_output=True, text=True
            )
        except FileNotFoundError:
            raise Unavailable("py-spy is not installed next to this Python: run `make bench` once") from None
        if done.returncode != 0 or not samples.exists():
            raise Unavailable(f"py-spy failed: {(done.stdout + done.stderr).strip()[-400:]}")
        return samples.read_text()


def self_times(samples: str) -> list[tuple[str, float]]:
    """Each place with its part of all samples, the busiest first.

    A line of py-spy's raw format is a stack, outermost first, and how often it was seen: `a;b;c 12`.
    A thread that waits for another one to give it work is not busy, which py-spy cannot always tell.
    """
    seen: Counter[str] = Counter()
    for line in samples.splitlines():
        stack, _, times = line.rpartition(" ")
        place = stack.rpartition(";")[2]
        if not place.startswith("Condition.wait "):
            seen[place] += int(times)
    total = seen.total() or 1
    return [(place, times / total) for place, times in seen.most_common()]
