"""What a client does on any system: import Nebula, serve and call in memory, and call a broker over TCP.

    python -m tests.platforms.client_program [URL]

Without a URL nothing is called over TCP. CI runs it on macOS and Windows.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import AsyncIterator

import anyio
import pytest

from nebula import Client, RemoteError, Responder
from nebula.sync import Client as SyncClient
from nebula.testing import TestClient

_MODULES = (
    "nebula", "nebula.avro", "nebula.browser", "nebula.cli", "nebula.codegen.module",
    "nebula.codegen.typescript", "nebula.rpc", "nebula.stomp.client", "nebula.sync", "nebula.testing",
    "nebula.testing.plugin",
)  # fmt: skip

app = Responder("prices")


@app.verb
async def quote(symbol: str, qty: int = 1) -> float:
    """Price of `qty` units of `symbol`."""
    return {"ABC": 1.25}[symbol] * qty


@app.verb
async def ticks(count: int) -> AsyncIterator[int]:
    """Some numbers."""
    for number in range(count):
        yield number


async def in_memory() -> None:
    """Serve and call within this process."""
    async with TestClient(app) as client:
        assert await client.call("prices", "quote", {"symbol": "ABC", "qty": 2}) == 2.5


async def over_tcp(url: str) -> None:
    """Call a service that another process runs."""
    async with Client(url) as client:
        assert await client.call("prices", "quote", {"symbol": "ABC", "qty": 2}) == 2.5
        assert [number async for number in client.stream("prices", "ticks", {"count": 3})] == [0, 1, 2]
        with pytest.raises(RemoteError, match="nope"):
            await client.call("prices", "nope")


def main(urls: list[str]) -> None:
    """Do all of it."""
    for name in _MODULES:
        importlib.import_module(name)
    anyio.run(in_memory)
    for url in urls:
        anyio.run(over_tcp, url)
        with SyncClient(url) as client:
            assert client.call("prices", "quote", {"symbol": "ABC"}) == 1.25
    print(f"called on {sys.platform}")


if __name__ == "__main__":
    main(sys.argv[1:])
