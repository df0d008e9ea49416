"""Waiters: one value for one waiting task, on asyncio and trio. Lighter than an event with a variable."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Generic, Protocol, TypeVar

import anyio

T = TypeVar("T")


def runs_on_asyncio() -> bool:
    """Whether the calling task is asyncio's (otherwise it is trio's). False outside of any task."""
    try:
        # Not `get_running_loop`: trio may be a guest of an asyncio loop.
        return asyncio.current_task() is not None
    except RuntimeError:
        return False


class Waiter(Protocol[T]):
    """Handed from the task that waits to the callback that knows the result.

    `set` and `fail` are synchronous, may be called from any callback on the loop's thread, and do nothing
    once the waiter has a result or its task gave up.
    """

    def set(self, value: T) -> None:
        """Make `wait` return `value`."""

    def fail(self, error: Exception) -> None:
        """Make `wait` raise `error`."""

    def wait(self) -> Awaitable[T]:
        """Wait for the result. Called once, and awaited at once; it can be cancelled."""
        ...


def new_waiter() -> Waiter[T]:
    """Make a waiter for the calling task."""
    maker: Callable[[], Waiter[T]] = waiter_maker()
    return maker()


def waiter_maker() -> Callable[[], Waiter[T]]:
    """A factory of waiters for tasks of the running loop, for callers that need many.

    Finding the running loop costs more than the waiter: CPython 3.11 asks the system for the process id.
    """
    # An `anyio.Event` costs several times as much as a future, and a call waits once or twice.
    return partial(_FutureWaiter, asyncio.get_running_loop()) if runs_on_asyncio() else _EventWaiter


class _FutureWaiter(Generic[T]):
    __slots__ = ("_future",)

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        # When a waiting task is cancelled its future is done, so a late `set` does nothing.
        self._future: asyncio.Future[T] = loop.create_future()

    def set(self, value: T) -> None:
        if not self._future.done():
            self._future.set_result(value)

    def fail(self, error: Exception) -> None:
        if not self._future.done():
            self._future.set_exception(error)

    def wait(self) -> Awaitable[T]:
        return self._future


# trio has no futures.
class _EventWaiter(Generic[T]):
    __slots__ = ("_error", "_event", "_value")

    def __init__(self) -> None:
        self._event = anyio.Event()
        self._error: Exception | None = None

    def set(self, value: T) -> None:
        if not self._event.is_set():
            self._value = value
            self._event.set()

    def fail(self, error: Exception) -> None:
        if not self._event.is_set():
            self._error = error
            self._event.set()

    async def wait(self) -> T:
        await self._event.wait()
        if self._error is not None:
            raise self._error
        return self._value
