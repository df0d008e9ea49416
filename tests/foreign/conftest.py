"""A RabbitMQ for the tests here: `make test-foreign` installs it where it is missing, starts and ends it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import wraps
from inspect import iscoroutinefunction
from typing import Any, Final
from uuid import uuid4

import anyio
import pytest

from benchmarks import peers
from nebula.errors import NebulaError
from nebula.extras.postgres_database import Database
from tests.foreign.lacks import BROKERS, reason_of
from tests.foreign.postgresql import PostgresServer
from tests.rpc.conftest import client, free_port, mortal_broker, serving

__all__ = ["client", "free_port", "mortal_broker", "serving"]  # fixtures of the RPC suite


@pytest.fixture(scope="session")
def rabbitmq() -> Iterator[peers.Broker]:
    """RabbitMQ with its STOMP plugin. Where it cannot be had the tests fail: who asked for them wants it."""
    with peers.rabbitmq() as broker:
        yield broker


@pytest.fixture(scope="session")
def rabbitmq_url(rabbitmq: peers.Broker) -> str:
    """Its address, with login and passcode."""
    return f"stomp://{rabbitmq.login}:{rabbitmq.passcode}@127.0.0.1:{rabbitmq.port}"


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL of the module's own, since its tests kill it."""
    running = PostgresServer()
    yield running
    running.close()


@pytest.fixture
def database(postgres: PostgresServer) -> Database:
    """An empty database of the test's own in it."""
    return Database(postgres.new_database())


@pytest.fixture(scope="session")
def activemq_url() -> Iterator[str]:
    """The address of ActiveMQ Classic with its STOMP connector."""
    with peers.activemq() as broker:
        yield f"stomp://127.0.0.1:{broker.port}"


@pytest.fixture
def queue() -> str:
    """The destination of a queue that no other test uses."""
    return f"/queue/test-{uuid4().hex}"


@pytest.fixture
def broker_url(rabbitmq_url: str) -> str:
    """What the RPC suite takes for its broker."""
    return rabbitmq_url


# What ought to happen at once does not happen later either.
_LACKING_SECONDS: Final = 2.0

# How it shows; a broken fixture or import says nothing of a broker.
_WAYS_TO_LACK: Final = (
    AssertionError,
    NebulaError,
    TimeoutError,
    BaseExceptionGroup,
    pytest.fail.Exception,  # also "did not raise"
)

# Event loops have nothing to do with brokers: over ours all tests run on both.
_LOOPS = {"rabbitmq": "asyncio", "activemq": "trio"}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What a broker is said to lack has to fail there, else the table is wrong; each has one event loop."""
    superfluous = [item for item in items if _is_superfluous(_parameters(item))]
    config.hook.pytest_deselected(items=superfluous)
    # A set: there are thousands of either.
    dropped = set(superfluous)
    items[:] = [item for item in items if item not in dropped]
    for item in items:
        broker = _parameters(item).get("broker_url")
        reason = None if broker not in BROKERS else reason_of(getattr(item, "originalname", ""), broker)
        if reason is not None:
            item.add_marker(pytest.mark.xfail(strict=True, reason=reason, raises=_WAYS_TO_LACK))
            if isinstance(item, pytest.Function) and iscoroutinefunction(item.obj):
                item.obj = _soon(item.obj)


def _soon(test: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    """A test that is not waited for as long as one that may pass."""

    @wraps(test)
    async def soon(**arguments: Any) -> None:
        with anyio.fail_after(_LACKING_SECONDS):
            await test(**arguments)

    return soon


def _parameters(item: pytest.Item) -> Mapping[str, Any]:
    callspec = getattr(item, "callspec", None)
    return {} if callspec is None else callspec.params


def _is_superfluous(parameters: Mapping[str, Any]) -> bool:
    broker, loop = parameters.get("broker_url"), parameters.get("anyio_backend")
    return broker in _LOOPS and loop is not None and loop[0] != _LOOPS[broker]
