"""Processes forked by a job's code: they inherit all of the engine host, and must not speak or end for it."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

__all__ = ["ended_where_forked", "leave_to_forks"]


def leave_to_forks(*forget: Callable[[], None]) -> None:
    """Have each process that is forked from this one do as its signals say, after it has done this."""
    has_left = False

    def after() -> None:
        nonlocal has_left
        # What such a process forks itself comes here as well, and has of the host only what was left it.
        if has_left:
            return
        has_left = True
        for one in forget:
            one()
        # Else the end of such a process, as a pool ends its workers, would end the engine.
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)

    os.register_at_fork(after_in_child=after)


@contextmanager
def ended_where_forked() -> Iterator[None]:
    """A process that is forked in the block ends where it would leave it: what follows is its parent's."""
    pid = os.getpid()
    try:
        yield
    except BaseException as error:
        # Otherwise the child would go on with the parent's work.
        if os.getpid() != pid:
            _exit(error)
        raise
    if os.getpid() != pid:
        _exit(None)


def _exit(error: BaseException | None) -> NoReturn:
    status = 0 if error is None else 1
    if isinstance(error, SystemExit):
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
    elif error is not None:
        traceback.print_exception(error)
    with suppress(OSError, ValueError):
        sys.stdout.flush()
    # `_exit`: the exit handlers are the parent's.
    os._exit(status & 0xFF)
