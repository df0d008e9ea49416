"""Answers over HTTP that come in pieces, written as fast as their reader takes them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass

# What is handed to the transport at once, and has to be read in its time.
_PORTION_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Streamed:
    """An answer, with status 200, whose body is made while it is read.

    Attributes:
        content_type: of the body.
        next_piece: makes the next piece of it; None: that was all. It is not called before the piece before
            was read, but for what the system holds. What it raises cuts the answer off.
        close: called once, at the end, whatever that is.
        headers: further ones.
    """

    content_type: str
    next_piece: Callable[[], Awaitable[bytes | None]]
    close: Callable[[], None]
    headers: Collection[tuple[str, str]] = ()


class ReadTooSlowly(Exception):
    """The peer did not read a portion in its time."""


class Outflow:
    """The way out to a peer that reads at its own pace.

    Args:
        transport: of a protocol that hands its `pause_writing` and `resume_writing` on to `pause` and
            `resume`.
        seconds: the peer may take for each 64 KiB.
        on_unread: called when something waits for the peer.

    Attributes:
        unread_bytes: the size of what is being written.
    """

    def __init__(self, transport: asyncio.Transport, seconds: float, on_unread: Callable[[], None]) -> None:
        self._transport, self._seconds, self._on_unread = transport, seconds, on_unread
        self._is_free = asyncio.Event()
        self._is_free.set()
        self.unread_bytes = 0
        # To be told of each octet that waits.
        transport.set_write_buffer_limits(1)

    def pause(self) -> None:
        """The transport has something to write."""
        self._is_free.clear()

    def resume(self) -> None:
        """It has written all."""
        self._is_free.set()

    async def write(self, octets: bytes) -> None:
        """Write these; returns when the system has all of them.

        Raises:
            ReadTooSlowly: the peer does not read.
        """
        self.unread_bytes = len(octets)
        try:
            for begin in range(0, len(octets), _PORTION_BYTES):
                self._transport.write(octets[begin : begin + _PORTION_BYTES])
                if not self._is_free.is_set():
                    self._on_unread()
                async with asyncio.timeout(self._seconds):
                    await self._is_free.wait()
        except TimeoutError as error:
            raise ReadTooSlowly from error
        finally:
            self.unread_bytes = 0
