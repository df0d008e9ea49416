"""Real processes of the `nebula` command, ended by their own pid whatever happens."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

NEBULA = [sys.executable, "-m", "nebula.cli"]
DEADLINE = 20.0
_PIPE_BYTES = 1024 * 1024

_STATE = tempfile.TemporaryDirectory(prefix="nebula-tests-")
_NUMBERS = count()


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment without Nebula's own variables, so that no machine's settings leak in.

    Each program has a state folder of its own unless told: two brokers cannot share one.
    """
    plain = {name: value for name, value in os.environ.items() if not name.startswith("NEBULA_")}
    own = {
        "NEBULA_STATE": f"{_STATE.name}/{next(_NUMBERS)}",
        "NEBULA_CONTEXTS": f"{_STATE.name}/contexts.toml",  # there is none
        "NEBULA_CACHE": os.environ.get("NEBULA_CACHE", f"{_STATE.name}/cache"),  # that of all tests
    }
    return plain | own | dict(extra or {})


def nebula(
    *words: str, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run one command to its end, off a terminal."""
    return subprocess.run(
        [*NEBULA, *words],
        env=environment(env),
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
        stdin=subprocess.DEVNULL,
    )


@contextmanager
def running(
    *words: str, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """Start a command that stays; yields it with its first line, which it writes when it is ready."""
    process = subprocess.Popen(
        [*NEBULA, *words],
        env=environment(env),
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        stdin=subprocess.DEVNULL,
        # Many tests share one broker, and nobody reads its log: a full pipe would stop it.
        pipesize=_PIPE_BYTES,
    )
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        line = process.stdout.readline()
        assert line, process.stderr.read()
        yield process, json.loads(line)
    finally:
        process.kill()
        process.communicate()


@contextmanager
def broker_process(folder: Path, port: str = "0") -> Iterator[tuple[subprocess.Popen[str], str]]:
    with running("broker", "--port", port, "--data", str(folder)) as (process, line):
        yield process, line["url"]
