"""The `nebula broker` program over a folder, and how it ended."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from tests.cli.programs import environment
from tests.faults.served import Wire

_DEADLINE = 20.0


class Program:
    """`nebula broker` on a folder, and how it ended."""

    def __init__(self, folder: Path, extra: dict[str, str]) -> None:
        self.folder = folder / "data"
        words = ["broker", "--port", "0", "--data", str(self.folder)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.recovery.broker", str(folder / "marks"), *words],
            env=environment(extra),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def connect(self) -> Wire:
        """A client; the first time it waits until the broker listens."""
        if not hasattr(self, "_port"):
            assert self.process.stdout is not None
            line = self.process.stdout.readline()
            assert line, self.end()
            self._port = urlsplit(json.loads(line)["url"]).port or 0
        wire = Wire(self._port)
        wire.connect("1.2")
        return wire

    def end(self) -> tuple[int, str]:
        """Wait for the end: the exit status, and the last thing that was said."""
        _, said = self.process.communicate(timeout=_DEADLINE)
        return self.process.returncode, said.splitlines()[-1] if said else ""


@contextlib.contextmanager
def program(folder: Path, **extra: str) -> Iterator[Program]:
    """A broker; it is killed at the end if it still runs."""
    started = Program(folder, extra)
    try:
        yield started
    finally:
        started.process.kill()
        started.process.communicate()
