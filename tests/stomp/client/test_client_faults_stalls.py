"""The client against a broker that stops reading, stops talking or dies while much is under way."""

from __future__ import annotations

import gc
import logging
from contextlib import suppress
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from nebula.errors import ConnectionLost
from nebula.stomp.client import Message, StompClient, Subscription
from tests.stomp.faulty import LOOPS, SCHEMES, FaultyPeer, check_ended, mad_broker, quiet
from tests.stomp.peer import receipt_of

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("scheme", SCHEMES)]

# More than the kernel takes for a peer that does not read.
_FLOOD = b"x" * 16 * 1024 * 1024


@pytest.fixture(params=LOOPS)
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    """Their transports differ, so each gets its turn."""
    backend: tuple[str, dict[str, Any]] = request.param
    return backend


async def test_send_to_a_broker_that_does_not_read_ends_when_it_was_told_to(
    scheme: str, caplog: pytest.LogCaptureFixture
) -> None:
    has_left = anyio.Event()

    async def script(peer: FaultyPeer) -> None:
        await peer.accept()
        await has_left.wait()

    with quiet(caplog):
        async with mad_broker(script, scheme) as url:
            async with StompClient(url, disconnect_timeout=0.05) as client:
                with pytest.raises(TimeoutError):
                    await client.send("/queue/a", _FLOOD, timeout=0.05)
                with pytest.raises(TimeoutError):
                    await client.send("/queue/a", b"", receipt=True, timeout=0.05)
                with pytest.raises(TimeoutError):
                    async with client.transaction(timeout=0.05):
                        pass
                with anyio.move_on_after(0.05) as scope:
                    await client.drain()
            has_left.set()

    assert scope.cancelled_caught


async def test_broker_that_neither_reads_nor_beats_is_lost_to_everyone_who_sends(
    scheme: str, caplog: pytest.LogCaptureFixture
) -> None:
    is_lost = anyio.Event()
    told: list[str] = []

    async def script(peer: FaultyPeer) -> None:
        await peer.accept("1.2", "heart-beat:50,0\n")
        await is_lost.wait()

    async def send(client: StompClient, *, receipt: bool) -> None:
        with pytest.raises(ConnectionLost) as caught:
            await client.send("/queue/a", _FLOOD, receipt=receipt)
        told.append(str(caught.value))

    with quiet(caplog):
        async with mad_broker(script, scheme) as url:
            async with (
                StompClient(url, heart_beat=(0, 0.05)) as client,
                anyio.create_task_group() as tasks,
            ):
                for receipt in (False, True, False):
                    tasks.start_soon(lambda receipt: send(client, receipt=receipt), receipt)
            is_lost.set()

    assert told == ["the broker sent nothing for 0.1 s"] * 3


async def test_broker_that_beats_and_does_not_read_is_waited_for_no_longer_than_the_scope_says(
    scheme: str, caplog: pytest.LogCaptureFixture
) -> None:
    has_left = anyio.Event()

    async def beat(peer: FaultyPeer) -> None:
        with suppress(anyio.BrokenResourceError):  # the client has left a moment ago
            while True:
                await peer.say("\n")
                await anyio.sleep(0.01)

    async def script(peer: FaultyPeer) -> None:
        await peer.accept("1.2", "heart-beat:1000,20\n")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(beat, peer)
            await has_left.wait()
            tasks.cancel_scope.cancel()

    with quiet(caplog):
        async with mad_broker(script, scheme) as url:
            with anyio.CancelScope() as scope:
                async with StompClient(url, heart_beat=(0.02, 1.0)) as client:
                    scope.deadline = anyio.current_time() + 0.2
                    while True:
                        await client.send("/queue/a", _FLOOD)
            has_left.set()

    assert scope.cancelled_caught


@pytest.mark.parametrize("then", ["close", "reset"])
@pytest.mark.parametrize("reads_first", [True, False])
async def test_end_in_the_middle_of_our_sends_is_told_to_those_who_send(
    scheme: str, then: str, reads_first: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def script(peer: FaultyPeer) -> None:
        await peer.accept()
        if reads_first:
            await peer.stream.receive()
        if then == "reset":
            peer.beneath.reset()

    told: list[str] = []

    async def send_on(client: StompClient, *, receipt: bool) -> None:
        while True:
            await client.send("/queue/a", b"x" * 100_000, receipt=receipt)

    async def send(client: StompClient, *, receipt: bool) -> None:
        with pytest.raises(ConnectionLost) as caught:
            await send_on(client, receipt=receipt)
        told.append(str(caught.value))

    with quiet(caplog):
        async with mad_broker(script, scheme) as url, StompClient(url) as client:
            async with anyio.create_task_group() as tasks:
                for receipt in (False, True, False):
                    tasks.start_soon(lambda receipt: send(client, receipt=receipt), receipt)
            check_ended(client)

    assert len(told) == 3
    assert all(text.startswith("the ") and not text.endswith(": ") for text in told)


async def test_posts_that_go_on_until_the_loss_is_known_leave_nothing_in_the_log(
    scheme: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def script(peer: FaultyPeer) -> None:
        await peer.accept()

    async def post(client: StompClient) -> None:
        while True:
            # More pieces in one turn than a link joins, and more than asyncio bears in silence.
            for _ in range(200):
                client.post("/queue/a", b"hello", {})
            await anyio.lowlevel.checkpoint()

    caplog.set_level(logging.WARNING)
    gc.collect()  # what others have left
    caplog.clear()
    with quiet(caplog):
        async with mad_broker(script, scheme) as url, StompClient(url) as client:
            with pytest.raises(ConnectionLost):
                await post(client)
        gc.collect()


async def test_end_while_the_broker_is_not_read_is_told_once_it_is_read_again(
    scheme: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def script(peer: FaultyPeer) -> None:
        await peer.accept()
        await peer.confirm()
        message = "MESSAGE\nsubscription:1\nmessage-id:1\ndestination:/queue/a\n\n" + "x" * 1000 + "^@"
        for _ in range(300):
            await peer.say(message)
        # With octets of ours unread, this is a RST.
        await peer.stream.aclose()

    taken: list[Message] = []

    async def answer_on(client: StompClient, messages: Subscription) -> None:
        while True:
            taken.append(await anext(messages))
            client.post("/queue/a", b"", {})

    with quiet(caplog):
        async with (
            mad_broker(script, scheme) as url,
            StompClient(url, max_buffered_bytes=10_000, heart_beat=(0.01, 0)) as client,
            client.subscribe("/queue/a") as messages,
        ):
            with pytest.raises(ConnectionLost):
                await answer_on(client, messages)

    assert 0 < len(taken) <= 300


async def test_answers_of_a_slow_broker_come_octet_by_octet(
    scheme: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def script(peer: FaultyPeer) -> None:
        await peer.accept("1.2", "heart-beat:10000,0\n")
        await peer.confirm()
        asked = receipt_of(await peer.hear())
        await peer.drip("MESSAGE\nsubscription:1\nmessage-id:1\ndestination:/queue/a\n\nhello^@")
        await peer.drip(f"\nRECEIPT\nreceipt-id:{asked}\n\n^@")
        assert (await peer.hear()).startswith("UNSUBSCRIBE\n")
        await peer.part()

    with quiet(caplog):
        async with (
            mad_broker(script, scheme) as url,
            StompClient(url) as client,
            client.subscribe("/queue/a") as messages,
        ):
            await client.send("/queue/a", receipt=True)
            message = await anext(messages)

    assert message.body == b"hello"
