"""The service's side: handlers that yield, and what their readers say of credit."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import aclosing
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import anyio
import anyio.lowlevel
import anyio.to_thread
import structlog

from nebula import headers as names
from nebula.errors import ConnectionLost
from nebula.rpc.context import Request
from nebula.rpc.envelope import content_type_of, encode, media_of
from nebula.rpc.errors import VerbError
from nebula.rpc.streams.outflow import MOST_BYTES, MOST_ITEMS, Outflow, Part
from nebula.rpc.streams.soon import call_soon, call_soon_from_thread
from nebula.rpc.streams.threads import ThreadedItems
from nebula.stomp.messages import Message, Receipt
from nebula.stomp.waiter import Waiter, new_waiter

if TYPE_CHECKING:
    from nebula.rpc.signature import Arguments, Signature

_log = structlog.get_logger()

_Key: TypeAlias = tuple[str | None, str]
"""Whose stream it is, and its id."""

_Items: TypeAlias = AsyncGenerator[Any, Any] | Generator[Any, Any, Any]

# A reader's number has no more digits: a peer may write what it likes.
_MOST_DIGITS: Final = 9

# How often it is looked who is silent, in the time after which he is given up.
_LOOKS: Final = 6


class PostWithReceipt(Protocol):
    """Sends a message at once: `StompClient.post_with_receipt`."""

    def __call__(
        self,
        destination: str,
        body: bytes,
        headers: Mapping[str, str],
        on_receipt: Callable[[Receipt], None],
    ) -> None: ...


class StreamVerb(Protocol):
    """A verb whose handler yields."""

    @property
    def name(self) -> str:
        """What callers ask for."""

    @property
    def signature(self) -> Signature:
        """The contract; what it writes is a list of items."""

    @property
    def response(self) -> str:
        """The verb of its replies."""

    def invoke(self, arguments: Arguments, request: Request) -> Any:
        """The generator, async or plain, not begun."""


def wants_stream(request: Request) -> bool:
    """Whether a caller reads a stream: it asked for one, and can be sent one."""
    headers = request.headers
    return (
        headers.get(names.STREAM) == "true"
        and headers.get(names.NO_REPLY) != "true"
        and names.REPLY_TO in headers
        # Without one, nobody could say which stream is given credit.
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
        self._running: dict[_Key, _ServedStream] = {}
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

    async def send(self, verb: StreamVerb, arguments: Arguments, request: Request) -> None:
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
        headers = {
            "content-type": content_type,
            names.RESPONSE: "true",
            names.STREAM: "true",
            names.REPLY_TO: self._credit_to,
            names.IN_REPLY_TO: request.reply_id,
        }
        flow = Outflow(_first_credit(request), verb.signature.dump, idle=self._idle, now=monotonic())
        letters = _Letters(self._post, request.reply_to, headers, verb.response, self._max_part_bytes)
        stream = _ServedStream(verb.name, flow, letters)
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
            del self._running[key]

    async def collect(self, verb: StreamVerb, arguments: Arguments, request: Request) -> bytes:
        """All that the handler yields, as a JSON array, for a caller who takes one reply.

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
        octets = verb.signature.dump(found)
        if len(found) > MOST_ITEMS or len(octets) > MOST_BYTES:
            raise VerbError(
                "streaming-only",
                f"{verb.name} yields more than one reply may hold: ask with {names.STREAM}:true",
            )
        return octets

    def take_credit(self, message: Message) -> bool:
        """Take what a reader says of credit. False: this message is something else. Never waits."""
        headers = message.headers
        text, stream_id = headers.get(names.CREDIT), headers.get(names.IN_REPLY_TO)
        if text is None or stream_id is None:
            return False
        principal = headers.get(names.SENDER) if self._trusts_sender else None
        stream = self._running.get((principal, stream_id))
        more = _number(text)
        # It may have ended meanwhile.
        if stream is not None and more is not None:
            stream.grant(more)
        return True

    async def run(self) -> None:
        """Look after the streams until cancelled: give up silent readers, tell others that we are here."""
        while True:
            await anyio.sleep(self._idle / _LOOKS)
            now = monotonic()
            for stream in list(self._running.values()):
                stream.look(now)


class _Letters:
    """Writes the messages of one stream."""

    def __init__(
        self, post: PostWithReceipt, destination: str, headers: dict[str, str], verb: str, max_bytes: int
    ) -> None:
        self._post = post
        self._destination = destination
        self._headers = headers
        self._verb = verb
        self._max_bytes = max_bytes

    def post(self, items: bytes, headers: Mapping[str, str], on_receipt: Callable[[Receipt], None]) -> None:
        body = encode(self._headers["content-type"], self._verb, items)
        if len(body) > self._max_bytes:
            raise VerbError("result-too-large", f"an item has {len(body)} bytes")
        self._post(self._destination, body, {**self._headers, **headers}, on_receipt)


