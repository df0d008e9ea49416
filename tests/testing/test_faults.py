"""Faults of the way to the broker: each happens when it is asked for, and only what the protocol allows."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nebula.errors import ConnectFailed, ConnectionLost
from nebula.headers import IN_REPLY_TO
from nebula.rpc.client.client import Client
from nebula.stomp.client import AckMode, StompClient
from nebula.testing import Faults, RunningBroker, Transport, fake, serving
from nebula.testing.frames import FrameSplitter, command_of, header_of

pytestmark = pytest.mark.anyio

_DEADLINE = 15.0


@pytest.fixture(params=["memory", "tcp", "tls"])
def running(request: pytest.FixtureRequest) -> Any:
    transport: Transport = request.param
    with RunningBroker(transport=transport) as broker:
        yield broker


@pytest.fixture
def faults(running: RunningBroker) -> Faults:
    return Faults(running.url, tls=running.tls)


@pytest.fixture
async def stomp(running: RunningBroker, faults: Faults) -> AsyncGenerator[StompClient]:
    async with StompClient(running.url, tls=running.tls, link=faults) as client:
        yield client


async def test_without_a_fault_everything_goes_through(running: RunningBroker, faults: Faults) -> None:
    echo = fake("echo", "echo", side_effect=lambda parameters: parameters)
    text = "x\0\n" * 200_000
    with anyio.fail_after(_DEADLINE):
        async with (
            serving(running.url, echo, tls=running.tls),
            Client(running.url, tls=running.tls, link=faults) as client,
        ):
            assert await client.call("echo", "echo", text) == text


async def test_dropped_connection_is_lost_without_a_word(stomp: StompClient, faults: Faults) -> None:
    with anyio.fail_after(_DEADLINE):
        faults.drop_connection()

        assert "dropped by a test" in str(await stomp.wait_lost())
        with pytest.raises(ConnectionLost):
            await stomp.send("/queue/a", b"")


async def test_broker_hears_of_the_end_and_gives_what_was_not_acked_to_another(
    running: RunningBroker, faults: Faults, stomp: StompClient
) -> None:
    with anyio.fail_after(_DEADLINE):
        async with (
            StompClient(running.url, tls=running.tls) as other,
            stomp.subscribe("/queue/work", ack=AckMode.CLIENT) as subscription,
        ):
            await stomp.send("/queue/work", b"piece")
            await anext(aiter(subscription))
            async with other.subscribe("/queue/work") as another:
                faults.drop_connection()
                message = await anext(aiter(another))

    assert message.headers["redelivered"] == "true"


async def test_frame_that_is_cut_never_arrives(stomp: StompClient, faults: Faults) -> None:
    with anyio.fail_after(_DEADLINE):
        async with stomp.subscribe("/queue/cut") as subscription:
            faults.drop_connection(within_frame=True)

            with suppress(ConnectionLost):  # that it was lost may show here already
                await stomp.send("/queue/cut", b"half of me")
            with pytest.raises(ConnectionLost):
                await anext(aiter(subscription))


async def test_broker_is_away_for_as_many_attempts_as_were_asked_for(
    running: RunningBroker, faults: Faults
) -> None:
    faults.refuse_connections(1)
    with anyio.fail_after(_DEADLINE):
        with pytest.raises(ConnectFailed, match="refused by a test"):
            async with StompClient(running.url, tls=running.tls, link=faults):
                pass
        async with StompClient(running.url, tls=running.tls, link=faults) as client:
            assert client.is_nebula


async def test_what_is_delayed_comes_in_order(stomp: StompClient, faults: Faults) -> None:
    with anyio.fail_after(_DEADLINE):
        async with stomp.subscribe("/queue/slow") as subscription:
            faults.delay(0.02)
            for number in range(3):
                await stomp.send("/queue/slow", str(number))
            faults.delay(0)
            await stomp.send("/queue/slow", b"3")
            bodies = [(await anext(aiter(subscription))).body for _ in range(4)]

    assert bodies == [b"0", b"1", b"2", b"3"]


async def test_message_that_is_sent_twice_is_two_messages(stomp: StompClient, faults: Faults) -> None:
    with anyio.fail_after(_DEADLINE):
        async with stomp.subscribe("/queue/twice") as subscription:
            faults.duplicate(destination="/queue/twice")
            await stomp.send("/queue/once", b"a")
            await stomp.send("/queue/twice", b"b", receipt=True)
            await stomp.send("/queue/twice", b"c")
            messages = [await anext(aiter(subscription)) for _ in range(3)]

    assert [each.body for each in messages] == [b"b", b"b", b"c"]
    assert len({each.id for each in messages}) == 3


async def test_request_that_is_sent_twice_is_handled_twice_and_answered_once(
    running: RunningBroker, faults: Faults
) -> None:
    price = fake("prices", "quote", returns=1)
    with anyio.fail_after(_DEADLINE):
        async with (
            serving(running.url, price, tls=running.tls),
            Client(running.url, tls=running.tls, link=faults) as client,
        ):
            faults.duplicate()
            assert await client.call("prices", "quote") == 1
            assert await client.call("prices", "quote") == 1

    assert len(price.calls) == 3


async def test_answer_is_overtaken_by_the_answer_to_another_call(stomp: StompClient, faults: Faults) -> None:
    answers = [("one", b"1"), ("one", b"2"), ("two", b"3"), ("two", b"4")]
    with anyio.fail_after(_DEADLINE):
        async with stomp.subscribe("/queue/inbox") as inbox:
            faults.reorder(times=2)
            for call, body in answers:
                await stomp.send("/queue/inbox", body, {IN_REPLY_TO: call}, receipt=True)
            bodies = [(await anext(aiter(inbox))).body for _ in answers]

    # Two items of one stream stay in order, and what was put out of it once is let through.
    assert bodies == [b"1", b"3", b"2", b"4"]


async def test_messages_of_two_subscriptions_change_places(stomp: StompClient, faults: Faults) -> None:
    order: list[str] = []
    both = anyio.Event()

    def note(message: Any) -> None:
        order.append(message.destination)
        if len(order) == 2:
            both.set()

    with anyio.fail_after(_DEADLINE):
        await stomp.listen("/topic/a", note)
        await stomp.listen("/topic/b", note)
        faults.reorder()
        await stomp.send("/topic/a", b"")
        await stomp.send("/topic/b", b"")
        await both.wait()

    assert order == ["/topic/b", "/topic/a"]


async def test_messages_of_one_queue_keep_their_order(stomp: StompClient, faults: Faults) -> None:
    with anyio.fail_after(_DEADLINE):
        async with stomp.subscribe("/queue/fifo") as subscription:
            faults.reorder(times=2)
            for number in range(4):
                await stomp.send("/queue/fifo", str(number), receipt=True)
            bodies = [(await anext(aiter(subscription))).body for _ in range(4)]

    assert bodies == [b"0", b"1", b"2", b"3"]


def test_web_socket_is_refused() -> None:
    with pytest.raises(ValueError, match="not for WebSockets"):
        Faults("ws://localhost:1")


# --- frames ---

_PIECES = [
    b"MESSAGE\nsubscription:1\ncontent-length:3\n\na\0b\0",
    b"MESSAGE\r\nsubscription:2\r\n\r\nplain\0",
    b"RECEIPT\nreceipt-id:7\n\n\0",
    b"\n",
    b"\r\n",
    b"SEND\ndestination:/queue/a\n\n\0",
]


@given(st.lists(st.sampled_from(_PIECES), max_size=8), st.lists(st.integers(1, 60), max_size=8))
def test_pieces_are_whole_frames_however_their_octets_come(pieces: list[bytes], cuts: list[int]) -> None:
    octets = b"".join(pieces)
    splitter = FrameSplitter()
    found: list[bytes] = []
    for cut in cuts:
        found += splitter.feed(octets[:cut])
        octets = octets[cut:]
    found += splitter.feed(octets)

    assert b"".join(found) == b"".join(pieces)
    assert [each for each in found if command_of(each)] == [each for each in pieces if command_of(each)]


def test_headers_are_read_from_the_head_alone() -> None:
    assert header_of(_PIECES[1], "subscription") == "2"
    assert header_of(b"SEND\na:1\n\nb:2\0", "b") is None
