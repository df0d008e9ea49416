"""Declared log events of the recorder and of its schemas."""

from __future__ import annotations

from typing import Final

from nebula.log_events import ERROR, INFO, WARNING, Event

EVENTS: Final = (
    Event("files closed", "files are complete and have their final names", INFO, "files, messages, rate"),
    Event("open file finished", "a file of an earlier process was completed", INFO, "file, records"),
    Event(
        "lossless recording ruled out",
        "from this destination or broker, messages can be lost or recorded twice",
        WARNING,
        "note",
    ),
    Event("recording paused", "the disk is full; nothing is acked", ERROR, "folder, reason"),
    Event("recording resumed", "the disk has room again", INFO, "folder"),
    Event("ledger not compacted", "the disk is full; the ledger grows", WARNING, "ledger, reason"),
    Event(
        "oldest unconfirmed ids forgotten",
        "more messages wait for the broker's confirmation than the ledger may hold",
        WARNING,
        "ledger, count",
    ),
    Event(
        "schema not known, envelopes kept whole",
        "messages of a schema that neither a publisher nor the broker has announced",
        WARNING,
        "fingerprint",
    ),
    Event("schema not found", "the broker has no such schema", INFO, "fingerprint, reason"),
)
"""All log events of the recorder."""
