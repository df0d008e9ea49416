"""Rows about connections: what idle ones cost, and clients that do not set TCP_NODELAY."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from benchmarks import echo, idle
from benchmarks.own import nebula_broker
from benchmarks.peers import Broker
from benchmarks.wire import Link

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with nebula_broker() as running:
        yield running


def test_idle_connections_cost_memory_of_the_broker_that_was_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle, "CONNECTIONS", 300)
    monkeypatch.setattr(idle, "_SETTLE_SECONDS", 0.1)
    other = Broker("another", "0", 0, 0)

    measured = idle.connections(other, 1.0, start=nebula_broker)

    assert measured.resident_bytes is not None
    # A connection of any broker needs more than a kilobyte.
    assert measured.resident_bytes > 300 * 1_000


def test_idle_connections_are_open_while_memory_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle, "CONNECTIONS", 20)
    monkeypatch.setattr(idle, "_FIRST", 3)
    monkeypatch.setattr(idle, "_SETTLE_SECONDS", 0.0)
    opened: list[Link] = []
    seen: list[int] = []

    class Counted(Link):
        def __init__(self, broker: Broker) -> None:
            super().__init__(broker)
            opened.append(self)

    def counted(broker: Broker) -> int:
        seen.append(sum(link.fileno() >= 0 for link in opened))
        return 0

    monkeypatch.setattr(idle, "Link", Counted)
    monkeypatch.setattr(idle, "_resident_bytes", counted)
    idle.connections(Broker("another", "0", 0, 0), 1.0, start=nebula_broker)

    assert seen == [3, 23]
    assert all(link.fileno() < 0 for link in opened)


def test_two_writes_of_a_request_are_not_joined(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    options: list[int] = []

    class Watched(Link):
        def disconnect(self) -> None:
            options.append(self.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))  # type: ignore[union-attr] # TCP here
            super().disconnect()

    monkeypatch.setattr(echo, "Link", Watched)

    assert echo.request_in_two_writes(broker, 0.3).rate > 0
    assert options == [0]
