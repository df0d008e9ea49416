"""Processes forked by a job's code: they inherit all of the engine host, and must not speak or end for it."""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, NoReturn

__all__ = ["ended_where_forked", "leave_to_forks"]


_ENDING: Final = frozenset((signal.SIGTERM, signal.SIGHUP))


def leave_to_forks(*forget: Callable[[], None]) -> None:
    """Make each process that is forked from this one call `forget`, and end at SIGTERM and SIGHUP.

    This includes a signal right after the fork, such as a pool sends to workers that it does not need.
    """
    has_left = False
    masks = threading.local()

    # Without this, Python in the new process drops a signal that arrives before it is set up, and handles
    # later ones with the handlers of this process, which end the engine.
    def before() -> None:
        masks.former = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)

    def after_in_parent() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, masks.former)

    def after_in_child() -> None:
        nonlocal has_left
        # What such a process forks itself comes here as well, and has of the host only what was left it.
        if not has_left:
            has_left = True
            for one in forget:
                one()
            for number in _ENDING:
                signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, masks.former)

    os.register_at_fork(before=before, after_in_parent=after_in_parent, after_in_child=after_in_child)


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
