"""Processes of one engine, found by a mark in their environment, so that none is left behind."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

# Set for the host, and inherited by the JVM, Python's worker daemon, its workers, and whatever a job starts.
MARKER = "NEBULA_ENGINE"

_PROCESSES = Path("/proc")

_GONE_SECONDS = 2.0
_LOOK_SECONDS = 0.005


def engine_processes(incarnation: str) -> Iterator[int]:
    """The pids of all processes of this engine that live now. Where there is no /proc: none."""
    mark = f"{MARKER}={incarnation}".encode()
    # Looks at all processes of the machine, which is acceptable when an engine ends.
    for folder in _PROCESSES.glob("[0-9]*"):
        # Processes of other users, and such as end meanwhile.
        with suppress(OSError):
            # Whole entries and not a substring: one incarnation must not match within another variable.
            if mark in (folder / "environ").read_bytes().split(b"\0"):
                yield int(folder.name)


def kill_engine(incarnation: str, host: int | None = None) -> int:
    """Kill every process of this engine but the caller, and wait until they are gone; how many were found.

    A JVM and its workers normally end by themselves half a second after their parent. This is for the
    worker that computes on after its daemon died, and for what a job's own code has started. What the
    kernel does not let go within two seconds is not waited for.

    Args:
        incarnation: the mark.
        host: the host's pid, if it is not the caller. Where there is no /proc its process group is
            killed instead; the JVM is in it.
    """
    # The host began a session of its own (`start_new_session`), so its group has its descendants in it.
    if host is not None and not _PROCESSES.is_dir():
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(host, signal.SIGKILL)
    found: set[int] = set()
    deadline = time.monotonic() + _GONE_SECONDS
    # Again and again: a round may overlook what a process started while we were reading.
    while pids := [pid for pid in engine_processes(incarnation) if pid != os.getpid()]:
        found.update(pids)
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            break
        time.sleep(_LOOK_SECONDS)
    return len(found)
