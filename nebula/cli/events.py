"""Declared log events of the programs `nebula broker` and `nebula run`."""

from __future__ import annotations

from typing import Final

from nebula.log_events import CRITICAL, INFO, WARNING, Event

EVENTS: Final = (
    Event("start delayed", "the store takes long to check or read", INFO, "store, done"),
    Event("files reloaded", "settings, certificates, users and rights, after SIGHUP", INFO),
    Event(
        "reload failed", "after SIGHUP: settings or files are wrong and stay as they were", WARNING, "reason"
    ),
    Event(
        "open files limited",
        "the process may open fewer files than its limits of connections need",
        WARNING,
        "limit, wanted",
    ),
    Event("store did not stop", "the disk does not finish; the process ends at once", CRITICAL, "error"),
    Event("worker started", "a process of `nebula run`", INFO, "worker, pid"),
    Event("worker began to serve", "its services take requests", INFO, "worker, http"),
    Event("worker ended", "by itself; another one is started", WARNING, "worker, status, restart_seconds"),
    Event("worker killed", "it did not stop in time", WARNING, "pid, seconds"),
    Event("files changed", "with `--reload`: the workers are started anew", INFO, "files"),
)
"""All log events of `nebula.cli`."""
