"""Sending a stream: from the items of a handler to messages, at the pace of its reader (G.credit)."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import aclosing
from functools import partial
from time import monotonic
from typing import Any, TypeAlias

import anyio
import anyio.lowlevel
import anyio.to_thread

from nebula import headers as names
from nebula.errors import ConnectionLost
from nebula.logs import get_logger
from nebula.loop_calls import call_soon, call_soon_from_thread
from nebula.rpc.errors import VerbError
from nebula.rpc.streams.credit import Outflow, Part
from nebula.rpc.streams.threads import ThreadedItems
from nebula.rpc.wire.envelope import encode
from nebula.stomp.client.messages import Receipt
from nebula.waiter import Waiter, new_waiter

_log = get_logger(__name__)

Items: TypeAlias = AsyncGenerator[Any, Any] | Generator[Any, Any, Any]
"""What a handler that yields returns."""


PostWithReceipt: TypeAlias = Callable[[str, bytes, Mapping[str, str], Callable[[Receipt], None]], object]
"""Sends a message to a destination at once, and hears of its receipt: `StompClient.post_with_receipt`."""


class Letters:
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


class ServedStream:
    """One stream: what a handler yields, batched and sent as its reader gives credit.

    Items that are there go out together when the handler waits for something: at the loop's next turn, or,
    from a thread, when the loop comes to it.
    """

    def __init__(self, verb: str, flow: Outflow, letters: Letters) -> None:
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

    async def run(self, items: Items, limiter: anyio.CapacityLimiter) -> None:
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
        """Close the handler: this is read no more. Idempotent."""
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
        """See whether one side has been silent for too long: the reader, or we."""
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
        items = list(self._ready)
        self._ready.clear()
        end = self._flow.seq + len(items)
        # Each is sent before the next one is made: an item without a JSON form takes none with it.
        for part in self._flow.pack(items, monotonic()):
            self._post_part(part, is_end=part.seq + part.length == end)

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
