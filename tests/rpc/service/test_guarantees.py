"""Services that die at the two moments that count: during a request, and after its reply."""

from __future__ import annotations

from functools import partial
from uuid import uuid4

import anyio
import anyio.lowlevel
import pytest

from nebula import Client, ConnectionLost, Request, Responder
from nebula.headers import IN_REPLY_TO, REPLY_ID, REPLY_TO, RESPONSE
from nebula.stomp.client import AckMode, StompClient
from nebula.testing import Faults
from tests.rpc.conftest import Serving

pytestmark = pytest.mark.anyio

_DEADLINE = 20


async def test_request_that_a_service_died_over_is_answered_by_another_one(
    broker_url: str, client: Client, serving: Serving
) -> None:
    first = Responder(f"shop-{uuid4().hex}")
    second = Responder(first.name)
    faults = Faults(broker_url)
    started, has_begun, is_answered = anyio.Event(), anyio.Event(), anyio.Event()
    answers: list[int] = []

    @first.verb(name="price")
    async def dying() -> None:
        has_begun.set()
        await anyio.sleep_forever()

    @second.verb
    async def price(request: Request) -> int:
        return request.attempt

    async def serve_until_lost() -> None:
        with pytest.raises(ConnectionLost):
            await first.run(link=faults, started=started, grace=0.01)

    async def call() -> None:
        answers.append(await client.call(first.name, "price"))
        is_answered.set()

    with anyio.fail_after(_DEADLINE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(serve_until_lost)
            await started.wait()
            tasks.start_soon(call)
            await has_begun.wait()
            async with serving(second):
                faults.drop_connection()
                await is_answered.wait()

    assert answers == [2]


async def test_request_is_handled_again_whose_service_died_behind_its_answer(
    broker_url: str, client: Client, serving: Serving
) -> None:
    app = Responder(f"shop-{uuid4().hex}")
    runs: list[int] = []
    has_run = anyio.Event()

    @app.verb
    async def price(request: Request) -> int:
        runs.append(request.attempt)
        has_run.set()
        return 6

    async def answer_and_die(started: anyio.Event) -> None:
        queue = f"/queue/{app.name}"
        async with (
            StompClient(broker_url) as stomp,
            stomp.subscribe(queue, ack=AckMode.CLIENT_INDIVIDUAL) as requests,
        ):
            started.set()
            asked = (await anext(requests)).headers
            headers = {IN_REPLY_TO: asked[REPLY_ID], RESPONSE: "true"}
            await stomp.send(asked[REPLY_TO], b'{"verb":"priceresponse","parameters":5}', headers)

    with anyio.fail_after(_DEADLINE):
        async with anyio.create_task_group() as tasks:
            listening = anyio.Event()
            tasks.start_soon(partial(answer_and_die, listening))
            await listening.wait()
            value = await client.call(app.name, "price")
        async with serving(app):
            await has_run.wait()
            # Behind the second answer, which came to the same inbox.
            assert await client.call(app.name, "ping") is None

    assert (value, runs) == (5, [2])


async def test_requests_of_a_burst_are_acknowledged_when_they_are_answered(
    broker_url: str, client: Client, serving: Serving
) -> None:
    app = Responder(f"shop-{uuid4().hex}")
    faults = Faults(broker_url)
    runs: list[int] = []

    @app.verb
    async def price(number: int) -> int:
        runs.append(number)
        if number % 3:
            await anyio.lowlevel.checkpoint()
        return number

    async def serve_until_lost(started: anyio.Event) -> None:
        with pytest.raises(ConnectionLost):
            await app.run(link=faults, started=started, grace=0.01)

    with anyio.fail_after(_DEADLINE):
        async with anyio.create_task_group() as tasks:
            started = anyio.Event()
            tasks.start_soon(serve_until_lost, started)
            await started.wait()
            async with anyio.create_task_group() as calls:
                for number in range(50):
                    calls.start_soon(client.call, app.name, "price", {"number": number})
            # Its reply comes after the ACKs of the others.
            await client.call(app.name, "ping")
            faults.drop_connection()
        # What was not acknowledged would come again, before this.
        async with serving(app):
            await client.call(app.name, "ping")

    assert sorted(runs) == list(range(50))
