"""A link and a receiver without a network: the test says what arrives."""

from __future__ import annotations

from anyio.abc import TaskGroup

from nebula.stomp.client.link import Receiver


class DeafLink:
    """Takes everything and delivers nothing; the test is the network."""

    def __init__(self) -> None:
        self.written = b""
        self.is_closed = False
        self.receiver: Receiver

    def start(self, receiver: Receiver, tasks: TaskGroup) -> None:
        self.receiver = receiver

    def write(self, data: bytes) -> None:
        self.written += data

    async def drain(self) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def close(self) -> None:
        self.is_closed = True


class Sink:
    """A receiver that keeps what it is given."""

    def __init__(self) -> None:
        self.data = b""
        self.losses: list[Exception | None] = []

    def data_received(self, data: bytes) -> None:
        assert data
        self.data += data

    def connection_lost(self, error: Exception | None) -> None:
        self.losses.append(error)
