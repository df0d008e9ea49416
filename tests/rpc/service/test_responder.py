"""A service as its owner sees it: declaring, running, stopping."""

from __future__ import annotations

import platform
import threading
import time
import types
from collections.abc import Callable
from functools import partial, wraps
from typing import Any
from uuid import uuid4

import anyio
import anyio.to_thread
import pytest

from nebula.errors import CallTimeout, ConnectFailed, ConnectionLost, NoResponder, RemoteError, ServerError
from nebula.rpc.client.client import Client
from nebula.rpc.contract.context import Request
from nebula.rpc.contract.verbs import target_of, verb
from nebula.rpc.service.responder import Responder
from nebula.stomp.client import AckMode, StompClient
from nebula.stomp.client.link import Link
from nebula.version import __version__
from tests.rpc.conftest import RunningBroker, Serving


def fresh(**options: Any) -> Responder:
    return Responder(f"service-{uuid4().hex}", **options)


# --- declaring ---


@pytest.mark.parametrize("name", ["", "a.b", "a b", "é", "/queue/a"])
def test_service_name_has_no_dot_and_nothing_odd(name: str) -> None:
    with pytest.raises(ValueError, match="no dot"):
        Responder(name)


@pytest.mark.parametrize(
    "options", [{"concurrency": 0}, {"max_attempts": 0}, {"ack": "never"}, {"queues": []}]
)
def test_options_that_cannot_work_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="service 'prices'"):
        Responder("prices", **options)


def test_verb_returns_the_function_marked_with_its_service() -> None:
    app = Responder("prices")

    def quote() -> None: ...

    assert app.verb(quote) is quote
    target = target_of(quote)
    assert target is not None
    assert (target.service, target.destination, target.verb) == ("prices", "/queue/prices", "quote")


def test_first_queue_is_the_services_address_and_a_verb_may_have_another() -> None:
    app = Responder("prices", queues=["quick", "/queue/slow"])

    @app.verb
    def quote() -> None: ...

    @app.verb(name="crunch", queue="slow")
    def compute() -> None: ...

    for function, destination in ((quote, "/queue/quick"), (compute, "/queue/slow")):
        target = target_of(function)
        assert target is not None
        assert target.destination == destination


def test_verb_cannot_be_announced_at_a_queue_that_is_not_served() -> None:
    def quote() -> None: ...

    with pytest.raises(ValueError, match="not among"):
        Responder("prices").verb(queue="elsewhere")(quote)


@pytest.mark.parametrize("name", ["ping", "describe", "stats", "job.list", "engine.status", "neb.x"])
def test_verb_with_a_reserved_name_is_refused(name: str) -> None:
    def quote() -> None: ...

    with pytest.raises(ValueError, match="reserved"):
        Responder("prices").verb(name=name)(quote)


def test_including_something_without_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="no function marked with @verb"):
        Responder("prices").include(types.ModuleType("empty"))


# --- what every service answers ---


@pytest.mark.anyio
async def test_ping_answers_success(serving: Serving, client: Client) -> None:
    app = fresh()
    async with serving(app):
        assert await client.call(app.name, "ping") is None


@pytest.mark.anyio
async def test_describe_lists_every_verb_with_its_contract(serving: Serving, client: Client) -> None:
    app = fresh()

    @app.verb
    async def quote(symbol: str, qty: int = 1) -> float:
        """Price of some units."""
        return 1.0

    async with serving(app):
        described = await client.call(app.name, "describe")

    assert described["service"] == app.name
    verbs = {one["verb"]: one for one in described["verbs"]}
    assert list(verbs) == ["describe", "ping", "quote", "stats"]
    assert all(one["description"] for one in verbs.values())
    assert verbs["quote"]["queue"] == f"/queue/{app.name}"
    assert verbs["quote"]["parameters"]["required"] == ["symbol"]
    assert verbs["quote"]["result"] == {"type": "number"}


