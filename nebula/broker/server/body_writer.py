"""HTTP response bodies of unknown length, written in pieces at the reader's pace."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from http import HTTPStatus

import h11

from nebula.broker.core.fixed_limits import HTTP_PORTION_BYTES
from nebula.broker.server.http_posts import Streamed


class BodyWriter:
    """Writes a body piece by piece; for HTTP/1.1 in chunks, the last of which marks it as complete.

    It holds only the piece that is being written: the producer waits for the reader.

    Args:
        http: which has read the request.
        transport: of a protocol that hands its `pause_writing` and `resume_writing` on to `pause` and
            `resume`, and calls `cancel` when it is lost.
        seconds: time limit for the peer to read 64 KiB.
        on_wait: called when a piece has to wait for the peer.
    """

    def __init__(
        self,
        http: h11.Connection,
        transport: asyncio.Transport,
        seconds: float,
        on_wait: Callable[[], None] = lambda: None,
    ) -> None:
        self._on_wait = on_wait
        self._http = http
        self._transport = transport
        self._seconds = seconds
        self._data = b""
        self._written_bytes = 0
        self._has_room = asyncio.Event()
        self._has_room.set()

    @property
    def unread_bytes(self) -> int:
        """The size of the piece that is being written, which is held until it is written."""
        return len(self._data)

    @property
    def is_blocked(self) -> bool:
        """The transport's buffer is full."""
        return not self._has_room.is_set()

    def begin(self, streamed: Streamed) -> None:
        """Write the head."""
        # Notify for each waiting byte: a reader is slow as soon as the operating system accepts no more.
        self._transport.set_write_buffer_limits(1)
        response = h11.Response(
            status_code=HTTPStatus.OK,
            reason=HTTPStatus.OK.phrase,
            headers=[
                *streamed.headers,
                ("content-type", streamed.content_type),
                ("cache-control", "no-store"),
                # Otherwise proxies that buffer responses, such as nginx, would forward nothing until the end.
                ("x-accel-buffering", "no"),
                # HTTP/1.0 has no chunks, so its body ends when the connection does.
                ("connection", "close"),
            ],
        )
        self._transport.write(self._http.send(response) or b"")

    def load(self, piece: bytes) -> None:
        """Accept a piece for `write`. The one before has been written."""
        self._data = self._http.send(h11.Data(piece)) or b""
        self._written_bytes = 0

    async def write(self) -> None:
        """Write the piece; returns when the operating system has accepted it.

        Raises:
            TimeoutError: the peer does not read.
        """
        while self._written_bytes < len(self._data):
            # Updated first, because `write` may call `pause` before it returns.
            begin, self._written_bytes = self._written_bytes, self._written_bytes + HTTP_PORTION_BYTES
            self._transport.write(self._data[begin : self._written_bytes])
            # `pause` has been called by the transport while it took the portion: the reader is behind.
            if self.is_blocked:
                self._on_wait()
                async with asyncio.timeout(self._seconds):
                    await self._has_room.wait()
        self._data = b""

    def end(self, piece: bytes) -> bytes:
        """The remaining bytes, for the caller to write: the rest of a piece, one more, and the end."""
        # `end_for` may end a request in the middle of a piece, and the size of its chunk has been sent
        # already.
        left = self._data[self._written_bytes :]
        self.cancel()
        last = self._http.send(h11.Data(piece)) if piece else b""
        return left + (last or b"") + (self._http.send(h11.EndOfMessage()) or b"")

    def cancel(self) -> None:
        """The reader is gone."""
        self._data = b""

    def pause(self) -> None:
        """The transport is still writing."""
        self._has_room.clear()

    def resume(self) -> None:
        """The transport has written everything."""
        self._has_room.set()
