"""A disk that stalls holds up what must be on it, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from nebula.broker.core.limits import Limits
from nebula.broker.core.session import Session
from tests.faults.served import Served, Wire, serve, wait_until
from tests.faults.slow_store import SlowStore

_ROUNDS = 50
_BODY = "x" * 500


@contextmanager
def stalled(limits: Limits | None = None) -> Iterator[tuple[Served, SlowStore]]:
    """A broker whose store has begun a batch and does not come to its end."""
    store = SlowStore()
    with serve(limits, store=store) as broker:
        try:
            wire = broker.connect()
            wire.say("SEND destination:/queue/first; persistent:true | x")
            assert store.has_begun.wait(10)
            yield broker, store
        finally:
            store.is_quick.set()


def test_others_go_on_while_the_disk_stalls() -> None:
    with stalled() as (broker, _):
        sender, reader = broker.connect(), broker.connect()
        reader.say("SUBSCRIBE id:s; destination:/queue/a", "SUBSCRIBE id:t; destination:/topic/t")
        for number in range(_ROUNDS):
            # RECEIPTs too, of what is not kept on disk.
            sender.say(f"SEND destination:/queue/a; receipt:{number} | {number}")
            assert sender.next() == ("RECEIPT", sender_receipt(number))
            sender.say(f"SEND destination:/topic/t | {number}")
            assert [reader.next() is not None for _ in range(2)] == [True, True]


def sender_receipt(number: int) -> dict[str, str]:
    return {"receipt-id": str(number), "disposition": "accepted", "consumers": "1", "durable": "false"}


def test_persistent_message_is_delivered_while_the_disk_stalls_and_receipted_behind_it() -> None:
    with stalled() as (broker, store):
        sender, reader = broker.connect(), broker.connect()
        reader.say("SUBSCRIBE id:s; destination:/queue/a; ack:client")
        for number in range(_ROUNDS):
            sender.say(f"SEND destination:/queue/a; persistent:true; receipt:{number} | {number}")
            frame = reader.next()
            assert frame is not None
            assert frame[2:] == (str(number),)
        waiting = broker.ask(lambda: [len(each.held) for each in broker.server.broker.receipts.waiting])
        assert waiting == [_ROUNDS]

        store.is_quick.set()

        frames = [sender.next() for _ in range(_ROUNDS)]
        assert [frame[1]["receipt-id"] for frame in frames if frame] == list(map(str, range(_ROUNDS)))


def test_flood_waits_in_the_kernel_while_the_disk_stalls() -> None:
    with stalled(Limits(outbox_high_water_bytes=2_000)) as (broker, _):
        flood, other = broker.connect(), broker.connect()
        flood.say(*[f"SEND destination:/queue/b; persistent:true; receipt:r | {_BODY}"] * 100)
        wait_until(broker, lambda: any(session.is_ahead_of_store for session in sessions(broker)))

        push(flood, f"SEND\ndestination:/queue/b\npersistent:true\n\n{_BODY}\0".encode() * 100, other)

        assert broker.ask(lambda: broker.server.broker.account.stored_bytes) < 1 << 20


def push(wire: Wire, octets: bytes, other: Wire) -> None:
    """Write as much as the broker takes, 64 MiB at most: until it takes nothing while it serves another."""
    wire.socket.setblocking(False)
    left_bytes, refusals = 64 << 20, 0
    while left_bytes > 0 and refusals < 20:
        try:
            sent_bytes = wire.socket.send(octets)
            octets = octets[sent_bytes:] + octets[:sent_bytes]  # on where it stopped
            left_bytes -= sent_bytes
            refusals = 0
        except BlockingIOError:
            assert other.is_in_order()
            refusals += 1


def sessions(broker: Served) -> list[Session]:
    return list(broker.server.broker.sessions.values())
