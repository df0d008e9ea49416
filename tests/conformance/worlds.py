"""Where transcripts are played: in memory, and over TCP."""

from __future__ import annotations

from typing import Protocol

from tests.broker.harness import BrokerHarness, Peer
from tests.broker.script import Received
from tests.faults.served import Served, Wire


class World(Protocol):
    """A broker and its peers, by name."""

    def accept(self, name: str) -> None: ...

    def send(self, name: str, data: bytes) -> None: ...

    def hear(self, name: str) -> Received | None:
        """The next frame; None when the broker closed the connection."""
        ...

    def hears_nothing(self, name: str) -> bool: ...

    def lose(self, name: str) -> None: ...


class InMemory:
    """The sans-I/O broker. Time and sockets do what the transcript says."""

    def __init__(self) -> None:
        self.harness = BrokerHarness()
        self.peers: dict[str, Peer] = {}
        self._heard: dict[str, list[Received]] = {}

    def accept(self, name: str) -> None:
        self.peers[name] = self.harness.accept(name)
        self._heard[name] = []

    def send(self, name: str, data: bytes) -> None:
        self.peers[name].feed(data)

    def hear(self, name: str) -> Received | None:
        heard = self._heard[name]
        heard += self.peers[name].received()
        assert heard or self.peers[name].is_closed, f"{name} hears nothing"
        return heard.pop(0) if heard else None

    def hears_nothing(self, name: str) -> bool:
        self._heard[name] += self.peers[name].received()
        return not self._heard[name]

    def lose(self, name: str) -> None:
        self.peers.pop(name).lose()


class OverTcp:
    """A running broker and real sockets."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._wires: dict[str, Wire] = {}
        self._closed: set[str] = set()

    def accept(self, name: str) -> None:
        self._wires[name] = Wire(self._served.port)

    def send(self, name: str, data: bytes) -> None:
        self._wires[name].send(data)

    def hear(self, name: str) -> Received | None:
        frame = self._wires[name].next()
        if frame is None:
            self._closed.add(name)
        return frame

    def hears_nothing(self, name: str) -> bool:
        # The broker has done all that anybody asked once it has answered each of them.
        for other in self._wires.keys() - self._closed - {name}:
            self._wires[other].probe()
        wire = self._wires[name]
        return name in self._closed or wire.probe() == []

    def lose(self, name: str) -> None:
        self._wires.pop(name).close()
