"""The HTTP listener and the WebSocket behind it: any request, any frames, however they are cut."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, NamedTuple, cast

import h11

from nebula.broker.core.limits import Limits
from nebula.broker.server.connection import Connection
from nebula.broker.server.http import HttpListener
from nebula.broker.server.http_connection import HttpConnection
from tests.broker.browser import CLOSE, PING, PONG, UPGRADE, unwrap
from tests.fuzz.targets.pieces import cut, sizes

_ORIGIN = "https://shop.example"
_REQUEST = "\r\n".join(["GET /stomp HTTP/1.1", *(f"{k}: {v}" for k, v in UPGRADE.items()), "", ""]).encode()
_SMALL = Limits(
    max_body_bytes=300,
    max_headers=4,
    max_header_line_bytes=50,
    max_head_bytes=200,
    max_opening_frame_bytes=400,
)


class _Socket(asyncio.Transport):
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.is_ended = False

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = cast("asyncio.Protocol", protocol)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.is_ended, "written behind the end"
        self.written += data

    def is_closing(self) -> bool:
        return self.is_ended

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.is_ended = True

    def resume_reading(self) -> None: ...

    def pause_reading(self) -> None: ...

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0

    def abort(self) -> None:
        self.is_ended = True

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default


class _Receiver:
    """In the place of a broker's connection: notes what it is told, and answers the first octets."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.ends = 0
        self.is_waiting = False
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.Transport) -> None:
        self._transport = transport

    def note_partial(self, held_bytes: int) -> None:
        assert held_bytes >= 0

    def wait_for_turn(self) -> None:
        self.is_waiting = True
        self._transport.pause_reading()

    def take_turn(self) -> None:
        self.is_waiting = False
        self._transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        assert data
        assert not self.ends, "data behind the end"
        if not self.received:
            self._transport.write(b"CONNECTED\n\n\0")
        self.received += data

    def eof_received(self) -> bool:
        self.ends += 1
        return False

    def connection_lost(self, exc: Exception | None) -> None: ...


class _Listener:
    """One connection of a listener."""

    def __init__(self) -> None:
        self.receiver = _Receiver()
        make_connection = cast("Callable[[], Connection]", lambda: self.receiver)
        self.listener = HttpListener(make_connection, origins=[_ORIGIN], limits=_SMALL)
        self.socket = _Socket()
        self.socket.set_protocol(HttpConnection(self.listener))
        self.socket.protocol.connection_made(self.socket)

    async def feed(self, pieces: Iterable[bytes]) -> None:
        for piece in pieces:
            if not self.socket.is_ended:
                self.socket.protocol.data_received(piece)
            while self.receiver.is_waiting and not self.socket.is_ended:
                self.receiver.take_turn()
                await asyncio.sleep(0)

    def end(self) -> None:
        self.socket.protocol.eof_received()
        self.socket.protocol.connection_lost(None)
        assert not self.listener._asking, "it is counted for ever"


@cache
def _loop() -> asyncio.AbstractEventLoop:
    return asyncio.new_event_loop()


def ask(data: bytes) -> None:
    """Any octets as a request; the first one says how they are cut."""
    if data:
        _loop().run_until_complete(_ask_in_all_ways(data))


async def _ask_in_all_ways(data: bytes) -> None:
    octets = data[1:]
    for size in sizes(octets, data[0]):
        asked = _Listener()
        await asked.feed(cut(octets, size))
        is_upgraded = not isinstance(asked.socket.protocol, HttpConnection)
        _check_answer(bytes(asked.socket.written), is_upgraded=is_upgraded)
        asked.end()


def _check_answer(written: bytes, *, is_upgraded: bool) -> None:
    """What is written is nothing, or an answer of HTTP."""
    if not written:
        return
    client = h11.Connection(h11.CLIENT)
    client.send(h11.Request(method="GET", target="/stomp", headers=list(UPGRADE.items())))
    client.receive_data(written)
    answer = client.next_event()
    assert isinstance(answer, h11.Response | h11.InformationalResponse)
    assert answer.status_code in (101, 505) or 400 <= answer.status_code < 500
    assert (answer.status_code == 101) == is_upgraded


def talk(data: bytes) -> None:
    """Any octets behind an upgrade; the first one says how they are cut."""
    if data:
        _loop().run_until_complete(_talk_in_all_ways(data))


async def _talk_in_all_ways(data: bytes) -> None:
    octets = data[1:]
    whole, *others = [await _talk(cut(octets, size)) for size in sizes(octets, data[0])]
    for other in others:
        # What comes in one read with text that is not UTF-8 is lost with it, as it may be.
        assert other.received.startswith(whole.received)
        assert other == whole or whole.has_failed, "what comes of a WebSocket hangs on how its octets come"
        assert other.has_failed == whole.has_failed


class _Said(NamedTuple):
    """What came of a WebSocket."""

    received: bytes
    ends: int
    answers: list[int]
    has_failed: bool


async def _talk(pieces: list[bytes]) -> _Said:
    talked = _Listener()
    await talked.feed([_REQUEST])
    talked.socket.written.clear()
    await talked.feed(pieces)
    sent = _opcodes(bytes(talked.socket.written))
    receiver = talked.receiver
    ends = receiver.ends
    talked.end()
    assert receiver.ends == 1
    return _Said(bytes(receiver.received), ends, sent, talked.socket.is_ended)


def _opcodes(written: bytes) -> list[int]:
    """Of the frames that were sent, a Close last."""
    sent = []
    while written:
        opcode, _, written = unwrap(written)
        assert opcode is not None
        sent.append(opcode)
    assert CLOSE not in sent[:-1]
    # When it answers pings hangs on how they come beside the octets of messages.
    return sorted(each for each in sent if each in (PING, PONG, CLOSE))
