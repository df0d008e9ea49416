"""From one request to its one answer: the rules of the protocol (PROTOCOL C.1, D.13, D.37, D.46, D.50)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Final, Protocol

import anyio
import anyio.to_thread
import structlog

from nebula import headers as names
from nebula.errors import ConnectionLost
from nebula.rpc.brokers import LONGEST_HEADER, NEBULA, Brand
from nebula.rpc.context import Request
from nebula.rpc.envelope import (
    BOO,
    ERROR,
    SUCCESS,
    Envelope,
    content_type_of,
    dump_json,
    encode,
    media_of,
    parse,
)
from nebula.rpc.errors import VerbError
from nebula.stomp.messages import Message

if TYPE_CHECKING:
    from nebula.rpc.verbs import Endpoint

_log = structlog.get_logger()

# "Nothing to report", as the gem writes it (C.5).
_NO_PARAMETERS: Final = b"[]"

# As much of such a header as a log wants.
_LONG: Final = 200

# All that a caller learns of a fault of ours.
_SEE_LOG: Final = "the service failed; its log says why"


class Post(Protocol):
    """Sends a message at once: `StompClient.post`."""

    def __call__(self, destination: str, body: bytes, headers: Mapping[str, str]) -> None: ...


@dataclass(slots=True)
class Answer:
    """The body of a reply: the fields of an envelope, with parameters as JSON octets."""

    verb: str
    parameters: bytes | None = None
    description: str | None = None
    code: str | None = None


@dataclass(slots=True)
class Tally:
    """What one verb did since the service started; times in seconds."""

    requests: int = 0
    errors: int = 0
    seconds: float = 0.0
    longest: float = 0.0


@dataclass(frozen=True, slots=True)
class AnswerRules:
    """How a responder deals with requests; see `Responder` for each."""

    max_attempts: int = 3
    acks_early: bool = False
    debug: bool = False
    max_reply_bytes: int = 8 * 1024 * 1024


def success(parameters: bytes = _NO_PARAMETERS, description: str = "") -> Answer:
    """The answer that says: it worked. Without parameters: and there is nothing to report."""
    return Answer(SUCCESS, parameters, description)


def failure(error: VerbError) -> Answer:
    """The `error` reply in our shape (C.2)."""
    fields = {"code": error.code, "message": error.message, "retryable": error.retryable}
    if error.details is not None:
        fields["details"] = error.details
    try:
        return Answer(ERROR, dump_json(fields), error.message, error.code)
    except ValueError:
        # What the handler gave has no JSON form; it is answered nevertheless (rule 1).
        _log.exception("error could not be written", code=error.code)
        return failure(VerbError("internal", _SEE_LOG))


def is_answer(envelope: Envelope, headers: Mapping[str, str]) -> bool:
    """Whether a message is an answer, which is never answered, so that no loop can be (D.46)."""
    return (
        envelope.verb in (SUCCESS, ERROR)
        or headers.get(names.RESPONSE) == "true"
        or (names.IN_REPLY_TO in headers and names.REPLY_TO not in headers)
    )


class Answerer:
    """Answers requests with verbs.

    Every valid request is answered once, whatever its handler does, unless it asks for no answer or its
    time is over. The answer goes out before the ACK, so that a crash between them brings the request
    again (at least once); with `acks_early` the ACK goes first (at most once).

    Args:
        verbs: by name.
        rules: of the responder.
        limiter: of the threads that plain functions run in.
    """

    def __init__(
        self, verbs: Mapping[str, Endpoint], rules: AnswerRules, limiter: anyio.CapacityLimiter
    ) -> None:
        self._verbs = verbs
        self._post: Post | None = None
        self._brand = NEBULA
        self._trusts_sender = False
        self._rules = rules
        self._limiter = limiter
        self.tallies: dict[str, Tally] = {name: Tally() for name in verbs}
        self.expired = 0
        self.skipped = 0
        self.refused = 0

    def connect(self, post: Post, brand: Brand, *, trusts_sender: bool) -> None:
        """Say where answers go; call it before the first request.

        Args:
            post: sends them.
            brand: of the broker.
            trusts_sender: the broker itself writes the `sender` header.
        """
        self._post = post
        self._brand = brand
        self._trusts_sender = trusts_sender

    async def serve(self, message: Message, arrived: float) -> None:
        """Deal with one message of a request queue: answer and ACK it. `arrived`: when it came.

        Raises nothing that a message could cause.
        """
        try:
            if self._rules.acks_early:
                message.ack()
            if await self._deal_with(message, arrived):
                if not self._rules.acks_early:
                    message.ack()
            elif not self._rules.acks_early:
                # Nobody could be told, and nobody will ever understand it.
                message.nack(requeue="false")
        except ConnectionLost:
            # What was not acked comes again; the responder's own task says what happened.
            return

    async def _deal_with(self, message: Message, arrived: float) -> bool:
        """Answer if need be; False if the message is of no use to anybody."""
        headers = message.headers
        envelope = parse(content_type_of(headers), message.body)
        # C.4: the gem posts "boo" to each queue before it subscribes. A genuine body "boo" is lost.
        if message.body == BOO or is_answer(envelope, headers):
            self.skipped += 1
            return True
        deadline = _deadline_of(headers, arrived)
        # D.50: its caller has given up, and may have asked somebody else.
        if deadline is not None and monotonic() >= deadline:
            self.expired += 1
            return True
        # Rule 2: need not be answered. Rule 3's fall-back would put the answer into our own queue.
        if envelope.verb is None and names.REPLY_TO not in headers:
            self.refused += 1
            _log.warning("unreadable request refused", destination=message.destination)
            return False
        request = Request(
            envelope,
            headers,
            destination=message.destination,
            # Where the broker does not write the header itself, anybody could have.
            principal=headers.get(names.SENDER) if self._trusts_sender else None,
            deadline=deadline,
        )
        answer = await self._answer(request, envelope)
        if headers.get(names.NO_REPLY) != "true":
            self._send(request, answer)
        return True

    async def _answer(self, request: Request, envelope: Envelope) -> Answer:
        verb = None if envelope.verb is None else self._verbs.get(envelope.verb)
        if verb is None:
            self.refused += 1
            return failure(_no_verb(envelope))
        tally = self.tallies[verb.name]
        tally.requests += 1
        started = monotonic()
        try:
            self._check_attempts(request)
            if not verb.may_be_called_by(request.principal):
                raise VerbError(
                    "not-allowed", f"{request.principal or 'nobody known'} may not call {verb.name}"
                )
            return await self._run(verb, request, is_text=envelope.is_text)
        # A job refuses, and so may a handler: those are the errors that are meant for the caller.
        except VerbError as error:
            tally.errors += 1
            return failure(error)
        # `sys.exit` in a handler, of some argument parser for one, is not the end of the service.
        except (Exception, SystemExit) as error:
            tally.errors += 1
            return self._internal(verb, error)
        except anyio.get_cancelled_exc_class() as error:
            # Ours, or of something that the handler waited for and somebody else cancelled.
            if anyio.current_effective_deadline() == -math.inf:
                raise
            tally.errors += 1
            return self._internal(verb, error)
        finally:
            seconds = monotonic() - started
            tally.seconds += seconds
            tally.longest = max(tally.longest, seconds)

    async def _run(self, verb: Endpoint, request: Request, *, is_text: bool) -> Answer:
        arguments = verb.signature.bind(request.parameters, is_text=is_text)
        if verb.is_async:
            result = await verb.invoke(arguments, request)
        else:
            # A thread cannot be stopped: at the end of the service it is left to itself.
            result = await anyio.to_thread.run_sync(
                verb.invoke, arguments, request, limiter=self._limiter, abandon_on_cancel=True
            )
        # A job's answer comes ready: its early `success` has parameters.
        if isinstance(result, Answer):
            return result
        if result is None:
            return success()
        return Answer(verb.response, verb.signature.dump(result))

    def _internal(self, verb: Endpoint, error: BaseException) -> Answer:
        # The traceback is for the log: a peer learns nothing of our inside.
        _log.exception("verb failed", verb=verb.name)
        return failure(VerbError("internal", repr(error) if self._rules.debug else _SEE_LOG))

    def _check_attempts(self, request: Request) -> None:
        # D.37: a handler that kills its process must not do so for ever.
        if _attempts_before(request.headers) >= self._rules.max_attempts:
            raise VerbError(
                "too-many-attempts", f"delivered {self._rules.max_attempts} times without an answer"
            )

    def _send(self, request: Request, answer: Answer) -> None:
        destination, reply_id = request.reply_to, request.reply_id
        if not self._may_answer(destination, reply_id):
            _log.warning("answer dropped, nobody can be answered there", destination=destination[:_LONG])
            return
        content_type = media_of(content_type_of(request.headers)).reply_type
        body = encode(content_type, answer.verb, answer.parameters, answer.description)
        if len(body) > self._rules.max_reply_bytes:
            _log.warning("answer too large", verb=answer.verb, bytes=len(body))
            answer = failure(VerbError("result-too-large", f"the answer has {len(body)} bytes"))
            body = encode(content_type, answer.verb, answer.parameters, answer.description)
        # D.46: with this mark no service of ours will answer the answer, wherever it ends up.
        headers = {"content-type": content_type, names.RESPONSE: "true"}
        if reply_id is not None:
            headers[names.IN_REPLY_TO] = reply_id
        if answer.code is not None:
            headers[names.ERROR_CODE] = answer.code
        assert self._post is not None
        self._post(destination, body, headers)

    def _may_answer(self, destination: str, reply_id: str | None) -> bool:
        """Whether the broker bears an answer with these. It would end the connection over one it does not."""
        if len(destination) > LONGEST_HEADER or (reply_id is not None and len(reply_id) > LONGEST_HEADER):
            return False
        return self._brand.may_reply_to(destination)


def _no_verb(envelope: Envelope) -> VerbError:
    if envelope.verb is None:
        return VerbError("bad-request", "the body has no verb; send JSON or text with one")
    return VerbError("unknown-verb", f"no verb {envelope.verb!r} here; `describe` lists them")


def _deadline_of(headers: Mapping[str, str], arrived: float) -> float | None:
    text = headers.get(names.TIMEOUT)
    if text is None or not (text.isascii() and text.isdigit()):
        return None  # foreign brokers pass on what they do not check
    return arrived + int(text) / 1000


def _attempts_before(headers: Mapping[str, str]) -> int:
    """How often the request was delivered before, as far as the broker tells."""
    count = headers.get(names.DELIVERY_COUNT) or headers.get(_RABBITMQ_COUNT)
    if count is not None and count.isascii() and count.isdigit():
        return int(count)
    return 1 if headers.get(names.REDELIVERED) == "true" else 0


# What its quorum queues write; its classic queues say `redelivered` only, and never how often.
_RABBITMQ_COUNT: Final = "x-delivery-count"
