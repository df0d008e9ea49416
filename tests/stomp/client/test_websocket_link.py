"""What every link promises, over a WebSocket on each kind of link; and how an upgrade fails."""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream, TaskGroup
from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from nebula.errors import ConnectFailed
from nebula.stomp.client import StompClient
from nebula.stomp.client.addresses import Address
from nebula.stomp.client.link import Link
from nebula.stomp.client.websocket_link import WebSocketLink
from nebula.stomp.frames import FrameLimits
from tests.stomp.client.links import Connect, Recorder
from tests.stomp.peer import DEADLINE

pytestmark = pytest.mark.anyio

LIMITS = FrameLimits(max_body_bytes=200_000, max_headers=1, max_header_line_bytes=1000)


class Peer:
    """A broker's side of a WebSocket."""

    def __init__(self, stream: SocketStream) -> None:
        self.stream = stream
        self.websocket = ServerProtocol(subprotocols=[Subprotocol("v11.stomp")], max_size=None)
        self.request: Request
        self.frames: list[Frame] = []

    async def shake_hands(self) -> None:
        await self._read()
        self.websocket.send_response(self.websocket.accept(self.request))
        await self.flush()

    async def text(self, text: str) -> None:
        self.websocket.send_text(text.encode())
        await self.flush()

    async def hear(self) -> Frame | None:
        """The next frame; None at the end of the stream."""
        while not self.frames:
            try:
                await self._read()
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                return None
        return self.frames.pop(0)

    async def flush(self) -> None:
        for octets in self.websocket.data_to_send():
            if octets:
                await self.stream.send(octets)

    async def _read(self) -> None:
        self.websocket.receive_data(await self.stream.receive())
        for event in self.websocket.events_received():
            if isinstance(event, Frame):
                self.frames.append(event)
            elif isinstance(event, Request):
                self.request = event


