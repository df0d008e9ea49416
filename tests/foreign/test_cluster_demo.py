"""`make demo-cluster`, as a newcomer sees it: a real master, two workers and a Connect server."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.services.demos import run_demo, running

pytestmark = [pytest.mark.foreign, pytest.mark.slow]


@pytest.mark.timeout(600)
def test_cluster_demo_has_equal_answers_everywhere_and_leaves_nothing_behind(tmp_path: Path) -> None:
    mark = f"nebula-cluster-test-{os.getpid()}"
    # Java takes /tmp, whatever TMPDIR says.
    options = f"{os.environ.get('JAVA_TOOL_OPTIONS', '')} -Djava.io.tmpdir={tmp_path}"
    more = {**os.environ, "TMPDIR": str(tmp_path), "JAVA_TOOL_OPTIONS": options.strip()}

    demo = run_demo("services.cluster.demo", mark=mark, more=more, timeout=580)

    assert demo.returncode == 0, demo.stdout + demo.stderr
    assert demo.stdout.count(" equal") == 3
    assert "a worker was killed under a job, and the job is done" in demo.stdout
    assert "another job, through Connect, is cancelled" in demo.stdout
    assert demo.stdout.count(" …") >= 8  # what takes long is told before
    assert running(mark) == []
    assert list(tmp_path.iterdir()) == []
