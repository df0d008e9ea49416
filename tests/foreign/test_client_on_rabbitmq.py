"""`StompClient` against RabbitMQ: it is a client for any STOMP broker, not only ours."""

from __future__ import annotations

from contextlib import suppress
from uuid import uuid4

import anyio
import pytest

from benchmarks.peers import Broker
from nebula.errors import ConnectFailed, ServerError
from nebula.stomp.client import AckMode, Message, Receipt, StompClient

# The first one waits for RabbitMQ to be installed.
pytestmark = [pytest.mark.anyio, pytest.mark.foreign, pytest.mark.timeout(300)]

_DEADLINE = 20.0
every_version = pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
# STOMP 1.0 has neither `client-individual` nor NACK.
with_nack = pytest.mark.parametrize("version", ["1.1", "1.2"])


def _client(url: str, version: str = "1.2") -> StompClient:
    return StompClient(url, versions=[version])


async def _take(client: StompClient, queue: str, count: int) -> list[Message]:
    """So many messages of a queue, consumed."""
    async with client.subscribe(queue) as messages:
        return [await anext(messages) for _ in range(count)]


@every_version
async def test_connects_in_each_version(rabbitmq_url: str, version: str) -> None:
    with anyio.fail_after(_DEADLINE):
        async with _client(rabbitmq_url, version) as client:
            assert client.version == version
            assert (client.server or "").startswith("RabbitMQ/")
            assert not client.is_nebula


async def test_takes_the_highest_version(rabbitmq_url: str) -> None:
    with anyio.fail_after(_DEADLINE):
        async with StompClient(rabbitmq_url) as client:
            assert client.version == "1.2"


async def test_wrong_passcode_is_refused_with_its_reason(rabbitmq: Broker) -> None:
    with anyio.fail_after(_DEADLINE):
        with pytest.raises(ConnectFailed, match=r"(?i)access refused|bad connect"):
            async with StompClient(f"stomp://guest:wrong@127.0.0.1:{rabbitmq.port}"):
                pass


async def test_foreign_virtual_host_is_refused_with_its_reason(rabbitmq_url: str) -> None:
    with anyio.fail_after(_DEADLINE):
        with pytest.raises(ConnectFailed, match="elsewhere"):
            async with StompClient(f"{rabbitmq_url}/elsewhere"):
                pass


@every_version
async def test_auto_messages_come_in_order(rabbitmq_url: str, queue: str, version: str) -> None:
    with anyio.fail_after(_DEADLINE):
        async with _client(rabbitmq_url, version) as client:
            for number in range(100):
                await client.send(queue, str(number))
            messages = await _take(client, queue, 100)

            assert [int(message.body) for message in messages] == list(range(100))


@every_version
async def test_client_ack_is_cumulative(rabbitmq_url: str, queue: str, version: str) -> None:
    with anyio.fail_after(_DEADLINE):
        async with _client(rabbitmq_url, version) as client:
            for number in range(3):
                await client.send(queue, str(number))
            async with client.subscribe(queue, ack=AckMode.CLIENT) as messages:
                taken = [await anext(messages) for _ in range(3)]
                taken[1].ack()
        async with _client(rabbitmq_url, version) as client:
            left = await _take(client, queue, 1)

            assert left[0].body == b"2"
            assert left[0].headers["redelivered"] == "true"


@with_nack
async def test_client_individual_ack_is_for_one_message(rabbitmq_url: str, queue: str, version: str) -> None:
    with anyio.fail_after(_DEADLINE):
        async with _client(rabbitmq_url, version) as client:
            for number in range(3):
                await client.send(queue, str(number))
            async with client.subscribe(queue, ack=AckMode.CLIENT_INDIVIDUAL) as messages:
                taken = [await anext(messages) for _ in range(3)]
                taken[1].ack()
        async with _client(rabbitmq_url, version) as client:
            left = await _take(client, queue, 2)

            assert [message.body for message in left] == [b"0", b"2"]


