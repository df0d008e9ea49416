"""A query that is killed at any of its steps and restarted has each message once in its output."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from nebula import sync
from nebula.testing import RunningBroker

MESSAGES = 9
MOST_STEPS = 160


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_kill_at_any_step_loses_nothing_and_doubles_nothing(tmp_path: Path) -> None:
    sent = [f"message {number}" for number in range(MESSAGES)]
    with RunningBroker(transport="tcp") as broker:
        with sync.Client(broker.url) as client:
            for step in range(MOST_STEPS):
                for text in sent:
                    client.publish(f"/queue/r{step}", text, content_type="text/plain")
        done = subprocess.run(
            [
                *(sys.executable, "-m", "tests.spark.source.dying_query"),
                *(broker.url, str(tmp_path), str(MESSAGES)),
            ],
            capture_output=True,
            text=True,
            timeout=170,
            check=False,
        )

    assert done.returncode == 0, done.stderr
    steps = int(done.stdout)
    assert 30 < steps < MOST_STEPS
    for step in range(steps + 1):
        assert sorted(_output(tmp_path / str(step))) == sent, f"killed at step {step}"


def _output(folder: Path) -> list[str]:
    return [text for batch in (folder / "out").iterdir() for text in json.loads(batch.read_text())]