@asynccontextmanager
async def pair(connect: Connect) -> AsyncIterator[tuple[Link, Peer, Recorder, TaskGroup]]:
    """A started link, and the other end of it."""
    peers: list[Peer] = []
    is_accepted = anyio.Event()

    async def accept(stream: SocketStream) -> None:
        peers.append(Peer(stream))
        is_accepted.set()
        await anyio.sleep_forever()

    with anyio.fail_after(DEADLINE):
        async with (
            await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(listener.serve, accept)
            port = listener.extra(SocketAttribute.local_port)
            inner = await connect("127.0.0.1", port)
            link = WebSocketLink(inner, Address("127.0.0.1", port, path="/ws"), LIMITS)
            recorder = Recorder()
            link.start(recorder, tasks)
            await is_accepted.wait()
            try:
                yield link, peers[0], recorder, tasks
            finally:
                link.close()
                await peers[0].stream.aclose()
                tasks.cancel_scope.cancel()


async def test_request_names_path_host_and_each_version_of_stomp(connect: Connect) -> None:
    async with pair(connect) as (_, peer, _, _):
        await peer.shake_hands()

        headers = peer.request.headers
        assert peer.request.path == "/ws"
        assert headers["Host"].startswith("127.0.0.1:")
        assert headers["Sec-WebSocket-Protocol"] == "v12.stomp, v11.stomp, v10.stomp"
        assert "Origin" not in headers
        assert "Sec-WebSocket-Extensions" not in headers


async def test_what_was_written_before_the_upgrade_goes_out_after_it_in_order(connect: Connect) -> None:
    async with pair(connect) as (link, peer, _, _):
        link.write(b"1")
        link.write(b"2")
        await peer.shake_hands()

        heard = [await peer.hear(), await peer.hear()]
        link.write(b"3")
        heard.append(await peer.hear())

        assert [(each.opcode, each.data) for each in heard if each] == [
            (Opcode.BINARY, b"1"),
            (Opcode.BINARY, b"2"),
            (Opcode.BINARY, b"3"),
        ]


async def test_octets_of_text_binary_and_fragments_are_one_stream(connect: Connect) -> None:
    async with pair(connect) as (_, peer, recorder, _):
        await peer.shake_hands()

        peer.websocket.send_text("grü".encode()[:-1], fin=False)
        peer.websocket.send_ping(b"between")
        peer.websocket.send_continuation("ü".encode()[-1:], fin=True)
        peer.websocket.send_binary(b"\xff\0")
        await peer.flush()
        while recorder.data != "grü".encode() + b"\xff\0":
            recorder.came = anyio.Event()
            await recorder.came.wait()

        pong = await peer.hear()
        assert pong is not None
        assert (pong.opcode, pong.data) == (Opcode.PONG, b"between")


async def test_large_writes_go_out_before_the_close(connect: Connect) -> None:
    pieces = [bytes([number]) * 100_000 for number in range(50)]

    async with pair(connect) as (link, peer, recorder, _):
        await peer.shake_hands()
        await peer.text("open")
        await recorder.came.wait()

        for piece in pieces:
            link.write(piece)
        link.close()
        link.write(b"late")

        assert [(await peer.hear() or Frame(Opcode.PONG, b"")).data for _ in pieces] == pieces
        close = await peer.hear()
        assert close is not None
        assert (close.opcode, close.data) == (Opcode.CLOSE, struct.pack("!H", 1000))
        assert await peer.hear() is None
        await recorder.is_lost.wait()
        assert recorder.losses == [None]


async def test_drain_waits_for_a_peer_that_does_not_read_until_it_ends(connect: Connect) -> None:
    async with pair(connect) as (link, peer, recorder, _):
        await peer.shake_hands()
        await peer.text("open")
        await recorder.came.wait()

        # More than the kernel and a loop that reads ahead can take together.
        for _ in range(160):
            link.write(b"x" * 1024 * 1024)
        with anyio.move_on_after(0.05) as scope:
            await link.drain()

        assert scope.cancelled_caught
        await peer.stream.aclose()
        await link.drain()


async def test_paused_link_delivers_nothing_until_it_is_resumed(connect: Connect) -> None:
    async with pair(connect) as (link, peer, recorder, _):
        await peer.shake_hands()
        await peer.text("1")
        await recorder.came.wait()

        link.pause_reading()
        recorder.came = anyio.Event()
        # The reading task of the anyio link may hold one piece that came before the pause.
        await peer.text("2")
        with anyio.move_on_after(0.05):
            await recorder.came.wait()
        held = bytes(recorder.data)
        await peer.text("3")
        with anyio.move_on_after(0.05):
            await anyio.sleep_forever()
        unchanged = bytes(recorder.data)
        link.resume_reading()
        while recorder.data != b"123":
            recorder.came = anyio.Event()
            await recorder.came.wait()

        assert unchanged == held


@pytest.mark.parametrize("code", [None, 1000, 1001])
async def test_close_of_the_peer_is_answered_and_nobodys_fault(connect: Connect, code: int | None) -> None:
    async with pair(connect) as (_, peer, recorder, _):
        await peer.shake_hands()

        peer.websocket.send_close(code)
        await peer.flush()
        answer = await peer.hear()
        await recorder.is_lost.wait()

        assert answer is not None
        assert answer.opcode is Opcode.CLOSE
        assert recorder.losses == [None]


async def test_end_without_a_close_is_told_once_and_nobodys_fault(connect: Connect) -> None:
    async with pair(connect) as (link, peer, recorder, _):
        await peer.shake_hands()
        await peer.text("1")
        await recorder.came.wait()

        await peer.stream.aclose()
        await recorder.is_lost.wait()
        link.close()
        await anyio.wait_all_tasks_blocked()

        assert recorder.losses == [None]


async def test_complaint_of_the_peer_is_told(connect: Connect) -> None:
    async with pair(connect) as (_, peer, recorder, _):
        await peer.shake_hands()

        peer.websocket.send_close(1009, "too much")
        await peer.flush()
        await recorder.is_lost.wait()

        assert "1009 (message too big) too much" in str(recorder.losses[0])
        assert isinstance(recorder.losses[0], OSError)


@pytest.mark.parametrize(
    ("octets", "code"),
    [(b"\x83\x01x", 1002), (b"\x82\x81mask\x00", 1002), (b"\x82\x7f" + struct.pack("!Q", 10**9), 1009)],
    ids=["opcode", "mask", "size"],
)
async def test_peer_that_breaks_the_websocket_is_told_and_left(
    connect: Connect, octets: bytes, code: int
) -> None:
    async with pair(connect) as (_, peer, recorder, _):
        await peer.shake_hands()

        await peer.stream.send(octets)
        close = await peer.hear()
        await recorder.is_lost.wait()

        assert close is not None
        assert struct.unpack("!H", close.data[:2]) == (code,)
        assert str(recorder.losses[0]).startswith("the broker broke the WebSocket: ")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n", "HTTP 403"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", "HTTP 200"),
        (b"HTTP/1.1 101 Switching Protocols\r\n\r\n", "Connection"),
        (b"ERROR\nmessage:what is GET?\n\n\0", "valid HTTP response"),
    ],
)
async def test_refused_upgrade_is_told(connect: Connect, answer: bytes, said: str) -> None:
    async with pair(connect) as (_, peer, recorder, _):
        await peer.stream.receive()

        await peer.stream.send(answer)
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            await peer.stream.send_eof()
        await recorder.is_lost.wait()

        assert str(recorder.losses[0]).startswith("no WebSocket: ")
        assert said in str(recorder.losses[0])
        assert recorder.data == b""


async def test_own_close_before_the_upgrade_is_no_failure(connect: Connect) -> None:
    async with pair(connect) as (link, _, recorder, _):
        link.close()
        await recorder.is_lost.wait()

        assert recorder.losses == [None]


async def test_client_says_why_there_is_no_websocket() -> None:
    async def refuse(stream: SocketStream) -> None:
        async with stream:
            await stream.receive()
            await stream.send(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")

    with anyio.fail_after(DEADLINE):
        async with (
            await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(listener.serve, refuse)
            port = listener.extra(SocketAttribute.local_port)
            with pytest.raises(ConnectFailed, match="HTTP 404"):
                async with StompClient(f"ws://127.0.0.1:{port}"):
                    pass
            tasks.cancel_scope.cancel()
