"""Types of declared log events: `Event`, one kind of line in a log, and `Level`.

Each program declares its events in a module `events` of its own. A test compares the names, levels and fields
declared there with the calls of loggers in the code, in both directions, and docs/reference/log-events.md and
docs/reference/running.md with both: an event that is not declared is a line that no operator can look up.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum, auto
from typing import Final


class Level(StrEnum):
    """Levels of the log, in rising order."""

    DEBUG = auto()
    INFO = auto()
    WARNING = auto()
    ERROR = auto()
    CRITICAL = auto()


@dataclass(frozen=True, slots=True)
class Event:
    """One kind of event.

    Attributes:
        name: a short fact in the past tense.
        when: it happens, in Markdown.
        levels: of its lines. Empty: it has no line of its own, and is part of `connection closed`.
        fields: their names, separated by commas. A field that is not known is left out.
        is_counted: it is a series of `nebula_events_total`, whether or not it is logged.
    """

    name: str
    when: str
    levels: tuple[Level, ...] = ()
    fields: str = ""
    is_counted: bool = False


DEBUG: Final = (Level.DEBUG,)
INFO: Final = (Level.INFO,)
WARNING: Final = (Level.WARNING,)
ERROR: Final = (Level.ERROR,)
CRITICAL: Final = (Level.CRITICAL,)
