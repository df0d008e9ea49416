"""Typed subscriptions: Avro with schemas that the broker knows, JSON, and bodies that are neither."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import pytest
from pydantic import BaseModel

from nebula.avro import Schema, encode
from nebula.errors import AvroError
from nebula.rpc.client.client import Client
from nebula.rpc.client.typed_messages import Values
from nebula.rpc.errors import UnexpectedReply
from nebula.stomp.client import AckMode
from tests.cli.programs import running

pytestmark = pytest.mark.anyio

_DEADLINE = 20.0

_FIELDS = [{"name": "meter", "type": "long"}, {"name": "cents", "type": "long", "default": 0}]
READING = Schema({"type": "record", "name": "egm.Reading_v1", "fields": _FIELDS})
STRANGE = Schema({"type": "record", "name": "egm.Strange_v1", "fields": _FIELDS})


class Reading(BaseModel):
    meter: int
    cents: int = 0


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker that knows only the schema `READING`."""
    folder: Path = tmp_path_factory.mktemp("schemas")
    (folder / "reading.avsc").write_text(json.dumps(READING.definition))
    words = ("broker", "--port", "0", "--store", "memory", "--schemas", str(folder))
    with running(*words) as (_, ready):
        yield ready["url"]


@pytest.fixture
def destination() -> str:
    return f"X/reading.{uuid4().hex}"


async def next_value(values: Values[Any]) -> Any:
    return (await anext(values)).value


async def test_value_is_sent_as_avro_and_read_as_a_model_or_a_dict(url: str, destination: str) -> None:
    with anyio.fail_after(_DEADLINE):
        async with (
            Client(url) as client,
            client.subscribe(destination, as_=Reading) as models,
            client.subscribe(destination, as_=dict) as plain,
        ):
            await client.send_avro(destination, Reading(meter=7, cents=25), READING, headers={"x": "y"})
            received = await anext(models)

            assert received.value == Reading(meter=7, cents=25)
            assert received.message.destination == destination
            assert received.message.headers["content-type"] == "avro/binary"
            assert received.message.headers["x"] == "y"
            assert await next_value(plain) == {"meter": 7, "cents": 25}


async def test_snapshot_and_deletions_are_read_too(url: str, destination: str) -> None:
    with anyio.fail_after(_DEADLINE):
        async with Client(url) as client:
            await client.send_avro(destination, {"meter": 1, "cents": 0}, READING)
            async with client.subscribe(
                destination, as_=Reading, ack=AckMode.CLIENT_INDIVIDUAL, eager=True
            ) as values:
                async for received in values.snapshot():
                    assert received.value == Reading(meter=1)
                    received.message.ack()
                for _ in range(2):
                    await client.send_avro(destination, None, READING)
                    received = await anext(values)
                    received.message.ack()
                    assert received.value is None


async def test_json_is_read_by_the_same_words(url: str, destination: str) -> None:
    with anyio.fail_after(_DEADLINE):
        async with Client(url) as client, client.subscribe(destination, as_=Reading) as values:
            await client.publish(destination, Reading(meter=3))

            assert await next_value(values) == Reading(meter=3)


@pytest.mark.parametrize(
    ("body", "content_type", "error"),
    [
        (b"no envelope", "avro/binary", AvroError),
        (encode({"meter": 1, "cents": 0}, STRANGE), "avro/binary", AvroError),
        (b"{broken", "application/json", UnexpectedReply),
        (b'{"meter": "many"}', "application/json", UnexpectedReply),
    ],
)
async def test_message_that_cannot_be_read_does_not_end_the_subscription(
    url: str, destination: str, body: bytes, content_type: str, error: type[Exception]
) -> None:
    with anyio.fail_after(_DEADLINE):
        async with Client(url) as client, client.subscribe(destination, as_=Reading) as values:
            await client.publish(destination, body, content_type=content_type)
            await client.publish(destination, Reading(meter=5))
            received = await anext(values)

            assert received.message.body == body
            with pytest.raises(error):
                _ = received.value
            assert await next_value(values) == Reading(meter=5)


async def test_value_of_another_schema_is_not_sent(url: str, destination: str) -> None:
    with anyio.fail_after(_DEADLINE):
        async with Client(url) as client:
            with pytest.raises(AvroError, match=r"egm\.Reading_v1"):
                await client.send_avro(destination, {"meter": "seven"}, READING)


async def test_durable_subscription_goes_on_under_the_clients_id(url: str, destination: str) -> None:
    name = uuid4().hex
    with anyio.fail_after(_DEADLINE):
        for body in ("first", "second"):
            async with (
                Client(url, client_id=name) as client,
                client.subscribe(destination, ack=AckMode.CLIENT, durable="mine") as messages,
            ):
                if body == "second":
                    assert json.loads((await anext(messages)).body) == "first"
            async with Client(url) as other:
                await other.publish(destination, body)
