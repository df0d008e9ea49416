"""RUN: a handler is called in its middleware, with what it asks for, on the loop or in a thread.

`HandlerRunner` is the same for requests and for messages of subscriptions: middleware, counts, errors. How
the handler is called is handed in, and what becomes of its error. For requests, `VerbRunner` calls it: it
checks rights, attempts and parameters, and looks up idempotency keys.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from time import monotonic
from typing import Any, Generic, TypeAlias, TypeVar

import anyio
from anyio import CancelScope

from nebula import headers as names
from nebula.rpc.contract.context import HANDLED_HEADERS, HANDLED_PRINCIPAL, Ending, Request, attempts_before
from nebula.rpc.contract.injection import Plan
from nebula.rpc.contract.signature import Arguments
from nebula.rpc.contract.verbs import Endpoint
from nebula.rpc.errors import VerbError
from nebula.rpc.idempotency.replays import Replays
from nebula.rpc.middleware.chain import Middleware, request_chain, unless_sent
from nebula.rpc.middleware.providers import Provided
from nebula.rpc.service.reply_sender import ReplySender, is_meant_for_caller, value_reply
from nebula.rpc.service.statistics import Tally
from nebula.rpc.service.worker_pool import Worker
from nebula.rpc.streams.serving import ServedStreams, wants_stream
from nebula.rpc.wire.deadlines import AMBIENT
from nebula.rpc.wire.reply_body import ReplyBody
from nebula.threads import call_in_thread

__all__ = ["HandlerRunner", "VerbRunner", "call_handler"]

S = TypeVar("S")
F = TypeVar("F")
T = TypeVar("T")

Work: TypeAlias = Callable[[S, Request, Worker], Awaitable[ReplyBody | None]]
"""Calls a handler: its reply, or None to send no reply. Raises what the handler raises."""

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

    async def run(self, subject: S, request: Request, worker: Worker, tally: Tally) -> ReplyBody | F | None:
        """Call the handler: its reply, None to send no reply, or what `failed` returns.

        Raises only the cancellation of the worker's own scope.

        Args:
            subject: for `work`.
            request: what it is called for.
            worker: runs it.
            tally: counts it.
        """
        # Context variables: a client that a handler calls deep inside finds them, and no signature in
        # between has to pass them on.
        tally.requests += 1
        # For the calls of middleware and handler. The worker's own context: the next request sets it anew.
        AMBIENT.set(request.deadline)
        HANDLED_HEADERS.set(request.headers)
        HANDLED_PRINCIPAL.set(request.principal)
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
            # Ours, or of something that the handler waited for and that another task cancelled.
            if anyio.current_effective_deadline() == -math.inf:
                raise
            tally.errors += 1
            return self._failed(subject, request, error)
        finally:
            tally.add(monotonic() - started)


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


_Run: TypeAlias = Callable[[Endpoint, Request, Arguments, Worker, CancelScope], Awaitable[T]]


class VerbRunner:
    """Calls the handlers of verbs.

    Args:
        max_attempts: deliveries after which a request is not run again.
        replays: replies again to requests with a key.
        streams: the replies that are sent in parts.
        replies: knows where a reply can be sent.
    """

    def __init__(
        self, max_attempts: int, replays: Replays, streams: ServedStreams, replies: ReplySender
    ) -> None:
        self._max_attempts = max_attempts
        self._replays = replays
        self._streams = streams
        self._replies = replies
        self._counts_failures = False

    def connect(self, *, counts_failures: bool) -> None:
        """Say whether the broker counts the deliveries that failed, and no others."""
        self._counts_failures = counts_failures

    # Not async itself: a coroutine less for each request.
    def run(self, verb: Endpoint, request: Request, worker: Worker) -> Awaitable[ReplyBody | None]:
        """Check a request; what is returned is the work that is left to be done.

        That gives the reply, or None where it went out as a stream; it raises what the handler raises.

        Raises:
            VerbError: the request is not to be handled.
        """
        # The checks go from cheap to dear, and rights come before parameters: a caller without rights
        # learns nothing about the parameters.
        # D.37: a handler that kills its process must not do so for ever.
        if attempts_before(request.headers, only_failed=self._counts_failures) >= self._max_attempts:
            times = f"delivered {self._max_attempts} times without a reply"
            raise VerbError("too-many-attempts", times)
        if verb.allow is not None and request.principal not in verb.allow:
            who = request.principal or "an unknown principal"
            raise VerbError("not-allowed", f"{who} may not call {verb.name}")
        arguments = verb.signature.bind(request.parameters, is_text=request.envelope.is_text)
        run: _Run[ReplyBody | None] = self._stream if verb.streams else self._call
        if verb.plan is not None:
            run = partial(self._provide, verb.plan, run)
        key = request.headers.get(names.IDEMPOTENCY_KEY)
        if not key or verb.streams:
            return run(verb, request, arguments, worker, worker.scope)
        # It may wait for another request with this key, and is cancelled like any that waits.
        request.scope = worker.scope
        return self._replays.reply(
            key,
            request,
            partial(run, verb, request, arguments, worker, worker.scope),
            is_meant=partial(is_meant_for_caller, verb),
            outlives=not verb.is_async,
        )

    async def _provide(
        self,
        plan: Plan,
        run: _Run[T],
        verb: Endpoint,
        request: Request,
        arguments: Arguments,
        worker: Worker,
        scope: CancelScope,
    ) -> T:
        """Do what `run` does with what the providers make. That is closed after the reply."""
        request.scope = scope
        # Middleware may run a handler again: with what was made for it before.
        provided = worker.provided = worker.provided or Provided(worker.pool.limiter)
        with provided:
            args, kwargs = arguments
            arguments = args, kwargs | await provided.make(plan, request)
        # A scope of the handler's own: providers close in peace when its time is over.
        with CancelScope() as own, provided:
            return await run(verb, request, arguments, worker, own)
        raise VerbError("deadline-exceeded", "no caller waits for the reply any more")

    async def _call(
        self, verb: Endpoint, request: Request, arguments: Arguments, worker: Worker, scope: CancelScope
    ) -> ReplyBody:
        if verb.is_async:
            request.scope = scope
            result = await verb.invoke(arguments, request)
        else:
            # Not cancelled: a thread cannot be stopped, and without its worker threads would pile up.
            request.scope = None
            result = await call_handler(verb, arguments, request, worker.pool.limiter)
            # It may have seen the end of its time before the sweep did.
            if request.cancelled:
                request.end(Ending.EXPIRED)
        return value_reply(verb, request, result)

    async def _stream(
        self, verb: Endpoint, request: Request, arguments: Arguments, _worker: Worker, scope: CancelScope
    ) -> ReplyBody | None:
        """Send what the handler yields; to a caller that knows no streams, as one reply if it is short."""
        if wants_stream(request) and self._replies.may_reply_to(request.reply_to, request.reply_id):
            await self._streams.send(verb, arguments, request)
            return None
        # As for any other handler, see `_call`.
        request.scope = scope if verb.is_async else None
        return ReplyBody(verb.response, await self._streams.collect(verb, arguments, request))
