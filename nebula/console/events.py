"""Declared log events of `nebula console`."""

from __future__ import annotations

from typing import Final

from nebula.log_events import WARNING, Event

EVENTS: Final = (
    Event(
        "broker not reached",
        "a page wanted to connect, and the broker does not run, or cannot be reached; the page tries again",
        WARNING,
        "address, reason",
    ),
)
