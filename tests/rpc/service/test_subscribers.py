"""`@app.on` functions, where the broker has a part in it.

All else about them, in memory, is in `test_listening`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import Any
from uuid import uuid4

import anyio
import anyio.lowlevel
import pytest
from pydantic import BaseModel

from nebula.rpc.client.client import Client
from nebula.rpc.contract.context import Request
from nebula.rpc.contract.injection import Depends
from nebula.rpc.service.responder import Responder
from nebula.testing import Faults
from tests.rpc.conftest import Serving
from tests.rpc.heard import Heard

pytestmark = pytest.mark.anyio

_DEADLINE = 20.0


class Meter(BaseModel):
    cents: int


def fresh(**options: Any) -> Responder:
    return Responder(f"meters-{uuid4().hex}", **options)


@pytest.fixture
def queue() -> str:
    return f"/queue/readings-{uuid4().hex}"


@pytest.fixture
def topic() -> str:
    return f"/topic/readings-{uuid4().hex}"


async def counts(client: Client, app: Responder) -> dict[str, Any]:
    listens: list[dict[str, Any]] = (await client.call(app.name, "stats"))["listens"]
    return listens[0]


# --- what goes wrong ---


async def test_message_that_is_never_handled_is_given_up_and_the_next_one_is_handled_meanwhile(
    queue: str, serving: Serving, client: Client
) -> None:
    app, heard = fresh(max_attempts=2), Heard()

    @app.on(queue)
    async def note(meter: Meter) -> None:
        heard(meter.cents)
        if meter.cents == 1:
            raise RuntimeError("no room")

    async with serving(app):
        await client.publish(queue, Meter(cents=1))
        await client.publish(queue, Meter(cents=2))
        await heard.until(3)
        with anyio.fail_after(_DEADLINE):
            while not (told := await counts(client, app))["given_up"]:
                await anyio.lowlevel.checkpoint()

    assert heard.all == [1, 2, 1]
    assert told["errors"] == 2
    assert (told["given_up"], told["unreadable"]) == (1, 0)


async def test_message_that_failed_is_handled_again(queue: str, serving: Serving, client: Client) -> None:
    app, heard = fresh(max_attempts=2), Heard()

    @app.on(queue)
    async def note(meter: Meter, request: Request) -> None:
        heard(request.attempt)
        if request.attempt == 1:
            raise RuntimeError("no room")

    async with serving(app):
        await client.publish(queue, Meter(cents=1))

        assert await heard.until(2) == [1, 2]


async def test_garbage_is_given_up_at_once(queue: str, serving: Serving, client: Client) -> None:
    app, heard = fresh(), Heard()

    @app.on(queue)
    async def note(meter: Meter) -> None:
        heard(meter.cents)

    async with serving(app):
        await client.publish(queue, b"{", content_type="application/json")
        await client.publish(queue, b"\xff", content_type="avro/binary")
        await client.publish(queue, Meter(cents=2))
        await heard.until(1)
        told = await counts(client, app)

    assert heard.all == [2]
    assert (told["given_up"], told["unreadable"], told["errors"]) == (2, 2, 0)


@pytest.mark.parametrize("kind", ["queue", "topic"])
async def test_slow_handler_has_no_more_messages_than_its_credit(
    kind: str, serving: Serving, client: Client
) -> None:
    app, heard, go = fresh(), Heard(), anyio.Event()
    destination = f"/{kind}/readings-{uuid4().hex}"

    @app.on(destination)
    async def note(meter: Meter) -> None:
        heard(meter.cents)
        await go.wait()

    async with serving(app):
        for cents in range(50):
            await client.publish(destination, Meter(cents=cents))
        await heard.until(1)
        told = await counts(client, app)
        go.set()
        await heard.until(50)

    assert told["waiting"] <= 1
    assert heard.all == list(range(50))


async def test_acked_early_a_message_comes_once_whatever_becomes_of_it(
    queue: str, serving: Serving, client: Client
) -> None:
    app, heard = fresh(), Heard()

    @app.on(queue, ack="early")
    async def note(meter: Meter) -> None:
        heard(meter.cents)
        raise RuntimeError("no room")

    async with serving(app):
        for cents in range(4):  # more than the credit that acks have to give back
            await client.publish(queue, Meter(cents=cents))
        await heard.until(4)
        told = await counts(client, app)

    assert heard.all == [0, 1, 2, 3]
    assert (told["errors"], told["given_up"]) == (4, 0)


async def test_service_listens_again_after_a_lost_connection_and_gets_the_unhandled_messages(
    queue: str, topic: str, broker_url: str, client: Client
) -> None:
    app, heard, way, started = fresh(), Heard(), Faults(broker_url), anyio.Event()
    go = anyio.Event()

    @app.on(queue)
    async def note(meter: Meter) -> None:
        heard(meter.cents)
        await go.wait()

    @app.on(topic)
    async def see(meter: Meter) -> None:
        heard(-meter.cents)

    async with anyio.create_task_group() as tasks:
        serve = partial(app.run, broker_url, link=way, reconnect=True, started=started, grace=0.05)
        tasks.start_soon(serve)
        with anyio.fail_after(_DEADLINE):
            await started.wait()
            await client.publish(queue, Meter(cents=5))
            await client.publish(queue, Meter(cents=6))
            await heard.until(1)
            way.drop_connection()
            go.set()
            await heard.until(3)
            await client.call(app.name, "ping", wait_for_responder=10, timeout=10)
            await client.publish(topic, Meter(cents=7))
            await heard.until(4)
        tasks.cancel_scope.cancel()

    assert heard.all == [5, 5, 6, -7]


async def test_durable_subscription_gets_what_came_while_the_service_was_away(
    topic: str, serving: Serving, client: Client
) -> None:
    app, heard = fresh(client_id=uuid4().hex), Heard()

    @app.on(topic, durable="notes")
    async def note(meter: Meter) -> None:
        heard(meter.cents)

    async with serving(app):
        await client.publish(topic, Meter(cents=1))
        await heard.until(1)
    await client.publish(topic, Meter(cents=2))
    async with serving(app):
        assert await heard.until(2) == [1, 2]


# --- what they are told ---


async def test_each_message_of_a_queue_goes_to_one_instance_and_of_a_topic_to_all(
    queue: str, topic: str, serving: Serving, client: Client
) -> None:
    heard = Heard()
    name = f"meters-{uuid4().hex}"
    apps = Responder(name), Responder(name)
    for app in apps:

        @app.on(queue)
        @app.on(topic)
        async def note(meter: Meter, request: Request) -> None:
            heard((request.destination, meter.cents))

    async with serving(*apps):
        for cents in range(4):
            await client.publish(queue, Meter(cents=cents))
        await client.publish(topic, Meter(cents=9))
        await heard.until(6)

    assert sorted(heard.all) == sorted([*((queue, cents) for cents in range(4)), (topic, 9), (topic, 9)])


@pytest.mark.parametrize(
    ("kind", "content_type", "body", "value"),
    [
        (str, "text/plain", "grüße", "grüße"),
        (Meter, "text/plain", '{"cents": 7}', Meter(cents=7)),
        (list[int], "application/json", [7, 8], [7, 8]),
        (bytes, "application/octet-stream", b"\x00\xff", b"\x00\xff"),
        (Meter | None, "application/json", b"", None),
    ],
)
async def test_bodies_of_all_kinds_come_as_the_annotated_type(
    queue: str, serving: Serving, client: Client, kind: Any, content_type: str, body: Any, value: Any
) -> None:
    app, heard = fresh(), Heard()

    async def note(body: Any) -> None:
        heard(body)

    note.__annotations__["body"] = kind
    app.on(queue)(note)
    async with serving(app):
        await client.publish(queue, body, content_type=content_type)

        assert await heard.until(1) == [value]


async def test_handler_publishes_over_its_services_connection_and_sees_headers_and_injected(
    queue: str, topic: str, serving: Serving, client: Client
) -> None:
    app, heard = fresh(), Heard()

    async def colour(request: Request) -> AsyncIterator[str]:
        yield request.headers["colour"]
        heard("closed")

    @app.on(queue)
    async def note(meter: Meter, *, colour: str = Depends(colour)) -> None:
        await app.publish(topic, {"cents": 2 * meter.cents}, headers={"colour": colour})

    @app.on(topic)
    async def see(meter: Meter, request: Request) -> None:
        heard((meter.cents, request.headers["colour"]))

    async with serving(app):
        await client.publish(queue, Meter(cents=5), headers={"colour": "red"})
        await heard.until(2)

    assert set(heard.all) == {"closed", (10, "red")}


async def test_last_values_are_listened_to_read_and_set(serving: Serving, client: Client) -> None:
    app, heard = fresh(), Heard()
    destination = f"X/reading.{uuid4().hex}"

    @app.on(destination)
    async def note(meter: Meter) -> None:
        heard(meter.cents)

    with anyio.fail_after(_DEADLINE):
        async with serving(app):
            value = client.value(destination, as_=Meter)
            await value.put(Meter(cents=3))
            await heard.until(1)

            assert await value.get() == Meter(cents=3)
            await value.delete()
