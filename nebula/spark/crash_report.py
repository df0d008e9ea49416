"""How an engine host died that did not say why: its exit, and the error that it printed last."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass
from pathlib import Path

# An error that made the host die is at the end of what it said; further up are those of jobs.
_LOOKED_AT_BYTES = 8 * 1024

_RAISED = re.compile(r"^Traceback \(most recent call last\):", re.MULTILINE)
_CRASHED = re.compile(r"^Fatal Python error: ", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class LastWords:
    """What is known of a sudden end.

    Attributes:
        how: in a few words, for whoever lost a job by it.
        trace: of the error that it died by, where it printed one; for the log.
    """

    how: str
    trace: str | None = None


def last_words(said: Path, status: int | None) -> LastWords:
    """Find out how a Python process died. Blocks.

    Args:
        said: the file that it had as stderr.
        status: of its exit, negative for a signal; None: unknown.
    """
    if status is None:
        return LastWords("it cannot be ended")
    how = _signal(-status) if status < 0 else f"exit status {status}"
    # Whom a signal kills dies by no exception: one that is there is a job's.
    trace = _last_error(said, _CRASHED if status < 0 else _RAISED) if status else None
    return LastWords(how if trace is None else f"{how}: {_summary(trace)}", trace)


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # such as real-time ones
        return f"signal {number}"


def _last_error(said: Path, kind: re.Pattern[str]) -> str | None:
    try:
        with said.open("rb") as file:
            file.seek(max(0, said.stat().st_size - _LOOKED_AT_BYTES))
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
