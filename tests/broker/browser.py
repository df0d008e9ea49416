"""A WebSocket client written down octet by octet, so that it can also do what none should."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import uvloop

from nebula.broker.core.limits import Limits
from nebula.broker.server.authenticator import Authenticator
from nebula.broker.server.connection import Connection
from nebula.broker.server.http import HttpListener
from nebula.broker.server.http_connection import HttpConnection
from nebula.broker.server.http_posts import Post
from nebula.broker.server.listener import Listener
from nebula.stomp.codec import FrameParser
from nebula.stomp.dialects import DIALECTS
from nebula.stomp.frames import SERVER_COMMANDS
from tests.broker.script import Received, octets, shown
from tests.faults.served import Served, serve

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
TIMEOUT = 10.0
# What each request of a page has.
HEAD = {"Host": "127.0.0.1", "Content-Type": "application/json"}

# RFC 6455, 7.1.5: a Close without a code counts as one with this.
NO_CODE = 1005

# RFC 6455, 1.3: the key of the example, and what it is answered with.
KEY = "dGhlIHNhbXBsZSBub25jZQ=="
ACCEPT = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
UPGRADE = {
    "Host": "127.0.0.1",
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Key": KEY,
    "Sec-WebSocket-Version": "13",
}


class HttpServed:
    """A running broker with an HTTP listener."""

    def __init__(self, served: Served, listener: HttpListener, server: asyncio.Server) -> None:
        self.served = served
        self.listener = listener
        self.port: int = server.sockets[0].getsockname()[1]

    def connections(self) -> int:
        """How many the broker counts."""
        count: int = self.served.ask(lambda: len(self.served.server.runtime.connections))
        return count

    def until(self, is_so: Callable[[], bool]) -> None:
        """Look again and again, on the broker's loop. The test's own time limit ends what never comes."""
        while not self.served.ask(is_so):
            pass

    def browser(self, headers: Mapping[str, str] | None = None) -> Browser:
        """A client that was upgraded."""
        browser = Browser(self.port)
        browser.ask("/stomp", UPGRADE | dict(headers or {}))
        assert browser.answer()[0] == 101
        return browser


@contextmanager
def serve_http(
    limits: Limits | None = None,
    *,
    origins: tuple[str, ...] = (),
    posts: Mapping[str, Post] | None = None,
    reads: Mapping[str, Post] | None = None,
    tls: ssl.SSLContext | None = None,
    authenticator: Authenticator | None = None,
    run_loop: Callable[[Coroutine[Any, Any, None]], None] = uvloop.run,
) -> Iterator[HttpServed]:
    """Run a broker with an HTTP listener beside its other one, for as long as the context lasts."""
    with serve(limits, run_loop=run_loop) as served:
        server = served.server
        listener = HttpListener(
            lambda: Connection(server.runtime),
            origins=origins,
            limits=limits,
            posts=posts,
            reads=reads,
            listener=Listener(http=True, authenticator=authenticator),
        )
        listening = asyncio.run_coroutine_threadsafe(
            server.runtime.loop.create_server(lambda: HttpConnection(listener), "127.0.0.1", 0, ssl=tls),
            server.runtime.loop,
        ).result(TIMEOUT)
        try:
            yield HttpServed(served, listener, listening)
        finally:
            served.ask(listener.close)
            served.ask(listening.close)


class Browser:
    """A blocking socket with a time limit, that speaks HTTP and then WebSocket."""

    def __init__(self, port: int, *, receive_buffer_bytes: int | None = None, source: str = "") -> None:
        self.socket = socket.socket()
        self.socket.settimeout(TIMEOUT)
        if source:
            self.socket.bind((source, 0))
        if receive_buffer_bytes is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self.socket.connect(("127.0.0.1", port))
        self.messages: list[tuple[int, bytes]] = []
        self._octets = b""
        self._parser = FrameParser(SERVER_COMMANDS)
        self._frames: list[Received] = []

    # --- HTTP ---

    def ask(self, path: str, headers: Mapping[str, str], method: str = "GET") -> None:
        """Send a request."""
        lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
        self.socket.sendall("\r\n".join([*lines, "", ""]).encode())

    def answer(self) -> tuple[int, dict[str, str]]:
        """The status and the headers, by names in lower case."""
        while b"\r\n\r\n" not in self._octets:
            self._octets += self._receive()
        head, _, self._octets = self._octets.partition(b"\r\n\r\n")
        status, *lines = head.decode().split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines)
        return int(status.split()[1]), {name.lower(): value for name, value in headers.items()}

    def rest(self) -> bytes:
        """All octets until the broker ends."""
        while data := self._receive_or_end():
            self._octets += data
        return self._octets

    # --- WebSocket ---

    def send(self, opcode: int, payload: bytes, *, fin: bool = True, mask: bool = True) -> None:
        """One frame."""
        self.socket.sendall(wrap(opcode, payload, fin=fin, mask=mask))

    def say(self, *lines: str, opcode: int = TEXT) -> None:
        """Frames of STOMP, each written as a line, each a message."""
        for line in lines:
            self.send(opcode, octets(line))

    def connect(self, opcode: int = TEXT) -> None:
        """CONNECT and take the CONNECTED."""
        self.say("CONNECT accept-version:1.2; host:h", opcode=opcode)
        frame = self.next()
        assert frame is not None
        assert frame[0] == "CONNECTED"

    def message(self) -> tuple[int, bytes] | None:
        """The next frame, opcode and payload; None when the broker has ended."""
        while True:
            opcode, payload, self._octets = unwrap(self._octets)
            if opcode is not None:
                return opcode, payload
            data = self._receive_or_end()
            if not data:
                return None
            self._octets += data

    def next(self) -> Received | None:
        """The next frame of STOMP; None when a Close came. Notes each message in `messages`."""
        while not self._frames:
            message = self.message()
            if message is None or message[0] == CLOSE:
                return None
            self.messages.append(message)
            self._parse(message[1])
        return self._frames.pop(0)

    def next_octets(self) -> bytes:
        """The messages up to the end of a frame of STOMP, in one piece; the frame alone was asked for."""
        octets = b""
        while not octets.endswith(b"\0\n"):
            message = self.message()
            assert message is not None
            self.messages.append(message)
            octets += message[1]
        return octets

    def close_code(self) -> int | None:
        """The code of the Close that comes; None when the end comes without one."""
        while (message := self.message()) is not None:
            if message[0] == CLOSE:
                return int.from_bytes(message[1][:2], "big") or NO_CODE
        return None

    def _parse(self, data: bytes) -> None:
        while frames := self._parser.feed(data):
            for frame in frames:
                if frame.command == "CONNECTED":
                    self._parser.begin(DIALECTS[frame.headers.get("version", "1.0")])
                self._frames.append(shown(frame))
            data = b""

    def _receive(self) -> bytes:
        data = self._receive_or_end()
        assert data, f"the broker ended after {self._octets!r}"
        return data

    def _receive_or_end(self) -> bytes:
        try:
            return self.socket.recv(1 << 16)
        except ConnectionError:
            return b""


def wrap(opcode: int, payload: bytes, *, fin: bool = True, mask: bool = True) -> bytes:
    """A client's frame, RFC 6455, 5.2. Its mask is the same each time: the broker must not care."""
    key = b"\x01\x02\x03\x04"
    size, bit = len(payload), 0x80 if mask else 0
    if size < 126:
        length = bytes([bit | size])
    elif size < 1 << 16:
        length = bytes([bit | 126]) + struct.pack("!H", size)
    else:
        length = bytes([bit | 127]) + struct.pack("!Q", size)
    head = bytes([(0x80 if fin else 0) | opcode]) + length
    if not mask:
        return head + payload
    stream = (key * (size // 4 + 1))[:size]
    masked = int.from_bytes(payload, "big") ^ int.from_bytes(stream, "big")
    return head + key + masked.to_bytes(size, "big")


def unwrap(data: bytes) -> tuple[int | None, bytes, bytes]:
    """The first frame of a server's octets and what follows it; None for one that is not complete."""
    incomplete = (None, b"", data)
    if len(data) < 2:
        return incomplete
    assert data[0] & 0xF0 == 0x80, "a server of ours sends whole messages without extensions"
    size, start = data[1], 2
    if size >= 126:
        start = 4 if size == 126 else 10
        if len(data) < start:
            return incomplete
        size = int.from_bytes(data[2:start], "big")
    if len(data) < start + size:
        return incomplete
    return data[0] & 0x0F, data[start : start + size], data[start + size :]
