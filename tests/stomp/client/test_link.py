"""What every link promises, over TCP: one suite for each kind."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream, TaskGroup

from nebula.stomp.client.link import Link
from nebula.stomp.client.network_links import AnyioLink, AsyncioLink
from tests.stomp.client.links import Connect, Recorder
from tests.stomp.peer import DEADLINE

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def pair(connect: Connect) -> AsyncIterator[tuple[Link, SocketStream, TaskGroup]]:
    """A link, and the other end of it."""
    accepted: list[SocketStream] = []
    is_accepted = anyio.Event()

    async def accept(stream: SocketStream) -> None:
        accepted.append(stream)
        is_accepted.set()
        await anyio.sleep_forever()

    with anyio.fail_after(DEADLINE):
        async with (
            await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(listener.serve, accept)
            link = await connect("127.0.0.1", listener.extra(SocketAttribute.local_port))
            await is_accepted.wait()
            try:
                yield link, accepted[0], tasks
            finally:
                link.close()
                await accepted[0].aclose()
                tasks.cancel_scope.cancel()


async def read_all(stream: SocketStream) -> bytes:
    return b"".join([chunk async for chunk in stream])


async def test_small_writes_are_not_delayed(connect: Connect) -> None:
    async with pair(connect) as (link, _, _):
        if isinstance(link, AnyioLink):
            raw = link._stream.extra(SocketAttribute.raw_socket)
        else:
            assert isinstance(link, AsyncioLink)
            assert link._transport is not None
            raw = link._transport.get_extra_info("socket")

        assert raw.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


async def test_what_comes_before_the_start_is_delivered_after_it(connect: Connect) -> None:
    async with pair(connect) as (link, stream, tasks):
        await stream.send(b"early")
        await anyio.wait_all_tasks_blocked()
        recorder = Recorder()

        link.start(recorder, tasks)
        await recorder.came.wait()

        assert recorder.data == b"early"


async def test_loss_before_the_start_is_told_after_it(connect: Connect) -> None:
    async with pair(connect) as (link, stream, tasks):
        await stream.send(b"early")
        await stream.aclose()
        await anyio.wait_all_tasks_blocked()
        recorder = Recorder()

        link.start(recorder, tasks)
        await recorder.is_lost.wait()

        assert (bytes(recorder.data), len(recorder.losses)) == (b"early", 1)


async def test_octets_go_out_in_the_order_of_the_writes_before_the_close(connect: Connect) -> None:
    pieces = [bytes([number]) * 100_000 for number in range(100)]

    async with pair(connect) as (link, stream, tasks):
        recorder = Recorder()
        link.start(recorder, tasks)

        for piece in pieces:
            link.write(piece)
        link.close()

        assert await read_all(stream) == b"".join(pieces)
        await recorder.is_lost.wait()
        assert recorder.losses == [None]


async def test_end_of_the_stream_is_told_once_and_is_nobodys_fault(connect: Connect) -> None:
    async with pair(connect) as (link, stream, tasks):
        recorder = Recorder()
        link.start(recorder, tasks)

        await stream.aclose()
        await recorder.is_lost.wait()
        link.close()
        link.close()
        await anyio.wait_all_tasks_blocked()

        assert recorder.losses == [None]


async def test_paused_link_delivers_nothing_until_it_is_resumed(connect: Connect) -> None:
    async with pair(connect) as (link, stream, tasks):
        recorder = Recorder()
        link.start(recorder, tasks)
        await stream.send(b"1")
        await recorder.came.wait()

        link.pause_reading()
        recorder.came = anyio.Event()
        # The reading task of the anyio link may hold one piece that came before the pause.
        await stream.send(b"2")
        with anyio.move_on_after(0.05):
            await recorder.came.wait()
        held = bytes(recorder.data)
        await stream.send(b"3")
        with anyio.move_on_after(0.05):
            await anyio.sleep_forever()
        assert recorder.data == held

        link.resume_reading()
        while len(recorder.data) < 3:
            recorder.came = anyio.Event()
            await recorder.came.wait()
        assert recorder.data == b"123"


async def test_peer_that_reads_nothing_is_left_a_second_after_the_close(connect: Connect) -> None:
    with anyio.fail_after(DEADLINE), socket.create_server(("127.0.0.1", 0)) as server:
        link = await connect("127.0.0.1", server.getsockname()[1])
        async with anyio.create_task_group() as tasks:
            recorder = Recorder()
            link.start(recorder, tasks)
            link.write(b"x" * 64 * 1024 * 1024)

            link.close()
            closed_at = anyio.current_time()
            await recorder.is_lost.wait()

            assert anyio.current_time() - closed_at > 0.5
