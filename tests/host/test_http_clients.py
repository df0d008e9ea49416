"""The clients that `POST /call/…` is answered by: one for each principal, kept for a while."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus

import anyio
import pytest

from nebula.broker.server.http_posts import Posted, Response
from nebula.broker.server.server import Server
from nebula.host import http_calls
from nebula.host.http_calls import HttpCalls
from nebula.host.pipe import AppEnd, join
from nebula.stomp.client import StompClient

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    """The broker's loop is asyncio's."""
    return "asyncio"


@asynccontextmanager
async def hosted(server: Server) -> AsyncIterator[HttpCalls]:
    """Answer calls by a broker for a block."""
    calls = HttpCalls(server)
    started = anyio.Event()
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: calls.run(started=started))
            await started.wait()
            yield calls
            tasks.cancel_scope.cancel()


async def ask(calls: HttpCalls, principal: str) -> Response:
    answer = await calls.reply(Posted(principal, "/call/nobody/verb", "", "", b""))
    assert isinstance(answer, Response)
    return answer


async def test_of_many_clients_the_one_that_is_idle_for_longest_makes_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_calls, "_MOST_IDLE", 3)
    server = Server([])
    await server.start()

    def sessions() -> dict[str, str]:
        return {each.principal: each.id for each in server.broker.sessions.values()}

    async with hosted(server) as calls:
        for principal in ("a", "b", "c"):
            assert (await ask(calls, principal)).status is HTTPStatus.NOT_FOUND
        before = sessions()
        await ask(calls, "a")
        await ask(calls, "d")
        for principal in ("a", "c"):
            await ask(calls, principal)

        assert {name: sessions()[name] for name in ("a", "c")} == {name: before[name] for name in ("a", "c")}
        while "b" in sessions():
            await anyio.sleep(0)
    await server.stop()


async def test_reload_ends_clients_that_are_idle_and_those_of_earlier_calls_with_their_calls() -> None:
    server = Server([])
    await server.start()

    def principals() -> set[str]:
        return {each.principal for each in server.broker.sessions.values()}

    async def open_link() -> AppEnd:
        return join(server, "app:slow")

    async with (
        hosted(server) as calls,
        StompClient("stomp://localhost", link=open_link) as service,
        service.subscribe("/queue/slow") as requests,
    ):
        assert (await ask(calls, "idle")).status is HTTPStatus.NOT_FOUND
        waiting = asyncio.create_task(calls.reply(Posted("waits", "/call/slow/verb", "", "", b"")))
        await anext(requests)
        assert principals() == {"app:slow", "idle", "waits"}

        calls.renew()
        while "idle" in principals():
            await anyio.sleep(0)
        assert "waits" in principals()

        # As the listener does when its sender is no longer known.
        waiting.cancel()
        while "waits" in principals():
            await anyio.sleep(0)
    await server.stop()


async def test_bug_in_one_client_is_told_and_ends_nothing_else() -> None:
    async with hosted(Server([])) as calls:  # a broker that is not there
        for _ in range(2):
            answer = await ask(calls, "a")
            assert (answer.status, b'"unavailable"' in answer.body) == (HTTPStatus.SERVICE_UNAVAILABLE, True)
