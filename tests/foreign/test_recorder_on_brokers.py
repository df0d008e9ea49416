"""Recording on RabbitMQ and ActiveMQ: by what a message is known that comes again; and each once."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from nebula.record.identity import has_stable_ids, id_of
from nebula.rpc.wire.brokers import brand_of
from nebula.stomp.client import AckMode, StompClient
from nebula.stomp.client.messages import Message
from tests.record.messages import recorded
from tests.record.test_recorder import recording, until

pytestmark = [pytest.mark.anyio, pytest.mark.foreign]

DEADLINE = 60.0


@pytest.fixture
def anyio_backend() -> str:
    """Event loops have nothing to do with brokers."""
    return "asyncio"


@pytest.fixture(params=["rabbitmq_url", "activemq_url"])
def url(request: pytest.FixtureRequest) -> str:
    """Each of the brokers."""
    found: str = request.getfixturevalue(request.param)
    return found


async def delivered(url: str, queue: str) -> tuple[Message, str]:
    """The queue's first message, and what it is known by; it is not acked."""
    async with StompClient(url) as client, client.subscribe(queue, ack=AckMode.CLIENT) as messages:
        message = await anext(messages)
        return message, id_of(message.headers, brand_of(client.server))


async def test_message_that_comes_again_is_known_if_ids_are_stable_or_its_publisher_named_it(
    url: str, queue: str
) -> None:
    with anyio.fail_after(DEADLINE):
        async with StompClient(url) as client:
            await client.send(queue, b"plain", {"persistent": "true"}, receipt=True)
            is_stable = has_stable_ids(brand_of(client.server))
        (_, first), (again, second) = await delivered(url, queue), await delivered(url, queue)
        assert again.headers.get("redelivered") == "true"
        assert (first == second) == is_stable

        named = f"{queue}-named"
        async with StompClient(url) as client:
            headers = {"persistent": "true", "dedup-id": "reading-7"}
            await client.send(named, b"named", headers, receipt=True)
        (_, first), (_, second) = await delivered(url, named), await delivered(url, named)
        assert first == second


async def test_queue_is_recorded_and_acked_there(url: str, queue: str, tmp_path: Path) -> None:
    with anyio.fail_after(DEADLINE):
        async with recording(url, tmp_path, queue, prefetch=100, sync_messages=50) as recorder:
            async with StompClient(url) as client:
                for number in range(299):
                    client.post(queue, b"%d" % number, {"persistent": "true"})
                await client.send(queue, b"299", {"persistent": "true"}, receipt=True)
            await until(lambda: recorder.status.messages == 300)
        assert recorder.status.in_doubt == 0

        # Nothing of it is there any more.
        async with StompClient(url) as client:
            await client.send(queue, b"next", receipt=True)
        message, _ = await delivered(url, queue)
        assert message.body == b"next"
    assert [int(record["body"]) for record in recorded(tmp_path)] == list(range(300))


async def test_durable_topic_keeps_there_what_is_sent_while_the_recorder_is_away(
    url: str, queue: str, tmp_path: Path
) -> None:
    topic = queue.replace("/queue/", "/topic/")
    with anyio.fail_after(DEADLINE):
        async with recording(url, tmp_path, topic, durable=f"archive{topic[-8:]}"):
            pass
        async with StompClient(url) as client:
            await client.send(topic, b"missed", {"persistent": "true"}, receipt=True)
        async with recording(url, tmp_path, topic, durable=f"archive{topic[-8:]}") as recorder:
            await until(lambda: recorder.status.messages == 1)
    assert [record["body"] for record in recorded(tmp_path)] == [b"missed"]
