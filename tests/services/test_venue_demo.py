"""`make demo-venue`, as a newcomer sees it, only shorter."""

from __future__ import annotations

import os
import signal
import subprocess

import pytest

from tests.services.demos import ROOT, command, environment, run_demo, running

_DEMO = "services.venue.demo"


@pytest.fixture
def mark() -> str:
    return f"nebula-venue-test-{os.getpid()}"


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_venue_demo_ends_with_everything_that_has_to_hold_and_leaves_nothing_running(mark: str) -> None:
    demo = run_demo(_DEMO, "--seconds", "5", "--tick", "0.1", mark=mark, timeout=110)

    assert demo.returncode == 0, demo.stdout + demo.stderr
    assert demo.stdout.count(" holds ") == 9
    assert " broken " not in demo.stdout
    assert "rejected-unauthorised, rejected-invalid" in demo.stdout
    assert running(mark) == []


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_venue_demo_that_is_ended_early_leaves_nothing_running(mark: str, number: signal.Signals) -> None:
    with subprocess.Popen(
        command(_DEMO), cwd=ROOT, env=environment(mark), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as demo:
        assert demo.stdout is not None
        while b"serves /queue/venue" not in demo.stdout.readline():
            assert demo.poll() is None
        started = len(running(mark))
        demo.send_signal(number)
        demo.communicate()

    assert started == 3
    assert demo.returncode != 0
    assert running(mark) == []


def test_venue_demo_without_a_broker_says_why_and_exits_with_1(mark: str) -> None:
    demo = run_demo(_DEMO, mark=mark, more={**os.environ, "NEBULA_SERVER_STORE": "paper"})

    assert demo.returncode == 1
    assert "the broker ended before it was ready" in demo.stderr
    assert "NEBULA_SERVER_STORE" in demo.stderr
    assert "Traceback" not in demo.stderr
