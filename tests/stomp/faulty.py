"""A broker gone mad, over TCP and over a WebSocket; and what must hold whatever it does."""

from __future__ import annotations

import logging
import socket
import struct
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from typing import Any, Final

import anyio
import anyio.lowlevel
import pytest
from anyio.abc import ByteStream
from websockets.exceptions import InvalidState
from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.server import ServerProtocol

from nebula.errors import ConnectionLost, NebulaError
from nebula.stomp.client import StompClient
from tests.own_logs import own_logs
from tests.stomp.peer import DEADLINE, Peer

SCHEMES: Final = ("stomp", "ws")

LOOPS: Final = [
    pytest.param(("asyncio", {"use_uvloop": True}), id="uvloop"),
    pytest.param(("asyncio", {"use_uvloop": False}), id="asyncio"),
    pytest.param(("trio", {}), id="trio"),
]

# What a script meets whose client gave up before it had heard, or said, a word.
_LEFT: Final = (anyio.EndOfStream, anyio.BrokenResourceError, InvalidState, OSError)

_RECEIVE_BUFFER_BYTES: Final = 64 * 1024
_DATA: Final = frozenset({Opcode.TEXT, Opcode.BINARY, Opcode.CONT})


class RawStream(ByteStream):
    """A socket that is read when it is asked for bytes, and never before: the loops' own read ahead."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._socket = connection

    async def receive(self, max_bytes: int = 65536) -> bytes:
        while True:
            await anyio.lowlevel.checkpoint()
            try:
                octets = self._socket.recv(max_bytes)
            except BlockingIOError:
                await anyio.wait_readable(self._socket)
            except OSError as error:
                raise anyio.BrokenResourceError from error
            else:
                if not octets:
                    raise anyio.EndOfStream
                return octets

    async def send(self, item: bytes) -> None:
        rest = memoryview(item)
        while rest:
            await anyio.lowlevel.checkpoint()
            try:
                rest = rest[self._socket.send(rest) :]
            except BlockingIOError:
                await anyio.wait_writable(self._socket)
            except OSError as error:
                raise anyio.BrokenResourceError from error

    async def send_eof(self) -> None:
        self._socket.shutdown(socket.SHUT_WR)

    async def aclose(self) -> None:
        self._socket.close()

    def reset(self) -> None:
        """End the connection by a RST."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()


class WebSocketStream(ByteStream):
    """The bytes in the messages of a WebSocket, from a broker's side."""

    def __init__(self, stream: RawStream) -> None:
        self._stream = stream
        self.websocket = ServerProtocol(max_size=None)
        self._events: list[Any] = []

    async def upgrade(self) -> None:
        """Answer the request."""
        while not isinstance(request := await self._event(), Request):
            pass
        self.websocket.send_response(self.websocket.accept(request))
        await self.flush()

    async def send(self, item: bytes) -> None:
        self.websocket.send_binary(item)
        await self.flush()

    async def flush(self) -> None:
        """Send what the WebSocket has to say."""
        for octets in self.websocket.data_to_send():
            if octets:
                await self._stream.send(octets)

    async def receive(self, max_bytes: int = 65536) -> bytes:
        while True:
            event = await self._event()
            if isinstance(event, Frame) and event.opcode is Opcode.CLOSE:
                raise anyio.EndOfStream
            if isinstance(event, Frame) and event.opcode in _DATA and event.data:
                return bytes(event.data)

    async def _event(self) -> Any:
        while not self._events:
            self.websocket.receive_data(await self._stream.receive())
            self._events += self.websocket.events_received()
        return self._events.pop(0)

    async def send_eof(self) -> None:
        await self._stream.send_eof()

    async def aclose(self) -> None:
        await self._stream.aclose()


class FaultyPeer(Peer):
    """One accepted connection of a broker that does what it should not.

    Attributes:
        stream: what carries STOMP's bytes.
        beneath: the socket's stream, the same one but for a WebSocket.
    """

    def __init__(self, stream: ByteStream, beneath: RawStream) -> None:
        super().__init__(stream)
        self.stream = stream
        self.beneath = beneath

    async def drip(self, octets: str | bytes) -> None:
        """Send bytes one by one; over a WebSocket each is a message."""
        for octet in octets.replace("^@", "\0").encode() if isinstance(octets, str) else octets:
            await self.say(bytes([octet]))

    async def wait_closed(self) -> None:
        """Read until the client has closed the connection."""
        with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
            while True:
                await self.stream.receive()


