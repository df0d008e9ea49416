"""REPLY: results and errors become replies, which are sent to where their caller waits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias

from nebula import headers as names
from nebula.logs import get_logger
from nebula.nearest import did_you_mean
from nebula.rpc.contract.context import Request
from nebula.rpc.contract.results import BadResult
from nebula.rpc.contract.verbs import Endpoint
from nebula.rpc.errors import VerbError
from nebula.rpc.wire.avro_bodies import AvroValue
from nebula.rpc.wire.brokers import LONGEST_HEADER, NEBULA, Brand
from nebula.rpc.wire.envelope import content_type_of, encode, media_of
from nebula.rpc.wire.reply_body import SEE_LOG, ReplyBody, failure, success
from nebula.rpc.wire.reply_headers import own_headers, shared_headers
from nebula.rpc.wire.upstream import upstream_error
from nebula.stomp.client.messages import Message
from nebula.stomp.client.send_heads import Shared
from nebula.trace_context import trace_facts

__all__ = [
    "Post", "ReplySender", "error_reply", "facts_of", "is_meant_for_caller", "unknown_verb", "value_reply",
]  # fmt: skip

_log = get_logger(__name__)

# Characters of such a header that are logged.
_MAX_LOGGED: Final = 200


Post: TypeAlias = Callable[[str, bytes, Shared, Mapping[str, str], Message | None], None]
"""Sends a message to a destination at once, and acknowledges another: `ClientConnection.post_shared`."""


class ReplySender:
    """Sends replies over the current connection.

    Args:
        max_reply_bytes: a longer reply goes out as the error `result-too-large`.
    """

    def __init__(self, max_reply_bytes: int) -> None:
        self._max_reply_bytes = max_reply_bytes
        self._post: Post | None = None
        self._brand = NEBULA

    def connect(self, post: Post, brand: Brand) -> None:
        """Say where replies go; call it before the first one."""
        self._post = post
        self._brand = brand

    def send(self, request: Request, reply: ReplyBody | None, acked: Message | None = None) -> None:
        """Send the reply of a request that wants one, and acknowledge its message.

        In this order: a crash between the two brings the request again.

        Args:
            request: that was handled.
            reply: to it. None: it was sent as a stream.
            acked: the message of the request, whose subscription is open; None: it is acknowledged already.

        Raises:
            ConnectionLost: the connection has ended.
        """
        if not self._sent(request, reply, acked) and acked is not None:
            acked.ack()

    def _sent(self, request: Request, reply: ReplyBody | None, acked: Message | None) -> bool:
        """Whether there is a reply to send; then it was sent, and the message acknowledged with it."""
        if reply is None or request.headers.get(names.NO_REPLY) == "true":
            return False
        destination, reply_id = request.reply_to, request.headers.get(names.REPLY_ID)
        if not self.may_reply_to(destination, reply_id):
            _log.warning(
                "reply dropped, its destination cannot be sent to", destination=destination[:_MAX_LOGGED]
            )
            return False
        content_type = media_of(content_type_of(request.headers)).reply_type
        body = encode(content_type, reply.verb, reply.parameters, reply.description)
        # Here rather than in the handler: only the encoded body has a size. A frame beyond the broker's
        # limit would end the connection, and with it all other requests of this service.
        if len(body) > self._max_reply_bytes:
            _log.warning("reply too large", verb=reply.verb, bytes=len(body))
            reply = failure(VerbError("result-too-large", f"the reply has {len(body)} bytes"))
            body = encode(content_type, reply.verb, reply.parameters, reply.description)
        varying = own_headers(reply_id, reply.code)
        # A reply that its caller no longer waits for would stay in a reply queue until that is removed.
        expiry = self._brand.reply_expiry
        if expiry is not None and (remaining := request.remaining) is not None:
            varying |= expiry(remaining)
        assert self._post is not None
        self._post(destination, body, shared_headers(content_type), varying, acked)
        return True

    def may_reply_to(self, destination: str, reply_id: str | None) -> bool:
        """Whether the broker takes a reply with these. It would end the connection over one it does not."""
        if len(destination) > LONGEST_HEADER or (reply_id is not None and len(reply_id) > LONGEST_HEADER):
            return False
        # A caller chooses the reply destination, so it is checked: brokers close the connection of a
        # client that sends to a destination they do not know.
        brand = self._brand
        return brand.destinations is None or brand.may_reply_to(destination)


def value_reply(verb: Endpoint, request: Request, result: Any) -> ReplyBody:
    """The reply that a handler's result is, in the form of its request: JSON or Avro.

    Raises:
        BadResult: it is not what the verb declares, or has no form there.
    """
    # A job's reply comes ready: its early `success` has parameters.
    if isinstance(result, ReplyBody):
        return result
    contract = verb.signature
    if result is None:
        contract.check_none()
        return success()
    is_avro = type(request.parameters) is AvroValue
    return ReplyBody(verb.response, contract.dump_avro(result) if is_avro else contract.dump(result))


def error_reply(verb: Endpoint, request: Request, error: BaseException, *, debug: bool) -> ReplyBody:
    """The reply that a handler's error is. What is not meant for the caller is logged, and hidden from it.

    Args:
        verb: whose handler raised it.
        request: that was handled.
        error: a `VerbError` has its own code; an error of a service or database that the handler asked says
            so; anything else is `internal`.
        debug: show the exception to the caller.
    """
    known = facts_of(request)
    if isinstance(error, BadResult):
        what = {"field": error.field, "problem": error.problem}
        _log.error("bad result returned", verb=verb.name, **what, **known)
    # Jobs refuse by such errors, and so may a handler: those are meant for the caller.
    if isinstance(error, VerbError) and is_meant_for_caller(verb, error):
        reply = failure(error)
        if reply.code != error.code:
            _log.error("error not written", verb=verb.name, code=error.code, **known)
        return reply
    told = upstream_error(error)
    if told is None:
        # The traceback is for the log: a peer learns nothing of our inside.
        _log.error("verb failed", verb=verb.name, exc_info=error, **known)
        return failure(VerbError("internal", repr(error) if debug else SEE_LOG))
    # No fault of the code: its place says no more than the error does.
    text = _texts_of(error)
    _log.warning("dependency failed", verb=verb.name, code=told.code, error=text, **known)
    if debug:
        told.message = text
    return failure(told)


def is_meant_for_caller(verb: Endpoint, error: VerbError) -> bool:
    """Whether an error that a handler let pass is for its caller.

    What another service replied to the handler is not, unless the verb declares that error, too.
    """
    return not error.is_from_reply or type(error) in verb.errors


def unknown_verb(name: str | None, known: Iterable[str]) -> ReplyBody:
    """The reply to a request for a verb that the service has not, or for none."""
    if name is None:
        return failure(VerbError("bad-request", "the body has no verb; send JSON or text with one"))
    hint = did_you_mean(name, known) or "; `describe` lists them"
    return failure(VerbError("unknown-verb", f"no verb {name!r} here{hint}"))


def facts_of(request: Request) -> dict[str, str]:
    """Log fields for the sender of a request, as far as known; named as in `log_requests`."""
    known = {"request_id": request.reply_id, "principal": request.principal}
    return {**{name: value for name, value in known.items() if value}, **trace_facts(request.headers)}


def _texts_of(error: BaseException) -> str:
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(_texts_of(one) for one in error.exceptions)
    return f"{type(error).__name__}: {error}"
