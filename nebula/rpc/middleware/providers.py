"""Providers at run time: what `Depends` parameters of a handler are given, and its end after the reply.

`contract.injection` works out the order of the calls once, when the handler is declared; a request pays for
the providers alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from functools import partial
from types import TracebackType
from typing import Any, assert_never

import anyio
import anyio.to_thread

from nebula.logs import get_logger
from nebula.rpc.contract.injection import Plan, ProviderKind, Step
from nebula.threads import call_in_thread

__all__ = ["Provided"]

_log = get_logger(__name__)


class Provided:
    """What providers made for one request, until it is closed. As a context: remembers its block's error.

    Args:
        limiter: of the threads that plain providers run in.
    """

    def __init__(self, limiter: anyio.CapacityLimiter | None = None) -> None:
        self._limiter = limiter
        self._open = AsyncExitStack()
        self._error: BaseException | None = None

    async def make(self, plan: Plan, context: object) -> dict[str, Any]:
        """Call the providers: the arguments that they make, by name.

        Args:
            plan: says which.
            context: the `Request`, or the `Job`.

        Raises:
            Exception: what a provider raised; those before it are closed by `close`.
        """
        made: list[Any] = []
        for step in plan.steps:
            given = {name: made[at] for name, at in step.needs}
            given.update(dict.fromkeys(step.context_names, context))
            made.append(await self._call(step, given))
        return {name: made[at] for name, at in plan.names}

    async def _call(self, step: Step, given: Mapping[str, Any]) -> Any:
        match step.kind:
            case ProviderKind.COROUTINE:
                return await step.provider(**given)
            case ProviderKind.VALUE:
                return await call_in_thread(self._limiter, partial(step.provider, **given))
            case ProviderKind.ASYNC_GENERATOR:
                return await self._open.enter_async_context(asynccontextmanager(step.provider)(**given))
            case ProviderKind.GENERATOR:
                plain = contextmanager(step.provider)(**given)
                # `enter` of a plain generator runs in a thread: it may open a connection, and must not
                # hold up the loop.
                return await self._open.enter_async_context(_InThreads(plain, self._limiter))
            case kind:
                assert_never(kind)

    def __enter__(self) -> None:
        # A middleware may have the handler run once more.
        self._error = None

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self._error = error

    def fail(self, error: BaseException) -> None:
        """What was done with it has failed: providers are told."""
        self._error = error

    async def close(self) -> None:
        """Close what was made, the last first. What fails is logged: the reply has gone out."""
        error, self._error = self._error, None
        try:
            # The handler's error is passed in, so that a provider can roll back: the block of the stack
            # has long been left.
            await self._open.__aexit__(None if error is None else type(error), error, None)
        except Exception:
            _log.exception("provider failed after the reply")


class _InThreads:
    """A plain context manager whose two halves run in worker threads, perhaps two different ones.

    They are waited for whatever happens: what was opened and forgotten would never be closed.
    """

    def __init__(self, inner: AbstractContextManager[Any], limiter: anyio.CapacityLimiter | None) -> None:
        self._inner, self._limiter = inner, limiter

    async def __aenter__(self) -> Any:
        return await anyio.to_thread.run_sync(self._inner.__enter__, limiter=self._limiter)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        call = partial(self._inner.__exit__, kind, error, trace)
        return await anyio.to_thread.run_sync(call, limiter=self._limiter)
