"""An answer of unknown length: its head, then pieces, each written as fast as its reader takes it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from http import HTTPStatus

import h11

from nebula.broker.http_posts import Streamed

# Of a piece, what is handed to the transport at once, and has to be read in its time.
_PORTION_BYTES = 64 * 1024


class BodyWriter:
    """Writes a body piece by piece. To HTTP/1.1 in chunks, whose end tells that nothing is missing.

    It keeps no more than the piece that is being written: whoever makes the pieces waits for the reader.

    Args:
        http: which has read the request.
        transport: of a protocol that hands its `pause_writing` and `resume_writing` on to `pause` and
            `resume`, and calls `cancel` when it is lost.
        seconds: the peer may take for each 64 KiB.
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
        self._octets = b""
        self._written_bytes = 0
        self._has_room = asyncio.Event()
        self._has_room.set()

    @property
    def unread_bytes(self) -> int:
        """The size of the piece that is being written: all of it is held until it is."""
        return len(self._octets)

    @property
    def is_blocked(self) -> bool:
        """The transport has more than the system takes."""
        return not self._has_room.is_set()

    def begin(self, streamed: Streamed) -> None:
        """Write the head."""
        # To be told of each octet that waits: a reader is slow as soon as the system takes no more.
        self._transport.set_write_buffer_limits(1)
        response = h11.Response(
            status_code=HTTPStatus.OK,
            reason=HTTPStatus.OK.phrase,
            headers=[
                *streamed.headers,
                ("content-type", streamed.content_type),
                ("cache-control", "no-store"),
                # Proxies that collect answers, nginx for one, would hand on nothing until the end.
                ("x-accel-buffering", "no"),
                ("connection", "close"),
            ],
        )
        self._transport.write(self._http.send(response) or b"")

    def load(self, piece: bytes) -> None:
        """Take a piece, which `write` writes. The one before has been written."""
        self._octets = self._http.send(h11.Data(piece)) or b""
        self._written_bytes = 0

    async def write(self) -> None:
        """Write the piece; returns when the system has taken it, and the next one may come.

        Raises:
            TimeoutError: the peer does not read.
        """
        while self._written_bytes < len(self._octets):
            begin, self._written_bytes = self._written_bytes, self._written_bytes + _PORTION_BYTES
            self._transport.write(self._octets[begin : self._written_bytes])
            if self.is_blocked:
                self._on_wait()
                async with asyncio.timeout(self._seconds):
                    await self._has_room.wait()
        self._octets = b""

    def end(self, piece: bytes) -> bytes:
        """The last octets, to be written by somebody else: what is left of a piece, one more, and the end."""
        left = self._octets[self._written_bytes :]
        self.cancel()
        last = self._http.send(h11.Data(piece)) if piece else b""
        return left + (last or b"") + (self._http.send(h11.EndOfMessage()) or b"")

    def cancel(self) -> None:
        """Nobody reads any more."""
        self._octets = b""

    def pause(self) -> None:
        """The transport has something to write."""
        self._has_room.clear()

    def resume(self) -> None:
        """It has written all."""
        self._has_room.set()
