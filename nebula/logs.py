"""Loggers of Nebula's modules, and the log of its programs.

`get_logger` gives a module its logger: structlog's interface over the standard `logging`, below the logger
`nebula`. That one has a `NullHandler`: as a library Nebula prints nothing, and the application that uses it
configures handlers and levels as for any other library. Events are short phrases in the past tense with facts
as fields: an event and its facts are attributes of its `LogRecord`, and text in its message. Local variables
are never logged.

`configure` is for programs only, once, before they start. It writes to stderr: coloured text on a terminal,
JSON lines otherwise. Times are UTC. Facts are often chosen by a peer, such as a client-id or a destination.
On a terminal they pass through `nebula.visible`, and so do tracebacks. JSON is for machines, and has only the
escapes of JSON.
"""

from __future__ import annotations

import io
import logging
import re
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from typing import Any, Final, TextIO, cast

import structlog
from structlog.stdlib import BoundLogger
from structlog.typing import EventDict, Processor

from nebula.visible import visible

# Of one event, the number that is logged in each second.
_MOST_OF_ONE: Final = 5
_INTERVAL_SECONDS: Final = 1.0

# Tracebacks, as structlog names them.
_OF_MANY_LINES: Final = frozenset({"exception", "stack"})

# The parent of all of Nebula's loggers.
_ROOT: Final = "nebula"

# The attributes of a record without facts. `message` and `asctime` are set by the formatter that comes first.
_RESERVED: Final = frozenset({*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"})

# Options that `logging` takes itself.
_OF_LOGGING: Final = ("exc_info", "stack_info")

# Between `logging` and the caller of the logger there are three functions of structlog.
_STACK_LEVEL: Final = 4

# Text that needs no quotes to be told from the next fact.
_PLAIN: Final = re.compile(r"[^\s\"'=]+")

logging.getLogger(_ROOT).addHandler(logging.NullHandler())


class Level(StrEnum):
    """How much is logged: the level named and everything above it."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def get_logger(name: str) -> BoundLogger:
    """The logger of one of Nebula's modules: `_log = get_logger(__name__)`.

    It goes through `logging`, no matter how an application has configured structlog.

    Args:
        name: of the logger of `logging`: `nebula`, or below it.
    """
    return cast(
        BoundLogger,
        structlog.wrap_logger(
            logging.getLogger(name),
            processors=[
                structlog.stdlib.filter_by_level,
                structlog.contextvars.merge_contextvars,
                _for_logging,
            ],
            wrapper_class=BoundLogger,
            cache_logger_on_first_use=True,
        ),
    )


# docs/decisions/0040: records of `logging`, which applications and their tools already handle.
def _for_logging(_logger: Any, _method: str, facts: EventDict) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments for `logging`: a message with a place for each fact, and all facts as attributes.

    The message is the same for each such event: tools that group messages, such as Sentry, group events.
    """
    event = str(facts.pop("event"))
    options: dict[str, Any] = {name: facts.pop(name) for name in _OF_LOGGING if name in facts}
    message = event
    if facts:  # without arguments, `logging` reads no % in a message
        message = " ".join([event.replace("%", "%%"), *(f"{name.replace('%', '%%')}=%s" for name in facts)])
    options["extra"] = {"event": event} | {_attribute(name): value for name, value in facts.items()}
    options["stacklevel"] = _STACK_LEVEL
    return (message, *(_as_text(value) for value in facts.values())), options


def _attribute(name: str) -> str:
    """The attribute of a record for a fact, whose own name may be in use."""
    return f"{name}_" if name in _RESERVED or name == "event" else name


def _as_text(value: Any) -> str:
    """A value as one line without control characters: it may be a peer's, and end up on a terminal."""
    text = str(value) if isinstance(value, str | int | float) else repr(value)
    if not isinstance(value, str):
        return visible(text)
    return text if _PLAIN.fullmatch(text) and text.isprintable() else repr(text)


def configure(level: Level = Level.INFO, *, stream: TextIO | None = None) -> None:
    """Write Nebula's log and that of the standard library's `logging` to `stream` (stderr): for programs
    only.

    The log of handlers that use structlog is written there, too. Another call replaces the configuration.
    """
    # stderr, because other programs read the output of commands from stdout.
    out = sys.stderr if stream is None else stream
    renderers = _for_terminals() if out.isatty() else _for_machines()
    threshold = logging.getLevelNamesMapping()[level.upper()]
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[*shared, *renderers],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=lambda *_: _Printer(out),
        # Modules hold loggers from their import on; a cached one would survive a second call.
        cache_logger_on_first_use=False,
    )
    _adopt_standard_library(out, threshold, shared, renderers)


class _Printer(structlog.PrintLogger):
    """Ignores errors of writing: a program that logs that a disk is full goes on, even with its log on it."""

    def msg(self, message: str) -> None:
        with suppress(OSError):
            super().msg(message)

    log = debug = info = warning = error = critical = exception = msg


def _for_terminals() -> list[Processor]:
    return [_show_facts, structlog.dev.ConsoleRenderer(colors=True, exception_formatter=_write_traceback)]


def _show_facts(_logger: Any, _method: str, facts: EventDict) -> EventDict:
    """Names and values made safe for a terminal; colours are added later."""
    if str(facts.get("logger", "")).startswith(f"{_ROOT}."):
        del facts["logger"]  # Nebula's events say where they come from
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


def _for_machines() -> list[Processor]:
    # A traceback is one field: a line of the log stays one line.
    return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]


