"""A large body to many: nobody else waits for it, and no good reader is ended for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from nebula.broker.core.limits import Limits
from tests.faults.served import Served, serve, wait_until
from tests.faults.sinks import Sink, attach

_BODY = "x" * 300_000
_SEND = "SEND destination:/topic/t | " + _BODY
_SUBSCRIBERS = 60


@pytest.fixture
def broker() -> Iterator[Served]:
    """A broker whose outboxes hold two such bodies and no third one."""
    with serve(Limits(max_body_bytes=310_000, max_outbox_bytes=700_000)) as served:
        yield served


def bodies(sink: Sink) -> list[bytes]:
    return [piece for piece in sink.pieces if len(piece) == len(_BODY)]


def subscribe(broker: Served) -> list[Sink]:
    sinks = [Sink() for _ in range(_SUBSCRIBERS)]
    for sink in sinks:
        attach(broker, sink, "SUBSCRIBE id:s; destination:/topic/t")
    return sinks


def test_others_have_their_turn_before_a_large_body_is_written_to_all(broker: Served) -> None:
    sinks = broker.ask(lambda: subscribe(broker))
    reader = Sink()

    def publish() -> int:
        attach(broker, Sink(), _SEND)
        attach(broker, reader, "UNSUBSCRIBE id:nobody; destination:nothing; receipt:r")
        return sum(len(bodies(sink)) for sink in sinks)

    assert 0 < broker.ask(publish) < _SUBSCRIBERS
    assert b"receipt-id:r" in reader.octets
    wait_until(broker, lambda: all(len(bodies(sink)) == 1 for sink in sinks))


def test_all_receivers_are_handed_the_same_octets(broker: Served) -> None:
    sinks = [Sink() for _ in range(6)]

    def publish() -> None:
        for number, sink in enumerate(sinks):
            mode = ("auto", "client")[number % 2]
            line = f"SUBSCRIBE id:s; destination:/topic/t; ack:{mode}"
            attach(broker, sink, line, version=f"1.{number % 3}")
        attach(broker, Sink(), _SEND)

    broker.ask(publish)

    assert len({id(bodies(sink)[0]) for sink in sinks}) == 1


def test_good_readers_of_many_large_bodies_are_not_ended(broker: Served) -> None:
    sinks = broker.ask(lambda: subscribe(broker))
    sender = broker.connect()

    sender.say(*[_SEND] * 10)

    assert sender.is_in_order()
    wait_until(broker, lambda: not any(each.outbox for each in broker.server.broker.sessions.values()))
    assert [len(bodies(sink)) for sink in sinks] == [10] * _SUBSCRIBERS
