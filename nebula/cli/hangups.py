"""SIGHUP while there is nothing yet that could be reloaded, or nothing any more.

Its default is to end the process. A program that reloads by it must not depend on when it comes.
"""

from __future__ import annotations

import signal
from types import FrameType


class _Noted:
    """Whether one has come since it was looked at last."""

    has_come = False


def note_hangups() -> None:
    """From now on SIGHUP ends nothing: it is noted, for `take_hangup`. Call it on the main thread."""
    signal.signal(signal.SIGHUP, _note)


def take_hangup() -> bool:
    """Whether one was noted since the last call."""
    has_come, _Noted.has_come = _Noted.has_come, False
    return has_come


def _note(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    _Noted.has_come = True
