"""Peers without TCP_NODELAY do not wait for delayed acknowledgements, once they have waited."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from nebula.broker.server import connection as connections
from nebula.broker.server import tcp_acks
from nebula.broker.server.tcp_acks import TcpAcks, send_ack
from tests.faults.served import Wire, serve, wait_until

# `tcpi_segs_out` of `struct tcp_info` (linux/tcp.h): all segments that this end has sent.
_SEGMENTS_OUT_OFFSET = 136
_PAIRS = 40

on_linux = pytest.mark.skipif(not hasattr(socket, "TCP_QUICKACK"), reason="the option is of Linux")
loops = pytest.mark.parametrize("run_loop", [asyncio.run, uvloop.run])


def test_reads_are_acknowledged_from_the_first_wait_on() -> None:
    acks = TcpAcks()

    assert not acks.are_due(1.0, 50, 50)
    assert acks.are_due(1.044, 50, 50)
    assert acks.are_due(1.045, 50, 50)
    assert not acks.are_due(1.046, 50, 90)  # what was written carries the acknowledgement


@pytest.mark.parametrize("pause", [0.0, 0.001, 0.03, 0.1, 5.0])
def test_pause_of_another_length_is_no_wait(pause: float) -> None:
    acks = TcpAcks()
    acks.are_due(1.0, 50, 50)

    assert not acks.are_due(1.0 + pause, 50, 50)


def test_peer_that_was_replied_to_did_not_wait_for_an_acknowledgement() -> None:
    replied_at_once, replied_later = TcpAcks(), TcpAcks()
    replied_at_once.are_due(1.0, 50, 90)
    replied_later.are_due(1.0, 50, 50)

    assert not replied_at_once.are_due(1.044, 90, 90)
    assert not replied_later.are_due(1.044, 90, 90)


class WatchedSocket:
    """The broker's end of a connection; notes how many segments each acknowledgement has sent.

    It takes the place of the transport, so that this works on the compiled build too.
    """

    def __init__(self, transport: Any, sent: list[int]) -> None:
        self._transport, self._socket = transport, transport.get_extra_info("socket")
        self._sent = sent

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def get_extra_info(self, name: str) -> Any:
        return self if name == "socket" else self._transport.get_extra_info(name)

    def setsockopt(self, level: int, option: int, value: int) -> None:
        before = self._segments_out()
        self._socket.setsockopt(level, option, value)
        self._sent.append(self._segments_out() - before)

    def _segments_out(self) -> int:
        info = self._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 192)
        return int(struct.unpack_from("I", info, _SEGMENTS_OUT_OFFSET)[0])


@on_linux
@loops
def test_socket_without_nodelay_writes_head_and_body_and_is_acknowledged_between(
    run_loop: Callable[[Coroutine[Any, Any, None]], None],
) -> None:
    sent: list[int] = []
    with serve(run_loop=run_loop) as broker:
        wire = broker.connect()
        (connection,) = broker.connections
        connection._transport = WatchedSocket(connection._transport, sent)
        assert not wire.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        for number in range(_PAIRS):
            say_in_two_writes(wire, number)
        wire.close()

    # The kernel acknowledges some by itself; each of the others would have cost the peer 40 ms.
    assert sum(sent) > 0
    assert len(sent) <= _PAIRS


@on_linux
@pytest.mark.interpreted
def test_peer_that_never_waits_costs_no_acknowledgement(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    monkeypatch.setattr(connections, "send_ack", asked.append)
    # A busy machine may pause the peer for as long as an acknowledgement is delayed: here that is no wait.
    monkeypatch.setattr(tcp_acks, "_SHORTEST_WAIT_SECONDS", 3600.0)
    with serve() as broker:
        wire = broker.connect()
        for number in range(_PAIRS):
            say_in_two_writes(wire, number)
        wire.close()

    assert not asked


def say_in_two_writes(wire: Wire, number: int) -> None:
    """Send a message, its head apart from its body, and wait for its RECEIPT."""
    wire.send(f"SEND\ndestination:/topic/t\nreceipt:{number}\ncontent-length:1\n\n".encode())
    wire.send(b"x\0")
    assert wire.next() is not None


@pytest.mark.interpreted
def test_system_without_the_option_is_asked_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    class Untouched(asyncio.Transport):
        def get_extra_info(self, name: str, default: Any = None) -> Any:
            return object()  # it has no `setsockopt`

    monkeypatch.setattr(tcp_acks, "_QUICK_ACK", -1)

    send_ack(Untouched())


@loops
def test_broker_delays_no_small_writes(run_loop: Callable[[Coroutine[Any, Any, None]], None]) -> None:
    with serve(run_loop=run_loop) as broker:
        wire = broker.connect()

        def nodelay() -> int:
            transport = broker.connections[0]._transport
            return int(transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))

        wait_until(broker, lambda: len(broker.connections) == 1)

        assert broker.ask(nodelay)
        wire.close()
