"""The load counts the same frames over TCP, TLS and WebSocket."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest
from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.server import ServerProtocol

from benchmarks import echo, load
from benchmarks.listeners import nebula_tls, nebula_websocket
from benchmarks.peers import Broker
from benchmarks.stream import Measurement
from benchmarks.transports import WebSocket

_SIZES = [1, 125, 126, 4_000, 65_535, 65_536, 100_000]


def _accepted(server: socket.socket) -> ServerProtocol:
    """The broker's side of a WebSocket whose client has asked for it."""
    protocol = ServerProtocol(subprotocols=["v12.stomp"])  # type: ignore[list-item] # a NewType
    protocol.receive_data(server.recv(4096))
    (request,) = protocol.events_received()
    assert isinstance(request, Request)
    protocol.send_response(protocol.accept(request))
    server.sendall(b"".join(protocol.data_to_send()))
    return protocol


@pytest.fixture
def pair() -> Iterator[tuple[WebSocket, socket.socket, ServerProtocol]]:
    ours, theirs = socket.socketpair()
    ours.settimeout(10)
    made: list[ServerProtocol] = []
    thread = threading.Thread(target=lambda: made.append(_accepted(theirs)))
    thread.start()
    link = WebSocket(ours, "127.0.0.1")
    thread.join()
    with ours, theirs:
        yield link, theirs, made[0]


@pytest.mark.parametrize("size", _SIZES)
def test_each_frame_is_a_message_that_a_websocket_library_reads(
    pair: tuple[WebSocket, socket.socket, ServerProtocol], size: int
) -> None:
    link, server, protocol = pair
    frame = b"x" * (size - 1) + b"\0"
    received: list[bytes] = []

    link.sendall(frame * 2)
    while len(received) < 2:
        protocol.receive_data(server.recv(1 << 20))
        events = protocol.events_received()
        received += [bytes(event.data) for event in events if isinstance(event, Frame)]

    assert received == [frame, frame]


@pytest.mark.parametrize("cut", [1, 3, 1_000, 1 << 20])
def test_payloads_are_read_however_the_bytes_are_cut(
    pair: tuple[WebSocket, socket.socket, ServerProtocol], cut: int
) -> None:
    link, _, _ = pair
    # Lengths of frames have zeros in them, which are no ends of STOMP frames.
    payloads = [os.urandom(size) for size in _SIZES[:4]]
    data = b"".join(Frame(Opcode.BINARY, payload).serialize(mask=False) for payload in payloads)

    read = [link._payload_of(data[at : at + cut]) for at in range(0, len(data), cut)]

    assert b"".join(read) == b"".join(payloads)


@pytest.mark.slow
@pytest.mark.parametrize("started", [nebula_tls, nebula_websocket])
@pytest.mark.parametrize("measure", [load.queue_auto, load.queue_client, echo.request_one])
def test_rows_are_measured(
    started: Callable[[], AbstractContextManager[Broker]], measure: Callable[[Broker, float], Measurement]
) -> None:
    with started() as broker:
        assert measure(broker, 0.3).rate > 0
