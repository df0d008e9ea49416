"""stompman (asyncio, STOMP 1.2) against `nebula broker`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
import pytest
import stompman

from tests.interop.bodies import DEADLINE, EVERY_OCTET, HEADERS, MEBIBYTE

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    """stompman knows asyncio alone."""
    return "asyncio"


@asynccontextmanager
async def _connected(port: int, **options: Any) -> AsyncIterator[stompman.Client]:
    parameters = stompman.ConnectionParameters("127.0.0.1", port, login="", passcode="")
    with anyio.fail_after(DEADLINE):
        async with stompman.Client([parameters], **options) as client:
            yield client


class _Inbox:
    """A manual subscription's messages, in order."""

    def __init__(self) -> None:
        self._put, self._get = anyio.create_memory_object_stream[stompman.AckableMessageFrame](1000)

    async def __call__(self, message: stompman.AckableMessageFrame) -> None:
        self._put.send_nowait(message)

    async def take(self, count: int = 1) -> list[stompman.AckableMessageFrame]:
        return [await self._get.receive() for _ in range(count)]


async def _drain(client: stompman.Client, queue: str, count: int) -> list[stompman.AckableMessageFrame]:
    inbox = _Inbox()
    subscription = await client.subscribe_with_manual_ack(queue, inbox, ack="auto")
    messages = await inbox.take(count)
    await subscription.unsubscribe()
    return messages


async def test_stompman_receives_auto_messages_in_order(broker_port: int, queue: str) -> None:
    async with _connected(broker_port) as client:
        for number in range(100):
            await client.send(str(number).encode(), queue)
        messages = await _drain(client, queue, 100)

    assert [int(message.body) for message in messages] == list(range(100))


async def test_stompman_acks_cumulatively(broker_port: int, queue: str) -> None:
    async with _connected(broker_port) as client:
        for number in range(3):
            await client.send(str(number).encode(), queue)
        inbox = _Inbox()
        subscription = await client.subscribe_with_manual_ack(queue, inbox, ack="client")
        await (await inbox.take(3))[1].ack()
        await subscription.unsubscribe()
        (left,) = await _drain(client, queue, 1)

    assert left.body == b"2"


async def test_stompman_nacks_and_acks_individually(broker_port: int, queue: str) -> None:
    async with _connected(broker_port) as client:
        await client.send(b"again", queue)
        inbox = _Inbox()
        subscription = await client.subscribe_with_manual_ack(queue, inbox, ack="client-individual")
        await (await inbox.take())[0].nack()
        (second,) = await inbox.take()
        await second.ack()
        await subscription.unsubscribe()

    assert second.body == b"again"
    assert dict(second.headers)["redelivered"] == "true"


async def test_stompman_commits_and_aborts(broker_port: int, queue: str) -> None:
    async with _connected(broker_port) as client:
        with suppress(LookupError):
            async with client.begin() as transaction:
                await transaction.send(b"never", queue)
                raise LookupError
        async with client.begin() as transaction:
            await transaction.send(b"first", queue)
            await transaction.send(b"second", queue)
        await client.send(b"third", queue)
        messages = await _drain(client, queue, 3)

    assert [message.body for message in messages] == [b"first", b"second", b"third"]


@pytest.mark.parametrize("body", [b"", EVERY_OCTET, MEBIBYTE], ids=["empty", "every octet", "1 MiB"])
async def test_stompman_bodies_arrive_unchanged(broker_port: int, queue: str, body: bytes) -> None:
    async with _connected(broker_port) as client:
        await client.send(body, queue)

        assert (await _drain(client, queue, 1))[0].body == body


async def test_stompman_headers_arrive_unchanged(broker_port: int, queue: str) -> None:
    async with _connected(broker_port) as client:
        await client.send(b"", queue, headers=HEADERS)
        received = dict((await _drain(client, queue, 1))[0].headers)

    assert {name: received[name] for name in HEADERS} == HEADERS


async def test_stompman_receives_its_receipts(broker_port: int, queue: str) -> None:
    async with _connected(broker_port) as client:
        # Raises where the RECEIPT does not come in time.
        for _ in range(50):
            await client.send(b"", queue, receipt_timeout=DEADLINE)


async def test_stompman_is_told_what_was_wrong(broker_port: int) -> None:
    told, told_at = anyio.create_memory_object_stream[stompman.ErrorFrame](10)
    async with _connected(broker_port, on_error_frame=told.send_nowait) as client:
        await client.send(b"", "", receipt_timeout=None)
        error = await told_at.receive()

    assert "destination" in error.headers["message"]


async def test_idle_stompman_lives_by_its_heart_beats(broker_port: int, queue: str) -> None:
    async with _connected(broker_port, heartbeat=stompman.Heartbeat(1000, 1000)) as client:
        # The broker takes 2 s of silence for death: time itself is what is tested.
        await anyio.sleep(3.0)

        assert client.is_alive()
        await client.send(b"alive", queue, receipt_timeout=DEADLINE)
