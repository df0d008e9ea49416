"""A stream in flight as its inbox sees it: silent peers, dropped streams, messages back. No loop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import pytest

from nebula.errors import CallTimeout, NebulaError, NoResponder
from nebula.rpc.errors import StreamBroken
from nebula.rpc.streams.reading import Incoming
from nebula.rpc.wire.brokers import RABBITMQ
from nebula.stomp.client.messages import Message
from tests.rpc.subscriptions import unconnected

SERVICE = "/queue/prices"
INSTANCE = "/queue/prices.one"


class Wire:
    """The messages that a stream sends back."""

    def __init__(self) -> None:
        self.credit: list[tuple[str, str]] = []
        self.left: list[tuple[str | None, bool]] = []

    def post(self, destination: str, body: bytes, headers: Mapping[str, str]) -> None:
        assert headers["neb-in-reply-to"] == "7"
        # No body at all would delete a last value, where a stranger wrote such a destination.
        assert body == b"{}"
        self.credit.append((destination, headers["neb-credit"]))

    def leave(self, number: str, *, cancel_at: str | None, seconds: float | None) -> None:
        assert number == "7"
        self.left.append((cancel_at, seconds is not None))


def begun(wire: Wire, *, credit: int = 4, timeout: float | None = None) -> Incoming:
    stream = Incoming(SERVICE, credit, timeout)
    stream.begin(wire, "7")
    return stream


def part(seq: int | None, *, end: bool = False, peer: str = INSTANCE) -> Message:
    headers = {"neb-stream": "true", "neb-reply-to": peer}
    if seq is not None:
        headers["neb-stream-seq"] = str(seq)
    if end:
        headers["neb-stream-end"] = "true"
    return Message(headers, b"", unconnected())


def error_of(stream: Incoming) -> NebulaError | None:
    return stream._error


def test_service_that_says_nothing_for_30_seconds_is_given_up() -> None:
    stream = begun(Wire())
    stream.look(stream.deadline)
    stream.look(stream.deadline)
    assert error_of(stream) is None

    stream.look(stream.deadline)

    assert isinstance(error_of(stream), CallTimeout)
    assert stream.deadline == float("inf")


def test_sign_of_life_keeps_the_stream_and_is_no_item() -> None:
    stream = begun(Wire())
    stream._heard_at -= 29
    stream.set(part(None))
    stream.look(stream._heard_at + 29)

    assert error_of(stream) is None
    assert not stream._messages


def test_reader_that_does_not_get_on_says_every_10_seconds_that_it_is_there() -> None:
    wire = Wire()
    stream = begun(wire)
    stream.set(part(0))
    stream.consume(1)
    now = stream._told_at
    stream.look(now + 9)
    stream.look(now + 10)
    stream.set(part(None))
    stream.look(now + 20)

    assert wire.credit == [(INSTANCE, "1"), (INSTANCE, "0"), (INSTANCE, "0")]


def test_sign_of_life_is_answered_at_once_with_all_credit_that_is_owed() -> None:
    wire = Wire()
    stream = begun(wire)
    stream.set(part(0))
    stream.consume(1)
    stream.set(part(None))
    stream.set(part(None))

    assert wire.credit == [(INSTANCE, "1"), (INSTANCE, "0")]


@pytest.mark.parametrize(
    "peer",
    [
        "X/EGM.limit",
        "/topic/prices.one",
        "/queue/prices",
        "/queue/prices.",
        "/queue/prices.one.two",
        "/queue/nebula.broker",
        "/queue/../queue/prices.one",
        "/amq/queue/prices.one",
        "/queue/prices.one\n",
    ],
)
@pytest.mark.parametrize("seq", [0, None])
def test_credit_goes_to_no_place_that_is_not_an_instances_own(peer: str, seq: int | None) -> None:
    wire = Wire()
    stream = begun(wire, credit=1)
    stream.set(part(seq, peer=peer))
    stream.consume(1)
    stream.close()

    assert isinstance(error_of(stream), StreamBroken)
    assert (wire.credit, wire.left) == ([], [(SERVICE, False)])


@pytest.mark.parametrize("peer", [INSTANCE, "/queue/shop.two"])
def test_credit_goes_to_the_instance_that_spoke_first_whatever_queue_was_asked(peer: str) -> None:
    wire = Wire()
    stream = begun(wire, credit=1)
    stream.set(part(0, peer=peer))
    stream.consume(1)
    stream.set(part(1, peer="/queue/evil.one"))
    stream.consume(1)

    assert [to for to, _ in wire.credit] == [peer, peer]


def test_credit_goes_the_way_that_the_broker_wants() -> None:
    wire = Wire()
    stream = Incoming(SERVICE, 1, None, RABBITMQ)
    stream.begin(wire, "7")
    stream.set(part(0, peer="/amq/queue/prices.one"))
    stream.consume(1)

    assert wire.credit == [("/amq/queue/prices.one", "1")]


def test_credit_is_given_as_items_are_consumed_and_not_after_the_end() -> None:
    wire = Wire()
    stream = begun(wire)
    stream.set(part(0))
    stream.consume(1)
    assert wire.credit == []
    stream.consume(1)
    assert wire.credit == [(INSTANCE, "2")]
    stream.set(part(2, end=True))
    stream.consume(2)

    assert len(wire.credit) == 1


def test_time_that_is_over_ends_it() -> None:
    stream = begun(Wire(), timeout=3)
    stream.look(stream.deadline)

    assert isinstance(error_of(stream), CallTimeout)


def test_end_that_cannot_be_the_next_part_is_no_end() -> None:
    stream = begun(Wire())
    stream.set(part(0))
    stream.set(part(9, end=True))

    assert isinstance(error_of(stream), StreamBroken)


@pytest.mark.parametrize("seq", [4, 5])
def test_items_beyond_the_credit_are_not_kept(seq: int) -> None:
    stream = begun(Wire())
    stream.set(part(0))
    stream.set(part(seq))

    assert isinstance(error_of(stream), StreamBroken)
    assert len(stream._messages) == 1


def test_number_that_is_none_breaks_the_stream() -> None:
    stream = begun(Wire())
    message = part(0)
    cast(dict[str, str], message.headers)["neb-stream-seq"] = "-1"
    stream.set(message)

    assert isinstance(error_of(stream), StreamBroken)


def test_leaving_is_reported_to_the_instance_once() -> None:
    wire = Wire()
    stream = begun(wire, timeout=9)
    stream.set(part(0))
    stream.close()
    stream.close()

    assert wire.left == [(INSTANCE, True)]


def test_leaving_before_the_first_item_is_reported_to_the_service() -> None:
    wire = Wire()
    begun(wire).close()

    assert wire.left == [(SERVICE, False)]


@pytest.mark.parametrize("end", ["end", "refused"])
def test_who_is_done_or_never_began_is_told_nothing(end: str) -> None:
    wire = Wire()
    stream = begun(wire)
    if end == "end":
        stream.set(part(0, end=True))
    else:
        stream.fail(NoResponder("rejected-no-consumer", SERVICE))
    stream.close()

    assert wire.left == [(None, False)]


def test_stream_that_the_collector_dropped_on_another_thread_is_left_at_the_next_look() -> None:
    wire = Wire()
    stream = begun(wire)
    stream.is_dropped = True
    stream.look(stream.deadline)

    assert wire.left == [(SERVICE, False)]


def test_item_from_before_the_loss_is_read_first() -> None:
    wire = Wire()
    stream = begun(wire)
    stream.set(part(0))
    stream.lose(CallTimeout("lost"))

    assert len(stream._messages) == 1
    assert wire.left == [(INSTANCE, False)]


def test_credit_goes_to_the_instance_that_sends_the_items() -> None:
    wire = Wire()
    stream = begun(wire)
    stream.set(part(None, peer="/queue/prices.died"))
    stream.set(part(None))
    stream.set(part(0))
    stream.set(part(None, peer="/queue/prices.late"))
    stream.consume(2)

    assert wire.credit == [
        ("/queue/prices.died", "0"), (INSTANCE, "0"), (INSTANCE, "0"), (INSTANCE, "2"),
    ]  # fmt: skip