@pytest.mark.anyio
async def test_stats_counts_requests_and_errors_by_verb(serving: Serving, client: Client) -> None:
    app = fresh()

    @app.verb
    async def invert(value: float) -> float:
        return 1 / value

    async with serving(app):
        await client.call(app.name, "invert", 2)
        with pytest.raises(RemoteError):
            await client.call(app.name, "invert", 0)
        stats = await client.call(app.name, "stats")

    assert (stats["verbs"]["invert"]["requests"], stats["verbs"]["invert"]["errors"]) == (2, 1)
    assert stats["verbs"]["invert"]["longest_seconds"] > 0
    assert (stats["waiting"], stats["busy"]) == (0, 1)  # itself


@pytest.mark.anyio
async def test_stats_describes_the_process_and_runs_hooks_only_on_request(
    serving: Serving, client: Client
) -> None:
    app = fresh()
    asked: list[str] = []

    @app.ready
    async def database() -> bool:
        asked.append("ready")
        return False

    @app.live
    async def memory() -> bool:
        asked.append("live")
        return False

    async with serving(app):
        plain = (await client.call(app.name, "stats"))["process"]
        before = list(asked)
        examined = (await client.call(app.name, "stats", {"health": True}))["process"]

    assert (plain["nebula"], plain["python"]) == (__version__, platform.python_version())
    assert abs(plain["time"] - time.time()) < 60
    assert (plain["failing"], before) == (None, [])
    assert examined["failing"] == ["memory", "database"]


# --- handlers ---


@pytest.mark.anyio
async def test_included_functions_and_methods_answer(serving: Serving, client: Client) -> None:
    class Prices:
        unit = 3

        @verb(name="price.quote")
        async def quote(self, qty: int) -> int:
            return self.unit * qty

    app = fresh()
    prices = Prices()
    app.include(prices)

    async with serving(app):
        assert await client.call(app.name, "price.quote", 2) == 6
        assert await client.service(app.name).call(prices.quote, 2) == 6


