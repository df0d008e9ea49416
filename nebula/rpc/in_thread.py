"""Plain functions of services, called in worker threads."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from inspect import iscoroutine
from typing import Any

import anyio
import anyio.to_thread

__all__ = ["call_in_thread"]


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
