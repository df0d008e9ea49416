"""RUN: a handler is called within its middleware, counted, and its errors are caught.

The same for requests and for messages of subscriptions. What differs is handed in: how the handler is called,
and what becomes of its error.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from time import monotonic
from typing import Any, Final, Generic, TypeAlias, TypeVar

import anyio

from nebula.rpc.contract.context import Request
from nebula.rpc.contract.signature import Arguments
from nebula.rpc.contract.verbs import Endpoint
from nebula.rpc.middleware.chain import Middleware, request_chain, unless_sent
from nebula.rpc.service.statistics import Tally
from nebula.rpc.service.worker_pool import Worker
from nebula.rpc.wire.answers import Answer
from nebula.rpc.wire.deadlines import AMBIENT, ASKED_BY, HANDLED
from nebula.threads import call_in_thread

__all__ = ["RUNNING", "HandlerRunner", "call_handler"]

S = TypeVar("S")
F = TypeVar("F")

Work: TypeAlias = Callable[[S, Request, Worker], Awaitable[Answer | None]]
"""Calls a handler: its reply, or None where there is none to be sent. Raises what the handler raises."""

Failed: TypeAlias = Callable[[S, Request, BaseException], F]
"""Makes a result of what a handler raised."""


class HandlerRunner(Generic[S, F]):
    """Runs handlers.

    Args:
        work: calls the handler of a subject: a verb, or the arguments of a function.
        failed: makes of the handler's error what `run` returns.
        middleware: around each call, the first one outermost.
    """

    def __init__(self, work: Work[S], failed: Failed[S, F], middleware: Sequence[Middleware]) -> None:
        self._work, self._failed = work, failed
        self._chain = request_chain(middleware) if middleware else None

    async def run(self, subject: S, request: Request, worker: Worker, tally: Tally) -> Answer | F | None:
        """Call the handler: its reply, None where there is none to be sent, or what `failed` returns.

        Raises only the cancellation of the worker's own scope.

        Args:
            subject: for `work`.
            request: what it is called for.
            worker: runs it.
            tally: counts it.
        """
        tally.requests += 1
        # For the calls of middleware and handler. The worker's own context: the next request sets it anew.
        AMBIENT.set(request.deadline)
        HANDLED.set(request.headers)
        ASKED_BY.set(request.principal)
        started = monotonic()
        try:
            if self._chain is None:
                return await self._work(subject, request, worker)
            request.work = partial(self._work, subject, request, worker)
            return unless_sent(await self._chain(request))
        # `sys.exit` in a handler, by an argument parser for one, is not the end of the service.
        except (Exception, SystemExit) as error:
            tally.errors += 1
            return self._failed(subject, request, error)
        except anyio.get_cancelled_exc_class() as error:
            # Ours, or of something that the handler waited for and somebody else cancelled.
            if anyio.current_effective_deadline() == -math.inf:
                raise
            tally.errors += 1
            return self._failed(subject, request, error)
        finally:
            tally.add(monotonic() - started)


RUNNING: Final = HandlerRunner.run.__code__
"""Stands on the stack where a handler runs, with the `request`: for `LoopWatch`."""


async def call_handler(
    verb: Endpoint, arguments: Arguments, request: Request, limiter: anyio.CapacityLimiter
) -> Any:
    """Call a handler, on the loop or in a thread: its result.

    A thread cannot be stopped: when cancelled, it runs on by itself.

    Args:
        verb: the handler and its contract.
        arguments: for its parameters.
        request: for handlers that take one.
        limiter: of the threads.
    """
    if verb.is_async:
        return await verb.invoke(arguments, request)
    return await call_in_thread(limiter, partial(verb.invoke, arguments, request))
