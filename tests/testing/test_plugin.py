"""The pytest plugin, as the tests of somebody else's service use it."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from nebula.errors import ConnectionLost, Rejected
from nebula.rpc.client.client import Client
from nebula.rpc.service.responder import Responder
from nebula.testing import Faults, RunningBroker

pytestmark = pytest.mark.anyio

app = Responder("greeter")


@app.verb
async def greet(name: str) -> str:
    return f"hello, {name}"


@pytest.mark.parametrize("nebula_transport", ["memory", "tcp", "tls"])
async def test_client_and_services_meet_at_the_broker(
    nebula_client: Client, nebula_serve: Callable[..., AbstractAsyncContextManager[None]]
) -> None:
    async with nebula_serve(app):
        assert await nebula_client.call(greet, "Ada") == "hello, Ada"


@pytest.mark.parametrize("nebula_transport", ["memory", "tcp", "tls"])
async def test_environment_names_the_broker_for_the_test(nebula_broker: RunningBroker) -> None:
    async with Client() as client:
        await client.publish("/queue/somewhere", "found")

    assert os.environ["NEBULA_BROKER"] == nebula_broker.url


@pytest.mark.parametrize("nebula_transport", ["memory", "tcp", "tls"])
async def test_broker_that_is_started_again_is_found_where_it_was(
    nebula_broker: RunningBroker,
    nebula_client: Client,
    nebula_serve: Callable[..., AbstractAsyncContextManager[None]],
) -> None:
    nebula_broker.stop()
    nebula_broker.start()

    async with nebula_serve(app), Client() as another:
        assert await another.call(greet, "Ada") == "hello, Ada"
        # This one connects again after a delay.
        assert await nebula_client.with_options(timeout=30).call(greet, "Ada") == "hello, Ada"


@pytest.mark.parametrize("nebula_settings", [{"destination": [{"pattern": "/queue/s", "max_messages": 1}]}])
async def test_broker_has_the_settings_that_were_given(nebula_client: Client) -> None:
    await nebula_client.publish("/queue/s", 1)

    with pytest.raises(Rejected):
        await nebula_client.publish("/queue/s", 2)


@pytest.mark.parametrize("nebula_transport", ["memory", "tls"])
async def test_faults_are_on_the_way_to_the_broker(
    nebula_broker: RunningBroker, nebula_faults: Faults
) -> None:
    async with Client(
        nebula_broker.url, tls=nebula_broker.tls, link=nebula_faults, reconnect=False
    ) as client:
        nebula_faults.drop_connection()

        with pytest.raises(ConnectionLost):
            await client.call("greeter", "ping")


def test_plain_test_has_a_broker_too(nebula_broker: Any) -> None:
    from nebula import sync

    with sync.Client() as client:
        client.publish("/queue/somewhere", "found")


def test_pytest_found_the_plugin_by_itself(pytestconfig: pytest.Config) -> None:
    assert pytestconfig.pluginmanager.has_plugin("nebula")
