"""Declared log events of what runs inside the broker's process: operators' verbs, calls over HTTP, apps."""

from __future__ import annotations

from typing import Final

from nebula.log_events import ERROR, INFO, WARNING, Event

EVENTS: Final = (
    Event("operator ended connection", "`connection.end`", INFO, "principal, session"),
    Event("operator ended session", "`session.end`", INFO, "principal, session"),
    Event("operator purged session", "`session.purge`", INFO, "principal, session, count"),
    Event("operator purged queue", "`queue.purge`", INFO, "principal, queue, count"),
    Event("operator purged delayed messages", "`delayed.purge`", INFO, "principal, pattern, of, count"),
    Event("operator purged dead letters", "`dlq.purge`", INFO, "principal, count"),
    Event("operator replayed dead letters", "`dlq.replay`", INFO, "principal, to, count"),
    Event(
        "operator action cut off",
        "it took too long and was done in part; `action` is one of the events above",
        WARNING,
        "action, principal, reason",
    ),
    Event(
        "reload failed",
        "of `rights.reload`: settings or files are wrong and stay as they were",
        WARNING,
        "reason",
    ),
    Event("backup failed", "the store could not be copied", WARNING, "name, reason"),
    Event("stream failed", "a bug in a stream of replies over HTTP", ERROR, "exception"),
    Event("caller failed", "the client for one principal's calls over HTTP", ERROR, "principal, exception"),
    Event("pipe callback failed", "a bug in a callback of a hosted service's connection", ERROR, "exception"),
    Event("app failed", "a hosted service; the broker ends", ERROR, "app, exception"),
    Event("app left running", "a hosted service did not stop in time", WARNING, "app, seconds"),
)
"""All log events of `nebula.host`."""
