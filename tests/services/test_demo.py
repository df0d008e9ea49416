"""`make demo`, as a newcomer sees it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.services.demos import run_demo, running, without_java

_DEMO = "services.flights.demo"


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(180)
def test_demo_shows_a_job_done_and_a_job_cancelled_and_leaves_nothing_running() -> None:
    mark = f"nebula-demo-test-{os.getpid()}"

    demo = run_demo(_DEMO, mark=mark, timeout=170)

    assert demo.returncode == 0, demo.stdout + demo.stderr
    assert "United Air Lines Inc." in demo.stdout
    assert "336,776 flights of 16 carriers" in demo.stdout
    assert "is cancelled" in demo.stdout
    assert running(mark) == []


def test_demo_without_any_java_says_so_in_a_sentence_and_exits_with_1(tmp_path: Path) -> None:
    demo = run_demo(_DEMO, more=without_java(tmp_path))

    assert demo.returncode == 1
    assert "Spark needs Java 17 or newer" in demo.stderr
    assert "Traceback" not in demo.stderr
