"""One request to all instances: which ones reply, which do not, and when it is over."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from decimal import Decimal
from typing import Any
from uuid import uuid4

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from nebula import headers as names
from nebula.errors import CallTimeout, ConnectionLost, RemoteError, ServerError
from nebula.rpc.client.breaker import Breaker
from nebula.rpc.client.client import Client
from nebula.rpc.discovery import Instance
from nebula.rpc.errors import UnexpectedReply, VerbError
from nebula.rpc.middleware.chain import Call, MakeCall
from nebula.rpc.service.responder import Responder
from nebula.rpc.wire.envelope import BOO
from tests.rpc.conftest import RunningBroker, Serving
from tests.rpc.discovery.instances import serving_at

pytestmark = pytest.mark.anyio


class Herd:
    """Instances of one service; `quick` answers with a number of its own, `slow` waits until it may."""

    def __init__(self, count: int) -> None:
        self.name = f"herd-{uuid4().hex}"
        self.may_end = anyio.Event()
        self.begun = 0
        self.apps = [self._make(number) for number in range(count)]

    def _make(self, number: int) -> Responder:
        app = Responder(self.name)

        @app.verb
        async def quick() -> int:
            return number

        @app.verb
        async def slow() -> int:
            self.begun += 1
            await self.may_end.wait()
            return number

        @app.verb
        async def first_is_quick() -> int:
            return await (slow if number else quick)()

        @app.verb
        async def forever() -> None:
            await anyio.sleep_forever()

        @app.verb
        async def odd() -> int | str:
            if number == 0:
                raise VerbError("sold-out", "nothing left")
            return "three" if number == 1 else number

        return app


async def test_every_instance_answers_once(serving: Serving, client: Client) -> None:
    herd = Herd(3)
    async with serving(*herd.apps):
        with anyio.fail_after(5):
            found = await client.call_all(herd.name, "quick")

    assert sorted(found.values.values()) == [0, 1, 2]
    assert len(found.values) == 3
    assert found.missing == []
    assert all(0 <= one.seconds < 5 for one in found.answers)


async def test_answers_come_as_they_are_given(serving: Serving, client: Client) -> None:
    herd = Herd(3)
    async with serving(*herd.apps):
        with anyio.fail_after(5):
            async with client.call_all(herd.name, "first_is_quick") as answers:
                first = (await anext(answers)).value
                herd.may_end.set()
                others = [one.value async for one in answers]

    assert (first, sorted(others), answers.missing) == (0, [1, 2], [])


async def test_an_error_is_an_answer_and_so_is_another_value(serving: Serving, client: Client) -> None:
    herd = Herd(3)
    async with serving(*herd.apps):
        found = await client.call_all(herd.name, "odd", result=int)

    errors = [one.error for one in found.answers if one.error is not None]
    assert {type(error) for error in errors} == {RemoteError, UnexpectedReply}
    assert list(found.values.values()) == [2]
    for one in found.answers:
        if one.error is not None:
            with pytest.raises(type(one.error)):
                _ = one.value


async def test_instance_that_is_too_slow_is_missing(serving: Serving, client: Client) -> None:
    herd = Herd(3)
    async with serving(*herd.apps):
        found = await client.call_all(herd.name, "first_is_quick", timeout=2)

    assert list(found.values.values()) == [0]
    assert len(found.missing) == 2
    assert {one.service for one in found.missing} == {herd.name}


class SoldOut(VerbError):
    """Nothing left."""

    code = "sold-out"


async def test_declared_error_is_an_answer_of_its_class(serving: Serving, client: Client) -> None:
    herd = Herd(3)
    async with serving(*herd.apps):
        found = await client.with_options(errors=[SoldOut]).call_all(herd.name, "odd")

    (error,) = [one.error for one in found.answers if one.error is not None]
    assert type(error) is SoldOut
    assert sorted(map(str, found.values.values())) == ["2", "three"]


async def test_instance_whose_circuit_is_open_is_missing(broker_url: str, serving: Serving) -> None:
    herd = Herd(2)
    herd.may_end.set()
    breaker = Breaker(failures=1, seconds=60)
    async with serving(*herd.apps), Client(broker_url, breaker=breaker) as client:
        (one, other) = await client.services(herd.name)
        assert one.queue is not None
        with pytest.raises(CallTimeout):
            await client.call(one.queue, "forever", timeout=0.01)
        found = await client.call_all(herd.name, "quick")

    # By name: meanwhile it may have said that it is busy.
    assert (list(found.values), [each.name for each in found.missing]) == ([other.name], [one.name])


async def test_whatever_else_goes_wrong_comes_out_as_it_is(broker_url: str, serving: Serving) -> None:
    async def broken(_call: Call, _next: MakeCall) -> Any:
        raise KeyError("mine")

    herd = Herd(2)
    async with serving(*herd.apps), Client(broker_url, middleware=[broken]) as client:
        with pytest.raises(KeyError, match="mine"):
            await client.call_all(herd.name, "quick")


def test_parameters_that_have_no_json_form_are_refused_at_once() -> None:
    with pytest.raises(ValueError, match="object"):
        Client().call_all("herd", "quick", object())


async def test_instances_are_asked_by_the_handlers_own_function(serving: Serving, client: Client) -> None:
    name = f"typed-{uuid4().hex}"
    apps = [Responder(name), Responder(name)]

    @apps[0].verb(errors=[SoldOut])
    async def double(number: int) -> Decimal:
        if not number:
            raise SoldOut
        return Decimal(2 * number)

    apps[1].verb(errors=[SoldOut])(double)
    async with serving(*apps):
        found = await client.call_all(double, 4)
        failed = await client.call_all(double, number=0)
        with pytest.raises(TypeError, match="number"):
            client.call_all(double)  # type: ignore[arg-type, call-arg]  # the mistake

    assert list(found.values.values()) == [Decimal(8)] * 2
    assert [type(one.error) for one in failed.answers] == [SoldOut] * 2


@asynccontextmanager
async def stoppable(url: str, app: Responder, grace: float) -> AsyncGenerator[anyio.CancelScope]:
    """Run a service for the block, or until the scope is cancelled."""
    scope, started = anyio.CancelScope(), anyio.Event()

    async def live() -> None:
        with scope:
            await app.run(url, started=started, grace=grace)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(live)
        await started.wait()
        yield scope
        scope.cancel()


async def test_instance_that_dies_is_not_waited_for(broker_url: str, client: Client) -> None:
    herd = Herd(2)
    with anyio.fail_after(10):
        async with (
            serving_at(broker_url, herd.apps[1]),
            stoppable(broker_url, herd.apps[0], grace=0) as running,
            client.call_all(herd.name, "slow", timeout=60) as answers,
        ):
            while herd.begun < 2:
                await anyio.lowlevel.checkpoint()
            running.cancel()
            while not answers.missing:
                await anyio.lowlevel.checkpoint()
            herd.may_end.set()
            found = [one.value async for one in answers]

    assert (found, len(answers.missing)) == ([1], 1)


async def test_instance_that_stops_answers_what_it_has_begun(broker_url: str, client: Client) -> None:
    herd = Herd(1)
    with anyio.fail_after(10):
        async with (
            stoppable(broker_url, herd.apps[0], grace=5) as running,
            client.watch_services(herd.name) as presence,
            client.call_all(herd.name, "slow") as answers,
        ):
            while not herd.begun:
                await anyio.lowlevel.checkpoint()
            running.cancel()
            async for change in presence.changes():
                if change.is_gone:
                    break
            herd.may_end.set()
            found = [one.value async for one in answers]

    assert (found, answers.missing) == ([0], [])


async def test_instance_without_a_queue_of_its_own_is_missing(client: Client) -> None:
    one = Instance(f"herd-{uuid4().hex}", "i1")
    await client.stomp.send(one.destination, one.to_json(), {names.EPHEMERAL: "true"}, receipt=True)

    found = await client.call_all(one.service, "quick")

    assert (found.answers, found.missing) == ([], [one])


async def test_instance_that_is_known_but_gone_is_missing_at_once(client: Client) -> None:
    service = f"herd-{uuid4().hex}"
    one = Instance(service, "i1", queue=f"/queue/{service}.i1")
    await client.stomp.send(one.destination, one.to_json(), {names.EPHEMERAL: "true"}, receipt=True)

    with anyio.fail_after(5):
        found = await client.call_all(service, "quick", timeout=60)

    assert found.missing == [one]


async def test_instance_that_left_is_asked_for_nothing_while_it_may_be_answering(client: Client) -> None:
    service = f"herd-{uuid4().hex}"
    one = Instance(service, "i1", queue=f"/queue/{service}.i1")
    assert one.queue is not None
    await client.stomp.send(one.destination, one.to_json(), {names.EPHEMERAL: "true"}, receipt=True)

    with anyio.fail_after(5):
        async with client.stomp.subscribe(one.queue) as asked, client.call_all(service, "quick", timeout=60):
            question = await anext(asked)
            await client.stomp.send(one.destination, b"", {names.EPHEMERAL: "true"}, receipt=True)
            look = await anext(asked)

    assert b"quick" in question.body
    # The body that the protocol says to skip.
    assert look.body == BOO


async def test_answers_of_what_was_not_entered_are_no_empty_list(client: Client) -> None:
    answers = client.call_all("herd", "quick")

    with pytest.raises(RuntimeError, match="async with"):
        await anext(aiter(answers))


async def test_service_without_instances_gives_no_replies(client: Client) -> None:
    found = await client.call_all(f"herd-{uuid4().hex}", "quick")

    assert (found.answers, found.missing, found.values) == ([], [], {})


async def test_leaving_early_forgets_the_others(serving: Serving, client: Client) -> None:
    herd = Herd(3)
    async with serving(*herd.apps):
        with anyio.fail_after(5):
            async with client.call_all(herd.name, "first_is_quick") as answers:
                async for one in answers:
                    assert one.value == 0
                    break

            assert answers.missing == []
        herd.may_end.set()


async def test_error_of_the_block_comes_out_as_it_is(serving: Serving, client: Client) -> None:
    herd = Herd(1)
    async with serving(*herd.apps):
        with pytest.raises(KeyError, match="mine"):
            async with client.call_all(herd.name, "quick"):
                raise KeyError("mine")


async def test_lost_connection_ends_it(mortal_broker: RunningBroker) -> None:
    herd = Herd(1)
    with anyio.fail_after(10):
        async with (
            serving_at(mortal_broker.url, *herd.apps),
            Client(mortal_broker.url, reconnect=False) as client,
            client.call_all(herd.name, "slow") as answers,
        ):
            while not herd.begun:
                await anyio.lowlevel.checkpoint()
            await anyio.to_thread.run_sync(mortal_broker.stop)
            with pytest.raises((ConnectionLost, ServerError)):
                await anext(answers)


async def test_it_works_where_there_are_no_last_values(plain_url: str) -> None:
    herd = Herd(2)
    async with serving_at(plain_url, *herd.apps), Client(plain_url) as client:
        with anyio.fail_after(20):
            # Who is there is asked for a second, in which a busy machine may not answer.
            while len((found := await client.call_all(herd.name, "quick")).values) < 2:
                pass

    assert sorted(found.values.values()) == [0, 1]
