"""A loop and the broker's, joined in memory: asyncio's or trio's, the same pipe."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from nebula.broker.server.server import Server
from nebula.host.embedding import BrokerThread
from nebula.host.pipe import join
from nebula.stomp.client import StompClient
from nebula.stomp.client.link import Link

pytestmark = pytest.mark.anyio

_DEADLINE = 20.0


@pytest.fixture
def server() -> Any:
    thread = BrokerThread(Server([]))
    thread.start()
    yield thread.server
    thread.stop()


def linked(server: Server, principal: str | None = None) -> StompClient:
    async def open_link() -> Link:
        return join(server, principal)

    return StompClient("stomp://nobody", link=open_link)


async def test_much_more_than_the_pipe_holds_goes_both_ways(server: Server) -> None:
    bodies = [bytes([number]) * 700_000 for number in range(8)]
    with anyio.fail_after(_DEADLINE):
        async with linked(server) as client, client.subscribe("/queue/large") as subscription:
            for body in bodies:
                await client.send("/queue/large", body)
            received = [(await anext(aiter(subscription))).body for _ in bodies]

    assert received == bodies


async def test_writer_waits_for_a_broker_that_is_busy(server: Server) -> None:
    with anyio.fail_after(_DEADLINE):
        async with linked(server) as client:
            for _ in range(200):
                await client.send("/topic/nobody", b"x" * 50_000)
            await client.send("/queue/last", b"", receipt=True)


async def test_peer_is_who_it_is_said_to_be(server: Server) -> None:
    with anyio.fail_after(_DEADLINE):
        async with (
            linked(server, "ada") as ada,
            linked(server) as reader,
            reader.subscribe("/queue/whose") as subscription,
        ):
            await ada.send("/queue/whose", b"")
            message = await anext(aiter(subscription))

    assert message.headers["sender"] == "ada"


async def test_listener_that_fails_ends_nothing_else(server: Server) -> None:
    with anyio.fail_after(_DEADLINE):
        async with linked(server) as client:

            def fail(_: object) -> None:
                raise ZeroDivisionError

            await client.listen("/queue/bad", fail)
            await client.send("/queue/bad", b"", receipt=True)
            async with client.subscribe("/queue/good") as subscription:
                await client.send("/queue/good", b"here")
                assert (await anext(aiter(subscription))).body == b"here"


async def test_who_closes_the_link_hears_of_its_end(server: Server) -> None:
    class Ended:
        def __init__(self) -> None:
            self.event = anyio.Event()

        def data_received(self, data: bytes) -> None: ...

        def connection_lost(self, error: Exception | None) -> None:
            self.event.set()

    receiver = Ended()
    with anyio.fail_after(_DEADLINE):
        async with anyio.create_task_group() as tasks:
            link = join(server, None)
            link.start(receiver, tasks)
            link.close()
            await receiver.event.wait()


async def test_end_of_the_broker_is_told(server: Server) -> None:
    with anyio.fail_after(_DEADLINE):
        async with linked(server) as client:
            (connection,) = server.runtime.connections
            server.runtime.loop.call_soon_threadsafe(connection.abort)

            assert "closed the connection" in str(await client.wait_lost())
