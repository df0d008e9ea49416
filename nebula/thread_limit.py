"""Threads that wait for something slow, so many at a time."""

from __future__ import annotations

import anyio
import anyio.lowlevel

__all__ = ["Turns"]


class Turns:
    """A limiter of threads for each event loop that needs one: `anyio.CapacityLimiter` belongs to a loop.

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
