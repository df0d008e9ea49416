"""Declared log events of what runs inside the broker's process: operators' verbs, calls over HTTP, apps."""

from __future__ import annotations

from typing import Final

from nebula.log_events import ERROR, INFO, WARNING, Event

EVENTS: Final = (
    Event("operator ended connection", "the verb `connection.end` was called", INFO, "principal, session"),
    Event("operator ended session", "the verb `session.end` was called", INFO, "principal, session"),
    Event(
        "operator purged session", "the verb `session.purge` was called", INFO, "principal, session, count"
    ),
    Event("operator purged queue", "the verb `queue.purge` was called", INFO, "principal, queue, count"),
    Event(
        "operator purged delayed messages",
        "the verb `delayed.purge` was called",
        INFO,
        "principal, pattern, of, count",
    ),
    Event("operator purged dead letters", "the verb `dlq.purge` was called", INFO, "principal, count"),
    Event("operator replayed dead letters", "the verb `dlq.replay` was called", INFO, "principal, to, count"),
    Event(
        "operator action cut off",
        "it took too long and was done in part; `action` is one of the events above",
        WARNING,
        "action, principal, reason",
    ),
    Event(
        "reload failed",
        "at a call of `rights.reload`: settings or files are wrong and stay as they were",
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
