"""Parser for the crash report of a JVM that ran out of memory."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["REPORT", "stage_of", "starved_thread"]

REPORT = "jvm-crash.log"
"""Name of the crash report, in the folder of the engine."""

# The relevant lines are at the beginning; a whole report has some hundred kilobytes.
_HEAD_BYTES = 16 * 1024

_NO_MEMORY = re.compile(r"^#\s+fatal error: OutOfMemory encountered", re.MULTILINE)
_THREAD = re.compile(r'^Current thread \(.*?\):\s+\w+ "(.+?)"', re.MULTILINE)
_STAGE = re.compile(r"^Executor task launch worker for task \S+ in stage (\d+)\.\d+ ")


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
    named = _THREAD.search(head)
    return named[1] if named else ""


def stage_of(thread: str) -> int | None:
    """The number of the stage whose task this Spark thread runs, or None."""
    named = _STAGE.match(thread)
    return int(named[1]) if named else None
