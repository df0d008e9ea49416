"""Start of a session: a driver of our own, or a Connect server, as declared."""

from __future__ import annotations

import logging
import sys

from nebula.spark.host.session import Session
from nebula.spark.lines import Configure

_QUERY_LOGGERS = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")


def start_session(config: Configure) -> Session:
    """Start, or reach, the Spark that was declared; takes seconds.

    Not in the main thread, where Spark would take over SIGINT.

    Raises:
        CannotStart: what is missing, or what does not answer, in a sentence.
        Exception: whatever else Spark fails with.
    """
    session = _start(config)
    _leave_stacks_to_the_engine()
    return session


def _start(config: Configure) -> Session:
    # Imported late: each needs packages that the other does without.
    if config.remote is not None:
        from nebula.spark.host.connect import ConnectSession

        return ConnectSession(config)
    from nebula.spark.host.classic import ClassicSession

    return ClassicSession(config)


def _leave_stacks_to_the_engine() -> None:
    """Write PySpark's log of refused queries to the log of the engine instead of the job's.

    It is the error that the job is told, once more, as kilobytes of JSON with a stack of Java's.
    """
    from pyspark.logger import PySparkLogger

    for name in _QUERY_LOGGERS:
        for handler in PySparkLogger.getLogger(name).handlers:
            if isinstance(handler, logging.StreamHandler):
                handler.setStream(sys.__stderr__)
