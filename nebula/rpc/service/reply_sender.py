"""Sends answers to who asked, where they can be sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from nebula import headers as names
from nebula.logs import get_logger
from nebula.rpc.contract.context import Request
from nebula.rpc.errors import VerbError
from nebula.rpc.wire.answers import Answer, failure
from nebula.rpc.wire.brokers import LONGEST_HEADER, NEBULA, Brand
from nebula.rpc.wire.envelope import content_type_of, encode, media_of

__all__ = ["AnswerPost", "Post"]

_log = get_logger(__name__)

# As much of such a header as a log wants.
_LONG: Final = 200


class Post(Protocol):
    """Sends a message at once: `StompClient.post`."""

    def __call__(self, destination: str, body: bytes, headers: Mapping[str, str]) -> None: ...


class AnswerPost:
    """Sends answers over the connection of now.

    Args:
        max_reply_bytes: a longer answer goes out as the error `result-too-large`.
    """

    def __init__(self, max_reply_bytes: int) -> None:
        self._max_reply_bytes = max_reply_bytes
        self._post: Post | None = None
        self._brand = NEBULA

    def connect(self, post: Post, brand: Brand) -> None:
        """Say where answers go; call it before the first one."""
        self._post = post
        self._brand = brand

    def send(self, request: Request, answer: Answer | None) -> None:
        """Answer a request that wants to be answered. None: it was sent as a stream."""
        if answer is None or request.headers.get(names.NO_REPLY) == "true":
            return
        destination, reply_id = request.reply_to, request.reply_id
        if not self.may_answer(destination, reply_id):
            _log.warning("answer dropped, nobody can be answered there", destination=destination[:_LONG])
            return
        content_type = media_of(content_type_of(request.headers)).reply_type
        body = encode(content_type, answer.verb, answer.parameters, answer.description)
        if len(body) > self._max_reply_bytes:
            _log.warning("answer too large", verb=answer.verb, bytes=len(body))
            answer = failure(VerbError("result-too-large", f"the answer has {len(body)} bytes"))
            body = encode(content_type, answer.verb, answer.parameters, answer.description)
        # D.46: with this mark no service of ours will answer the answer, wherever it ends up.
        headers = {"content-type": content_type, names.RESPONSE: "true"}
        if reply_id is not None:
            headers[names.IN_REPLY_TO] = reply_id
        if answer.code is not None:
            headers[names.ERROR_CODE] = answer.code
        expiry = self._brand.answer_expiry
        if expiry is not None and (remaining := request.remaining) is not None:
            headers |= expiry(remaining)
        assert self._post is not None
        self._post(destination, body, headers)

    def may_answer(self, destination: str, reply_id: str | None) -> bool:
        """Whether the broker bears an answer with these. It would end the connection over one it does not."""
        if len(destination) > LONGEST_HEADER or (reply_id is not None and len(reply_id) > LONGEST_HEADER):
            return False
        brand = self._brand
        return brand.destinations is None or brand.may_reply_to(destination)
