"""Streams over HTTP, as lines of JSON or server-sent events.

The reader pulls: the service is asked for more items only as the ones before are written, so what is kept
for a reader that reads nothing is a few pieces, and the credit that was given for more.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Protocol

from nebula.broker.server.http_posts import JSON_TYPE, Response, Streamed, preferences
from nebula.rpc.errors import NotAStream
from nebula.rpc.streams.reading import Stream
from nebula.rpc.wire.envelope import dump_json

__all__ = ["EVENTS", "LINES", "Form", "HttpStream", "form_of"]

# Not registered with IANA, but in general use for lines of JSON. The reader pulls either form, so a slow
# reader slows the handler, see docs/decisions/0047.
NDJSON_TYPE: Final = "application/x-ndjson"
EVENTS_TYPE: Final = "text/event-stream"

ERROR: Final = "nebula-error"
"""The field of the last line, or the name of the last event, of a stream that failed."""

END: Final = "nebula-end"
"""The name of the last event of a complete stream."""

# An error within this time gets its own status. After it, the status is 200, and the reader gets signs of
# life until the first item.
_STATUS_SECONDS: Final = 5.0

# As WHATWG recommends: proxies close connections that are silent for longer.
_BEAT_SECONDS: Final = 15.0


class Form(Protocol):
    """How items look on the wire."""

    @property
    def content_type(self) -> str:
        """Of the answer."""

    @property
    def beat(self) -> bytes:
        """A sign of life that readers ignore; empty if the form has none."""

    @property
    def end(self) -> bytes:
        """The end of a complete stream; may be empty."""

    def items(self, items: Sequence[Any]) -> bytes:
        """Items as bytes; not empty if there is at least one."""

    def failed(self, body: bytes) -> bytes:
        """The end of a failed stream, from the body of the error's answer."""


class _Lines:
    """NDJSON: a line for each item."""

    content_type = NDJSON_TYPE
    # No sign of life: strict readers of NDJSON refuse blank lines.
    beat = b""
    end = b""

    def items(self, items: Sequence[Any]) -> bytes:
        return b"".join([dump_json(item) + b"\n" for item in items])

    def failed(self, body: bytes) -> bytes:
        # A field, because the HTTP status has been sent with the first item.
        return b'{"%b":%b}\n' % (ERROR.encode(), body.strip())


class _Events:
    """Server-sent events: one without a name for each item."""

    content_type = f"{EVENTS_TYPE}; charset=utf-8"
    # A line that begins with a colon is a comment (WHATWG HTML, "Server-sent events").
    beat = b":\n\n"
    end = b"event: %b\ndata: null\n\n" % END.encode()

    def items(self, items: Sequence[Any]) -> bytes:
        return b"".join([b"data: " + dump_json(item) + b"\n\n" for item in items])

    def failed(self, body: bytes) -> bytes:
        return b"event: %b\ndata: %b\n\n" % (ERROR.encode(), body.strip())


LINES: Final[Form] = _Lines()
EVENTS: Final[Form] = _Events()

# None means the single answer of a call.
_FORMS: Final[dict[str, Form | None]] = {
    NDJSON_TYPE: LINES,
    EVENTS_TYPE: EVENTS,
    JSON_TYPE: None,
    "application/*": None,
    "*/*": None,
}


def form_of(accept: str) -> Form | None:
    """The form of the requested stream; None if the request asks for the single answer of a call.

    Unknown and malformed types are ignored.
    """
    return next((_FORMS[name] for name in preferences(accept) if name in _FORMS), None)


