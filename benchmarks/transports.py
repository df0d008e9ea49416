"""What STOMP is carried by: TCP, TLS, or WebSocket. To the rest of the load each is a socket."""

from __future__ import annotations

import base64
import os
import socket
import ssl
from typing import Any

from benchmarks.peers import Broker

_TIMEOUT = 20.0
_CHUNK_BYTES = 1 << 18
# What one record of TLS holds. A longer write would wait for the broker while its deliveries wait for us.
_RECORD_BYTES = 1 << 14


class TlsSocket(ssl.SSLSocket):
    """TLS whose reads return all records that have arrived: a selector does not see those inside."""

    def recv_into(self, buffer: Any, nbytes: int | None = None, flags: int = 0) -> int:
        """Read what is there."""
        view = memoryview(buffer)[:nbytes]
        size = super().recv_into(view, flags=flags)
        while self.pending() and size < len(view):
            size += super().recv_into(view[size:], flags=flags)
        return size

    def recv(self, buflen: int = 1024, flags: int = 0) -> bytes:
        """Read what is there."""
        buffer = bytearray(buflen)
        return bytes(buffer[: self.recv_into(buffer, flags=flags)])

    def send(self, data: Any, flags: int = 0) -> int:
        """Write one record."""
        return super().send(memoryview(data)[:_RECORD_BYTES], flags)


class WebSocket:
    """A client's WebSocket, with one message for each STOMP frame, as browsers send them.

    Its mask is zero, so that the load need not XOR what it sends. The broker has the same work with any mask.
    """

    def __init__(self, plain: socket.socket, host: str) -> None:
        self._plain = plain
        self._head = bytearray()
        self._missing = 0
        key = base64.b64encode(os.urandom(16)).decode()
        lines = ["GET /stomp HTTP/1.1", f"Host: {host}", "Upgrade: websocket", "Connection: Upgrade"]
        lines += [
            f"Sec-WebSocket-Key: {key}",
            "Sec-WebSocket-Version: 13",
            "Sec-WebSocket-Protocol: v12.stomp",
        ]
        plain.sendall("\r\n".join([*lines, "", ""]).encode())
        reply = b""
        while not reply.endswith(b"\r\n\r\n"):
            # Byte by byte: what follows is not part of HTTP.
            if not (byte := plain.recv(1)):
                raise ConnectionError(f"the broker closed the connection after {reply!r}")
            reply += byte
        if not reply.startswith(b"HTTP/1.1 101"):
            raise ConnectionError(f"expected a WebSocket, the broker sent {reply[:300]!r}")

    def fileno(self) -> int:
        """So that a selector takes it."""
        return self._plain.fileno()

    def settimeout(self, seconds: float | None) -> None:
        """As a socket's."""
        self._plain.settimeout(seconds)

    def setsockopt(self, level: int, name: int, value: int) -> None:
        """As a socket's."""
        self._plain.setsockopt(level, name, value)

    def close(self) -> None:
        """Drop the connection."""
        self._plain.close()

    def send(self, data: Any) -> int:
        """Write all of it."""
        self.sendall(data)
        return len(data)

    def sendall(self, data: Any) -> None:
        """Write all of it; `data` consists of whole STOMP frames."""
        frames = bytes(data).split(b"\0")[:-1]
        self._plain.sendall(b"".join([_client_head(len(frame) + 1) + frame + b"\0" for frame in frames]))

    def recv(self, size: int) -> bytes:
        """Read the payloads of what has arrived; nothing is empty but the end of the connection."""
        payload = b""
        while not payload:
            data = self._plain.recv(size)
            if not data:
                return b""
            payload = self._payload_of(data)
        return payload

    def recv_into(self, buffer: bytearray) -> int:
        """Read the payloads of what has arrived."""
        payload = self.recv(min(_CHUNK_BYTES, len(buffer)))
        buffer[: len(payload)] = payload
        return len(payload)

    def _payload_of(self, data: bytes) -> bytes:
        parts, at = [], 0
        while at < len(data):
            if self._missing:
                parts.append(data[at : at + self._missing])
                at += len(parts[-1])
                self._missing -= len(parts[-1])
            else:
                self._head.append(data[at])
                at += 1
                if len(self._head) == _server_head_bytes(self._head):
                    self._missing = int.from_bytes(self._head[2:]) if len(self._head) > 2 else self._head[1]
                    self._head.clear()
        return b"".join(parts)


def _client_head(size: int) -> bytes:
    if size < 126:
        return b"\x82" + bytes([0x80 | size]) + bytes(4)
    if size < 1 << 16:
        return b"\x82\xfe" + size.to_bytes(2) + bytes(4)
    return b"\x82\xff" + size.to_bytes(8) + bytes(4)


def _server_head_bytes(head: bytearray) -> int:
    if len(head) < 2:
        return 2
    return 2 + {126: 2, 127: 8}.get(head[1], 0)


def connected(broker: Broker) -> socket.socket | WebSocket:
    """A connection to a broker, before CONNECT."""
    plain = socket.create_connection(("127.0.0.1", broker.port), timeout=_TIMEOUT)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if broker.transport == "websocket":
        return WebSocket(plain, f"127.0.0.1:{broker.port}")
    if broker.transport == "tls":
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        # What is measured is the encryption; the certificate is one that the benchmark has made itself.
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        context.sslsocket_class = TlsSocket
        return context.wrap_socket(plain)
    return plain
