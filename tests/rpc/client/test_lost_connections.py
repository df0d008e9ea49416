"""Clients and services whose connection to a real broker is cut.

Step by step, against scripted brokers, is in `test_reconnecting` and `test_services_that_reconnect`. Here the
broker has to make it come true: keep, give out again, forget, and let in again.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import anyio.lowlevel
import pytest

from nebula.errors import ConnectionLost
from nebula.rpc.client.client import Client
from nebula.rpc.client.reconnect import ConnectionState
from nebula.rpc.contract.context import Request
from nebula.rpc.contract.retry import Retry
from nebula.rpc.contract.verbs import verb
from nebula.rpc.jobs.handle import JobHandle
from nebula.rpc.service.responder import Responder
from nebula.stomp.client import AckMode
from nebula.testing import Faults
from tests.rpc.conftest import Serving

pytestmark = pytest.mark.anyio

_DEADLINE = 20.0


class Mill:
    """A service that can be held: `slow` waits for `go`."""

    def __init__(self, state: Path) -> None:
        self.app = Responder(f"mill-{uuid4().hex}", concurrency=8, state=state)
        self.name = self.app.name
        self.runs: list[str] = []
        self.attempts: list[int] = []
        self.cancelled = anyio.Event()
        self.go = anyio.Event()
        self._more = anyio.Event()
        self.app.include(self)

        @self.app.job(engine=None)
        async def count() -> int:
            return await self.count()

    @verb
    async def slow(self, request: Request, name: str) -> str:
        self.runs.append(name)
        self.attempts.append(request.attempt)
        self._more.set()
        self._more = anyio.Event()
        try:
            await self.go.wait()
        except anyio.get_cancelled_exc_class():
            self.cancelled.set()
            raise
        return name

    @verb
    async def quick(self) -> str:
        return "quick"

    async def count(self) -> int:
        self.runs.append("count")
        self._more.set()
        self._more = anyio.Event()
        await self.go.wait()
        return 3

    async def until_runs(self, count: int) -> None:
        while len(self.runs) < count:
            await self._more.wait()


class States:
    """The states that a client reported."""

    def __init__(self) -> None:
        self.all: list[str] = []
        self._more = anyio.Event()

    def __call__(self, state: ConnectionState) -> None:
        self.all.append(state)
        self._more.set()
        self._more = anyio.Event()

    async def until(self, state: str, times: int) -> None:
        while self.all.count(state) < times:
            await self._more.wait()


@pytest.fixture
async def mill(tmp_path: Path) -> Mill:
    return Mill(tmp_path)


@pytest.fixture
def way(broker_url: str) -> Faults:
    """A link to the broker that can be cut."""
    return Faults(broker_url)


@pytest.fixture
async def states() -> States:
    return States()


@pytest.fixture
async def cut(broker_url: str, way: Faults, states: States) -> AsyncGenerator[Client]:
    """A client whose connection `way` can cut."""
    with anyio.fail_after(_DEADLINE):
        async with Client(broker_url, link=way, timeout=10, on_state=states) as one:
            yield one


# --- the caller's ---


async def test_call_in_flight_fails_and_the_next_one_goes_by_a_new_connection(
    mill: Mill, serving: Serving, cut: Client, way: Faults
) -> None:
    async def call() -> None:
        with pytest.raises(ConnectionLost):
            await cut.call(mill.name, "slow", "lost")

    async with serving(mill.app):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await mill.until_runs(1)
            way.drop_connection()
        mill.go.set()

        assert await cut.call(mill.name, "quick") == "quick"


async def test_call_with_a_key_is_answered_over_the_next_connection_and_runs_once(
    mill: Mill, serving: Serving, cut: Client, way: Faults, states: States
) -> None:
    answers: list[str] = []

    async def call() -> None:
        answers.append(await cut.call(mill.name, "slow", "kept", idempotency_key="order 1"))

    async with serving(mill.app), anyio.create_task_group() as tasks:
        tasks.start_soon(call)
        await mill.until_runs(1)
        way.drop_connection()
        await states.until("connected", 2)
        mill.go.set()

    assert (answers, mill.runs) == (["kept"], ["kept"])


async def test_answer_that_is_cut_within_a_frame_is_fetched_by_the_next_connection(
    mill: Mill, serving: Serving, cut: Client, way: Faults
) -> None:
    mill.go.set()
    async with serving(mill.app):
        way.drop_connection(within_frame=True)

        assert await cut.call(mill.name, "slow", "kept", idempotency_key="order 2") == "kept"
    assert mill.runs == ["kept"]


async def test_call_made_while_there_is_no_way_waits_for_one(
    mill: Mill, serving: Serving, cut: Client, way: Faults, states: States
) -> None:
    async with serving(mill.app):
        way.refuse_connections(3)
        way.drop_connection()
        await states.until("lost", 1)

        assert await cut.call(mill.name, "quick") == "quick"
    assert states.all.count("lost") >= 3


async def test_shared_queue_of_answers_is_read_again(
    mill: Mill, serving: Serving, broker_url: str, way: Faults
) -> None:
    states, queue = States(), f"/queue/shared-{uuid4().hex}"
    async with (
        serving(mill.app),
        Client(broker_url, link=way, timeout=10, on_state=states, reply_to=queue) as client,
    ):
        with anyio.fail_after(_DEADLINE):
            assert await client.call(mill.name, "quick") == "quick"
            way.drop_connection()
            await states.until("connected", 2)

            assert await client.call(mill.name, "quick") == "quick"


# --- what is subscribed to ---


async def test_subscription_to_a_topic_goes_on(
    client: Client, cut: Client, way: Faults, states: States
) -> None:
    topic = f"/topic/news-{uuid4().hex}"
    async with cut.subscribe(topic) as news:
        await client.publish(topic, b"one")
        bodies = [(await anext(news)).body]
        way.drop_connection()
        await states.until("connected", 2)
        await client.publish(topic, b"two")
        bodies.append((await anext(news)).body)

    assert bodies == [b"one", b"two"]


async def test_unacked_message_of_a_queue_comes_again_once(
    client: Client, cut: Client, way: Faults, states: States
) -> None:
    queue = f"/queue/work-{uuid4().hex}"
    async with cut.subscribe(queue, ack=AckMode.CLIENT_INDIVIDUAL) as work:
        for body in (b"one", b"two", b"three"):
            await client.publish(queue, body)
        taken = [await anext(work), await anext(work)]
        taken[0].ack()
        await cut.publish(queue, b"four")  # its receipt comes behind the ACK
        way.drop_connection()
        await states.until("connected", 2)
        taken[1].ack()  # of a connection that is over: it does nothing
        again = []
        for _ in range(3):
            again.append(await anext(work))
            again[-1].ack()

    assert [one.body for one in again] == [b"two", b"three", b"four"]
    assert again[0].headers["redelivered"] == "true"


async def test_durable_subscription_gets_messages_sent_during_its_absence(
    client: Client, broker_url: str, way: Faults
) -> None:
    states, topic = States(), f"/topic/news-{uuid4().hex}"
    async with Client(broker_url, link=way, client_id=uuid4().hex, on_state=states) as one:
        with anyio.fail_after(_DEADLINE):
            async with one.subscribe(topic, durable="mine", ack=AckMode.CLIENT_INDIVIDUAL) as news:
                way.refuse_connections(2)
                way.drop_connection()
                await states.until("lost", 1)
                await client.publish(topic, b"meanwhile")
                await states.until("connected", 2)
                message = await anext(news)
                message.ack()
                await news.remove(timeout=5)

    assert message.body == b"meanwhile"


async def test_watched_job_is_seen_to_end(
    mill: Mill, serving: Serving, cut: Client, way: Faults, states: States
) -> None:
    results: list[Any] = []

    async def wait(job: JobHandle) -> None:
        results.append(await job.result())

    async with serving(mill.app):
        started = await cut.start(mill.name, "count")
        # Where states are told on a topic, what was told meanwhile is asked for.
        job = JobHandle(cut, started.id, ask_after=0.1)
        async with anyio.create_task_group() as tasks:
            await mill.until_runs(1)
            tasks.start_soon(wait, job)
            await cut.call(mill.name, "quick")
            way.refuse_connections(2)
            way.drop_connection()
            mill.go.set()

    assert results == [3]
    assert states.all.count("connected") == 2


# --- the service's ---


def served(
    mill: Mill, broker_url: str, way: Faults, started: anyio.Event
) -> Callable[[], Coroutine[Any, Any, None]]:
    return partial(mill.app.run, broker_url, link=way, reconnect=True, started=started, grace=0.05)


@pytest.fixture
async def cut_service(mill: Mill, broker_url: str, way: Faults) -> AsyncGenerator[None]:
    """The mill, behind a way that can be cut."""
    started = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(served(mill, broker_url, way, started))
        with anyio.fail_after(_DEADLINE):
            await started.wait()
        yield
        tasks.cancel_scope.cancel()


@pytest.mark.usefixtures("cut_service")
async def test_request_that_came_while_the_service_was_away_is_answered(
    mill: Mill, client: Client, way: Faults
) -> None:
    way.refuse_connections(3)
    way.drop_connection()
    with anyio.fail_after(_DEADLINE):
        assert await client.call(mill.name, "quick", wait_for_responder=10, timeout=10) == "quick"


@pytest.mark.usefixtures("cut_service")
async def test_request_under_way_at_the_loss_comes_again_and_is_answered_once(
    mill: Mill, client: Client, way: Faults
) -> None:
    answers: list[str] = []

    async def call() -> None:
        answers.append(await client.call(mill.name, "slow", "twice"))

    with anyio.fail_after(_DEADLINE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await mill.until_runs(1)
            way.drop_connection()
            await mill.until_runs(2)
            mill.go.set()
        stats = await client.call(mill.name, "stats")

    assert (answers, mill.attempts) == (["twice"], [1, 2])
    assert stats["verbs"]["slow"]["requests"] == 2


@pytest.mark.usefixtures("cut_service")
async def test_service_that_came_back_receives_cancels(mill: Mill, client: Client, way: Faults) -> None:
    way.drop_connection()
    with anyio.fail_after(_DEADLINE):
        await client.call(mill.name, "quick", wait_for_responder=10, timeout=10)
        # It makes itself known when it hears of withdrawn calls already.
        while not await client.services(mill.name):
            await anyio.lowlevel.checkpoint()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.call, mill.name, "slow", "given up")
            await mill.until_runs(1)
            tasks.cancel_scope.cancel()
        await mill.cancelled.wait()

        assert await client.call(mill.name, "quick") == "quick"


@pytest.mark.usefixtures("cut_service")
async def test_service_that_came_back_is_found_and_asked_by_its_own_queue(
    mill: Mill, client: Client, way: Faults
) -> None:
    with anyio.fail_after(_DEADLINE):
        (before,) = await client.services(mill.name)
        way.drop_connection()
        await client.call(mill.name, "quick", wait_for_responder=10, timeout=10)
        # It makes itself known when it takes requests already.
        while not (found := await client.services(mill.name)):
            await anyio.lowlevel.checkpoint()
        (after,) = found
        assert after.queue is not None
        await client.call(after.queue, "ping", wait_for_responder=10, timeout=10)

    assert after == before


# --- both at once, again and again ---


async def test_calls_with_keys_bear_any_number_of_cuts_and_run_once(
    mill: Mill, broker_url: str, cut: Client, way: Faults
) -> None:
    answers: list[str] = []
    often = Retry(attempts=100)

    async def call(name: str) -> None:
        answers.append(await cut.call(mill.name, "slow", name, idempotency_key=name, retry=often))

    started = anyio.Event()
    names = [f"{cuts}-{number}" for cuts in range(4) for number in range(3)]
    async with anyio.create_task_group() as running:
        running.start_soon(served(mill, broker_url, way, started))
        await started.wait()
        async with anyio.create_task_group() as tasks:
            for at in range(0, len(names), 3):
                mill.go = anyio.Event()
                for name in names[at : at + 3]:
                    tasks.start_soon(call, name)
                await mill.until_runs(at + 3)
                way.drop_connection()
                mill.go.set()
        running.cancel_scope.cancel()

    assert sorted(answers) == sorted(mill.runs) == sorted(names)
