"""The one place that sets up logging: JSON lines off a terminal, coloured text on one, to stderr.

Libraries never call this; programs do, once, before they start. Events are short phrases in the past
tense with facts as fields. Times are UTC.
"""

from __future__ import annotations

import logging
import sys
from enum import StrEnum
from typing import TextIO

import structlog


class Level(StrEnum):
    """How much is logged: the level named and everything above it."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def configure(level: Level = Level.INFO, *, stream: TextIO | None = None) -> None:
    """Send our log and that of the standard library's `logging` to `stream` (stderr).

    Calling it again replaces what was set before.
    """
    out = sys.stderr if stream is None else stream
    renderers = _for_terminals() if out.isatty() else _for_machines()
    threshold = logging.getLevelNamesMapping()[level.upper()]
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[*shared, *renderers],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=structlog.PrintLoggerFactory(out),
        # Modules hold loggers from their import on; a cached one would outlive a second call of this.
        cache_logger_on_first_use=False,
    )
    _adopt_standard_library(out, threshold, shared, renderers)


def _for_terminals() -> list[structlog.typing.Processor]:
    # The richer formatter shows local variables: bodies and passcodes among them.
    plain = structlog.dev.plain_traceback
    return [structlog.dev.ConsoleRenderer(colors=True, exception_formatter=plain)]


def _for_machines() -> list[structlog.typing.Processor]:
    # A traceback is one field: a line of the log stays one line.
    return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]


def _adopt_standard_library(
    out: TextIO,
    threshold: int,
    shared: list[structlog.typing.Processor],
    renderers: list[structlog.typing.Processor],
) -> None:
    """asyncio and third parties log through `logging`: the same format, from warnings on at most."""
    remove_meta = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    handler = logging.StreamHandler(out)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            processors=[remove_meta, *renderers],
            foreign_pre_chain=[structlog.stdlib.add_logger_name, *shared],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(threshold, logging.WARNING))
