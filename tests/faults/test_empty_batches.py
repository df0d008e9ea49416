"""A RECEIPT waits for a batch of which nothing is left to write: it is said all the same."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from nebula.broker.server import Listener, Server
from nebula.broker.store import Write
from tests.broker.memory_store import MemoryDisk, MemoryStore

_SECONDS = 10

_CONNECT = b"CONNECT\naccept-version:1.2\nhost:h\n\n\0"
_SUBSCRIBE = b"SUBSCRIBE\nid:1\ndestination:/queue/a\nack:client-individual\nauto-delete:true\n\n\0"
_SEND = b"SEND\ndestination:/queue/a\npersistent:true\nreceipt:sent\n\nbody\0"
_SEND_ELSEWHERE = b"SEND\ndestination:/queue/b\npersistent:true\n\nbody\0"
_UNSUBSCRIBE = b"UNSUBSCRIBE\nid:1\n\n\0"


class SlowStore(MemoryStore):
    """Applies nothing until `is_quick` is set."""

    def __init__(self) -> None:
        super().__init__(MemoryDisk())
        self.is_quick = threading.Event()
        self.has_begun = threading.Event()

    def apply(self, writes: Sequence[Write]) -> None:
        self.has_begun.set()
        assert self.is_quick.wait(_SECONDS)
        super().apply(writes)


class Peer:
    """A client of few words."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.say = writer.write

    async def hear(self, octets: bytes) -> bytes:
        """Everything up to and with `octets`."""
        return await self._reader.readuntil(octets)


@asynccontextmanager
async def peer_of(store: SlowStore) -> AsyncIterator[Peer]:
    """A peer of a broker that keeps its messages in `store`."""
    server = Server([Listener(port=0)], store=store)
    async with asyncio.timeout(_SECONDS):
        await server.start()
        address = urlsplit(server.urls[0])
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        try:
            peer = Peer(reader, writer)
            peer.say(_CONNECT)
            await peer.hear(b"\0")
            yield peer
        finally:
            store.is_quick.set()
            writer.close()
            await server.stop()


def test_receipt_of_a_message_that_went_with_its_queue_at_once_is_said() -> None:
    store = SlowStore()
    store.is_quick.set()

    async def main() -> None:
        async with peer_of(store) as peer:
            peer.say(_SUBSCRIBE + _SEND + _UNSUBSCRIBE)

            assert b"disposition:accepted" in await peer.hear(b"receipt-id:sent\n") + await peer.hear(b"\0")

    asyncio.run(main())


def test_receipt_of_a_message_that_was_acked_while_another_batch_was_written_is_said() -> None:
    store = SlowStore()

    async def main() -> None:
        async with peer_of(store) as peer:
            peer.say(_SEND_ELSEWHERE)
            await asyncio.to_thread(store.has_begun.wait, _SECONDS)
            peer.say(_SUBSCRIBE + _SEND)
            message = await peer.hear(b"body\0")
            ack = next(line for line in message.splitlines() if line.startswith(b"ack:"))
            # RECEIPTs wait behind each other, but a message does not: it tells that the ACK was read.
            peer.say(b"ACK\nid:" + ack.removeprefix(b"ack:") + b"\n\n\0")
            peer.say(b"SEND\ndestination:/queue/a\n\nsecond\0")
            await peer.hear(b"second\0")
            store.is_quick.set()

            await peer.hear(b"receipt-id:sent\n")

    asyncio.run(main())
