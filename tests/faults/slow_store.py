"""A broker whose store applies nothing until it is told to."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from nebula.broker.core.limits import Limits
from nebula.broker.core.tables import Write
from nebula.broker.server.server import Listener, Server
from tests.broker.memory_store import MemoryDisk, MemoryStore

SECONDS = 10


CONNECT = b"CONNECT\naccept-version:1.2\nhost:h\n\n\0"


class SlowStore(MemoryStore):
    """Applies nothing until `is_quick` is set."""

    def __init__(self) -> None:
        super().__init__(MemoryDisk())
        self.is_quick = threading.Event()
        self.has_begun = threading.Event()

    def apply(self, writes: Sequence[Write]) -> None:
        self.has_begun.set()
        assert self.is_quick.wait(SECONDS)
        super().apply(writes)


class Peer:
    """A client of few words."""

    def __init__(self, server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.server = server
        self._reader = reader
        self.say = writer.write

    async def hear(self, octets: bytes) -> bytes:
        """Everything up to and with `octets`."""
        return await self._reader.readuntil(octets)

    async def hear_all(self) -> bytes:
        """Everything up to the end of the connection."""
        return await self._reader.read()


@asynccontextmanager
async def peer_of(store: SlowStore, limits: Limits | None = None) -> AsyncIterator[Peer]:
    """A peer of a broker that keeps its messages in `store`."""
    server = Server([Listener(port=0)], store=store, limits=limits)
    async with asyncio.timeout(SECONDS):
        await server.start()
        reader, writer = await asyncio.open_connection(*address_of(server))
        try:
            peer = Peer(server, reader, writer)
            peer.say(CONNECT)
            await peer.hear(b"\0")
            yield peer
        finally:
            store.is_quick.set()
            writer.close()
            await server.stop()


def address_of(server: Server) -> tuple[str, int]:
    address = urlsplit(server.urls[0])
    assert address.hostname is not None
    assert address.port is not None
    return address.hostname, address.port
