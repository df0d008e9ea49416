"""Declared log events of connections of the STOMP client."""

from __future__ import annotations

from typing import Final

from nebula.log_events import ERROR, WARNING, Event

EVENTS: Final = (
    Event(
        "broker refused at disconnect",
        "the broker sent an ERROR in reply to DISCONNECT",
        WARNING,
        "message",
    ),
    Event(
        "loss callback failed",
        "a bug in the function that handles a lost connection",
        ERROR,
        "exception",
    ),
    Event(
        "receipt callback failed",
        "a bug in the function that is given a receipt",
        ERROR,
        "receipt, exception",
    ),
    Event(
        "subscriber failed",
        "a bug in the function that is given messages; the subscription goes on",
        ERROR,
        "destination, exception",
    ),
)
"""All log events of the client."""
