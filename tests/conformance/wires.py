"""Peers over sockets of every kind: TCP, TLS with a client certificate, WebSocket."""

from __future__ import annotations

import contextlib
import itertools
import socket
import ssl
from typing import Protocol

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect
from websockets.typing import Subprotocol

from nebula.stomp.codec import FrameParser
from nebula.stomp.dialects import DIALECTS
from nebula.stomp.frames import SERVER_COMMANDS
from tests.broker.script import Received, octets, shown

_TIMEOUT = 10.0
# An ACK of nothing is answered in every version and changes nothing (D.22).
_PROBE = "ACK id:s m; subscription:s; message-id:m"
_SUBPROTOCOLS = [Subprotocol(f"v{version}.stomp") for version in ("12", "11", "10")]


class Octets(Protocol):
    """What carries bytes both ways."""

    def send(self, data: bytes) -> None: ...

    def receive(self) -> bytes:
        """What came next; nothing: the other side has ended it."""
        ...

    def lose(self) -> None:
        """Go without a word. Afterwards `receive` gives what still comes, up to the end."""
        ...

    def close(self) -> None: ...


class TcpOctets:
    """A socket, with TLS around it or without."""

    def __init__(
        self, port: int, context: ssl.SSLContext | None = None, *, timeout: float = _TIMEOUT
    ) -> None:
        plain = socket.create_connection(("127.0.0.1", port), timeout)
        self._socket = context.wrap_socket(plain) if context else plain

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def receive(self) -> bytes:
        try:
            return self._socket.recv(1 << 16)
        except (ConnectionError, ssl.SSLError):
            return b""

    def lose(self) -> None:
        self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._socket.close()


class WebSocketOctets:
    """A WebSocket, by a library that is not ours. Text goes as text, the rest as binary."""

    def __init__(self, url: str) -> None:
        self._stack = contextlib.ExitStack()
        self._socket = self._stack.enter_context(
            connect(url, subprotocols=_SUBPROTOCOLS, open_timeout=_TIMEOUT, close_timeout=_TIMEOUT)
        )

    def send(self, data: bytes) -> None:
        payload: bytes | str = data
        with contextlib.suppress(UnicodeDecodeError):
            payload = data.decode()
        try:
            self._socket.send(payload)
        except ConnectionClosed as error:
            raise ConnectionResetError from error

    def receive(self) -> bytes:
        try:
            data = self._socket.recv(_TIMEOUT)
        except ConnectionClosed:
            return b""
        return data.encode() if isinstance(data, str) else data

    def lose(self) -> None:
        self._socket.socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._stack.close()


class Wire:
    """A STOMP peer without any cleverness.

    Args:
        octets_: what carries its bytes.
        probe: a frame that changes nothing and is answered with a RECEIPT once all that was sent before it
            is done.

    Attributes:
        heard: all bytes that came.
        has_ended: nothing more will come.
    """

    def __init__(self, octets_: Octets, *, probe: str = _PROBE) -> None:
        self.heard = b""
        self.has_ended = False
        self._octets = octets_
        self._parser = FrameParser(SERVER_COMMANDS)
        self._frames: list[Received] = []
        self._is_connected = False
        self._probe = probe
        self._probes = itertools.count()

    def send(self, data: bytes) -> None:
        self._octets.send(data)

    def next(self) -> Received | None:
        """The next frame; None when the broker has closed the connection."""
        while not self._frames and not self.has_ended:
            data = self._octets.receive()
            self.has_ended = not data
            self._read(data)
        return self._frames.pop(0) if self._frames else None

    def waiting(self) -> list[Received]:
        """What came until the broker had done all that this peer asked for. It stays for `next`."""
        if not self._is_connected or self.has_ended:
            return self._frames
        probe = f"probe {next(self._probes)}"
        with contextlib.suppress(ConnectionError):  # what it said before its end is still to be heard
            self.send(octets(f"{self._probe}; receipt:{probe}"))
        frames: list[Received] = []
        while (frame := self.next()) is not None and frame[1].get("receipt-id") != probe:
            frames.append(frame)
        self._frames = frames + self._frames
        return self._frames

    def lose(self) -> None:
        """Go without a word."""
        self._octets.lose()
        while self._octets.receive():
            pass
        self.close()

    def close(self) -> None:
        self._octets.close()

    def _read(self, data: bytes) -> None:
        self.heard += data
        while frames := self._parser.feed(data):
            for frame in frames:
                if frame.command == "CONNECTED":
                    self._parser.begin(DIALECTS[frame.headers.get("version", "1.0")])
                    self._is_connected = True
                self._frames.append(shown(frame))
            data = b""
