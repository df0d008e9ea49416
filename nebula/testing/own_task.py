"""Context managers that may be left in another task than they were entered in, as some fixtures are."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager, suppress
from types import TracebackType

import anyio

from nebula.waiter import runs_on_asyncio

__all__ = ["OwnTask"]


class OwnTask(AbstractAsyncContextManager[None]):
    """The same block, entered and left in a task of its own.

    anyio's task groups have to be left by the task that entered them. pytest-asyncio enters and leaves an
    async fixture in two tasks, and runs the test in a third one. On trio the block is entered as it is:
    anyio's plugin has one task for fixtures and tests.

    The inner block is left without the error of the outer one. When it ends early, the task that entered it
    is cancelled, and leaving raises the reason.

    Args:
        block: what to enter.
    """

    def __init__(self, block: AbstractAsyncContextManager[object]) -> None:
        self._block = block
        self._task: asyncio.Task[None] | None = None
        self._outer: asyncio.Task[None] | None = None
        self._is_leaving = asyncio.Event()
        self._has_cancelled = False

    async def __aenter__(self) -> None:
        if not runs_on_asyncio():
            await self._block.__aenter__()
            return
        self._outer = asyncio.current_task()
        entered = asyncio.Event()
        self._task = asyncio.create_task(self._run(entered))
        # If the block cannot be entered, the task ends, and `await self._task` raises the reason.
        self._task.add_done_callback(lambda _: entered.set())
        try:
            await entered.wait()
        # Cancelled while the block was entered: the block is closed first.
        except BaseException:
            self._task.cancel()
            await self._ended(self._task)
            raise
        if self._task.done():
            await self._task
        # Only now, because until here the outer task learns of an end by `entered`.
        self._task.add_done_callback(self._end_outer)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is None:
            await self._block.__aexit__(kind, error, trace)
            return
        self._is_leaving.set()
        await self._ended(self._task)
        if self._has_cancelled:
            await self._take_back(error)
        if not self._task.cancelled() and (failure := self._task.exception()) is not None:
            raise failure

    async def _run(self, entered: asyncio.Event) -> None:
        async with self._block:
            entered.set()
            await self._is_leaving.wait()

    async def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.done():
            # Not `await task`, which would raise the task's error here, and cancel it with the waiter.
            with anyio.CancelScope(shield=True):
                await asyncio.wait([task])

    def _end_outer(self, _: asyncio.Task[None]) -> None:
        # Of a fixture it has ended long since: the reason is told as that is left.
        if not self._is_leaving.is_set() and self._outer is not None and not self._outer.done():
            self._has_cancelled = self._outer.cancel()

    async def _take_back(self, error: BaseException | None) -> None:
        if not isinstance(error, asyncio.CancelledError):
            # The cancellation came too late to end the block, and must not end what follows.
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0)
        assert self._outer is not None
        # Since Python 3.11 a task counts requests to cancel it: without this, `cancelling()` stays above 0.
        self._outer.uncancel()
