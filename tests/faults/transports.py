"""Connections of a server over fake transports."""

from __future__ import annotations

from typing import Any

from nebula.broker.server.connection import Connection
from nebula.broker.server.server import Server

CONNECT = b"CONNECT\naccept-version:1.2\nhost:h\n\n\0"


class FakeTransport:
    """A socket that says whether it is read."""

    def __init__(self) -> None:
        self.is_read = True
        self.written = b""

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True

    def write(self, data: bytes) -> None:
        self.written += data

    def set_write_buffer_limits(self, **limits: int) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0

    def can_write_eof(self) -> bool:
        return False

    def abort(self) -> None: ...


def connected(server: Server) -> tuple[Any, FakeTransport]:
    connection, transport = Connection(server.runtime), FakeTransport()
    connection.connection_made(transport)
    connection.data_received(CONNECT)
    return connection, transport
