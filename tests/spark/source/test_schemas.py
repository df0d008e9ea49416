"""What the bodies of a destination are: by the options, else by what the broker has bound it to."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from anyio import to_thread

from nebula import sync
from nebula.avro import Schema
from nebula.errors import AvroError, SettingsError
from nebula.spark.source.options import AVRO, ENVELOPE, MESSAGE, BrokerOptions, ContentOptions, stream_options
from nebula.spark.source.schemas import Writers, settle
from nebula.testing import RunningBroker
from tests.rpc.scripted import welcome
from tests.stomp.peer import Peer
from tests.stomp.peer import broker as brokers

READING = Schema(
    {"type": "record", "name": "venue.Reading_v1", "fields": [{"name": "coins", "type": "long"}]}
)
LATER = {
    **READING.definition,
    "fields": [*READING.definition["fields"], {"name": "a", "type": "int", "default": 0}],
}
OTHER = Schema({"type": "record", "name": "venue.Other_v1", "fields": []})


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    schemas = tmp_path / "schemas"
    schemas.mkdir()
    (schemas / "reading.avsc").write_text(json.dumps(READING.definition))
    destination = [
        {"pattern": "/queue/enveloped", "avro": READING.name},
        {"pattern": "X/bare.*", "avro": READING.name, "content": "bare"},
    ]
    with RunningBroker(transport="tcp", schemas=schemas, destination=destination) as running:
        yield running


def settled(url: str, destination: str, **options: str) -> tuple[ContentOptions, Schema | None]:
    told = {"broker": url, "destination": "/queue/a", "spool": "/nowhere", **options}
    read = stream_options(told).read
    return settle(read.content, read.broker, destination)


@pytest.mark.parametrize(
    ("destination", "kind"), [("/queue/enveloped", ENVELOPE), ("X/bare.*", AVRO), ("X/bare.1", AVRO)]
)
def test_schema_is_that_which_the_destination_is_bound_to(
    broker: RunningBroker, destination: str, kind: str
) -> None:
    content, schema = settled(broker.url, destination)

    assert content.kind == kind
    assert schema is not None
    assert schema.definition == READING.definition


def test_destination_that_is_bound_to_nothing_has_messages(broker: RunningBroker) -> None:
    content, schema = settled(broker.url, "/queue/plain")

    assert (content.kind, schema) == (MESSAGE, None)


def test_avro_that_nobody_has_a_schema_of_is_refused_with_what_to_give(broker: RunningBroker) -> None:
    with pytest.raises(SettingsError, match="has bound /queue/plain to no Avro type: give avroSchema"):
        settled(broker.url, "/queue/plain", content="avro")


def test_type_of_several_schemas_is_refused_with_what_to_give(broker: RunningBroker) -> None:
    with sync.Client(broker.url) as client:
        client.call("nebula.broker", "schema.register", {"definition": LATER})

    with pytest.raises(SettingsError, match=r"venue\.Reading_v1.* has 2 schemas of this name; give the one"):
        settled(broker.url, "/queue/enveloped")


def test_broker_without_schemas_has_bound_nothing() -> None:
    with RunningBroker(transport="tcp") as plain:
        assert settled(plain.url, "/queue/a")[1] is None
        with pytest.raises(SettingsError, match=r"schema 'venue\.Reading_v1': "):
            settled(plain.url, "/queue/a", schemaName=READING.name)


@pytest.mark.anyio
async def test_broker_of_another_brand_is_not_asked() -> None:
    async def other(peer: Peer) -> None:
        await welcome(peer, "RabbitMQ/4")
        await peer.part()  # and nothing before it

    async with brokers(other) as url:
        content, _ = await to_thread.run_sync(settled, url, "/queue/a")
    async with brokers(other) as url:
        with pytest.raises(AvroError, match="RabbitMQ/4 knows no schemas: give schemas"):
            await to_thread.run_sync(writers(url), 1)

    assert content.kind == MESSAGE


@pytest.mark.anyio
async def test_broker_that_is_just_starting_is_waited_for() -> None:
    came = 0

    async def late(peer: Peer) -> None:
        nonlocal came
        came += 1
        if came > 1:
            await welcome(peer, "RabbitMQ/4")
            await peer.part()

    async with brokers(late) as url:
        content, _ = await to_thread.run_sync(settled, url, "/queue/a")

    assert (content.kind, came) == (MESSAGE, 2)


@pytest.mark.anyio
async def test_refused_login_is_not_tried_again() -> None:
    async def strict(peer: Peer) -> None:
        await peer.hear()
        await peer.say("ERROR\nmessage:wrong passcode\n\n^@")

    async with brokers(strict) as url:
        with pytest.raises(SettingsError, match=r"could not be asked .*wrong passcode"):
            await to_thread.run_sync(settled, url, "/queue/a")


def writers(url: str, folder: Path | None = None, *, timeout: float = 5.0) -> Writers:
    return Writers(ContentOptions(ENVELOPE, None, None, folder), BrokerOptions(url, None, timeout))


def test_what_nobody_knows_is_not_asked_for_again_and_what_could_not_be_asked_is_no_refusal(
    tmp_path: Path,
) -> None:
    with RunningBroker(transport="tcp", schemas=tmp_path / "schemas") as running:
        find = writers(running.url)
        with pytest.raises(AvroError, match="is not known"):
            find(READING.fingerprint)

    with pytest.raises(AvroError, match="is not known"):
        find(READING.fingerprint)
    with pytest.raises(SettingsError, match="could not be asked"):
        writers(running.url, timeout=0.1)(OTHER.fingerprint)


def test_folder_is_looked_into_before_the_broker_is_asked(tmp_path: Path) -> None:
    (tmp_path / "reading.avsc").write_text(json.dumps(READING.definition))

    assert writers("stomp://127.0.0.1:1", tmp_path)(READING.fingerprint).definition == READING.definition