@pytest.mark.anyio
async def test_async_handler_in_a_plain_decorator_is_awaited(serving: Serving, client: Client) -> None:
    def logged(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def inner(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        return inner

    app, heard = fresh(), anyio.Event()

    @app.verb
    @logged
    async def double(number: int) -> int:
        return 2 * number

    @app.on(f"/topic/{app.name}")
    @logged
    async def hear(word: str) -> None:
        heard.set()

    async with serving(app):
        assert await client.call(app.name, "double", 2) == 4
        await client.publish(f"/topic/{app.name}", "hello")
        with anyio.fail_after(5):
            await heard.wait()


@pytest.mark.anyio
async def test_handler_may_see_its_request(serving: Serving, client: Client) -> None:
    app = fresh()

    @app.verb
    def look(request: Request, word: str) -> list[Any]:
        return [request.verb, request.principal, request.destination, request.deadline is not None, word]

    async with serving(app):
        assert await client.call(look, "x") == ["look", "anonymous", f"/queue/{app.name}", True, "x"]


@pytest.mark.anyio
async def test_handler_sees_that_its_request_was_delivered_before(
    broker_url: str, serving: Serving, client: Client
) -> None:
    app = fresh()
    attempts: list[int] = []
    done = anyio.Event()

    @app.verb
    async def look(request: Request) -> None:
        attempts.append(request.attempt)
        if len(attempts) == 2:
            done.set()

    await client.send(app.name, "look")
    async with client.stomp.subscribe(f"/queue/{app.name}", ack=AckMode.CLIENT_INDIVIDUAL) as first:
        with anyio.fail_after(5):
            (await anext(first)).nack()
            await anext(first)
    async with serving(app):
        await client.send(app.name, "look")
        with anyio.fail_after(5):
            await done.wait()

    # Given back, and not counted as an end: UNSUBSCRIBE says nothing against a request.
    assert sorted(attempts) == [1, 2]


@pytest.mark.anyio
async def test_verb_is_open_to_the_principals_on_its_list_only(serving: Serving, client: Client) -> None:
    app = fresh()

    @app.verb(allow=["anonymous"])
    async def free() -> str:
        return "in"

    @app.verb(allow=["alice"])
    async def closed() -> str:
        raise AssertionError

    async with serving(app):
        assert await client.call(free) == "in"
        with pytest.raises(RemoteError) as caught:
            await client.call(closed)
        described = await client.call(app.name, "describe")

    assert caught.value.code == "not-allowed"
    # Callers that show verbs can leave out what would be refused.
    allowed = {one["verb"]: one.get("allowed", True) for one in described["verbs"]}
    assert allowed == {"closed": False, "describe": True, "free": True, "ping": True, "stats": True}


def gated(app: Responder, **options: Any) -> Any:
    """A verb `wait` that waits for `opened`."""
    gate = types.SimpleNamespace(inside=0, most=0, opened=anyio.Event(), entered=anyio.Event())

    @app.verb(name="wait", **options)
    async def wait() -> str:
        gate.inside += 1
        gate.most = max(gate.most, gate.inside)
        gate.entered.set()
        try:
            await gate.opened.wait()
        finally:
            gate.inside -= 1
        return "done"

    return gate


@pytest.mark.anyio
async def test_no_more_handlers_run_at_once_than_the_concurrency_allows(
    serving: Serving, client: Client
) -> None:
    app = fresh(concurrency=3)
    gate = gated(app)
    answers: list[Any] = []

    async def ask() -> None:
        answers.append(await client.call(app.name, "wait"))

    async with serving(app), anyio.create_task_group() as tasks:
        for _ in range(10):
            tasks.start_soon(ask)
        with anyio.fail_after(5):
            while gate.inside < 3:
                await anyio.lowlevel.checkpoint()
            # A request sent now is behind those that wait for a worker.
            with pytest.raises(CallTimeout):
                await client.call(app.name, "ping", timeout=0.1)
        gate.opened.set()

    assert answers == ["done"] * 10
    assert gate.most == 3


@pytest.mark.anyio
async def test_slow_requests_on_one_queue_do_not_hold_up_another(serving: Serving, client: Client) -> None:
    name = f"service-{uuid4().hex}"
    app = Responder(name, queues=[name, f"{name}-slow"], concurrency=1)
    gate = gated(app, queue=f"{name}-slow")

    async with serving(app), anyio.create_task_group() as tasks:
        tasks.start_soon(partial(client.call, f"{name}-slow", "wait"))
        with anyio.fail_after(5):
            await gate.entered.wait()
            await client.call(name, "ping")
        gate.opened.set()


@pytest.mark.anyio
async def test_plain_functions_run_at_the_same_time_in_threads(serving: Serving, client: Client) -> None:
    app = fresh(concurrency=2)
    together = threading.Barrier(2)

    @app.verb
    def meet() -> int:
        return together.wait(5)

    numbers: list[int] = []

    async def ask() -> None:
        numbers.append(await client.call(meet))

    async with serving(app), anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        tasks.start_soon(ask)

    assert sorted(numbers) == [0, 1]


@pytest.mark.anyio
async def test_request_whose_time_is_over_is_not_run(serving: Serving, client: Client) -> None:
    app = fresh(concurrency=1)
    gate = gated(app)
    runs: list[None] = []

    @app.verb
    async def run() -> None:
        runs.append(None)

    async with serving(app), anyio.create_task_group() as tasks:
        tasks.start_soon(partial(client.call, app.name, "wait"))
        with anyio.fail_after(5):
            await gate.entered.wait()
            # Long enough to come to the service, which has to see for itself that it is over.
            with pytest.raises(CallTimeout):
                await client.with_options(timeout=0.3).call(run)
            # The service counts from when it came, which may be later by what brokers take.
            await client.publish(f"/topic/{app.name}", "behind it")  # the broker has handed it on
            await anyio.sleep(0.4)
            gate.opened.set()
            stats = await client.call(app.name, "stats")

    assert not runs
    assert stats["expired"] == 1


# --- the end ---


@pytest.mark.anyio
async def test_stopped_service_finishes_what_it_began(broker_url: str, client: Client) -> None:
    app = fresh(concurrency=1)
    gate = gated(app)
    answers: list[Any] = []
    started = anyio.Event()

    async def ask() -> None:
        answers.append(await client.call(app.name, "wait"))

    async with anyio.create_task_group() as asking, anyio.create_task_group() as serving:
        serving.start_soon(partial(app.run, broker_url, started=started))
        with anyio.fail_after(5):
            await started.wait()
            asking.start_soon(ask)
            await gate.entered.wait()
        serving.cancel_scope.cancel()
        gate.opened.set()

    assert answers == ["done"]
    with pytest.raises(NoResponder):
        await client.call(app.name, "ping")


@pytest.mark.anyio
async def test_stopped_service_gives_back_what_it_did_not_finish(broker_url: str, client: Client) -> None:
    app = fresh(concurrency=1)
    gate = gated(app)
    started = anyio.Event()
    queue = f"/queue/{app.name}"

    async with anyio.create_task_group() as serving:
        serving.start_soon(partial(app.run, broker_url, started=started, grace=0.01))
        with anyio.fail_after(5):
            await started.wait()
            await client.send(app.name, "wait")
            await client.send(app.name, "ping")
            await gate.entered.wait()
        serving.cancel_scope.cancel()

    headers = {"prefetch-count": "5"}
    async with client.stomp.subscribe(queue, ack=AckMode.CLIENT_INDIVIDUAL, headers=headers) as rest:
        with anyio.fail_after(5):
            bodies = [(await anext(rest)).body, (await anext(rest)).body]
    assert bodies == [b'{"verb":"wait"}', b'{"verb":"ping"}']


@pytest.mark.anyio
async def test_early_ack_takes_the_request_from_the_broker_before_it_runs(
    broker_url: str, client: Client
) -> None:
    app = fresh(ack="early")
    gate = gated(app)
    started = anyio.Event()
    queue = f"/queue/{app.name}"

    async with anyio.create_task_group() as serving:
        serving.start_soon(partial(app.run, broker_url, started=started, grace=0.01))
        with anyio.fail_after(5):
            await started.wait()
            await client.send(app.name, "wait")
            await gate.entered.wait()
        serving.cancel_scope.cancel()

    async with client.stomp.subscribe(queue) as rest:
        await client.stomp.send(queue, b"only this")
        with anyio.fail_after(5):
            assert (await anext(rest)).body == b"only this"


@pytest.mark.anyio
async def test_service_that_finds_no_broker_says_so(free_port: int) -> None:
    with pytest.raises(ConnectFailed):
        await fresh().run(f"stomp://127.0.0.1:{free_port}")


@pytest.mark.anyio
async def test_service_whose_queue_is_taken_says_so(broker_url: str) -> None:
    app = fresh()
    queue = f"/queue/{app.name}"
    async with StompClient(broker_url) as other, other.subscribe(queue, headers={"exclusive": "true"}):
        with anyio.fail_after(5), pytest.raises(ServerError):
            await app.run(broker_url)


@pytest.mark.anyio
async def test_service_ends_with_an_error_when_its_connection_does(mortal_broker: RunningBroker) -> None:
    app = fresh()
    started = anyio.Event()

    async def stop_it() -> None:
        await started.wait()
        await anyio.to_thread.run_sync(mortal_broker.stop)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stop_it)
        with anyio.fail_after(5), pytest.raises((ConnectionLost, ServerError)):
            await app.run(mortal_broker.url, started=started, reconnect=False)


@pytest.mark.anyio
async def test_service_can_be_stopped_while_it_connects() -> None:
    async def never() -> Link:
        await anyio.sleep_forever()
        raise AssertionError

    with anyio.fail_after(5):
        with anyio.move_on_after(0.01) as scope:
            await fresh().run(link=never)

    assert scope.cancelled_caught
