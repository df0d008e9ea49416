"""The lifespan of a service: opened before it listens, closed after its last reply."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from uuid import uuid4

import anyio
import pytest

from nebula import testing
from nebula.broker.server.server import Listener
from nebula.rpc.client.client import Client
from nebula.rpc.contract.context import Request
from nebula.rpc.contract.injection import Depends
from nebula.rpc.service.lifespan import lifespan_state
from nebula.rpc.service.responder import Responder
from nebula.testing import TestClient
from tests.rpc.conftest import RunningBroker

pytestmark = pytest.mark.anyio


@dataclass
class State:
    """The state of a service."""

    lines: list[str] = field(default_factory=list)


def kept(state: State) -> Callable[[], AbstractAsyncContextManager[State]]:
    @asynccontextmanager
    async def lifespan() -> AsyncIterator[State]:
        state.lines.append("opened")
        try:
            yield state
        finally:
            # A cancelled one could not wait for anything.
            await anyio.lowlevel.checkpoint()
            state.lines.append("closed")

    return lifespan


async def test_lifespan_may_take_the_service() -> None:
    @asynccontextmanager
    async def lifespan(service: Responder, *_rest: int, size: int = 1) -> AsyncIterator[str]:
        yield f"{service.name} {service.version} {size}"

    app = Responder("with-lifespan", version="3", lifespan=lifespan)

    @app.verb
    async def state(request: Request[str]) -> str:
        return request.state

    async with TestClient(app) as client:
        assert await client.call(state) == "with-lifespan 3 1"


async def test_lifespan_that_cannot_be_opened_is_refused_with_what_to_write() -> None:
    async def bare(app: Responder) -> AsyncIterator[None]:
        yield

    @contextmanager
    def plain(app: Responder) -> Iterator[None]:
        yield

    @asynccontextmanager
    async def greedy(app: Responder, name: str) -> AsyncIterator[None]:
        yield

    def refused(lifespan: Any) -> str:
        with pytest.raises(TypeError) as told:
            Responder("a", lifespan=lifespan)
        return str(told.value)

    assert "@asynccontextmanager above it" in refused(bare)
    assert "write it as `async def` with one `yield`" in refused(plain)
    assert "takes (app, name); it may take the service, and nothing else" in refused(greedy)
    assert "pass it uncalled" in refused(greedy(Responder("b"), "x"))


def service(state: State) -> Responder:
    app = Responder(f"service-{uuid4().hex}", lifespan=kept(state))

    @app.verb
    async def seen(request: Request[State], *, state: State = Depends(lifespan_state)) -> list[str]:
        assert request.state is state
        return request.state.lines

    @app.verb
    async def slow(request: Request[State]) -> str:
        request.state.lines.append("begun")
        await anyio.sleep(0.05)
        request.state.lines.append("answered")
        return "done"

    return app


async def test_handlers_have_what_the_lifespan_yields() -> None:
    app = service(state := State())
    async with TestClient(app) as client:
        with anyio.fail_after(5):
            assert await client.call(app.name, "seen") == ["opened"]
    assert state.lines == ["opened", "closed"]


async def test_service_without_a_lifespan_has_no_state() -> None:
    app = Responder(f"service-{uuid4().hex}")

    @app.verb
    async def seen(request: Request) -> bool:
        return request.state is None

    async with TestClient(app) as client:
        with anyio.fail_after(5):
            assert await client.call(seen) is True


async def test_lifespan_closes_after_the_last_answer(broker_url: str) -> None:
    app = service(state := State())
    with anyio.fail_after(10):
        async with (
            Client(broker_url, timeout=5) as client,
            anyio.create_task_group() as tasks,
            testing.serving(broker_url, app),
        ):
            tasks.start_soon(client.call, app.name, "slow")
            while "begun" not in state.lines:
                await anyio.sleep(0.01)
    assert state.lines == ["opened", "begun", "answered", "closed"]


async def test_lost_connection_leaves_the_lifespan_open(free_port: int) -> None:
    state = State()
    app = service(state)

    def broker() -> RunningBroker:
        return RunningBroker(Listener("127.0.0.1", free_port))

    first = await anyio.to_thread.run_sync(broker)
    started = anyio.Event()
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(app.run, first.url, started=started, grace=0.05))
            await started.wait()
            async with Client(first.url) as client:
                await anyio.to_thread.run_sync(first.stop)
                second = await anyio.to_thread.run_sync(broker)
                asking = client.with_options(wait_for_responder=15)
                assert await asking.call(app.name, "seen") == ["opened"]
            tasks.cancel_scope.cancel()
        await anyio.to_thread.run_sync(second.stop)
    assert state.lines == ["opened", "closed"]


async def test_exception_of_the_lifespan_ends_the_service_as_it_is(broker_url: str) -> None:
    @asynccontextmanager
    async def broken() -> AsyncIterator[None]:
        if app.name:
            raise ValueError("no database")
        yield

    app = Responder("never", lifespan=broken)
    with anyio.fail_after(5), pytest.raises(ValueError, match="no database"):
        await app.run(broker_url)


async def test_service_that_is_stopped_while_its_lifespan_opens_ends(broker_url: str) -> None:
    opening = anyio.Event()

    @asynccontextmanager
    async def endless() -> AsyncIterator[None]:
        opening.set()
        await anyio.sleep_forever()
        yield

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(Responder("never", lifespan=endless).run, broker_url)
            await opening.wait()
            tasks.cancel_scope.cancel()


async def test_lifespan_closes_in_peace_where_there_is_no_broker(free_port: int) -> None:
    state = State()
    app = Responder("lonely", lifespan=kept(state))
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:

            async def run() -> None:
                await app.run(f"stomp://127.0.0.1:{free_port}", wait=True)

            tasks.start_soon(run)
            while not state.lines:
                await anyio.sleep(0.01)
            tasks.cancel_scope.cancel()
    assert state.lines == ["opened", "closed"]
