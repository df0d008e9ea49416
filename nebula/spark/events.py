"""Declared log events of Spark's engines, of their hosts, and of the readers and the source for Spark."""

from __future__ import annotations

from typing import Final

from nebula.log_events import ERROR, INFO, WARNING, Event, Level

_ENGINES: Final = (
    Event(
        "engine host started",
        "the child process of an engine; with `job` it is of this job alone",
        INFO,
        "service, engine, job, incarnation, pid",
    ),
    Event(
        "engine host not started",
        "its program cannot be run, or its folder cannot be made",
        WARNING,
        "service, engine, job, error",
    ),
    Event("engine ready", "Spark runs", INFO, "service, engine, archive, spark, java, seconds"),
    Event(
        "engine host ended",
        "the child process has ended; by itself: a warning",
        (Level.INFO, Level.WARNING),
        "service, engine, job, incarnation, reason, status, trace",
    ),
    Event("engine broken", "it cannot start before something is changed", ERROR, "service, engine, reason"),
    Event(
        "isolated engine not started",
        "the host of one job cannot start; the job fails",
        ERROR,
        "service, reason",
    ),
    Event(
        "job handed to engine",
        "the engine host has the run",
        INFO,
        "service, engine, job, attempt, verb, incarnation, trace_id",
    ),
    Event("job cancel requested", "the engine was asked to end a run", INFO, "job, attempt, reason"),
    Event("archive of classes made", "engines start faster from now on", INFO, "archive, seconds"),
    Event(
        "archive of classes not made, and not tried again for a day",
        "engines start without it",
        WARNING,
        "archive, seconds, reason",
    ),
    Event("archive of classes not used", "others could have changed it", WARNING, "archive, reason"),
    Event(
        "archive of classes set aside for a day",
        "Java refused it, or an engine did not start with it",
        WARNING,
        "archive, reason",
    ),
)

# In the child process, whose log is text in `engine.err` of the engine's folder.
_HOSTS: Final = (
    Event("job begun", "the host has a job's run", INFO, "job, attempt, verb, trace_id"),
    Event(
        "SPARK_HOME set aside",
        "it names another version than PySpark's; PySpark's own Spark is used",
        WARNING,
        "reason",
    ),
    Event(
        "end of an earlier attempt awaited",
        "on a Spark Connect server the session of an earlier attempt does not end",
        WARNING,
        "attempt, reason",
    ),
    Event("earlier attempt ended on the server", "what it still ran was interrupted", WARNING, "attempt"),
)

_DATA: Final = (
    Event("Avro reader chosen", "which reader takes these files, and why", INFO, "path, files, reader, why"),
    Event("file skipped", "a damaged file, where damaged files are allowed", WARNING, "path, problem"),
    Event(
        "unreadable message skipped",
        "a message that does not fit the source's schema",
        WARNING,
        "message, destination, why",
    ),
    Event(
        "spool waited for",
        "another query still uses the spool; it may be about to end",
        WARNING,
        "spool, seconds",
    ),
    Event("receiving paused", "the source's spool is full", WARNING, "spool, why"),
    Event("receiving resumed", "the spool has room again", INFO, "spool"),
    Event("receiving failed", "the query ends with this error", ERROR, "exception"),
    Event(
        "broker found to rename repeats",
        "this broker gives a redelivered message a new id, so repeats are recognised by `dedup-id` only",
        WARNING,
        "server, advice",
    ),
    Event("spooled file not removed", "it was read, and takes room", WARNING, "reason"),
    Event(
        "committed position not written",
        "a query with a new checkpoint may begin with messages that were read before",
        WARNING,
        "file, reason",
    ),
)

EVENTS: Final = _ENGINES + _HOSTS + _DATA
"""All log events of `nebula.spark`."""
