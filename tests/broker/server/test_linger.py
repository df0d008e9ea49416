"""The last octets for a peer are written as it reads them, and the connection is closed behind them."""

from __future__ import annotations

import asyncio

from nebula.broker.server.linger import LingeringClose
from tests.broker.server.slow_reader import Socket


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
