"""A real broker, on a thread and loop of its own, so that trio's tests have one too."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial

import anyio
import pytest

from nebula.broker.server import Address, Server
from nebula.rpc.client import Client
from nebula.rpc.responder import Responder

Serving = Callable[..., AbstractAsyncContextManager[None]]


@pytest.fixture(scope="session")
def broker_url() -> Iterator[str]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="broker")
    thread.start()

    async def start() -> Server:
        server = Server([Address("127.0.0.1", 0)])
        await server.start()
        return server

    server = asyncio.run_coroutine_threadsafe(start(), loop).result(10)
    yield server.urls[0]
    asyncio.run_coroutine_threadsafe(server.stop(), loop).result(10)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)
    loop.close()


@pytest.fixture
def serving(broker_url: str) -> Serving:
    """Run responders for a block: `async with serving(app): …`."""

    @asynccontextmanager
    async def serve(*apps: Responder) -> AsyncGenerator[None]:
        async with anyio.create_task_group() as tasks:
            for app in apps:
                started = anyio.Event()
                tasks.start_soon(partial(app.run, broker_url, started=started))
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
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port
