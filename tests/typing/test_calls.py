"""What the type checker must accept, and what it must reject: `check.py`, line by line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_checker_accepts_right_calls_and_rejects_wrong_ones() -> None:
    command = [sys.executable, "-m", "mypy", "--config-file", "pyproject.toml", "tests/typing/check.py"]

    checked = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)

    assert checked.returncode == 0, checked.stdout
