"""Clients and services on `ws://` and `wss://` addresses of a broker of ours."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

from nebula import Client, Responder
from nebula.broker.operations.certificates import make_authority
from nebula.broker.server.server import Listener, Server
from nebula.broker.server.tls import ServerTls, TlsFiles
from nebula.errors import ConnectFailed, NebulaError, ServerError, SettingsError
from nebula.headers import SENDER
from nebula.stomp.client import StompClient
from nebula.stomp.client.tls import TlsOptions
from tests.stomp.peer import DEADLINE

pytestmark = pytest.mark.anyio


class Broker:
    """A broker with one listener, on a thread and loop of its own, so that trio's tests have one too."""

    def __init__(self, listener: Listener) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="broker")
        self._thread.start()
        self._server = Server([listener])
        asyncio.run_coroutine_threadsafe(self._server.start(), self._loop).result(DEADLINE)
        self.url = self._server.urls[0]

    def stop(self) -> None:
        """End it, with all its connections. Idempotent."""
        if self._thread.is_alive():
            asyncio.run_coroutine_threadsafe(self._server.stop(), self._loop).result(DEADLINE)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(DEADLINE)
            self._loop.close()


@contextmanager
def listening(listener: Listener) -> Iterator[Broker]:
    broker = Broker(listener)
    try:
        yield broker
    finally:
        broker.stop()


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with listening(Listener(port=0, http=True)) as broker:
        yield broker.url


async def test_client_sends_and_receives_as_over_tcp(url: str) -> None:
    assert url.startswith("ws://127.0.0.1:")
    body = bytes(range(256)) * 10_000

    with anyio.fail_after(DEADLINE):
        async with StompClient(url) as client, client.subscribe("/queue/websocket") as messages:
            await client.send("/queue/websocket", body, receipt=True)
            message = await anext(messages)

    assert message.body == body
    assert client.is_nebula


async def test_service_and_caller_work_over_it(url: str) -> None:
    app = Responder("doubling")
    started = anyio.Event()

    @app.verb
    async def double(number: int) -> int:
        return 2 * number

    async def serve() -> None:
        await app.run(url, started=started)

    with anyio.fail_after(DEADLINE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(serve)
            await started.wait()
            async with Client(url) as client:
                answers = [await client.call(double, number) for number in range(20)]
            tasks.cancel_scope.cancel()

    assert answers == [2 * number for number in range(20)]


async def test_error_of_the_broker_is_told_though_a_close_follows_it() -> None:
    with anyio.fail_after(DEADLINE), listening(Listener(port=0, http=True)) as broker:
        losses: list[NebulaError] = []
        async with StompClient(broker.url) as client:
            client.on_lost = losses.append
            await anyio.to_thread.run_sync(broker.stop)
            await client.wait_lost()

    (loss,) = losses
    assert isinstance(loss, ServerError)
    assert loss.message == "the broker is shutting down"


async def test_path_where_no_stomp_is_spoken_is_told(url: str) -> None:
    with anyio.fail_after(DEADLINE), pytest.raises(ConnectFailed, match=r"no WebSocket: .*404"):
        async with StompClient(f"{url}/ws"):
            pass


async def test_listener_that_speaks_no_http_is_told() -> None:
    with (
        anyio.fail_after(DEADLINE),
        listening(Listener(port=0)) as broker,
        pytest.raises(ConnectFailed, match="no WebSocket: "),
    ):
        async with StompClient(broker.url.replace("stomp:", "ws:")):
            pass


async def test_certificate_says_who_a_client_of_wss_is(tmp_path: Path) -> None:
    authority = make_authority("test", 1)
    ca, _ = authority.certificate.write(tmp_path, "ca")
    own = authority.issue_client("alice", 1)
    server = TlsFiles(*authority.issue_server(["localhost", "127.0.0.1"], 1).write(tmp_path, "server"), ca)
    options = TlsOptions(ca, *own.write(tmp_path, "alice"))

    with (
        anyio.fail_after(DEADLINE),
        listening(Listener(port=0, http=True, tls=ServerTls(server))) as broker,
    ):
        async with (
            StompClient(broker.url, tls=options) as client,
            client.subscribe("/topic/who") as messages,
        ):
            await client.send("/topic/who", b"x" * 1_000_000)
            message = await anext(messages)
        with pytest.raises(ConnectFailed, match="cannot be trusted"):
            async with StompClient(broker.url, tls=TlsOptions()):
                pass

    assert broker.url.startswith("wss://")
    assert message.headers[SENDER] == own.fingerprint


def test_tls_options_are_no_good_without_tls() -> None:
    with pytest.raises(SettingsError, match="write wss://"):
        StompClient("ws://broker", tls=TlsOptions())
