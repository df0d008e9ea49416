"""Calls on the event loop in its next turn or at a later time, on asyncio and trio.

The callbacks of a link run outside of any task: they cannot start tasks or wait. What has to happen later is
handed over here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from time import monotonic
from typing import TypeAlias

import anyio

from nebula.waiter import runs_on_asyncio

__all__ = ["CallSoon", "DelayedCalls", "call_soon", "call_soon_from_thread"]

CallSoon: TypeAlias = Callable[[Callable[[], None]], object]
"""Has a function called on the loop's thread in one of its next turns. The function must not raise."""


def call_soon() -> CallSoon:
    """For callers on the thread of the running loop."""
    # trio has one function for both kinds of callers. On asyncio the one for threads wakes the loop by a
    # socket, which costs a system call.
    return asyncio.get_running_loop().call_soon if runs_on_asyncio() else call_soon_from_thread()


def call_soon_from_thread() -> CallSoon:
    """For callers on any thread. Raises RuntimeError there when the loop has ended."""
    if runs_on_asyncio():
        # Bound to the running loop, so that threads without a loop can call it later.
        return asyncio.get_running_loop().call_soon_threadsafe
    # Imported only where it runs: it may not be installed.
    import trio

    return trio.lowlevel.current_trio_token().run_sync_soon


class DelayedCalls:
    """Functions that are called at their time, as long as `run` runs. What waits after that is dropped."""

    def __init__(self) -> None:
        # Breaks ties: functions cannot be compared.
        self._numbers = count()
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._is_changed = anyio.Event()

    def call_later(self, seconds: float, call: Callable[[], None]) -> None:
        """Have `call` called after a number of seconds. Synchronous; `call` must not raise."""
        # Pushed before the event is set. `run` makes a new event before it reads the heap, so no call is
        # missed.
        heappush(self._heap, (monotonic() + seconds, next(self._numbers), call))
        self._is_changed.set()

    async def run(self) -> None:
        """Call what is due, until cancelled."""
        while True:
            self._is_changed = anyio.Event()
            while self._heap and self._heap[0][0] <= monotonic():
                heappop(self._heap)[2]()
            left = self._heap[0][0] - monotonic() if self._heap else None
            with anyio.move_on_after(left):
                await self._is_changed.wait()
