"""From one request to its one answer: the rules of the protocol (PROTOCOL C.1, D.13, D.37, D.46, D.50)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Final

import anyio

from nebula import headers as names
from nebula.errors import ConnectionLost
from nebula.logs import get_logger
from nebula.nearest import did_you_mean
from nebula.rpc.contract.context import Ending, Request, Surroundings
from nebula.rpc.contract.results import BadResult
from nebula.rpc.errors import VerbError
from nebula.rpc.idempotency.replaying import Replays
from nebula.rpc.middleware.chain import Middleware, answering_chain, unless_sent
from nebula.rpc.service.concurrency import MOST_ASIDE, Gate
from nebula.rpc.service.handling import Handling, is_meant
from nebula.rpc.service.reply_sender import AnswerPost, Post
from nebula.rpc.service.rules import AnswerRules
from nebula.rpc.service.running import Running
from nebula.rpc.service.statistics import Tally
from nebula.rpc.service.workers import Worker
from nebula.rpc.streams.serving import ServedStreams
from nebula.rpc.wire.answers import SEE_LOG, Answer, failure, is_answer
from nebula.rpc.wire.brokers import Brand
from nebula.rpc.wire.cancel import Cancel, Withdrawn
from nebula.rpc.wire.deadlines import AMBIENT, ASKED_BY, HANDLED, deadline_of
from nebula.rpc.wire.envelope import BOO, Envelope, content_type_of, parse
from nebula.rpc.wire.upstream import upstream_error
from nebula.stomp.client.messages import Message

if TYPE_CHECKING:
    from nebula.rpc.contract.verbs import Endpoint

_log = get_logger(__name__)

_FULL: Final = "too many requests are waiting; try again later"
_STOPPING: Final = "the service is stopping: ask again"


class Answerer:
    """Answers requests with verbs.

    Every valid request is answered once, whatever its handler does, unless it asks for no answer or its
    time is over or its caller has withdrawn it. The answer goes out before the ACK, so that a crash between
    them brings the request again (at least once); with `acks_early` the ACK goes first (at most once).

    Args:
        verbs: by name.
        rules: of the responder.
        replays: answers again what was asked for with the same key.
        around: the service, for its requests.
        middleware: around each request that a verb is there for, the first one outermost.

    Attributes:
        running: ends requests that nobody waits for. It has to `watch` the lanes, and its `run` to run.
        streams: the answers that are being sent in parts. To be connected, and its `run` has to run.
        most_aside: requests that verbs of limited concurrency may set aside in all.
        expired, cancelled, skipped, refused, overloaded: requests that were not answered, or not by a verb:
            their time was over; their caller withdrew them; they were answers themselves; they could not be
            read, or no verb has that name; too many were waiting.
    """

    def __init__(
        self,
        verbs: Mapping[str, Endpoint],
        rules: AnswerRules,
        replays: Replays,
        around: Surroundings,
        middleware: Sequence[Middleware] = (),
    ) -> None:
        self._verbs = verbs
        self._around = around
        self._chain = answering_chain(middleware) if middleware else None
        self._gates = {
            one.name: Gate(one.concurrency, rules.max_waiting)
            for one in verbs.values()
            if one.concurrency is not None
        }
        self.most_aside = MOST_ASIDE + (rules.max_waiting or 0) if self._gates else 0
        # None until the first caller withdraws something.
        self._withdrawn: Withdrawn | None = None
        self.running = Running()
        self.streams = ServedStreams(rules.stream_idle, rules.max_reply_bytes)
        self._answers = AnswerPost(rules.max_reply_bytes)
        self._trusts_sender = False
        self._rules = rules
        self._handling = Handling(rules, replays, self.streams, self._answers)
        self.tallies: dict[str, Tally] = {name: Tally() for name in verbs}
        self.expired = 0
        self.cancelled = 0
        self.skipped = 0
        self.refused = 0
        self.overloaded = 0

    @property
    def set_aside(self) -> int:
        """Requests that wait as too many of their verb are being handled."""
        return sum(gate.waiting for gate in self._gates.values())

    def connect(self, post: Post, brand: Brand, *, trusts_sender: bool) -> None:
        """Say where answers go; call it before the first request.

        Args:
            post: sends them.
            brand: of the broker.
            trusts_sender: the broker itself writes the `sender` header.
        """
        self._answers.connect(post, brand)
        self._trusts_sender = trusts_sender
        self._handling.connect(counts_failures=trusts_sender)

    async def serve(self, message: Message, arrived: float, worker: Worker) -> None:
        """Deal with one message of a request queue: answer and ACK it.

        Raises nothing that a message could cause, but the cancellation of the worker's scope.

        Args:
            message: as it came.
            arrived: when it came.
            worker: whose turn it is; its scope is cancelled when nobody waits for the answer any more.
        """
        try:
            envelope = parse(content_type_of(message.headers), message.body)
            gate = self._gates.get(envelope.verb or "")
            if gate is None:
                await self._handle(message, envelope, arrived, worker)
            elif gate.enter(message):
                try:
                    await self._handle(message, envelope, arrived, worker)
                finally:
                    gate.leave()
            elif (gate.is_full or self.set_aside >= self.most_aside) and _wants_answer(message):
                self._refuse(message, envelope, arrived, _FULL)
            else:
                gate.set_aside(worker.lane, message, arrived)
        except ConnectionLost:
            # What was not acked comes again; the responder's own task says what happened.
            return

    def refuse(self, message: Message, arrived: float) -> bool:
        """Answer `busy` at once, as too many requests are waiting.

        False, and nothing done, for a request that asks for no answer: its sender would never know that it
        was not done. It has to wait with the others.
        """
        return self._answer_busy(message, arrived, _FULL)

    def turn_away(self, message: Message, arrived: float) -> bool:
        """Answer `busy` at once, as the service is stopping.

        False, and nothing done, for a request that asks for no answer.
        """
        return self._answer_busy(message, arrived, _STOPPING)

    def empty_gates(self) -> None:
        """Give what was set aside back to its lanes: they are closed."""
        for gate in self._gates.values():
            gate.empty()

    def lose(self) -> None:
        """The connection is lost: what came by it comes again."""
        for gate in self._gates.values():
            gate.lose()
        self.streams.lose()

    def _answer_busy(self, message: Message, arrived: float, why: str) -> bool:
        if not _wants_answer(message):
            return False
        try:
            self._refuse(message, parse(content_type_of(message.headers), message.body), arrived, why)
        except ConnectionLost:
            _log.debug("request not refused, the connection is gone")
        return True

    def withdraw(self, message: Message) -> None:
        """Take a message of a cancel topic: end the request that it names, or see that it never starts."""
        one = Cancel.parse(message.body)
        if one is None:
            return
        principal = self._principal_of(message.headers)
        if not self.running.cancel(one, principal):
            self._withdrawn = self._withdrawn or Withdrawn()
            self._withdrawn.remember(one, principal, monotonic())

    async def _handle(self, message: Message, envelope: Envelope, arrived: float, worker: Worker) -> None:
        request = self._request_in(message, envelope, arrived)
        if request is None:
            return
        if self._rules.acks_early:
            message.ack()
        worker.request = request
        deadline = request.deadline
        if deadline is not None and deadline < self.running.next_sweep:
            self.running.sweep_earlier(deadline)
        try:
            try:
                answer = await self._answer(request, envelope, worker)
            except anyio.get_cancelled_exc_class():
                if request.ending is not None:
                    self._let_go(message, request)
                raise
            finally:
                worker.request = None
            if request.ending is not None:
                self._let_go(message, request)
                return
            if message.subscription.is_closed:
                # Whoever gets it again answers it. By another connection we have no right to.
                return
            self._answers.send(request, answer)
            if not self._rules.acks_early:
                message.ack()
        finally:
            if request.after_answer is not None:
                request.after_answer()
            if request.provided is not None:
                await request.provided.close()

    def _request_in(self, message: Message, envelope: Envelope, arrived: float) -> Request | None:
        """The request that a message is, if it is one to be answered; else the message is settled."""
        if message.subscription.is_closed:  # with its connection: it comes again, perhaps to another instance
            return None
        headers = message.headers
        # C.4: the gem posts "boo" to each queue before it subscribes. A genuine body "boo" is lost.
        if message.body == BOO or is_answer(envelope, headers):
            self.skipped += 1
            message.ack()
            return None
        deadline = deadline_of(headers, arrived)
        # D.50: its caller has given up, and may have asked somebody else.
        if deadline is not None and monotonic() >= deadline:
            self.expired += 1
            message.ack()
            return None
        # Rule 2: need not be answered. Rule 3's fall-back would put the answer into our own queue.
        if envelope.verb is None and names.REPLY_TO not in headers:
            self.refused += 1
            _log.warning("unreadable request refused", destination=message.destination)
            # Nobody could be told, and nobody will ever understand it.
            message.nack(requeue="false")
            return None
        request = Request(
            envelope,
            headers,
            destination=message.destination,
            principal=self._principal_of(headers),
            deadline=deadline,
            around=self._around,
        )
        if self._withdrawn is not None and _is_withdrawn(self._withdrawn, request):
            self.cancelled += 1
            message.ack()
            return None
        return request

    def _principal_of(self, headers: Mapping[str, str]) -> str | None:
        # Where the broker does not write the header itself, anybody could have.
        return headers.get(names.SENDER) if self._trusts_sender else None

    def _refuse(self, message: Message, envelope: Envelope, arrived: float, why: str) -> None:
        request = self._request_in(message, envelope, arrived)
        if request is not None:
            self.overloaded += why is _FULL
            self._answers.send(request, failure(VerbError("busy", why)))
            message.ack()

    def _let_go(self, message: Message, request: Request) -> None:
        """D.50: a request that nobody waits for any more gets no answer, and is not to come again."""
        if request.ending is Ending.EXPIRED:
            self.expired += 1
        else:
            self.cancelled += 1
        _log.info("request ended early", verb=request.verb, reason=str(request.ending), **_whose(request))
        if not self._rules.acks_early:
            message.ack()

    async def _answer(self, request: Request, envelope: Envelope, worker: Worker) -> Answer | None:
        verb = None if envelope.verb is None else self._verbs.get(envelope.verb)
        if verb is None:
            self.refused += 1
            return failure(_no_verb(envelope, self._verbs))
        tally = self.tallies[verb.name]
        tally.requests += 1
        # For the calls of middleware and handler. The worker's own context: the next request sets it anew.
        AMBIENT.set(request.deadline)
        HANDLED.set(request.headers)
        ASKED_BY.set(request.principal)
        started = monotonic()
        try:
            if self._chain is None:
                return await self._handling.begin(verb, request, envelope, worker)
            request.work = partial(self._handling.begin, verb, request, envelope, worker)
            return unless_sent(await self._chain(request))
        # A job refuses, and so may a handler: those are the errors that are meant for the caller.
        except VerbError as error:
            tally.errors += 1
            if isinstance(error, BadResult):
                tally.bad_results += 1
                what = {"field": error.field, "problem": error.problem}
                _log.error("bad result", verb=verb.name, **what, **_whose(request))
            return failure(error) if is_meant(error, verb) else self._failed(verb, request, error)
        # `sys.exit` in a handler, of some argument parser for one, is not the end of the service.
        except (Exception, SystemExit) as error:
            tally.errors += 1
            return self._failed(verb, request, error)
        except anyio.get_cancelled_exc_class() as error:
            # Ours, or of something that the handler waited for and somebody else cancelled.
            if anyio.current_effective_deadline() == -math.inf:
                raise
            tally.errors += 1
            return self._failed(verb, request, error)
        finally:
            tally.add(monotonic() - started)

    def _failed(self, verb: Endpoint, request: Request, error: BaseException) -> Answer:
        told = upstream_error(error)
        if told is None:
            return self._internal(verb, request, error)
        # Not a fault of the code: where it happened says nothing that the error does not.
        what = {"code": told.code, "error": _texts_of(error)}
        _log.warning("dependency failed", verb=verb.name, **what, **_whose(request))
        if self._rules.debug:
            told.message = _texts_of(error)
        return failure(told)

    def _internal(self, verb: Endpoint, request: Request, error: BaseException) -> Answer:
        # The traceback is for the log: a peer learns nothing of our inside.
        _log.exception("verb failed", verb=verb.name, **_whose(request))
        return failure(VerbError("internal", repr(error) if self._rules.debug else SEE_LOG))


def _whose(request: Request) -> dict[str, str]:
    """Log fields for the sender of a request, as far as known; named as in `log_requests`."""
    known = {"request_id": request.reply_id, "principal": request.principal}
    return {name: value for name, value in known.items() if value}


ANSWERING: Final = Answerer._answer.__code__
"""Stands on the stack where a request is handled, with the `request`: for `LoopWatch`."""


def _texts_of(error: BaseException) -> str:
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(_texts_of(one) for one in error.exceptions)
    return f"{type(error).__name__}: {error}"


def _wants_answer(message: Message) -> bool:
    return message.headers.get(names.NO_REPLY) != "true"


def _is_withdrawn(withdrawn: Withdrawn, request: Request) -> bool:
    reply_id = request.reply_id
    return reply_id is not None and withdrawn.take(request.reply_to, reply_id, request.principal, monotonic())


def _no_verb(envelope: Envelope, known: Iterable[str]) -> VerbError:
    if envelope.verb is None:
        return VerbError("bad-request", "the body has no verb; send JSON or text with one")
    hint = did_you_mean(envelope.verb, known) or "; `describe` lists them"
    return VerbError("unknown-verb", f"no verb {envelope.verb!r} here{hint}")
