"""Links under test: how one is made, and what it delivers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio

from nebula.stomp.client.link import Link

Connect = Callable[[str, int], Awaitable[Link]]


class Recorder:
    """A receiver that keeps what it is given."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.losses: list[Exception | None] = []
        self.came = anyio.Event()
        self.is_lost = anyio.Event()

    def data_received(self, data: bytes) -> None:
        assert not self.losses
        self.data += data
        self.came.set()

    def connection_lost(self, error: Exception | None) -> None:
        self.losses.append(error)
        self.is_lost.set()
