"""The four steps of a request: take, bound, run, reply (C.1, D.13, D.37, D.46, D.50).

Every valid request gets one reply, whatever its handler does, unless it asks for none, its time is over or
its caller has withdrawn it. The reply goes out before the ACK: a crash between the two brings the request
again (at least once). With `acks_early` the ACK goes first (at most once).
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Final

import anyio

from nebula.errors import ConnectionLost
from nebula.logs import get_logger
from nebula.rpc.contract.context import Ending, Request
from nebula.rpc.contract.results import BadResult
from nebula.rpc.contract.verbs import Endpoint
from nebula.rpc.errors import VerbError
from nebula.rpc.service.cancellation import Cancellation
from nebula.rpc.service.concurrency_limits import ConcurrencyLimit, ConcurrencyLimits
from nebula.rpc.service.declaration import ServiceDeclaration
from nebula.rpc.service.handler_runner import HandlerRunner, VerbRunner
from nebula.rpc.service.reply_sender import Post, ReplySender, error_reply, facts_of, unknown_verb
from nebula.rpc.service.request_reader import RequestReader, wants_reply
from nebula.rpc.service.statistics import Tally
from nebula.rpc.service.worker_pool import Worker
from nebula.rpc.streams.serving import ServedStreams
from nebula.rpc.wire.brokers import Brand
from nebula.rpc.wire.cancel import Cancel
from nebula.rpc.wire.reply_body import ReplyBody, failure
from nebula.stomp.client.messages import Message

__all__ = ["HANDLES_REQUEST", "RequestHandler"]

_log = get_logger(__name__)

_FULL: Final = "too many requests are waiting; try again later"
_STOPPING: Final = "the service is stopping: ask again"


# The four steps, and what each may rely on:
#
# take: `RequestReader.take` makes a `Request` of a MESSAGE, or settles it.
# bound: `WorkerPool` (per queue) and `ConcurrencyLimits` (per verb). A request that may not run yet waits
# without a task, scope or timer of its own.
# run: `HandlerRunner` around `VerbRunner`: middleware, rights, attempts, parameters, the handler.
# reply: `ReplySender.send` writes the reply, then the ACK. In this order, a crash in between makes the
# broker deliver the request again. In the other order the reply would be lost, and the caller would wait for
# nothing. One ACK names all requests that were replied to in a turn of the loop: docs/decisions/0064.
#
# `message_receiver` uses the steps bound and run for `@app.on` functions; those have no reply.
class RequestHandler:
    """Handles requests for verbs.

    Args:
        declared: the service.
        verbs: by name, those that manage jobs among them.

    Attributes:
        reader: makes requests of messages, and counts those that no verb was run for.
        limits: of concurrency, by verb.
        cancellation: ends requests that their callers no longer wait for. It has to `watch` the pools, and
            its `run` has to run.
        streams: the replies that are being sent in parts. To be connected, and its `run` has to run.
        tallies: what each verb did, by name.
    """

    def __init__(self, declared: ServiceDeclaration, verbs: Mapping[str, Endpoint]) -> None:
        self._verbs = verbs
        self._rules = rules = declared.rules
        self.reader = RequestReader(declared.around)
        self.limits = ConcurrencyLimits(verbs.values(), rules.max_waiting)
        self._has_limits = bool(self.limits)
        self.cancellation = Cancellation()
        self.streams = ServedStreams(rules.stream_idle, rules.max_reply_bytes)
        self._replies = ReplySender(rules.max_reply_bytes)
        self._verb_runner = VerbRunner(rules.max_attempts, declared.replays, self.streams, self._replies)
        self._runner = HandlerRunner(self._verb_runner.run, self._error_reply, declared.middleware)
        self.tallies: dict[str, Tally] = {name: Tally() for name in verbs}

    def connect(self, post: Post, brand: Brand, *, trusts_sender: bool) -> None:
        """Say where replies go; call it before the first request of a connection.

        Args:
            post: sends them.
            brand: of the broker.
            trusts_sender: the broker itself writes the `sender` header.
        """
        self.reader.connect(trusts_sender=trusts_sender)
        self._verb_runner.connect(counts_failures=trusts_sender)
        self._replies.connect(post, brand)

    # Not async itself: a coroutine less for each request.
    def handle(self, message: Message, arrived: float, worker: Worker) -> Awaitable[None] | None:
        """Handle one message of a request queue: take, bound, run, reply and ACK.

        Neither this nor the work that it returns raises anything that a message could cause, but the
        cancellation of the worker's scope.

        Args:
            message: as it came.
            arrived: when it came, on `time.monotonic`'s clock.
            worker: handles it; its scope is cancelled when the caller waits no longer.

        Returns:
            the work that is left to be done, or None.
        """
        try:
            request = self.reader.take(message, arrived)
            # Most services limit no verb: for them this costs one look at a bool for each request.
            if self._has_limits:
                return self._handle_limited(message, request, arrived, worker)
            return None if request is None else self._run_and_reply(message, request, worker)
        except ConnectionLost:
            # What was not acked comes again; the service's own task says what happened.
            return None

    def _handle_limited(
        self, message: Message, request: Request | None, arrived: float, worker: Worker
    ) -> Awaitable[None] | None:
        if request is None:
            self.limits.forget(message)
            return None
        limit = self.limits.of(request.verb)
        if limit is None:
            return self._run_and_reply(message, request, worker)
        if limit.enter(message):
            return self._run_within(limit, message, request, worker)
        if self.limits.is_full(limit) and wants_reply(message.headers):
            self._reply_busy(message, request, _FULL)
        else:
            limit.set_aside(worker.pool, message, arrived)
        return None

    async def _run_within(
        self, limit: ConcurrencyLimit, message: Message, request: Request, worker: Worker
    ) -> None:
        try:
            await self._run_and_reply(message, request, worker)
        finally:
            limit.leave()

    async def _run_and_reply(self, message: Message, request: Request, worker: Worker) -> None:
        acks_early = self._rules.acks_early
        try:
            try:
                if acks_early:
                    message.ack()
                worker.request = request
                deadline = request.deadline
                # With equal timeouts the first request of a burst has the earliest deadline: the others skip
                # this.
                if deadline is not None and deadline < self.cancellation.next_sweep:
                    self.cancellation.sweep_earlier(deadline)
                try:
                    verb = self._verbs.get(request.verb)
                    if verb is None:
                        self.reader.unhandled.refused += 1
                        # Middleware does not see it: middleware stands around verbs that exist.
                        reply: ReplyBody | None = unknown_verb(request.envelope.verb, self._verbs)
                    else:
                        reply = await self._runner.run(verb, request, worker, self.tallies[verb.name])
                except anyio.get_cancelled_exc_class():
                    if request.ending is not None:
                        self._let_go(message, request)
                    raise
                finally:
                    worker.request = None
                if request.ending is not None:
                    self._let_go(message, request)
                # A message of a closed subscription comes again, and gets its reply then. Over another
                # connection we have no right to.
                elif not message.subscription.is_closed:
                    self._replies.send(request, reply, None if acks_early else message)
            finally:
                # After the reply and the ACK, and also after an error: a job's `notify` messages wait for it,
                # so that no caller hears of an end before it knows the job's name.
                if request.after_reply is not None:
                    request.after_reply()
                if worker.provided is not None:
                    provided, worker.provided = worker.provided, None
                    await provided.close()
        except ConnectionLost:
            return  # as in `handle`

    def _error_reply(self, verb: Endpoint, request: Request, error: BaseException) -> ReplyBody:
        if isinstance(error, BadResult):
            self.tallies[verb.name].bad_results += 1
        return error_reply(verb, request, error, debug=self._rules.debug)

    def _let_go(self, message: Message, request: Request) -> None:
        """D.50: a request that its caller no longer waits for gets no reply, and must not come again."""
        if request.ending is Ending.EXPIRED:
            self.reader.unhandled.expired += 1
        else:
            self.reader.unhandled.cancelled += 1
        _log.info("request ended early", verb=request.verb, reason=str(request.ending), **facts_of(request))
        if not self._rules.acks_early:
            message.ack()

    # --- what is not handled here ---

    def refuse(self, message: Message, arrived: float) -> bool:
        """Reply `busy` at once, as too many requests are waiting.

        False, and nothing done, for a request that asks for no reply: its sender would never know that it
        was not done. It has to wait with the others.
        """
        return self._refuse(message, arrived, _FULL)

    def turn_away(self, message: Message, arrived: float) -> bool:
        """Reply `busy` at once, as the service is stopping.

        False, and nothing done, for a request that asks for no reply.
        """
        return self._refuse(message, arrived, _STOPPING)

    def _refuse(self, message: Message, arrived: float, why: str) -> bool:
        if not wants_reply(message.headers):
            return False
        try:
            request = self.reader.take(message, arrived)
            if request is not None:
                self._reply_busy(message, request, why)
        except ConnectionLost:
            _log.debug("request not refused, the connection is gone")
        return True

    def _reply_busy(self, message: Message, request: Request, why: str) -> None:
        # A service that stops is not overloaded: operators would scale it up.
        self.reader.unhandled.overloaded += why is _FULL
        self._replies.send(request, failure(VerbError("busy", why)), message)

    def withdraw(self, message: Message) -> None:
        """Take a message of a cancel topic: end the request that it names, or see that it never starts."""
        one = Cancel.parse(message.body)
        if one is None:
            return
        principal = self.reader.principal_of(message.headers)
        if not self.cancellation.cancel(one, principal):
            self.reader.withdraw(one, principal)

    def lose(self) -> None:
        """The connection is lost: what came by it comes again."""
        self.limits.lose()
        self.streams.lose()


HANDLES_REQUEST: Final = RequestHandler._run_and_reply.__code__
"""Stands on the stack where a handler runs, with the `request`: for `LoopWatch`."""
