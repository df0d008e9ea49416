"""RECEIPTs that wait for a slow store: of a batch of which nothing is left to write, and very many."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from nebula.broker.core.limits import Limits
from nebula.broker.protocol import server_protocol
from nebula.broker.server.server import Server
from tests.faults.slow_store import CONNECT, SECONDS, SlowStore, address_of, peer_of

_SUBSCRIBE = b"SUBSCRIBE\nid:1\ndestination:/queue/a\nack:client-individual\n\n\0"
_SEND = b"SEND\ndestination:/queue/a\npersistent:true\nreceipt:sent\n\nbody\0"
_SEND_ELSEWHERE = b"SEND\ndestination:/queue/b\npersistent:true\n\nbody\0"
_SUBSCRIBE_ELSEWHERE = b"SUBSCRIBE\nid:2\ndestination:/queue/b\n\n\0"
_PING = b"SEND\ndestination:/queue/c\nreceipt:ping\n\nping\0"


def _ack_of(message: bytes) -> bytes:
    return next(line for line in message.splitlines() if line.startswith(b"ack:")).removeprefix(b"ack:")


def test_receipt_of_a_message_that_was_acked_at_once_is_said() -> None:
    store = SlowStore()
    store.is_quick.set()

    async def main() -> None:
        async with peer_of(store) as peer:
            # The first one tells the number of the second, which is ACKed in the batch that it came in.
            peer.say(_SUBSCRIBE + b"SEND\ndestination:/queue/a\n\nfirst\0")
            number = int(_ack_of(await peer.hear(b"first\0")).rpartition(b"-")[2])
            peer.say(_SEND + b"ACK\nid:1 0000feed-%d\n\n\0" % (number + 1))

            receipt = await peer.hear(b"receipt-id:sent\n") + await peer.hear(b"\0")
            assert b"disposition:accepted" in receipt
            assert b"durable" not in receipt
            queue = peer.server.broker.queues.get("/queue/a")
            assert queue is not None
            assert queue.store.depth == 1

    asyncio.run(main())


def test_receipt_of_a_message_that_was_acked_while_another_batch_was_written_is_said() -> None:
    store = SlowStore()

    async def main() -> None:
        async with peer_of(store) as peer:
            peer.say(_SEND_ELSEWHERE)
            await asyncio.to_thread(store.has_begun.wait, SECONDS)
            peer.say(_SUBSCRIBE + _SEND)
            message = await peer.hear(b"body\0")
            # RECEIPTs wait behind each other, but a message does not: it tells that the ACK was read.
            peer.say(b"ACK\nid:" + _ack_of(message) + b"\n\n\0")
            peer.say(b"SEND\ndestination:/queue/a\n\nsecond\0")
            await peer.hear(b"second\0")
            store.is_quick.set()

            await peer.hear(b"receipt-id:sent\n")

    asyncio.run(main())


def test_message_with_an_id_comes_when_the_disk_has_it_and_nothing_else_waits_for_that() -> None:
    store = SlowStore()

    async def main() -> None:
        async with peer_of(store) as peer:
            peer.say(_SUBSCRIBE + _SUBSCRIBE_ELSEWHERE)
            peer.say(b"SEND\ndestination:/queue/a\npersistent:true\ndedup-id:1\n\nonce\0")
            await asyncio.to_thread(store.has_begun.wait, SECONDS)
            peer.say(_SEND_ELSEWHERE)
            assert b"once" not in await peer.hear(b"body\0")
            store.is_quick.set()

            await peer.hear(b"once\0")

    asyncio.run(main())


def test_what_waits_behind_a_message_that_left_nothing_to_be_written_comes() -> None:
    store = SlowStore()

    async def main() -> None:
        async with peer_of(store) as peer:
            peer.say(_SEND_ELSEWHERE)
            await asyncio.to_thread(store.has_begun.wait, SECONDS)
            peer.say(_SUBSCRIBE + b"BEGIN\ntransaction:t\n\n\0")
            peer.say(b"SEND\ndestination:/queue/a\npersistent:true\ntransaction:t\n\nonce\0")
            peer.say(b"COMMIT\ntransaction:t\n\n\0SEND\ndestination:/queue/a\n\nbehind\0" + _PING)
            await peer.hear(b"receipt-id:ping\n")
            queue = peer.server.broker.queues.by_name["/queue/a"]
            queue.store.withdraw(
                [message for message in queue.store.line.in_memory() if message.body == b"once"]
            )
            store.is_quick.set()

            await peer.hear(b"behind\0")

    asyncio.run(main())


def _values(first: int) -> bytes:
    frames = (f"SEND\ndestination:X/a\nreceipt:{number:0200}\n\nv\0" for number in range(first, first + 20))
    return "".join(frames).encode()


def test_publisher_is_not_read_while_too_many_of_its_receipts_wait() -> None:
    store = SlowStore()

    async def main() -> None:
        async with peer_of(store, Limits(outbox_high_water_bytes=2_000)) as peer:
            peer.say(_values(0))
            await asyncio.to_thread(store.has_begun.wait, SECONDS)
            (session,) = peer.server.broker.sessions.values()
            await _read(peer.server, lambda: len(session.held))
            peer.say(_values(20))
            await _round_trip(peer.server)

            assert len(session.held) == 20
            store.is_quick.set()
            await peer.hear(f"receipt-id:{39:0200}\n".encode())
            assert session.held_bytes == 0

    asyncio.run(main())


async def _round_trip(server: Server) -> None:
    """Let the broker read all that was sent before: somebody else comes in and leaves."""
    reader, writer = await asyncio.open_connection(*address_of(server))
    writer.write(CONNECT + b"DISCONNECT\nreceipt:r\n\n\0")
    await reader.readuntil(b"receipt-id:r\n")
    await reader.read()
    writer.close()


def test_consumer_of_whose_receipts_too_many_wait_is_ended() -> None:
    store = SlowStore()

    async def main() -> None:
        limits = Limits(outbox_high_water_bytes=1_000, max_outbox_bytes=2_000, max_body_bytes=1_000)
        async with peer_of(store, limits) as peer:
            # Its ACKs come by the same stream, so it is read on.
            peer.say(_SUBSCRIBE + _values(0))

            await peer.hear(b"too slow")

    asyncio.run(main())


async def _read(server: Server, count: Callable[[], int]) -> None:
    """Wait until the first twenty messages were read: a turn may be over in the middle of them."""
    while count() < 20:
        await _round_trip(server)


def _sends(first: int, *headers: bytes) -> bytes:
    """Twenty persistent messages of 1,000 octets."""
    start = b"\n".join([b"SEND", b"destination:/queue/a", b"persistent:true", *headers]) + b"\n\n"
    return b"".join(b"%b%01000d\0" % (start, number) for number in range(first, first + 20))


def test_publisher_is_not_read_while_the_store_is_too_far_behind() -> None:
    store = SlowStore()

    async def main() -> None:
        async with peer_of(store, Limits(max_commit_backlog_bytes=20_000)) as peer:
            peer.say(_sends(0))
            await asyncio.to_thread(store.has_begun.wait, SECONDS)
            queue = peer.server.broker.queues.get("/queue/a")
            assert queue is not None
            await _read(peer.server, lambda: queue.store.depth)
            peer.say(_sends(20, b"receipt:last"))
            await _round_trip(peer.server)

            assert queue.store.depth == 20
            store.is_quick.set()
            await peer.hear(b"receipt-id:last\n")
            assert queue.store.depth > 20

    asyncio.run(main())


def test_publisher_is_not_read_after_a_commit_that_is_too_much_for_the_store() -> None:
    store = SlowStore()

    async def main() -> None:
        async with peer_of(store, Limits(max_commit_backlog_bytes=20_000)) as peer:
            held = _sends(0, b"transaction:t")
            peer.say(b"BEGIN\ntransaction:t\n\n\0" + held + b"COMMIT\ntransaction:t\n\n\0")
            await asyncio.to_thread(store.has_begun.wait, SECONDS)
            queue = peer.server.broker.queues.get("/queue/a")
            assert queue is not None
            peer.say(_sends(20, b"receipt:last"))
            await _round_trip(peer.server)

            assert queue.store.depth == 20
            store.is_quick.set()
            await peer.hear(b"receipt-id:last\n")
            assert queue.store.depth > 20

    asyncio.run(main())


def test_publisher_of_what_is_for_later_is_not_read_while_the_store_is_too_far_behind() -> None:
    store = SlowStore()

    async def main() -> None:
        async with peer_of(store, Limits(max_commit_backlog_bytes=20_000)) as peer:
            peer.say(_sends(0, b"delay:3600000"))
            await asyncio.to_thread(store.has_begun.wait, SECONDS)
            await _read(peer.server, lambda: len(peer.server.broker.routing.delayed))
            peer.say(_sends(20, b"delay:3600000", b"receipt:last"))
            await _round_trip(peer.server)

            assert len(peer.server.broker.routing.delayed) == 20
            store.is_quick.set()
            await peer.hear(b"receipt-id:last\n")
            assert len(peer.server.broker.routing.delayed) > 20

    asyncio.run(main())


def test_who_sends_nothing_to_be_kept_is_read_while_the_store_is_behind() -> None:
    store = SlowStore()

    async def main() -> None:
        async with peer_of(store, Limits(max_commit_backlog_bytes=20_000)) as peer:
            other = await asyncio.open_connection(*address_of(peer.server))
            other[1].write(CONNECT + _sends(0))
            await asyncio.to_thread(store.has_begun.wait, SECONDS)

            peer.say(b"SEND\ndestination:/queue/b\nreceipt:light\n\nx\0")
            await peer.hear(b"receipt-id:light\n")
            peer.say(b"SEND\ndestination:/queue/b\nreceipt:again\n\nx\0")
            await peer.hear(b"receipt-id:again\n")
            other[1].close()

    asyncio.run(main())


def test_error_comes_behind_all_receipts_of_what_was_sent_in_one_go() -> None:
    store = SlowStore()

    async def main() -> None:
        async with peer_of(store) as peer:
            peer.say(_SEND * 2000 + b"bogus\n")
            await asyncio.to_thread(store.has_begun.wait, SECONDS)
            store.is_quick.set()
            said = await peer.hear_all()

            assert said.count(b"RECEIPT\n") == said.count(b"disposition:accepted") == 2000
            assert said.count(b"ERROR\n") == 1
            assert said.rindex(b"RECEIPT\n") < said.index(b"ERROR\n")

    asyncio.run(main())


def test_disk_that_hangs_keeps_no_faulty_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_protocol, "ERROR_WAIT_SECONDS", 0.2)
    store = SlowStore()

    async def main() -> None:
        async with peer_of(store) as peer:
            peer.say(_SEND * 3 + b"bogus\n")
            said = await peer.hear_all()

            assert (said.count(b"RECEIPT\n"), said.count(b"ERROR\n")) == (0, 1)
            assert not store.is_quick.is_set()

    asyncio.run(main())
