"""A real broker, on a thread and loop of its own, so that trio's tests have one too."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any

import anyio
import pytest

from nebula.broker.access import AccessPolicy
from nebula.broker.server import Listener, Server
from nebula.rpc.client import Client
from nebula.rpc.responder import Responder
from tests import ports

Serving = Callable[..., AbstractAsyncContextManager[None]]


class RunningBroker:
    """A broker on a thread and loop of its own."""

    def __init__(self, *listeners: Listener, access: AccessPolicy | None = None) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="broker")
        self._thread.start()
        self._server = Server(listeners or [Listener("127.0.0.1", 0)], access=access)
        self._do(self._server.start())
        self.urls = self._server.urls
        self.url = self.urls[0]

    def stop(self) -> None:
        """End it, with all its connections. Idempotent."""
        if self._thread.is_alive():
            self._do(self._server.stop())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(10)
            self._loop.close()

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(10)


@pytest.fixture(scope="session")
def broker_url() -> Iterator[str]:
    """The broker that most tests share; each uses queues of its own."""
    broker = RunningBroker()
    yield broker.url
    broker.stop()


@pytest.fixture
def mortal_broker() -> Iterator[RunningBroker]:
    """A broker for this test alone, which may stop it."""
    broker = RunningBroker()
    yield broker
    broker.stop()


@pytest.fixture
def serving(broker_url: str) -> Serving:
    """Run responders for a block: `async with serving(app): …`."""

    @asynccontextmanager
    async def serve(*apps: Responder) -> AsyncGenerator[None]:
        async with anyio.create_task_group() as tasks:
            for app in apps:
                started = anyio.Event()
                tasks.start_soon(partial(app.run, broker_url, started=started, grace=0.05))
                with anyio.fail_after(5):
                    await started.wait()
            yield
            tasks.cancel_scope.cancel()

    return serve


@pytest.fixture
async def client(broker_url: str) -> AsyncGenerator[Client]:
    async with Client(broker_url, timeout=5) as one:
        yield one


@pytest.fixture
def free_port() -> int:
    """A port where nobody listens."""
    return ports.free_port()
