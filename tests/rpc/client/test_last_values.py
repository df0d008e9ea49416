"""One typed last value: faults first, then reading, following and setting it."""

from __future__ import annotations

import json
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from pydantic import BaseModel

from nebula import sync
from nebula.avro import Schema
from nebula.errors import ConnectionLost, Refused
from nebula.rpc.client.client import Client
from nebula.rpc.client.values import LastValue, ValueChanges
from nebula.rpc.errors import UnexpectedReply
from nebula.stomp.client.subscription import Subscription
from nebula.testing import Faults, RunningBroker
from tests.rpc.scripted import brokers, welcome
from tests.stomp.peer import Peer

pytestmark = pytest.mark.anyio

_DEADLINE = 20.0

READING = Schema({"type": "record", "name": "egm.Meter_v1", "fields": [{"name": "cents", "type": "long"}]})


class Meter(BaseModel):
    cents: int


@pytest.fixture
def value(nebula_client: Client) -> LastValue[Meter]:
    return nebula_client.value("X/EGM.7.Meter", as_=Meter)


# --- what goes wrong ---


async def test_value_that_is_not_of_the_type_raises_and_the_next_one_is_read(
    nebula_client: Client, value: LastValue[Meter]
) -> None:
    await nebula_client.publish(value.destination, {"cents": "many"})
    with anyio.fail_after(_DEADLINE):
        with pytest.raises(UnexpectedReply, match="cents"):
            await value.get()
        changes = aiter(value)
        with pytest.raises(UnexpectedReply, match="cents"):
            await anext(changes)
        await value.put(Meter(cents=2))

        assert await anext(changes) == Meter(cents=2)


async def test_value_that_changed_meanwhile_is_given_after_a_loss_and_one_that_did_not_is_not(
    nebula_broker: RunningBroker, nebula_faults: Faults, value: LastValue[Meter]
) -> None:
    seen: list[Meter | None] = []

    async def follow(changes: ValueChanges[Meter]) -> None:
        seen.append(await anext(changes))

    def has_looked(changes: ValueChanges[Meter], before: Subscription | None) -> bool:
        now = changes._subscription
        return now is not None and now is not before and now._snapshot_left == 0

    await value.put(Meter(cents=1))
    with anyio.fail_after(_DEADLINE):
        async with Client(nebula_broker.url, link=nebula_faults) as client:
            changes = aiter(client.value(value.destination, as_=Meter))
            assert await anext(changes) == Meter(cents=1)
            nebula_faults.drop_connection()
            await client.stomp.connection.ended.wait()
            await value.put(Meter(cents=2))
            assert await anext(changes) == Meter(cents=2)
            before = changes._subscription
            nebula_faults.drop_connection()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(follow, changes)
                while not seen and not has_looked(changes, before):
                    await anyio.sleep(0.001)
                await value.put(Meter(cents=3))
            assert seen == [Meter(cents=3)]
            nebula_faults.drop_connection()
            await client.stomp.connection.ended.wait()
            await value.delete()
            assert await anext(changes) is None


async def test_without_reconnecting_the_loop_ends_with_the_connection(
    nebula_broker: RunningBroker, nebula_faults: Faults
) -> None:
    with anyio.fail_after(_DEADLINE):
        async with Client(nebula_broker.url, link=nebula_faults, reconnect=False) as client:
            changes = aiter(client.value("X/a", as_=int))
            assert await anext(changes) is None
            nebula_faults.drop_connection()
            with pytest.raises(ConnectionLost):
                await anext(changes)


async def test_loop_ends_when_the_client_is_left(nebula_broker: RunningBroker) -> None:
    with anyio.fail_after(_DEADLINE):
        async with Client(nebula_broker.url) as client:
            changes = aiter(client.value("X/a", as_=int))
            assert await anext(changes) is None
        with pytest.raises(ConnectionLost):
            await anext(changes)


async def test_broker_without_last_values_is_named(tmp_path: Path) -> None:
    left = anyio.Event()

    async def other(peer: Peer) -> None:
        await welcome(peer, "RabbitMQ/4")
        await left.wait()

    async with brokers(other) as url, Client(url) as client:
        one = client.value("X/a", as_=int)
        for call in (one.get, partial(one.put, 1), one.delete, partial(anext, aiter(one))):
            with pytest.raises(Refused, match="X/a: RabbitMQ/4 keeps none"):
                await call()
        left.set()


@pytest.mark.parametrize("destination", ["/topic/a", "/queue/a", "a", "X/a.*", "X/a?", "X/[ab]"])
def test_what_is_no_single_last_value_says_so(destination: str) -> None:
    with pytest.raises(ValueError, match=r"X/NAME|several values"):
        Client().value(destination, as_=int)


# --- what it is, and becomes ---


async def test_value_is_put_got_and_deleted(value: LastValue[Meter]) -> None:
    with anyio.fail_after(_DEADLINE):
        assert await value.get() is None
        await value.put(Meter(cents=1))
        assert await value.get() == Meter(cents=1)
        await value.put(Meter(cents=2))
        assert await value.get() == Meter(cents=2)
        await value.delete()
        assert await value.get() is None
        await value.delete()


async def test_loop_begins_with_the_present_value_and_gives_what_it_becomes(value: LastValue[Meter]) -> None:
    seen: list[Meter | None] = []
    with anyio.fail_after(_DEADLINE):
        async for now in value:
            seen.append(now)
            match len(seen):
                case 1:
                    await value.put(Meter(cents=1))
                case 2:
                    await value.delete()
                case 3:
                    break
        await value.put(Meter(cents=2))
        first = await anext(aiter(value))

    assert seen == [None, Meter(cents=1), None]
    assert first == Meter(cents=2)


