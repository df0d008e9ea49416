"""Crash reports: how an engine host or its JVM died, from its exit status and from what it printed last."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass
from pathlib import Path

# An error that made the host die is at the end of what it said; further up are those of jobs.
_LOOKED_AT_BYTES = 8 * 1024

_RAISED = re.compile(r"^Traceback \(most recent call last\):", re.MULTILINE)
_CRASHED = re.compile(r"^Fatal Python error: ", re.MULTILINE)

JVM_REPORT = "jvm-crash.log"
"""Name of the crash report, in the folder of the engine."""

# The relevant lines are at the beginning; a whole report has some hundred kilobytes.
_HEAD_BYTES = 16 * 1024

_NO_MEMORY = re.compile(r"^#\s+fatal error: OutOfMemory encountered", re.MULTILINE)
_THREAD = re.compile(r'^Current thread \(.*?\):\s+\w+ "(.+?)"', re.MULTILINE)
_STAGE = re.compile(r"^Executor task launch worker for task \S+ in stage (\d+)\.\d+ ")


@dataclass(frozen=True, slots=True)
class CrashReport:
    """What is known of a sudden end.

    Attributes:
        how: in a few words, for the owners of the jobs that were lost.
        trace: of the error that it died by, where it printed one; for the log.
    """

    how: str
    trace: str | None = None


def read_crash(errors: Path, status: int | None) -> CrashReport:
    """Find out how a Python process died. Blocks.

    Args:
        errors: the file that it had as stderr.
        status: of its exit, negative for a signal; None: unknown.
    """
    if status is None:
        return CrashReport("it cannot be ended")
    how = _signal(-status) if status < 0 else f"exit status {status}"
    # Whom a signal kills dies by no exception: one that is there is a job's.
    trace = _last_error(errors, _CRASHED if status < 0 else _RAISED) if status else None
    return CrashReport(how if trace is None else f"{how}: {_summary(trace)}", trace)


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # such as real-time ones
        return f"signal {number}"


def _last_error(errors: Path, kind: re.Pattern[str]) -> str | None:
    try:
        with errors.open("rb") as file:
            # `max`: in a short file the position would be negative, and `seek` would raise.
            file.seek(max(0, errors.stat().st_size - _LOOKED_AT_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return None
    starts = [match.start() for match in kind.finditer(text)]
    return text[starts[-1] :].strip() if starts else None


def _summary(trace: str) -> str:
    """The line of an error that is for people: below its stack, or above that of a crash."""
    first, *below = trace.splitlines()
    if _CRASHED.match(first):
        return first
    return next((line for line in below if line and not line[0].isspace()), first)


def starved_thread(report: Path) -> str | None:
    """The name of the thread whose allocation failed, "" if the report does not say.

    None: there is no report, or the JVM has died of something else.
    """
    try:
        with report.open("rb") as file:
            head = file.read(_HEAD_BYTES).decode(errors="replace")
    except OSError:
        return None
    if not _NO_MEMORY.search(head):
        return None
    # docs/decisions/0053: the job of the thread whose allocation failed counts as the one at fault.
    named = _THREAD.search(head)
    return named[1] if named else ""


def stage_of(thread: str) -> int | None:
    """The number of the stage whose task this Spark thread runs, or None."""
    named = _STAGE.match(thread)
    return int(named[1]) if named else None