class HttpStream:
    """A stream for one reader: the pieces of an answer, see `nebula.broker.server.http_posts.Pieces`.

    A task on the loop of calls reads the stream and keeps one piece ready. All other methods are called on
    the broker's loop.

    Args:
        loop: of calls.
        form: of the items.
        open: opens the stream, and releases all that it holds.
        problem: makes the answer to what `open` or the stream raises.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        form: Form,
        open: Callable[[HttpStream], AbstractAsyncContextManager[Stream[Any]]],  # noqa: A002
        problem: Callable[[Exception], Response],
    ) -> None:
        self._loop = loop
        self._form = form
        self._open = open
        self._problem = problem
        # None is the end.
        # At most one piece, because `_put` waits until it is taken; and perhaps the end behind it.
        self._ready: asyncio.Queue[bytes | Response | None] = asyncio.Queue()
        self._ahead: bytes | None = None
        self._task: asyncio.Task[None] | None = None
        self._reason: Response | None = None
        self._is_closed = False
        self._is_over = False

    async def begin(self) -> Response | Streamed:
        """Open the stream; if it fails at once, a complete answer with nothing to close."""
        try:
            first = await self._on_loop(_STATUS_SECONDS)
        except BaseException:
            # Also if the reader goes away while the first item is waited for.
            self.close()
            raise
        if isinstance(first, Response):
            return first
        self._ahead = self._written(first)
        return Streamed(self._form.content_type, self)

    async def next(self) -> bytes:
        """The next piece, or a sign of life; empty at the end."""
        ahead, self._ahead = self._ahead, None
        # An empty first piece is a sign of life of a form that has none, not the end.
        if ahead:
            return ahead
        if self._is_over:
            return b""
        return self._written(await self._on_loop(_BEAT_SECONDS if self._form.beat else None))

    def failed(self, error: Response) -> bytes:
        """The last piece of a stream that this error ends."""
        return self._form.failed(error.body)

    def close(self) -> None:
        """Close the handler, because the reader is gone. Idempotent."""
        # At the end of the program the loop may be closed, and the stream with it.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._close)

    def _written(self, piece: bytes | Response | None) -> bytes:
        self._is_over = piece is None or isinstance(piece, Response)
        if isinstance(piece, Response):
            return self.failed(piece)
        return self._form.end if piece is None else piece

    async def _on_loop(self, seconds: float | None) -> bytes | Response | None:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._take(seconds), self._loop))

    # --- on the loop of calls ---

    def end_with(self, reason: Response) -> None:
        """End the stream and report the reason to the reader."""
        self._reason = reason
        if self._task is not None:
            self._task.cancel()

    def _close(self) -> None:
        self._is_closed = True
        if self._task is not None:
            self._task.cancel()

    async def _take(self, seconds: float | None) -> bytes | Response | None:
        """The next piece, or a sign of life if none comes for a while."""
        # The constructor runs on the broker's loop, this on the loop of the calls.
        if self._task is None and not self._is_closed:
            self._task = self._loop.create_task(self._read())
        try:
            async with asyncio.timeout(seconds):
                piece = await self._ready.get()
        except TimeoutError:
            return self._form.beat
        # Lets `_put` return, so that the next piece is read while this one is written.
        self._ready.task_done()
        return piece

    async def _read(self) -> None:
        """Read the stream to its end, at its reader's pace."""
        try:
            async with self._open(self) as stream:
                try:
                    await self._hand_on(stream)
                except asyncio.CancelledError:
                    if self._reason is None:
                        raise
                    await self._put(self._reason)
        except asyncio.CancelledError:
            # Otherwise it was closed, or the loop ends, which must not look like a complete stream.
            if self._reason is not None:
                self._ready.put_nowait(self._reason)
        except Exception as error:
            self._ready.put_nowait(self._problem(error))

    async def _hand_on(self, stream: Stream[Any]) -> None:
        try:
            while batch := await stream.next_batch():
                await self._put(self._form.items(batch))
        # A single value in place of a stream is a stream of one item.
        except NotAStream as error:
            await self._put(self._form.items([error.value]))
        await self._put(None)

    async def _put(self, piece: bytes | Response | None) -> None:
        """Wait until the reader has taken the piece."""
        self._ready.put_nowait(piece)
        await self._ready.join()