async def test_changes_while_the_body_runs_are_conflated(value: LastValue[Meter]) -> None:
    with anyio.fail_after(_DEADLINE):
        await value.put(Meter(cents=0))
        async with aclosing(aiter(value)) as changes:
            assert await anext(changes) == Meter(cents=0)
            for cents in range(1, 100):
                await value.put(Meter(cents=cents))

            assert await anext(changes) == Meter(cents=99)


async def test_leaving_the_loop_ends_its_subscription(nebula_client: Client, value: LastValue[Meter]) -> None:
    before = len(nebula_client.stomp.connection._subscriptions)
    with anyio.fail_after(_DEADLINE):
        async for _ in value:
            assert len(nebula_client.stomp.connection._subscriptions) == before + 1
            break
        await value.get()

    assert len(nebula_client.stomp.connection._subscriptions) == before


async def test_closed_iterator_ends_its_loop(value: LastValue[Meter]) -> None:
    with anyio.fail_after(_DEADLINE):
        changes = aiter(value)
        await anext(changes)
        await changes.aclose()
        await changes.aclose()

        assert [one async for one in changes] == []


async def test_ephemeral_value_goes_with_its_clients_connection(
    nebula_broker: RunningBroker, value: LastValue[Meter]
) -> None:
    with anyio.fail_after(_DEADLINE):
        async with Client(nebula_broker.url) as other:
            await other.value(value.destination, as_=Meter).put(Meter(cents=1), ephemeral=True)
            changes = aiter(value)
            assert await anext(changes) == Meter(cents=1)

        assert await anext(changes) is None


async def test_value_goes_in_avro_where_a_schema_is_given_and_is_read_whatever_it_is_in(
    tmp_path: Path,
) -> None:
    (tmp_path / "meter.avsc").write_text(json.dumps(READING.definition))
    broker = RunningBroker(schemas=tmp_path)
    await anyio.to_thread.run_sync(broker.start)
    try:
        with anyio.fail_after(_DEADLINE):
            async with Client(broker.url) as client:
                in_avro = client.value("X/a", as_=Meter, schema=READING)
                in_json = client.value("X/a", as_=Meter)
                async with client.subscribe("X/a") as raw:
                    await in_avro.put(Meter(cents=1))
                    first = await anext(raw)
                assert await in_json.get() == Meter(cents=1)
                await in_json.put(Meter(cents=2))
                assert await in_avro.get() == Meter(cents=2)
    finally:
        await anyio.to_thread.run_sync(broker.stop)

    assert first.headers["content-type"] == "avro/binary"


def test_without_await_it_is_the_same(nebula_broker: RunningBroker) -> None:
    seen: list[Any] = []
    with sync.Client(nebula_broker.url) as client:
        value = client.value("X/a", as_=Meter)
        assert value.get() is None
        value.put(Meter(cents=1))
        assert value.get() == Meter(cents=1)
        for now in value:
            seen.append(now)
            if now is None:
                break
            value.delete()

    assert seen == [Meter(cents=1), None]


# --- all values of a glob ---


async def test_values_of_a_glob_are_read_by_destination_and_those_that_were_deleted_are_left_out(
    nebula_client: Client,
) -> None:
    for machine, cents in ((7, 100), (8, 50), (9, 25)):
        await nebula_client.value(f"X/EGM.{machine}.Meter", as_=Meter).put(Meter(cents=cents))
    await nebula_client.value("X/EGM.7.Name", as_=str).put("seven")
    await nebula_client.value("X/EGM.8.Meter", as_=Meter).delete()

    assert await nebula_client.values("X/EGM.*.Meter", as_=Meter) == {
        "X/EGM.7.Meter": Meter(cents=100),
        "X/EGM.9.Meter": Meter(cents=25),
    }
    assert await nebula_client.values("X/nothing.*", as_=Meter) == {}


async def test_value_of_a_glob_that_is_not_of_the_type_is_named(nebula_client: Client) -> None:
    await nebula_client.publish("X/EGM.7.Meter", {"cents": "many"})

    with pytest.raises(UnexpectedReply, match=r"X/EGM\.7\.Meter .* at cents"):
        await nebula_client.values("X/EGM.*", as_=Meter)


async def test_values_written_in_avro_are_read_and_tombstones_are_none(
    nebula_client: Client, nebula_broker: RunningBroker
) -> None:
    await nebula_client.value("X/EGM.7.Meter", as_=Meter).put(Meter(cents=1))
    await nebula_client.send_avro("X/EGM.8.Meter", None, READING)

    assert await nebula_client.values("X/EGM.*", as_=Meter) == {"X/EGM.7.Meter": Meter(cents=1)}


async def test_destinations_that_keep_nothing_have_no_values(nebula_client: Client) -> None:
    with pytest.raises(ValueError, match="keeps no last values"):
        await nebula_client.values("/topic/prices.*", as_=Meter)


async def test_values_of_a_glob_are_there_without_await(nebula_broker: RunningBroker) -> None:
    def look() -> dict[str, Meter]:
        with sync.Client(nebula_broker.url) as client:
            client.value("X/EGM.7.Meter", as_=Meter).put(Meter(cents=1))
            return client.values("X/EGM.*", as_=Meter)

    assert await anyio.to_thread.run_sync(look) == {"X/EGM.7.Meter": Meter(cents=1)}
