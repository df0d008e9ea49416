"""Waiters: callers that wait for news of a job, bounded in number and time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TypeVar

import anyio

from nebula.rpc.jobs.model.record import JobRecord

__all__ = ["News", "Waiters"]

_T = TypeVar("_T")


class News(Enum):
    """What callers wait for."""

    END = auto()
    """The job has ended."""

    LINES = auto()
    """There is more in its log, or it has ended."""


@dataclass(eq=False, slots=True)
class _Waiter:
    bell: anyio.Event = field(default_factory=anyio.Event)
    ended: JobRecord | None = None


# A waiting caller holds a worker of the service, so the number of waiting callers is limited.
class Waiters:
    """Callers that wait for news of jobs.

    Args:
        most: the number of callers that wait at once; others get a reply at once.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting: dict[tuple[str, News], list[_Waiter]] = {}
        self._is_dismissed = False

    def tell(self, job: str, news: News, ended: JobRecord | None = None) -> None:
        """It is written: callers that wait for it look again.

        Args:
            job: by ULID.
            news: what there is of it.
            ended: its record, where that is the news.
        """
        for waiter in self._waiting.get((job, news), ()):
            waiter.ended = ended
            waiter.bell.set()

    async def wait(
        self,
        job: str,
        news: News,
        look: Callable[[JobRecord | None], Awaitable[_T]],
        is_enough: Callable[[_T], bool],
        seconds: float,
        known: _T | None = None,
    ) -> _T:
        """What `look` returns once that is enough, or after `seconds`.

        Args:
            job: by ULID.
            news: what may change what `look` gives.
            look: reads the registry; it is given the record of the job where it was told to have ended. What
                it raises is raised.
            is_enough: the caller need not wait.
            seconds: for which it may.
            known: what `look` would give now, where that is known: then it is not read before the first news.
        """
        if seconds <= 0 or self._is_dismissed or sum(map(len, self._waiting.values())) >= self._most:
            return await look(None)
        deadline = anyio.current_time() + seconds
        # Registered before the first look, so that an end between the two is not missed.
        with self._waiter(job, news) as waiter:
            found = await look(None) if known is None else known
            while not is_enough(found) and not self._is_dismissed:
                with anyio.move_on_after(deadline - anyio.current_time()) as in_time:
                    await waiter.bell.wait()
                    # Before it looks again: what is written after that rings.
                    waiter.bell = anyio.Event()
                # Also when the time is over, so that the reply has the latest state.
                found = await look(waiter.ended)
                if in_time.cancelled_caught:
                    break
        return found

    def dismiss(self) -> None:
        """Keep no caller waiting any more: each gets what there is."""
        self._is_dismissed = True
        for waiters in self._waiting.values():
            for waiter in waiters:
                waiter.bell.set()

    @contextmanager
    def _waiter(self, job: str, news: News) -> Iterator[_Waiter]:
        waiters = self._waiting.setdefault((job, news), [])
        waiters.append(waiter := _Waiter())
        try:
            yield waiter
        finally:
            waiters.remove(waiter)
            if not waiters:
                self._waiting.pop((job, news), None)