def _adopt_standard_library(
    out: TextIO,
    threshold: int,
    shared: list[Processor],
    renderers: list[Processor],
) -> None:
    """Format Nebula's loggers, asyncio and third parties alike; the latter from warnings on only."""
    remove_meta = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    handler = _Handler(out)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            processors=[remove_meta, *renderers],
            foreign_pre_chain=[structlog.stdlib.add_logger_name, _take_facts, *shared],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    # Other libraries log details at info; an operator of Nebula needs only their warnings.
    root.setLevel(max(threshold, logging.WARNING))
    logging.getLogger(_ROOT).setLevel(threshold)


def _take_facts(_logger: Any, _method: str, told: EventDict) -> EventDict:
    """Add the fields of one of Nebula's events."""
    record: logging.LogRecord = told["_record"]
    if (event := getattr(record, "event", None)) is not None and record.name.partition(".")[0] == _ROOT:
        told.update(facts_of(record))
        told["event"] = event
    return told


def facts_of(record: logging.LogRecord) -> dict[str, Any]:
    """The facts of one of Nebula's events."""
    named = {name: value for name, value in vars(record).items() if name not in _RESERVED and name != "event"}
    return {_fact(name): value for name, value in named.items()}


def _fact(attribute: str) -> str:
    name = attribute.removesuffix("_")
    return name if _attribute(name) == attribute else attribute


class _Handler(logging.StreamHandler[TextIO]):
    """Ignores errors of writing: a program that logs that a disk is full goes on, even with its log on it."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  # the name in `logging`
        if not isinstance(sys.exc_info()[1], OSError):
            super().handleError(record)


def configure_if_nobody_has() -> None:
    """`configure`, unless the process has a handler already."""
    ours = logging.getLogger(_ROOT)
    handlers = [*ours.handlers, *logging.getLogger().handlers]
    # The package itself adds a NullHandler to `nebula`.
    if all(isinstance(one, logging.NullHandler) for one in handlers):
        configure()


class PacedLog:
    """A rate-limited logger for events that strangers cause.

    Of each event the first few in a second are logged. The number of further ones is logged before the next.

    Args:
        name: of the logger.
        clock: seconds that do not jump.
    """

    def __init__(self, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = get_logger(name)
        self._clock = clock
        # By event: when its second began, and how often it has happened since. Events are few.
        self._seconds: dict[str, tuple[float, int]] = {}

    def info(self, event: str, **facts: object) -> None:
        """Log something harmless."""
        if self._has_room_for(event):
            self._log.info(event, **facts)

    def warning(self, event: str, **facts: object) -> None:
        """Log something that an operator may have to look after."""
        if self._has_room_for(event):
            self._log.warning(event, **facts)

    def exception(self, event: str, **facts: object) -> None:
        """Log a bug in Nebula, with the traceback of the current exception."""
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
