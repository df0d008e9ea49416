"""Blocking functions called in threads: worker threads, daemon threads, and a limit of threads per loop."""

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
import anyio.lowlevel
import anyio.to_thread

from nebula.loop_calls import call_soon_from_thread

__all__ = ["DaemonThread", "ThreadLimit", "call_in_daemon", "call_in_thread"]

_T = TypeVar("_T")


class ThreadLimit:
    """A limiter of threads for each event loop: an `anyio.CapacityLimiter` belongs to one loop.

    Args:
        threads: of one loop, at a time.
    """

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._limiters = anyio.lowlevel.RunVar[anyio.CapacityLimiter]("limiter of threads")

    @property
    def limiter(self) -> anyio.CapacityLimiter:
        """That of the running loop."""
        limiter = self._limiters.get(None)
        if limiter is None:
            limiter = anyio.CapacityLimiter(self._threads)
            self._limiters.set(limiter)
        return limiter


async def call_in_thread(limiter: anyio.CapacityLimiter | None, call: Callable[[], Any]) -> Any:
    """Call a plain function in a worker thread and return its result.

    A coroutine that it returns is awaited on the loop: an `async def` in a plain decorator, or called by a
    lambda, looks like any plain function until then. When cancelled, the thread runs on by itself.

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
    """Call a function in a thread that the end of the program does not wait for, and return its result.

    When cancelled, the thread runs on by itself.

    Raises:
        Exception: what it raises.
    """
    thread = DaemonThread()
    try:
        return await thread.call(call)
    finally:
        thread.close()


# Not `anyio.to_thread`, whose threads the interpreter waits for at its end: a driver that hangs while it
# looks up a host would keep a stopped service from ending.
class DaemonThread:
    """A thread for one call after the other, which the end of the program does not wait for.

    Starting a thread holds up the loop for as long as a small call takes: keep one for frequent calls.
    """

    def __init__(self) -> None:
        self._works: SimpleQueue[Callable[[], None] | None] | None = None

    async def call(self, call: Callable[[], _T]) -> _T:
        """Call a function and return its result. No other call may be under way.

        When cancelled, the thread runs on by itself, and the next call gets a new one.

        Raises:
            Exception: what it raises.
        """
        done: Future[_T] = Future()
        is_over, soon = anyio.Event(), call_soon_from_thread()

        # BaseException too, or the caller would wait for ever.
        def work() -> None:
            try:
                done.set_result(call())
            except BaseException as error:
                done.set_exception(error)
            # The loop may have ended by now, and with it the caller.
            with suppress(RuntimeError):
                soon(is_over.set)

        if self._works is None:
            self._works = SimpleQueue()
            # Started at the first call, so that a service without such calls has no thread.
            threading.Thread(target=_work, args=[self._works], daemon=True).start()
        self._works.put(work)
        try:
            await is_over.wait()
        except BaseException:
            self.close()
            raise
        return done.result()

    def close(self) -> None:
        """Let the thread end after its current call."""
        if self._works is not None:
            # Behind what is in the queue, so that a call under way ends first.
            self._works.put(None)
            self._works = None


def _work(works: SimpleQueue[Callable[[], None] | None]) -> None:
    while (work := works.get()) is not None:
        work()
        # Keep no result alive while waiting for the next call.
        del work