@with_nack
async def test_nacked_message_comes_again(rabbitmq_url: str, queue: str, version: str) -> None:
    with anyio.fail_after(_DEADLINE):
        async with _client(rabbitmq_url, version) as client:
            await client.send(queue, "again")
            async with client.subscribe(queue, ack=AckMode.CLIENT_INDIVIDUAL) as messages:
                (await anext(messages)).nack()
                second = await anext(messages)
                second.ack()

            assert second.body == b"again"
            assert second.headers["redelivered"] == "true"


@every_version
async def test_committed_messages_arrive_and_aborted_ones_do_not(
    rabbitmq_url: str, queue: str, version: str
) -> None:
    with anyio.fail_after(_DEADLINE):
        async with _client(rabbitmq_url, version) as client:
            with suppress(LookupError):
                async with client.transaction() as aborted:
                    await aborted.send(queue, "never")
                    raise LookupError
            async with client.transaction() as committed:
                await committed.send(queue, "first")
                await committed.send(queue, "second")
            await client.send(queue, "third")
            messages = await _take(client, queue, 3)

            assert [message.body for message in messages] == [b"first", b"second", b"third"]


@every_version
async def test_a_thousand_pipelined_receipts_come_in_order(
    rabbitmq_url: str, queue: str, version: str
) -> None:
    answered: list[Receipt] = []
    all_answered = anyio.Event()

    def on_receipt(receipt: Receipt) -> None:
        answered.append(receipt)
        if len(answered) == 1000:
            all_answered.set()

    with anyio.fail_after(_DEADLINE):
        async with _client(rabbitmq_url, version) as client:
            for _ in range(1000):
                client.post_with_receipt(queue, b"", {}, on_receipt)
            await all_answered.wait()

            ids = [int("".join(filter(str.isdigit, receipt.headers["receipt-id"]))) for receipt in answered]
            assert ids == sorted(ids)


@every_version
async def test_mebibyte_with_every_octet_arrives_unchanged(
    rabbitmq_url: str, queue: str, version: str
) -> None:
    body = bytes(range(256)) * 4096
    with anyio.fail_after(_DEADLINE):
        async with _client(rabbitmq_url, version) as client:
            await client.send(queue, body, receipt=True)

            assert (await _take(client, queue, 1))[0].body == body


@with_nack
async def test_escaped_header_text_arrives_unchanged(rabbitmq_url: str, queue: str, version: str) -> None:
    headers = {"grüße: ✓": "a:b\\c\nd", "leer": ""}
    with anyio.fail_after(_DEADLINE):
        async with _client(rabbitmq_url, version) as client:
            await client.send(queue, b"", headers)
            received = (await _take(client, queue, 1))[0].headers

            assert {name: received[name] for name in headers} == headers


@with_nack
async def test_idle_connection_lives_by_its_heart_beats(rabbitmq_url: str, queue: str, version: str) -> None:
    with anyio.fail_after(_DEADLINE):
        async with StompClient(rabbitmq_url, versions=[version], heart_beat=(0.5, 0.5)) as client:
            # Many times what either side takes for death: time itself is what is tested.
            await anyio.sleep(3.0)
            await client.send(queue, "alive", receipt=True)

            assert (await _take(client, queue, 1))[0].body == b"alive"


async def test_refused_destination_is_an_error_of_the_server(rabbitmq_url: str) -> None:
    with anyio.fail_after(_DEADLINE):
        async with StompClient(rabbitmq_url) as client:
            with pytest.raises(ServerError, match=r"(?i)invalid destination|unknown destination"):
                await client.send("/no-such-kind/x", b"", receipt=True)


async def test_topic_goes_to_every_subscriber(rabbitmq_url: str) -> None:
    topic = f"/topic/{uuid4().hex}"
    with anyio.fail_after(_DEADLINE):
        async with (
            StompClient(rabbitmq_url) as client,
            client.subscribe(topic) as first,
            client.subscribe(topic) as second,
        ):
            await client.send(topic, "news")

            assert (await anext(first)).body == (await anext(second)).body == b"news"
