"""Calls at a later time, on asyncio and trio: what was handed in while nothing else could wait."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from time import monotonic

import anyio

__all__ = ["Later"]


class Later:
    """Has functions called at their time, for as long as `run` runs. What waits then is forgotten."""

    def __init__(self) -> None:
        self._numbers = count()
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._is_changed = anyio.Event()

    def put(self, seconds: float, call: Callable[[], None]) -> None:
        """Have `call` called in so many seconds. Synchronous; `call` must not raise."""
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