class _ServedStream:
    """One stream: what a handler yields, batched and sent as its reader gives credit.

    Items that are there go out together when the handler waits for something: at the loop's next turn, or,
    from a thread, when the loop comes to it.
    """

    def __init__(self, verb: str, flow: Outflow, letters: _Letters) -> None:
        self._verb = verb
        self._flow = flow
        self._letters = letters
        self._ready: deque[Any] = deque()
        self._room = flow.room
        self._scope: anyio.CancelScope | None = None
        self._source: ThreadedItems | None = None
        self._failure: Exception | None = None
        self._is_over = False
        self._is_waking = False
        self._more: Waiter[None] | None = None

    async def run(self, items: _Items, limiter: anyio.CapacityLimiter) -> None:
        """Send everything. Returns when the stream has ended, or was closed: then its end was not sent.

        Raises:
            Exception: what the handler raises.
        """
        try:
            if isinstance(items, AsyncGenerator):
                with anyio.CancelScope() as self._scope:
                    await self._pump(items)
                    await self._finish()
            else:
                # Not in the scope: a thread holds its worker until it ends, or threads would pile up.
                await self._pump_from_thread(items, limiter)
                with anyio.CancelScope() as self._scope:
                    if not self._is_over:
                        await self._finish()
        except Exception:
            if not self._is_over:
                # It yielded these before.
                self._send_ready()
            raise
        finally:
            self._is_over = True
        if self._failure is not None:
            raise self._failure

    def cancel(self) -> None:
        """Close the handler: nobody reads this any more. Idempotent."""
        self._is_over = True
        if self._source is not None:
            self._source.close()
        if self._scope is not None:
            self._scope.cancel()

    def grant(self, more: int) -> None:
        """The reader gives credit."""
        self._flow.grant(more, monotonic())
        self._go_on()

    def look(self, now: float) -> None:
        """See whether anybody has been silent for too long: the reader, or we."""
        if self._flow.is_abandoned(now):
            self._close("reader silent")
        elif self._flow.beat_is_due(now):
            self._flow.beat(now)
            self._post(b"[]", {}, None)

    def _close(self, reason: str) -> None:
        if not self._is_over:
            _log.info("stream closed", verb=self._verb, reason=reason, items=self._flow.seq)
            self.cancel()

    # --- what the handler yields ---

    async def _pump(self, items: AsyncGenerator[Any, Any]) -> None:
        ready = self._ready
        soon = call_soon()
        async with aclosing(items):
            async for item in items:
                ready.append(item)
                if len(ready) >= self._room:
                    self._send_ready()
                    await self._wait_for_room()
                elif not self._is_waking:
                    self._is_waking = True
                    soon(self._go_on)

    async def _pump_from_thread(
        self, items: Generator[Any, Any, Any], limiter: anyio.CapacityLimiter
    ) -> None:
        soon = call_soon_from_thread()
        self._source = ThreadedItems(items, self._ready, partial(soon, self._go_on))
        self._source.allow(self._room)
        try:
            await anyio.to_thread.run_sync(self._source.run, limiter=limiter, abandon_on_cancel=True)
        finally:
            self._source.close()

    async def _wait_for_room(self) -> None:
        if self._flow.room:
            # A handler that never waits must not keep the loop.
            await anyio.lowlevel.checkpoint()
        while not self._flow.room:
            self._more = new_waiter()
            await self._more.wait()

    # --- what goes out ---

    def _go_on(self) -> None:
        """Send what there is room for. Called from callbacks: what fails, fails in the stream's own task."""
        if self._is_over:
            return
        try:
            self._send_ready()
        except Exception as error:  # the handler's own: an item without a JSON form
            self._failure = error
            self.cancel()
        if self._more is not None and self._flow.room:
            self._more.set(None)

    def _send_ready(self) -> None:
        self._is_waking = False
        source, ready, flow = self._source, self._ready, self._flow
        if source is not None:
            source.hold()
        while count := min(len(ready), flow.room):
            for part in flow.pack([ready.popleft() for _ in range(count)], monotonic()):
                self._post_part(part)
        self._room = flow.room
        if source is not None:
            source.allow(self._room)

    async def _finish(self) -> None:
        """Send what is left, and that it is the end."""
        while len(self._ready) > self._flow.room:
            self._send_ready()
            await self._wait_for_room()
        *before, last = self._flow.pack(list(self._ready), monotonic())
        self._ready.clear()
        for part in before:
            self._post_part(part)
        self._post_part(last, is_end=True)

    def _post_part(self, part: Part, *, is_end: bool = False) -> None:
        headers = {names.STREAM_SEQ: str(part.seq)}
        if is_end:
            headers[names.STREAM_END] = "true"
        self._post(part.items, headers, part)

    def _post(self, items: bytes, headers: Mapping[str, str], part: Part | None) -> None:
        try:
            self._letters.post(items, headers, partial(self._on_receipt, part))
        except ConnectionLost:
            # Not to be mistaken for one that the handler itself has come across.
            self._close("connection lost")

    def _on_receipt(self, part: Part | None, receipt: Receipt) -> None:
        verdict = receipt.verdict
        if verdict != names.ACCEPTED:
            # Its inbox is gone, above all. With one part lost the rest is of no use.
            self._close(verdict)
        elif part is not None:
            self._flow.confirm(part)
            if self._more is not None or self._source is not None:
                self._go_on()


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
    credit = _number(text)
    if credit is None:
        raise VerbError("bad-request", f"{names.CREDIT} {text[:20]!r} is not a number of items")
    return credit


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS else None
