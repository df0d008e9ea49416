"""`make demo-venue`, as a newcomer sees it, only shorter."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

_ROOT = Path(__file__).parents[2]


_COMMAND = [sys.executable, "-m", "services.venue.demo"]


@pytest.fixture
def mark() -> str:
    return f"nebula-venue-test-{os.getpid()}"


def _environment(mark: str) -> dict[str, str]:
    return {**os.environ, "COLUMNS": "160", "DEMO_MARK": mark}


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_venue_demo_ends_with_everything_that_has_to_hold_and_leaves_nothing_running(mark: str) -> None:
    demo = subprocess.run(
        [*_COMMAND, "--seconds", "5", "--tick", "0.1"],
        cwd=_ROOT,
        env=_environment(mark),
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )

    assert demo.returncode == 0, demo.stdout + demo.stderr
    assert demo.stdout.count(" holds ") == 9
    assert " broken " not in demo.stdout
    assert "rejected-unauthorised, rejected-invalid" in demo.stdout
    assert _running(mark) == []


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_venue_demo_that_is_ended_early_leaves_nothing_running(mark: str, number: signal.Signals) -> None:
    with subprocess.Popen(
        _COMMAND, cwd=_ROOT, env=_environment(mark), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as demo:
        assert demo.stdout is not None
        while b"serves /queue/venue" not in demo.stdout.readline():
            assert demo.poll() is None
        running = len(_running(mark))
        demo.send_signal(number)
        demo.communicate()

    assert running == 3
    assert demo.returncode != 0
    assert _running(mark) == []


def test_venue_demo_without_a_broker_says_why_and_exits_with_1(mark: str) -> None:
    demo = subprocess.run(
        _COMMAND,
        cwd=_ROOT,
        env={**_environment(mark), "NEBULA_SERVER_STORE": "paper"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert demo.returncode == 1
    assert "the broker ended before it was ready" in demo.stderr
    assert "NEBULA_SERVER_STORE" in demo.stderr
    assert "Traceback" not in demo.stderr


def _running(mark: str) -> list[list[str]]:
    return [process.cmdline() for process in psutil.process_iter() if _bears(process, mark)]


def _bears(process: psutil.Process, mark: str) -> bool:
    try:
        return process.environ().get("DEMO_MARK") == mark
    except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
        return False
