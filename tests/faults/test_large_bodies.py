"""A large body to many: nobody else waits for it, and no good reader is ended for it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from nebula.broker.connection import Connection
from nebula.broker.limits import Limits
from tests.broker.script import octets
from tests.faults.served import Served, serve
from tests.faults.test_server import wait_until

_BODY = "x" * 300_000
_SUBSCRIBERS = 60


class Sink(asyncio.Transport):
    """A peer that reads as fast as it is written to."""

    def __init__(self) -> None:
        super().__init__()
        self.bodies: list[bytes] = []
        self.others = b""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if len(data) == len(_BODY):
            self.bodies.append(bytes(data))
        else:
            self.others += data

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def abort(self) -> None:
        pass

    def can_write_eof(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0


@pytest.fixture
def broker() -> Iterator[Served]:
    """A broker whose outboxes hold two such bodies and no third one."""
    with serve(Limits(max_body_bytes=310_000, max_outbox_bytes=700_000)) as served:
        yield served


def attach(broker: Served, *lines: str) -> tuple[Sink, Connection]:
    """A peer that has connected and said these frames. Call it on the broker's loop."""
    sink, connection = Sink(), Connection(broker.server)
    connection.connection_made(sink)
    connection.data_received(octets("CONNECT accept-version:1.2; host:h"))
    for line in lines:
        connection.data_received(octets(line))
    return sink, connection


def subscribe(broker: Served) -> list[Sink]:
    """Subscribers, many."""
    line = "SUBSCRIBE id:s; destination:/topic/t"
    return broker.ask(lambda: [attach(broker, line)[0] for _ in range(_SUBSCRIBERS)])  # type: ignore[no-any-return]


def test_others_have_their_turn_before_a_large_body_is_written_to_all(broker: Served) -> None:
    sinks = subscribe(broker)

    def publish() -> tuple[int, bytes]:
        attach(broker, "SEND destination:/topic/t | " + _BODY)
        reader, _ = attach(broker, "UNSUBSCRIBE id:nobody; destination:nothing; receipt:r")
        return sum(len(sink.bodies) for sink in sinks), reader.others

    written, answer = broker.ask(publish)

    assert 0 < written < _SUBSCRIBERS
    assert b"receipt-id:r" in answer
    wait_until(broker, lambda: all(len(sink.bodies) == 1 for sink in sinks))


def test_all_receivers_are_handed_the_same_octets(broker: Served) -> None:
    line = "SUBSCRIBE id:s; ack:client; destination:/topic/t"
    handed: list[int] = []

    class Identifying(Sink):
        def write(self, data: bytes | bytearray | memoryview) -> None:
            super().write(data)
            if len(data) == len(_BODY):
                handed.append(id(data))

    def publish() -> None:
        for number in range(4):
            connection = Connection(broker.server)
            connection.connection_made(Identifying())
            connection.data_received(octets(f"CONNECT accept-version:1.{number % 3}; host:h"))
            connection.data_received(
                octets(line.replace("ack:client", ("ack:client", "ack:auto")[number // 2]))
            )
        attach(broker, "SEND destination:/topic/t | " + _BODY)

    broker.ask(publish)

    assert len(handed) == 4
    assert len(set(handed)) == 1


def test_good_readers_of_many_large_bodies_are_not_ended(broker: Served) -> None:
    sinks = subscribe(broker)
    sender = broker.connect()

    sender.say(*["SEND destination:/topic/t | " + _BODY] * 10)

    assert sender.is_in_order()
    wait_until(broker, lambda: not any(each.outbox for each in broker.server.broker.sessions.values()))
    assert [len(sink.bodies) for sink in sinks] == [10] * _SUBSCRIBERS
