"""Plain functions of services, called in threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from inspect import iscoroutine
from queue import SimpleQueue
from typing import Any, TypeVar

import anyio
import anyio.to_thread

from nebula.soon import call_soon_from_thread

__all__ = ["DaemonThread", "call_in_daemon", "call_in_thread"]

_T = TypeVar("_T")


async def call_in_thread(limiter: anyio.CapacityLimiter | None, call: Callable[[], Any]) -> Any:
    """What a plain function gives, called in a worker thread.

    A coroutine that it gives is awaited on the loop: an `async def` in a plain decorator, or called by a
    lambda, looks like any plain function until then. When cancelled, the thread is left to itself.

    Args:
        limiter: of the threads.
        call: what to call.

    Raises:
        Exception: what it raises.
    """
    # As a tuple: trio lets no coroutine out of a thread.
    (result,) = await anyio.to_thread.run_sync(partial(_boxed, call), limiter=limiter, abandon_on_cancel=True)
    return await result if iscoroutine(result) else result


def _boxed(call: Callable[[], Any]) -> tuple[Any]:
    return (call(),)


async def call_in_daemon(call: Callable[[], _T]) -> _T:
    """What a function gives, called in a thread that not even the end of the program waits for.

    When cancelled, the thread is left to itself.

    Raises:
        Exception: what it raises.
    """
    thread = DaemonThread()
    try:
        return await thread.call(call)
    finally:
        thread.close()


class DaemonThread:
    """A thread for one call after the other, that not even the end of the program waits for.

    To start a thread holds the loop up for as long as a small call takes: who calls often keeps one.
    """

    def __init__(self) -> None:
        self._works: SimpleQueue[Callable[[], None] | None] | None = None

    async def call(self, call: Callable[[], _T]) -> _T:
        """What a function gives. No other call may be under way.

        When cancelled, the thread is left to itself: the next call has another.

        Raises:
            Exception: what it raises.
        """
        done: Future[_T] = Future()
        is_over, soon = anyio.Event(), call_soon_from_thread()

        def work() -> None:
            try:
                done.set_result(call())
            except BaseException as error:
                done.set_exception(error)
            # The loop may be gone by now; then nobody is interested.
            with suppress(RuntimeError):
                soon(is_over.set)

        if self._works is None:
            self._works = SimpleQueue()
            threading.Thread(target=_work, args=[self._works], daemon=True).start()
        self._works.put(work)
        try:
            await is_over.wait()
        except BaseException:
            self.close()
            raise
        return done.result()

    def close(self) -> None:
        """Let the thread end, when it has done what it does."""
        if self._works is not None:
            self._works.put(None)
            self._works = None


def _work(works: SimpleQueue[Callable[[], None] | None]) -> None:
    while (work := works.get()) is not None:
        work()
        # While there is nothing to do, nothing that was done is kept.
        del work
