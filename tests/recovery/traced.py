"""Programs under strace: what they asked of the kernel, and what happens when it refuses or kills them."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psutil

from tests.cli.programs import environment
from tests.foreign.install import install_program

# What SQLite writes its files with, and waits for the disk.
_CHANGES: Final = ("pwrite64", "fsync", "fdatasync")

# What a RECEIPT goes out by, whatever the loop.
_SOCKET: Final = ("write", "writev", "sendto", "sendmsg")

_DEADLINE: Final = 60.0

_LINE = re.compile(r"(?P<pid>\d+) +(?:(?P<call>\w+)\((?P<rest>.*)|<\.\.\. (?P<resumed>\w+) resumed>.*)")


def strace(trace: Path, *words: str, inject: str = "") -> list[str]:
    """The command that runs a Python program under strace, which is installed where it is missing.

    Args:
        trace: where its lines go.
        words: the module and its arguments.
        inject: a fault, in strace's own words.
    """
    install_program("strace", "strace")
    calls = ",".join(_CHANGES + _SOCKET)
    # With the kernel's filter other calls are as quick as ever, but strace 6.1 sends no signals then.
    how = f"--inject={inject}" if inject else "--seccomp-bpf"
    options = ["-f", "-y", "-s", "16", how, f"--trace={calls}", "-o", str(trace)]
    return ["strace", *options, sys.executable, "-m", *words]


def run(trace: Path, *words: str, inject: str = "") -> subprocess.CompletedProcess[str]:
    """Run a program to its end."""
    return subprocess.run(
        strace(trace, *words, inject=inject),
        env=environment(),
        capture_output=True,
        text=True,
        timeout=_DEADLINE,
        check=False,
    )


@contextmanager
def running(command: list[str], **extra: str) -> Iterator[subprocess.Popen[str]]:
    """A program under strace that stays; it gets SIGTERM at the end, and strace ends with it."""
    with subprocess.Popen(
        command, env=environment(extra), stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
    ) as process:
        try:
            yield process
        finally:
            # Without strace it would go on.
            for child in psutil.Process(process.pid).children():
                child.terminate()
            process.communicate(timeout=_DEADLINE)


def count_calls(trace: Path, call: str) -> int:
    """How many calls of this name a trace has."""
    return sum(found["call"] == call for found in _lines(trace))


def _lines(trace: Path) -> Iterator[re.Match[str]]:
    for line in trace.read_text(errors="replace").splitlines():
        found = _LINE.match(line)
        if found is not None:
            yield found


def receipts(trace: Path) -> Iterator[bool]:
    """For each RECEIPT that was written: whether the log of SQLite had grown since the one before, and all
    of that was on the disk by then."""
    has_grown = is_synced = False
    syncing: set[str] = set()
    for found in _lines(trace):
        call, rest, pid = found["call"], found["rest"] or "", found["pid"]
        if call == "pwrite64" and "nebula.db-wal>" in rest:
            has_grown, is_synced = True, False
        elif call in ("fsync", "fdatasync") and "nebula.db-wal>" in rest:
            # It counts when it returns, which another thread's line may come before.
            syncing.add(pid)
            is_synced = "unfinished" not in rest
        elif found["resumed"] in ("fsync", "fdatasync") and pid in syncing:
            is_synced = True
        elif call in _SOCKET and "RECEIPT" in rest:
            yield has_grown and is_synced
            has_grown = False
