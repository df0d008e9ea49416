"""What a test logs itself, and not what goes on beside it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import structlog
from structlog.testing import capture_logs

_is_ours = ContextVar("_is_ours", default=False)


@contextmanager
def own_logs() -> Iterator[list[Any]]:
    """Capture what is logged in the block by its own tasks and threads.

    Brokers and engines that many tests share log from threads of their own, whenever they like: a test that
    asserts all that was logged would otherwise fail now and then, for others' words.
    """
    others = set(threading.enumerate()) - {threading.current_thread()}

    def drop_others(_logger: Any, _method: str, entry: Any) -> Any:
        # A task of ours has our context, and lends it to threads that it had before, too.
        if threading.current_thread() in others and not _is_ours.get():
            raise structlog.DropEvent
        return entry

    token = _is_ours.set(True)
    try:
        with capture_logs(processors=[drop_others]) as logged:
            yield logged
    finally:
        _is_ours.reset(token)
