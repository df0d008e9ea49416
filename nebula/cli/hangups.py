"""SIGHUP during startup and shutdown, when nothing can be reloaded.

By default SIGHUP ends the process. A program that reloads on SIGHUP must survive it at any time.
"""

from __future__ import annotations

import signal
from types import FrameType


class _Noted:
    """Whether a SIGHUP has come since the last `take_hangup`."""

    has_come = False


def note_hangups() -> None:
    """From now on, only note a SIGHUP for `take_hangup`. Call it on the main thread."""
    signal.signal(signal.SIGHUP, _note)


def take_hangup() -> bool:
    """Whether a SIGHUP was noted since the last call."""
    has_come, _Noted.has_come = _Noted.has_come, False
    return has_come


def _note(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    _Noted.has_come = True
