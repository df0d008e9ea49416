"""Serving streams: handlers that yield, and the credit messages of their readers."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Generator
from contextlib import aclosing
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import anyio
import anyio.lowlevel
import anyio.to_thread

from nebula import headers as names
from nebula.rpc.contract.context import Request
from nebula.rpc.errors import VerbError
from nebula.rpc.streams.credit import MOST_BYTES, MOST_ITEMS, Outflow
from nebula.rpc.streams.sending import Letters, PostWithReceipt, ServedStream
from nebula.rpc.wire.digits import whole_number
from nebula.rpc.wire.envelope import content_type_of, media_of
from nebula.rpc.wire.reply_headers import part_headers
from nebula.stomp.client.messages import Message

if TYPE_CHECKING:
    from nebula.rpc.contract.signature import Arguments
    from nebula.rpc.contract.verbs import Endpoint

_Key: TypeAlias = tuple[str | None, str]
"""The principal of the reader, and the id of the stream."""

# A reader's number has no more digits: a peer may write what it likes.
_MOST_DIGITS: Final = 9

# How often readers are checked within the time after which a silent one is given up; and how often at least,
# in seconds, so that our own signs of life are sent in time.
_LOOKS: Final = 6
_LOOKS_EVERY: Final = 5.0


def wants_stream(request: Request) -> bool:
    """Whether a caller reads a stream: it asked for one, and can be sent one."""
    headers = request.headers
    return (
        headers.get(names.STREAM) == "true"
        and headers.get(names.NO_REPLY) != "true"
        and names.REPLY_TO in headers
        # Without one, no reader could say which stream is given credit.
        and request.reply_id is not None
    )


class ServedStreams:
    """The streams that a service is sending.

    Args:
        idle: seconds after which a reader that owes credit and says nothing is given up.
        max_part_bytes: of a message; an item that is larger ends its stream.
    """

    def __init__(self, idle: float, max_part_bytes: int) -> None:
        self._idle = idle
        self._max_part_bytes = max_part_bytes
        # Each has a worker, and those are counted. A limit shared with other verbs would let a few slow
        # readers hold them all up.
        self._limiter = anyio.CapacityLimiter(math.inf)
        self._running: dict[_Key, ServedStream] = {}
        self._post: PostWithReceipt | None = None
        self._credit_to = ""
        self._trusts_sender = False

    def connect(self, post: PostWithReceipt, credit_to: str, *, trusts_sender: bool) -> None:
        """Say where items go; call it before the first request.

        Args:
            post: sends them.
            credit_to: the destination that readers are told for their credit: the instance's own.
            trusts_sender: the broker itself writes the `sender` header.
        """
        self._post = post
        self._credit_to = credit_to
        self._trusts_sender = trusts_sender

    def lose(self) -> None:
        """The connection has ended: so have all streams that went by it."""
        for stream in self._running.values():
            stream.cancel()
        # Their requests come again, and may be here before a thread has seen that its stream is closed.
        self._running.clear()

    async def send(self, verb: Endpoint, arguments: Arguments, request: Request) -> None:
        """Send what the handler yields, until it ends, its reader goes, or the request is ended.

        Raises:
            VerbError: the reader has a stream of this id already, or its credit cannot be read.
            Exception: what the handler raises, after all that it yielded before was sent.
        """
        assert self._post is not None
        assert request.reply_id is not None
        key = (request.principal, request.reply_id)
        if key in self._running:
            raise VerbError("bad-request", f"a stream {request.reply_id[:40]!r} is running already")
        content_type = media_of(content_type_of(request.headers)).reply_type
        headers = part_headers(content_type, request.reply_id, self._credit_to)
        flow = Outflow(_first_credit(request), verb.signature.dump, idle=self._idle, now=monotonic())
        letters = Letters(self._post, request.reply_to, headers, verb.response, self._max_part_bytes)
        stream = ServedStream(verb.name, flow, letters)
        self._running[key] = stream
        # A cancel, or the end of its time, closes the handler at its next yield at the latest.
        request.scope = stream
        try:
            await stream.run(verb.invoke(arguments, request), self._limiter)
        except anyio.get_cancelled_exc_class():
            if flow.seq and request.ending is None:
                # Another instance would begin anew, and the reader can do nothing with that.
                raise VerbError("busy", "the service is stopping: ask again") from None
            raise
        finally:
            if self._running.get(key) is stream:
                del self._running[key]

    async def collect(self, verb: Endpoint, arguments: Arguments, request: Request) -> bytes:
        """All that the handler yields, as a JSON array, for a caller that takes one reply.

        Raises:
            VerbError: `streaming-only`: it is too much for that.
            Exception: what the handler raises.
        """
        items = verb.invoke(arguments, request)
        if isinstance(items, AsyncGenerator):
            found = await _first_of(items)
        else:
            found = await anyio.to_thread.run_sync(
                _first_of_plain, items, limiter=self._limiter, abandon_on_cancel=True
            )
        document = verb.signature.dump(found)
        if len(found) > MOST_ITEMS or len(document) > MOST_BYTES:
            raise VerbError(
                "streaming-only",
                f"{verb.name} yields more than one reply may hold: ask with {names.STREAM}:true",
            )
        return document

    def take_credit(self, message: Message) -> bool:
        """Take a credit message of a reader. False: this message is something else. Never waits."""
        headers = message.headers
        text, stream_id = headers.get(names.CREDIT), headers.get(names.IN_REPLY_TO)
        if text is None or stream_id is None:
            return False
        principal = headers.get(names.SENDER) if self._trusts_sender else None
        stream = self._running.get((principal, stream_id))
        more = whole_number(text, _MOST_DIGITS)
        # It may have ended meanwhile.
        if stream is not None and more is not None:
            stream.grant(more)
        return True

    async def run(self) -> None:
        """Look after the streams until cancelled: give up silent readers, tell others that we are here."""
        while True:
            await anyio.sleep(min(self._idle / _LOOKS, _LOOKS_EVERY))
            now = monotonic()
            for stream in list(self._running.values()):
                stream.look(now)


async def _first_of(items: AsyncGenerator[Any, Any]) -> list[Any]:
    found: list[Any] = []
    async with aclosing(items):
        async for item in items:
            found.append(item)
            if len(found) > MOST_ITEMS:
                break
    return found


def _first_of_plain(items: Generator[Any, Any, Any]) -> list[Any]:
    try:
        return [item for _, item in zip(range(MOST_ITEMS + 1), items, strict=False)]
    finally:
        items.close()


def _first_credit(request: Request) -> int:
    text = request.headers.get(names.CREDIT)
    if text is None:
        return MOST_ITEMS
    credit = whole_number(text, _MOST_DIGITS)
    if credit is None:
        raise VerbError("bad-request", f"{names.CREDIT} {text[:20]!r} is not a number of items")
    return credit
