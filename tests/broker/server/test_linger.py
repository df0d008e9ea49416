"""The last octets for a peer are written as it reads them, and the connection is closed behind them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from nebula.broker.server.linger import LingeringClose


class Socket(asyncio.Transport):
    """A transport whose peer reads so much as the test says, and no more."""

    def __init__(self) -> None:
        super().__init__()
        self.is_ended = False
        self.pause: Callable[[], None]
        self.resume: Callable[[], None]
        self._size = 0
        self._high_water = 64 * 1024

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert high is not None
        self._high_water = high

    def get_write_buffer_size(self) -> int:
        return self._size

    def is_closing(self) -> bool:
        return self.is_ended

    def can_write_eof(self) -> bool:
        return True

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.is_ended
        self._size += len(data)
        if self._size > self._high_water:
            self.pause()

    def write_eof(self) -> None:
        self.is_ended = True

    def read(self, size: int) -> None:
        self._size -= size
        if not self._size:
            self.resume()


def test_connection_is_not_closed_before_the_last_octet_is_written() -> None:
    async def part() -> None:
        transport = Socket()
        farewell = LingeringClose(transport, b"the last", 60.0)
        transport.pause, transport.resume = farewell.pause, farewell.resume
        farewell.begin()
        transport.read(7)
        await asyncio.sleep(0)
        assert (transport.is_ended, farewell.unread_bytes) == (False, 8)

        transport.read(1)
        await asyncio.sleep(0)
        assert (transport.is_ended, farewell.unread_bytes) == (True, 0)
        farewell.cancel()

    asyncio.run(part())
