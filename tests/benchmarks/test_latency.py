"""Latencies count from when a message was due, not from when a busy sender came to send it."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from benchmarks import latency, load
from benchmarks.own import nebula_broker
from benchmarks.peers import Broker
from benchmarks.wire import Link

_HELD_UP_SECONDS = 0.05


class _Receiver:
    """A consumer at the other end of a socket pair, as if no broker were between."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end

    def fileno(self) -> int:
        return self._end.fileno()

    def take(self) -> int:
        return self._end.recv(1 << 16).count(0)


class _HeldUp:
    """A socket whose first write takes long."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._is_first = True

    def sendall(self, data: bytes) -> None:
        if self._is_first:
            time.sleep(_HELD_UP_SECONDS)
        self._is_first = False
        self._end.sendall(data)


def _taken(sender: Any, receiver: socket.socket, *, rate: int, count: int) -> list[float]:
    link = cast("Link", SimpleNamespace(socket=sender))
    return list(latency._latencies(link, cast("Link", _Receiver(receiver)), b"x\0", rate, count))


def test_every_message_that_was_due_while_the_sender_was_held_up_is_late() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        taken = _taken(_HeldUp(ours), theirs, rate=1_000, count=100)

    assert len(taken) == 100
    # A loop that takes its times when it sends would see one late message.
    assert [late for late in taken[:25] if late < _HELD_UP_SECONDS / 2] == []


def test_message_that_is_lost_fails_the_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latency, "_DRAIN_SECONDS", 0.05)
    ours, theirs = socket.socketpair()
    lost = SimpleNamespace(sendall=lambda data: ours.sendall(data[2:]))
    with ours, theirs, pytest.raises(ConnectionError, match="of 20 messages were not delivered"):
        _taken(lost, theirs, rate=1_000, count=20)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with nebula_broker() as running:
        yield running


@pytest.mark.slow
def test_deliveries_are_measured_at_the_rate_that_was_asked_for(broker: Broker) -> None:
    measured = latency.deliveries(broker, 0.5, rate=200)

    assert measured.p50 is not None
    assert measured.p99 is not None
    assert measured.p999 is not None
    assert 0 < measured.p50 <= measured.p99 <= measured.p999
    # A busy machine makes it slower, and nothing makes it faster.
    assert 0 < measured.rate < 205


@pytest.mark.slow
@pytest.mark.parametrize("pairs", [1, 4])
@pytest.mark.parametrize("body", [b"x" * 200, b"x" * 16_384])
def test_publishers_and_consumers_share_a_queue(broker: Broker, pairs: int, body: bytes) -> None:
    assert load.queue_between(broker, 0.3, pairs=pairs, body=body).rate > 0
