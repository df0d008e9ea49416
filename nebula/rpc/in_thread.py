"""Plain functions of services, called in threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from inspect import iscoroutine
from typing import Any, TypeVar

import anyio
import anyio.to_thread

from nebula.rpc.soon import call_soon_from_thread

__all__ = ["call_in_daemon", "call_in_thread"]

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

    threading.Thread(target=work, daemon=True).start()
    await is_over.wait()
    return done.result()
