"""What Nebula logs in a test: all of it, or only what the test's own tasks and threads log."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from nebula import logs

_is_ours = ContextVar("_is_ours", default=False)


class _Kept(logging.Handler):
    """Keeps events as mappings of their facts."""

    def __init__(self, takes: Callable[[], bool]) -> None:
        super().__init__()
        self.entries: list[Any] = []
        self._takes = takes

    def emit(self, record: logging.LogRecord) -> None:
        if self._takes():
            facts = logs.facts_of(record)
            if record.exc_info:
                facts["exc_info"] = record.exc_info[1]
            event = getattr(record, "event", record.getMessage())
            self.entries.append({**facts, "event": event, "log_level": record.levelname.lower()})


@contextmanager
def all_logs(takes: Callable[[], bool] = lambda: True) -> Iterator[list[Any]]:
    """Capture what Nebula logs in the block, from all levels: `event`, `log_level` and the facts of each."""
    nebula, handler = logging.getLogger("nebula"), _Kept(takes)
    level = nebula.level
    nebula.addHandler(handler)
    nebula.setLevel(logging.DEBUG)
    try:
        yield handler.entries
    finally:
        nebula.setLevel(level)
        nebula.removeHandler(handler)


@contextmanager
def own_logs() -> Iterator[list[Any]]:
    """Capture what is logged in the block by its own tasks and threads.

    Brokers and engines that many tests share log from threads of their own, whenever they like: a test that
    asserts all that was logged would otherwise fail now and then, for others' words.
    """
    others = set(threading.enumerate()) - {threading.current_thread()}

    def is_own() -> bool:
        # A task of ours has our context, and lends it to threads that it had before, too.
        return threading.current_thread() not in others or _is_ours.get()

    token = _is_ours.set(True)
    try:
        with all_logs(is_own) as logged:
            yield logged
    finally:
        _is_ours.reset(token)
