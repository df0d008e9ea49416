"""The broker for tests: the real one, reached in memory, by TCP and by TLS."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from nebula import sync
from nebula.broker.server.server import Listener, Server
from nebula.broker.settings import BrokerSettings, ListenerSettings
from nebula.errors import ConnectFailed, NoResponder, Rejected
from nebula.rpc.client.client import Client
from nebula.rpc.contract.context import Request
from nebula.rpc.service.responder import Responder
from nebula.stomp.client import StompClient
from nebula.stomp.client.addresses import Address
from nebula.stomp.client.link import Link
from nebula.stomp.client.memory_links import listening_in_memory
from nebula.testing import RunningBroker, Transport, broker, fake, serving

pytestmark = pytest.mark.anyio

app = Responder("greeter")
both_ways = pytest.mark.parametrize("transport", ["memory", "tcp", "tls"])


@app.verb
async def greet(name: str) -> str:
    return f"hello, {name}"


@app.verb
async def who(request: Request) -> str | None:
    return request.principal


@both_ways
async def test_services_and_clients_meet_however_the_broker_is_reached(transport: Transport) -> None:
    with RunningBroker(transport=transport) as running, anyio.fail_after(10):
        async with (
            serving(running.url, app, tls=running.tls),
            Client(running.url, tls=running.tls) as client,
        ):
            assert await client.call(greet, "Ada") == "hello, Ada"


async def test_much_goes_through_memory_both_ways() -> None:
    text = "x" * 3_000_000
    with anyio.fail_after(20):
        async with broker() as url, serving(url, app), Client(url) as client:
            assert await client.call(greet, text) == f"hello, {text}"


async def test_peer_in_memory_is_whom_its_address_names() -> None:
    with anyio.fail_after(10):
        async with broker() as url, serving(url, app):
            async with Client(url.replace("//", "//ada@")) as client:
                assert await client.call(who) == "ada"
            async with Client(url) as client:
                assert await client.call(who) == "anonymous"


async def test_memory_is_reached_by_threads_without_a_loop_too() -> None:
    with anyio.fail_after(10):
        async with broker() as url, serving(url, app):

            def ask() -> object:
                with sync.Client(url) as client:
                    return client.call("greeter", "greet", {"name": "Bob"})

            assert await anyio.to_thread.run_sync(ask) == "hello, Bob"


async def test_settings_are_those_of_the_program() -> None:
    destination = [{"pattern": "/queue/small", "max_messages": 1}]
    with anyio.fail_after(10):
        async with broker(destination=destination) as url, Client(url) as client:
            await client.publish("/queue/small", "one")

            with pytest.raises(Rejected, match="rejected-full"):
                await client.publish("/queue/small", "two")


async def test_broker_answers_its_own_verbs() -> None:
    with anyio.fail_after(10):
        async with broker() as url, Client(url) as client:
            described = await client.call("nebula.broker", "describe")

    assert described["service"] == "nebula"


async def test_listeners_that_were_given_are_opened() -> None:
    settings = BrokerSettings(listener=(ListenerSettings(port=0),))
    with RunningBroker(settings) as running, anyio.fail_after(10):
        (url,) = running.urls
        async with StompClient(url) as client:
            assert client.is_nebula

    assert running.url == running.memory_url


def test_by_default_it_listens_nowhere_and_keeps_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEBULA_STATE", str(tmp_path))
    with RunningBroker() as running:
        assert running.urls == []

    assert list(tmp_path.iterdir()) == []


async def test_what_it_keeps_survives_it(tmp_path: Path) -> None:
    with anyio.fail_after(20):
        async with broker(data=tmp_path) as url, Client(url) as client:
            await client.publish("/queue/kept", "word")
        async with (
            broker(data=tmp_path) as url,
            StompClient(url) as stomp,
            stomp.subscribe("/queue/kept") as subscription,
        ):
            message = await anext(aiter(subscription))

    assert message.body == b'"word"'


async def test_server_that_was_made_already_is_run_as_it_is() -> None:
    running = RunningBroker(server=Server([Listener(port=0), Listener(port=0)]))
    with running, anyio.fail_after(10):
        assert [running.url, len(running.urls)] == [running.urls[0], 2]
        for url in (*running.urls, running.memory_url):
            async with Client(url) as client:
                with pytest.raises(NoResponder):
                    await client.call("nebula.broker", "ping")


# --- faults ---


async def test_client_finds_a_broker_that_was_started_again() -> None:
    price = fake("prices", "quote", returns="9.99")
    running = RunningBroker()
    with running, anyio.fail_after(10):
        async with Client(running.url) as client:
            for _ in range(2):
                async with serving(running.url, price):
                    assert await client.call("prices", "quote", wait_for_responder=5) == "9.99"
                await anyio.to_thread.run_sync(running.stop)
                await anyio.to_thread.run_sync(running.start)


async def test_broker_that_has_ended_cannot_be_reached() -> None:
    running = RunningBroker()
    with running:
        pass

    with pytest.raises(ConnectFailed, match=r"memory://.*: no broker of this process is named"):
        async with Client(running.url):
            pass


async def test_end_of_the_broker_ends_its_connections() -> None:
    with RunningBroker() as running, anyio.fail_after(10):
        async with StompClient(running.url) as client:
            await anyio.to_thread.run_sync(running.stop)

            assert "shutting down" in str(await client.wait_lost())


def test_two_brokers_cannot_have_one_name() -> None:
    async def nobody(_: Address) -> Link:
        raise ConnectionRefusedError

    async def nobody_else(_: Address) -> Link:
        raise ConnectionRefusedError

    with (
        listening_in_memory("twins", nobody),
        pytest.raises(ValueError, match="has the name"),
        listening_in_memory("twins", nobody_else),
    ):
        pass


def test_what_cannot_be_a_broker_is_said_at_once() -> None:
    with pytest.raises(ValueError, match="not both"):
        RunningBroker(BrokerSettings(), limits={})
    with pytest.raises(ValueError, match="has its settings"):
        RunningBroker(server=Server([]), transport="tcp")
    with pytest.raises(ValueError, match="'udp' is not one of"):
        RunningBroker(transport="udp")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="max_connection"):
        RunningBroker(limits={"max_connection": 1})