@asynccontextmanager
async def mad_broker(
    script: Script, scheme: str = "stomp", *, may_be_left: bool = False
) -> AsyncIterator[str]:
    """Play `script` for the one connection that comes; gives the address, of `scheme`.

    As `peer.broker`. With `ws` the script begins after the upgrade, with `raw` there is no scheme before
    the address and nothing is done for the script.

    Where the client's patience is short, on a busy machine it may leave before the script is through with its
    first words, or before it came: with `may_be_left` that is no failure.
    """
    with anyio.fail_after(DEADLINE), socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        # It hands the size down. A kernel that grows it could swallow what should fill it.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER_BYTES)

        has_come = False

        async def play() -> None:
            nonlocal has_come
            await anyio.wait_readable(listener)
            has_come = True
            stream = RawStream(listener.accept()[0])
            with suppress(*_LEFT) if may_be_left else nullcontext():
                async with stream:
                    await script(await _peer(stream, scheme))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(play)
            address = f"127.0.0.1:{listener.getsockname()[1]}"
            yield address if scheme == "raw" else f"{scheme}://{address}"
            if may_be_left and not has_come:
                tasks.cancel_scope.cancel()


async def _peer(stream: RawStream, scheme: str) -> FaultyPeer:
    if scheme != "ws":
        return FaultyPeer(stream, stream)
    websocket = WebSocketStream(stream)
    await websocket.upgrade()
    return FaultyPeer(websocket, stream)


Script = Callable[[FaultyPeer], Awaitable[None]]


@contextmanager
def quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """What happens in the block is nobody's bug: nothing is logged with a traceback, no task stays."""
    caplog.set_level(logging.WARNING)
    with own_logs() as logged:
        yield

    assert [entry for entry in logged if entry["log_level"] in ("error", "critical")] == []
    ours = threading.get_ident()
    others = [one for one in caplog.records if not one.name.startswith("nebula.")]
    assert [record.getMessage() for record in others if record.thread == ours] == []
    assert [task.name for task in anyio.get_running_tasks() if "stomp" in (task.name or "")] == []


class Waiters:
    """Somebody waits in every way that a client has.

    Attributes:
        told: what each got, by how it waited.
        lost: what the hook was told.
        receipts: how many posts were answered.
    """

    FRAMES: Final = 7
    """What the broker hears from them after the first SUBSCRIBE."""

    def __init__(self, client: StompClient) -> None:
        self.told: dict[str, BaseException] = {}
        self.lost: list[NebulaError] = []
        self.receipts = 0
        self._client = client
        client.on_lost = self.lost.append

    async def wait(self) -> None:
        """Wait in all ways at once, until each has ended."""
        client = self._client
        async with client.subscribe("/queue/a") as messages, anyio.create_task_group() as tasks:
            client.post_with_receipt("/queue/a", b"", {}, self._count)
            tasks.start_soon(self._note, "messages", anext, messages)
            tasks.start_soon(self._note, "first send", self._send)
            tasks.start_soon(self._note, "second send", self._send)
            tasks.start_soon(self._note, "commit", self._commit)
            tasks.start_soon(self._note, "subscribe", client.listen, "/queue/b", print)
            tasks.start_soon(self._note, "loss", self._wait_lost)

    def _count(self, receipt: Any) -> None:
        self.receipts += 1

    async def _send(self) -> None:
        await self._client.send("/queue/a", b"hello", receipt=True)

    async def _commit(self) -> None:
        async with self._client.transaction():
            pass

    async def _wait_lost(self) -> None:
        raise await self._client.wait_lost()

    async def _note(self, name: str, wait: Any, *arguments: Any) -> None:
        try:
            await wait(*arguments)
        except (NebulaError, TimeoutError) as error:
            self.told[name] = error

    def check(self, kind: type[NebulaError], said: str) -> None:
        """Everyone was told the same, and so was the hook, once."""
        assert {name: type(error) for name, error in self.told.items()} == dict.fromkeys(
            ("messages", "first send", "second send", "commit", "subscribe", "loss"), kind
        )
        assert [type(error) for error in self.lost] == [kind]
        for error in (*self.told.values(), *self.lost):
            assert said in str(error)
        assert self.receipts == 0


def check_ended(client: StompClient) -> None:
    """Later calls say that there is no connection."""
    with pytest.raises(ConnectionLost):
        client.post("/queue/a", b"", {})
