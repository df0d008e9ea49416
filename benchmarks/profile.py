"""Where the broker spends its time in a row: py-spy's samples, by the line that was running."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.processes import Unavailable
from benchmarks.rows import BROKERS, Row

_SECONDS = 5.0
_SAMPLES_PER_SECOND = 400


def top_lines(row: Row, count: int = 10) -> list[tuple[str, float]]:
    """Run the row on our broker and return its busiest lines with their part of the time, self time only.

    Raises:
        Unavailable: py-spy is not installed or may not look into another process here.
    """
    contestant = row.contestants[0]
    with TemporaryDirectory(prefix="nebula-") as folder, BROKERS[contestant.broker]() as broker:
        samples = Path(folder, "samples")
        spy = subprocess.Popen(_py_spy(broker.pid, samples), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        # Longer than py-spy looks, so that it never sees the broker idle at the end.
        contestant.measure(broker, _SECONDS + 3)
        said = spy.communicate()[0].decode(errors="replace")
        if spy.returncode != 0 or not samples.exists():
            raise Unavailable(f"py-spy failed: {said.strip()[-400:]}")
        return _self_times(samples.read_text())[:count]


def _py_spy(pid: int, samples: Path) -> list[str]:
    program = str(Path(sys.executable).with_name("py-spy"))
    options = ["--duration", f"{_SECONDS:g}", "--rate", str(_SAMPLES_PER_SECOND), "--format", "raw"]
    return [program, "record", "--pid", str(pid), "--output", str(samples), *options]


def _self_times(samples: str) -> list[tuple[str, float]]:
    # A line of the raw format is the stack, outermost first, and how often it was seen: "a;b;c 12".
    seen: Counter[str] = Counter()
    for line in samples.splitlines():
        stack, _, times = line.rpartition(" ")
        seen[stack.rpartition(";")[2]] += int(times)
    total = seen.total() or 1
    return [(place, times / total) for place, times in seen.most_common()]
