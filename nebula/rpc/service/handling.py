"""From a request for a verb to its handler's result: rights, attempts, parameters, what else it is given."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import anyio
from anyio import CancelScope

from nebula import headers as names
from nebula.rpc.contract.context import Ending, Request, attempts_before
from nebula.rpc.contract.injection import Plan, Provided
from nebula.rpc.contract.signature import Arguments
from nebula.rpc.errors import VerbError
from nebula.rpc.idempotency.replaying import Replays
from nebula.rpc.service.reply_sender import AnswerPost
from nebula.rpc.service.rules import AnswerRules
from nebula.rpc.service.workers import Worker
from nebula.rpc.streams.serving import ServedStreams, wants_stream
from nebula.rpc.wire.answers import Answer, success
from nebula.rpc.wire.avro_bodies import AvroValue
from nebula.rpc.wire.envelope import Envelope
from nebula.threads import call_in_thread

if TYPE_CHECKING:
    from nebula.rpc.contract.verbs import Endpoint

__all__ = ["Handling", "is_meant"]

T = TypeVar("T")

_Run: TypeAlias = "Callable[[Endpoint, Request, Arguments, CancelScope, anyio.CapacityLimiter], Awaitable[T]]"


def is_meant(error: VerbError, verb: Endpoint) -> bool:
    """Whether an error that a handler let pass is for its caller.

    What another service answered to the handler is not, unless the verb declares it, too.
    """
    return not error.was_answered or type(error) in verb.errors


class Handling:
    """Has the handlers of verbs called.

    Args:
        rules: of the responder.
        replays: answers again what was asked for with the same key.
        streams: the answers that are being sent in parts.
        answers: knows who can be answered.
    """

    def __init__(
        self, rules: AnswerRules, replays: Replays, streams: ServedStreams, answers: AnswerPost
    ) -> None:
        self._rules = rules
        self._replays = replays
        self._streams = streams
        self._answers = answers
        self._counts_failures = False

    def connect(self, *, counts_failures: bool) -> None:
        """Say whether the broker counts the deliveries that failed, and no others."""
        self._counts_failures = counts_failures

    # Not async itself: a coroutine less for each request.
    def begin(
        self, verb: Endpoint, request: Request, envelope: Envelope, worker: Worker
    ) -> Awaitable[Answer | None]:
        """Look at a request; what it gives is the work that is left to be done.

        It comes to the answer, or None where that went out as a stream; it raises what the handler raises.

        Raises:
            VerbError: it is not to be handled.
        """
        # D.37: a handler that kills its process must not do so for ever.
        failed = attempts_before(request.headers, only_failed=self._counts_failures)
        if failed >= self._rules.max_attempts:
            times = f"delivered {self._rules.max_attempts} times without an answer"
            raise VerbError("too-many-attempts", times)
        if not verb.may_be_called_by(request.principal):
            raise VerbError("not-allowed", f"{request.principal or 'nobody known'} may not call {verb.name}")
        arguments = verb.signature.bind(request.parameters, is_text=envelope.is_text)
        scope, limiter = worker.scope, worker.lane.limiter
        if verb.streams:
            return self._given(verb, self._stream)(verb, request, arguments, scope, limiter)
        run = self._given(verb, self._run)
        key = request.headers.get(names.IDEMPOTENCY_KEY)
        if not key:
            return run(verb, request, arguments, scope, limiter)
        # It may wait for another one with this key, and is cancelled like any that waits.
        request.scope = scope
        return self._replays.answer(
            key,
            request,
            partial(run, verb, request, arguments, scope, limiter),
            is_meant=lambda error: is_meant(error, verb),
            outlives=not verb.is_async,
        )

    def _given(self, verb: Endpoint, run: _Run[T]) -> _Run[T]:
        return run if verb.plan is None else partial(self._provide, verb.plan, run)

    async def _provide(
        self,
        plan: Plan,
        run: _Run[T],
        verb: Endpoint,
        request: Request,
        arguments: Arguments,
        scope: CancelScope,
        limiter: anyio.CapacityLimiter,
    ) -> T:
        """Have done what `run` does, with what the handler wants beside its parameters."""
        request.scope = scope
        provided = request.provided = request.provided or Provided(limiter)
        with provided:
            args, kwargs = arguments
            arguments = args, kwargs | await provided.make(plan, request)
        # A scope of the handler's own: providers close in peace when its time is over.
        with CancelScope() as own, provided:
            return await run(verb, request, arguments, own, limiter)
        raise VerbError("deadline-exceeded", "nobody waits for the answer any more")

    async def _run(
        self,
        verb: Endpoint,
        request: Request,
        arguments: Arguments,
        scope: CancelScope,
        limiter: anyio.CapacityLimiter,
    ) -> Answer:
        if verb.is_async:
            request.scope = scope
            result = await verb.invoke(arguments, request)
        else:
            # Nor does it free its worker when nobody waits for it any more: threads would pile up.
            request.scope = None
            # A thread cannot be stopped: at the end of the service it is left to itself.
            result = await call_in_thread(limiter, partial(verb.invoke, arguments, request))
            # It may have seen the end of its time before the sweep did.
            if request.cancelled:
                request.end(Ending.EXPIRED)
        # A job's answer comes ready: its early `success` has parameters.
        if isinstance(result, Answer):
            return result
        contract = verb.signature
        if result is None:
            contract.check_none()
            return success()
        is_avro = type(request.parameters) is AvroValue
        return Answer(verb.response, contract.dump_avro(result) if is_avro else contract.dump(result))

    async def _stream(
        self,
        verb: Endpoint,
        request: Request,
        arguments: Arguments,
        scope: CancelScope,
        _limiter: anyio.CapacityLimiter,
    ) -> Answer | None:
        """Send what the handler yields; to who knows nothing of streams, as one answer if it is short."""
        if wants_stream(request) and self._answers.may_answer(request.reply_to, request.reply_id):
            await self._streams.send(verb, arguments, request)
            return None
        # As for any other handler, see `_run`.
        request.scope = scope if verb.is_async else None
        return Answer(verb.response, await self._streams.collect(verb, arguments, request))
