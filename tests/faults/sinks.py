"""Transports without a socket: peers that read everything at once, or nothing at all."""

from __future__ import annotations

import asyncio

from nebula.broker.server.connection import Connection
from tests.broker.script import octets
from tests.faults.served import Served


class Sink(asyncio.Transport):
    """A peer that reads as fast as it is written to.

    Attributes:
        pieces: what was written to it.
        is_aborted: the broker has closed it at once.
    """

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[bytes] = []
        self.is_aborted = False
        self.connection: Connection

    @property
    def octets(self) -> bytes:
        """All of it in one piece."""
        return b"".join(self.pieces)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert isinstance(data, bytes)
        self.pieces.append(data)

    def abort(self) -> None:
        self.is_aborted = True

    def can_write_eof(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


class Deaf(Sink):
    """A peer that reads nothing after its CONNECTED."""

    _high = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        super().write(data)
        if self.get_write_buffer_size() > self._high:
            self.connection.pause_writing()

    def get_write_buffer_size(self) -> int:
        return sum(map(len, self.pieces[1:]))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = high or 0


def attach(broker: Served, sink: Sink, *lines: str, version: str = "1.2") -> Connection:
    """The broker's end of a peer that has connected and said these frames. Call it on the broker's loop."""
    sink.connection = Connection(broker.server.runtime)
    sink.connection.connection_made(sink)
    for line in (f"CONNECT accept-version:{version}; host:h", *lines):
        sink.connection.data_received(octets(line))
    return sink.connection
