"""Fixtures of the RPC tests: a real broker over TCP, and services in the loop of the test."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from functools import partial

import pytest

from nebula import testing
from nebula.broker.core.access import AccessPolicy
from nebula.broker.server.server import Listener, Server
from nebula.rpc.client.client import Client
from tests import ports

Serving = Callable[..., AbstractAsyncContextManager[None]]


class RunningBroker(testing.RunningBroker):
    """A broker that runs and listens as soon as it is made."""

    def __init__(self, *listeners: Listener, access: AccessPolicy | None = None) -> None:
        super().__init__(server=Server(listeners or [Listener(port=0)], access=access))
        self.start()


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
    return partial(testing.serving, broker_url)


@pytest.fixture
async def client(broker_url: str) -> AsyncGenerator[Client]:
    async with Client(broker_url, timeout=5) as one:
        yield one


@pytest.fixture
def free_port() -> int:
    """A port without a listener."""
    return ports.free_port()
