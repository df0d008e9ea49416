"""An event loop on a thread of its own, and calls into it from other threads."""

# One thread with one event loop for each client, from entering to leaving it. Calls come from any thread
# and wait there. Each crossing costs two switches of threads, as much as a hundred items, so what comes in
# numbers crosses in batches (`Calls._streamed`).
#
# Objects that look at the clock or the scopes around them when they are made (streams, subscriptions) are
# made on the loop's thread (`make`), because a scope belongs to a task of that loop.
#
# Generators are closed on the loop as well. A plain `for` that is left by `break` closes the outer
# generator here, and its `finally` closes the inner one there.

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, ExitStack
from types import TracebackType
from typing import TypeVar

from anyio.from_thread import BlockingPortal, start_blocking_portal

from nebula.errors import LocalProtocolError

__all__ = ["Loop"]

T = TypeVar("T")


class Loop:
    """The loop that a client and all its views do their work on, from entering the client to leaving it."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._portal: BlockingPortal | None = None

    def begin(self, main: AbstractAsyncContextManager[object]) -> None:
        """Start the loop, and enter what it is for. If that fails there is no loop."""
        # If connecting fails, the thread has to end too.
        with ExitStack() as stack:
            portal = stack.enter_context(start_blocking_portal())
            stack.enter_context(portal.wrap_async_context_manager(main))
            self._portal, self._stack = portal, stack.pop_all()

    def end(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave what it is for, and end the loop. Args: as for `__exit__`."""
        try:
            self._stack.__exit__(kind, error, trace)
        finally:
            self._portal = None

    def do(self, work: Callable[[], Awaitable[T]]) -> T:
        """Have some work done, and wait for it.

        Raises:
            LocalProtocolError: the client is not entered.
        """
        return self._live().call(work)

    def make(self, make: Callable[[], T]) -> T:
        """Have something made on the loop's thread, where it belongs."""
        return self._live().call(make)

    def entered(self, block: AbstractAsyncContextManager[T]) -> AbstractContextManager[T]:
        """The same block, for another thread. Raises as `do`."""
        return self._live().wrap_async_context_manager(block)

    def each(self, things: Callable[[], AsyncIterator[T]]) -> Generator[T]:
        """What an async iterator gives; it is made on the loop, and closed where the reader leaves."""
        made = self.make(things)
        try:
            while True:
                try:
                    one = self.do(made.__anext__)
                except StopAsyncIteration:
                    return
                yield one
        finally:
            # A generator may hold a subscription until it is closed.
            if isinstance(made, AsyncGenerator):
                self.do(made.aclose)

    def _live(self) -> BlockingPortal:
        if self._portal is None:
            raise LocalProtocolError("the client is not connected: enter it with `with`")
        return self._portal
