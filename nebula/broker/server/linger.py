"""Lingering close: the peer reads the last bytes, then the connection is closed (A.5).

Closing a socket while it has unread input makes the system send a reset. The reset may reach the peer before
it has read the last bytes, such as an ERROR, and discards them. So the broker closes its own half, goes on
reading until the peer closes its half, and closes after a moment at the latest.
"""

from __future__ import annotations

import asyncio
import contextlib

from nebula.broker.core.fixed_limits import HTTP_PORTION_BYTES, LINGER_SECONDS, TLS_LINGER_SECONDS


class LingeringClose:
    """The last bytes for a peer, written as fast as it reads them; then the connection is closed.

    A peer that reads nothing for too long is cut off.

    Args:
        transport: of a protocol that hands its `pause_writing` and `resume_writing` on to `pause` and
            `resume`, and calls `cancel` when it is lost.
        data: the bytes, not written yet.
        seconds: time limit for the peer to read 64 KiB.
    """

    def __init__(self, transport: asyncio.Transport, data: bytes, seconds: float) -> None:
        self._transport = transport
        self._data = data
        self._written_bytes = 0
        self._seconds = seconds
        self._is_blocked = False
        self._is_over = False
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Write what can be written now."""
        # Notify for each byte that waits: closing loses what the system has not taken yet.
        # With the default limit of 64 KiB a short response would never cause `pause_writing`, and bytes in
        # the transport's buffer would count as read.
        self._transport.set_write_buffer_limits(1)
        self._write()

    @property
    def unread_bytes(self) -> int:
        """The size of all of it until the peer has read it to its end: it is held until then."""
        return len(self._data)

    def pause(self) -> None:
        """The transport has something to write."""
        self._is_blocked = True

    def resume(self) -> None:
        """It has written all."""
        # `pause` may be called before `_write` runs, which therefore checks `_is_blocked`.
        self._is_blocked = False
        # Not at once: the transport is in the midst of its work.
        asyncio.get_running_loop().call_soon(self._write)

    def cancel(self) -> None:
        """The connection is lost."""
        self._is_over = True
        # `unread_bytes` must not count it any longer.
        self._data = b""
        if self._timer is not None:
            self._timer.cancel()

    def _write(self) -> None:
        if self._is_over:
            return
        while self._has_more and not (self._is_blocked or self._transport.is_closing()):
            # In portions, so that the time limit is for each of them: a slow reader that goes on
            # reading is not cut off, however long all of it takes.
            # `_written_bytes` is updated first, because `write` may call `pause` before it returns.
            begin, self._written_bytes = self._written_bytes, self._written_bytes + HTTP_PORTION_BYTES
            self._transport.write(self._data[begin : self._written_bytes])
        # The time limit starts again with each portion.
        if self._timer is not None:
            self._timer.cancel()
        if self._has_more or self._is_blocked:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._seconds, self._transport.abort)
        else:
            self._data = b""
            self._timer = close_lingering(self._transport)

    @property
    def _has_more(self) -> bool:
        return self._written_bytes < len(self._data)


def close_lingering(transport: asyncio.Transport) -> asyncio.TimerHandle:
    """Let the peer read what was written, and close when it does, or a moment later."""
    seconds = LINGER_SECONDS
    if transport.can_write_eof():
        # asyncio's own transport says so where the peer has reset the connection, uvloop's does not.
        with contextlib.suppress(OSError):
            transport.write_eof()
    else:
        # TLS has no half close in asyncio: `close` sends what is left, and then waits for the peer's own end.
        transport.close()
        seconds = TLS_LINGER_SECONDS
    return asyncio.get_running_loop().call_later(seconds, transport.abort)
