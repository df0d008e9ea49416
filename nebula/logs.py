"""The one place that sets up logging: JSON lines off a terminal, coloured text on one, to stderr.

Libraries never call this; programs do, once, before they start. Events are short phrases in the past
tense with facts as fields. Times are UTC.

Facts are often chosen by a peer, such as a client-id or a destination. On a terminal they pass through
`nebula.visible`, and so do tracebacks. JSON is for machines, and has only the escapes of JSON.
"""

from __future__ import annotations

import io
import logging
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from typing import Any, Final, TextIO

import structlog

from nebula.visible import visible

# Of one kind so many in a second are told whole.
_MOST_OF_ONE: Final = 5
_INTERVAL_SECONDS: Final = 1.0

# Tracebacks, as structlog names them.
_OF_MANY_LINES: Final = frozenset({"exception", "stack"})


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
        logger_factory=lambda *_: _Printer(out),
        # Modules hold loggers from their import on; a cached one would outlive a second call of this.
        cache_logger_on_first_use=False,
    )
    _adopt_standard_library(out, threshold, shared, renderers)


class _Printer(structlog.PrintLogger):
    """Prints what can be printed: who logs that a disk is full has to go on though the log is on it."""

    def msg(self, message: str) -> None:
        with suppress(OSError):
            super().msg(message)

    log = debug = info = warning = error = critical = exception = msg


def _for_terminals() -> list[structlog.typing.Processor]:
    return [_show_facts, structlog.dev.ConsoleRenderer(colors=True, exception_formatter=_write_traceback)]


def _show_facts(_logger: Any, _method: str, facts: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Names and values made safe for a terminal; colours are added later."""
    return {visible(name): _shown(name, value) for name, value in facts.items()}


def _shown(name: str, value: Any) -> Any:
    if isinstance(value, str):
        return visible(value, keep="\n\t" if name in _OF_MANY_LINES else "")
    # An exception goes to the formatter; numbers and the like are harmless.
    return value if name == "exc_info" or isinstance(value, int | float | None) else visible(repr(value))


def _write_traceback(out: TextIO, exc_info: structlog.typing.ExcInfo) -> None:
    # The richer formatter shows local variables: bodies and passcodes among them.
    written = io.StringIO()
    structlog.dev.plain_traceback(written, exc_info)
    out.write(visible(written.getvalue(), keep="\n\t"))


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


class PacedLog:
    """A logger for what strangers cause: however often they do it, few lines a second come of it.

    Of each event the first few of a second are told. How many more there were is told before the next one.

    Args:
        name: of the logger.
        clock: seconds that do not jump.
    """

    def __init__(self, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = structlog.get_logger(name)
        self._clock = clock
        # By event: when its second began, and how often it has happened since. Events are few.
        self._seconds: dict[str, tuple[float, int]] = {}

    def info(self, event: str, **facts: object) -> None:
        """Something that is no trouble, by itself."""
        if self._has_room_for(event):
            self._log.info(event, **facts)

    def warning(self, event: str, **facts: object) -> None:
        """Something that an operator may have to look after."""
        if self._has_room_for(event):
            self._log.warning(event, **facts)

    def exception(self, event: str, **facts: object) -> None:
        """A bug of ours, with the traceback of the exception at hand."""
        if self._has_room_for(event):
            self._log.exception(event, **facts)

    def _has_room_for(self, event: str) -> bool:
        now = self._clock()
        begun, count = self._seconds.get(event, (now, 0))
        if now >= begun + _INTERVAL_SECONDS:
            if count > _MOST_OF_ONE:
                self._log.warning("further events", what=event, count=count - _MOST_OF_ONE)
            begun, count = now, 0
        self._seconds[event] = begun, count + 1
        return count < _MOST_OF_ONE
