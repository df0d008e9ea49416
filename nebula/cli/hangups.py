"""SIGHUP handling: shutdown if the terminal is closed, reload otherwise.

By default SIGHUP ends the process. A program that reloads on SIGHUP must survive it at any time: also during
startup and shutdown, when nothing can be reloaded.
"""

from __future__ import annotations

import atexit
import signal
import sys
from functools import cache
from types import FrameType
from typing import TextIO


class _Noted:
    """Whether a SIGHUP has come since the last `take_hangup`."""

    # Set by one assignment, because a signal handler may run between any two instructions.
    has_come = False


@cache
def ends_by_hangup() -> bool:
    """Whether a SIGHUP means that our terminal is closed: there is one, and `nohup` is not in use.

    Decided once, before our handler is installed.
    """
    # `nohup` starts the program with SIGHUP ignored, so that it outlives the terminal.
    is_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return not is_ignored and any(_is_terminal(stream) for stream in (sys.stdin, sys.stdout, sys.stderr))


def _is_terminal(stream: TextIO | None) -> bool:
    # None if the stream was closed when the program started.
    return stream is not None and not stream.closed and stream.isatty()


def note_hangups() -> None:
    """From now on, only note a SIGHUP for `take_hangup`. Call it on the main thread.

    Does nothing if a SIGHUP ends the program, see `ends_by_hangup`, and on Windows, which has none.
    """
    if sys.platform == "win32" or ends_by_hangup():
        return
    # Python's handler and not the loop's: there is no loop yet.
    signal.signal(signal.SIGHUP, _note)
    # At its end Python sets the default again where there is a handler, and takes a tenth of a second more.
    atexit.register(signal.signal, signal.SIGHUP, signal.SIG_IGN)


def take_hangup() -> bool:
    """Whether a SIGHUP was noted since the last call."""
    has_come, _Noted.has_come = _Noted.has_come, False
    return has_come


# Only sets a flag, because a handler may run in the middle of anything, even of an import.
def _note(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    _Noted.has_come = True


# The command line imports this first: the rest of it takes a second.
# Only for `broker`: a closed terminal must end other commands.
if sys.argv[1:2] == ["broker"]:
    note_hangups()
