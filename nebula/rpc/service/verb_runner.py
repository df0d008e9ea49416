"""RUN: rights, attempts and parameters of a request are checked, then the handler of its verb is called."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeAlias, TypeVar

from anyio import CancelScope

from nebula import headers as names
from nebula.rpc.contract.context import Ending, Request, attempts_before
from nebula.rpc.contract.injection import Plan
from nebula.rpc.contract.signature import Arguments
from nebula.rpc.contract.verbs import Endpoint
from nebula.rpc.errors import VerbError
from nebula.rpc.idempotency.replays import Replays
from nebula.rpc.middleware.providers import Provided
from nebula.rpc.service.handler_runner import call_handler
from nebula.rpc.service.reply_sender import ReplySender, is_meant_for_caller, value_reply
from nebula.rpc.service.worker_pool import Worker
from nebula.rpc.streams.serving import ServedStreams, wants_stream
from nebula.rpc.wire.answers import Answer

__all__ = ["VerbRunner"]

T = TypeVar("T")

_Call: TypeAlias = Callable[[Endpoint, Request, Arguments, Worker, CancelScope], Awaitable[T]]


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
    def call(self, verb: Endpoint, request: Request, worker: Worker) -> Awaitable[Answer | None]:
        """Check a request; what is returned is the work that is left to be done.

        That gives the reply, or None where it went out as a stream; it raises what the handler raises.

        Raises:
            VerbError: the request is not to be handled.
        """
        # D.37: a handler that kills its process must not do so for ever.
        if attempts_before(request.headers, only_failed=self._counts_failures) >= self._max_attempts:
            times = f"delivered {self._max_attempts} times without an answer"
            raise VerbError("too-many-attempts", times)
        if verb.allow is not None and request.principal not in verb.allow:
            raise VerbError("not-allowed", f"{request.principal or 'nobody known'} may not call {verb.name}")
        arguments = verb.signature.bind(request.parameters, is_text=request.envelope.is_text)
        if verb.streams:
            return self._call(self._stream, verb, request, arguments, worker)
        key = request.headers.get(names.IDEMPOTENCY_KEY)
        if not key:
            return self._call(self._run, verb, request, arguments, worker)
        # It may wait for another request with this key, and is cancelled like any that waits.
        request.scope = worker.scope
        return self._replays.reply(
            key,
            request,
            partial(self._call, self._run, verb, request, arguments, worker),
            is_meant=partial(is_meant_for_caller, verb),
            outlives=not verb.is_async,
        )

    def _call(
        self, call: _Call[T], verb: Endpoint, request: Request, arguments: Arguments, worker: Worker
    ) -> Awaitable[T]:
        if verb.plan is None:
            return call(verb, request, arguments, worker, worker.scope)
        return self._provide(verb.plan, call, verb, request, arguments, worker)

    async def _provide(
        self,
        plan: Plan,
        call: _Call[T],
        verb: Endpoint,
        request: Request,
        arguments: Arguments,
        worker: Worker,
    ) -> T:
        """Call it with what the providers make, which is closed after the reply."""
        request.scope = worker.scope
        # Middleware may run a handler again: with what was made for it before.
        provided = worker.provided = worker.provided or Provided(worker.pool.limiter)
        with provided:
            args, kwargs = arguments
            arguments = args, kwargs | await provided.make(plan, request)
        # A scope of the handler's own: providers close in peace when its time is over.
        with CancelScope() as own, provided:
            return await call(verb, request, arguments, worker, own)
        raise VerbError("deadline-exceeded", "nobody waits for the answer any more")

    async def _run(
        self, verb: Endpoint, request: Request, arguments: Arguments, worker: Worker, scope: CancelScope
    ) -> Answer:
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
    ) -> Answer | None:
        """Send what the handler yields; to a caller that knows no streams, as one reply if it is short."""
        if wants_stream(request) and self._replies.may_reply_to(request.reply_to, request.reply_id):
            await self._streams.send(verb, arguments, request)
            return None
        # As for any other handler, see `_run`.
        request.scope = scope if verb.is_async else None
        return Answer(verb.response, await self._streams.collect(verb, arguments, request))
