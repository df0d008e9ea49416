"""Clock of a job service, and the loop for what is done periodically."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import NoReturn

import anyio

from nebula.rpc.jobs.scheduler.actions import Moment

__all__ = ["Clock", "every"]


# An argument of the service, so that tests move jobs by days without waiting.
@dataclass(frozen=True, slots=True)
class Clock:
    """Where the time comes from: seconds since the epoch, and seconds that never jump."""

    wall: Callable[[], float] = time.time
    steady: Callable[[], float] = time.monotonic

    def now(self) -> Moment:
        """Both."""
        return Moment(self.wall(), self.steady())


async def every(seconds: float, do: Callable[[], Awaitable[None]]) -> NoReturn:
    """Repeat a function for ever, with a pause of `seconds` before each call."""
    # A pause after each call and not a fixed rate, so that a slow call is not followed at once by the next
    # one.
    while True:
        await anyio.sleep(seconds)
        await do()
