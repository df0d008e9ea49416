"""SIGHUP during startup and shutdown, when nothing can be reloaded.

By default SIGHUP ends the process. A program that reloads on SIGHUP must survive it at any time.
"""

from __future__ import annotations

import atexit
import signal
import sys
from types import FrameType


class _Noted:
    """Whether a SIGHUP has come since the last `take_hangup`."""

    has_come = False


def note_hangups() -> None:
    """From now on, only note a SIGHUP for `take_hangup`. Call it on the main thread."""
    signal.signal(signal.SIGHUP, _note)
    # At its end Python sets the default again where there is a handler, and takes a tenth of a second more.
    atexit.register(signal.signal, signal.SIGHUP, signal.SIG_IGN)


def take_hangup() -> bool:
    """Whether a SIGHUP was noted since the last call."""
    has_come, _Noted.has_come = _Noted.has_come, False
    return has_come


def _note(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    _Noted.has_come = True


# The command line imports this first: the rest of it takes a second.
if sys.argv[1:2] == ["broker"]:
    note_hangups()
