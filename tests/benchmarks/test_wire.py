"""The load generator counts correctly, however the bytes are split."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import pytest

from benchmarks.peers import Broker
from benchmarks.wire import AckingLink, Link

L = TypeVar("L", bound=Link)

_CONNECTED = b"CONNECTED\nversion:1.2\n\n\0\n"


@contextmanager
def _broker(script: Callable[[socket.socket], None]) -> Iterator[Broker]:
    """A broker that connects one client and then follows a script."""

    def serve() -> None:
        peer, _ = listener.accept()
        with peer:
            peer.recv(4096)
            peer.sendall(_CONNECTED)
            # What follows must not come together with CONNECTED: real brokers are asked first.
            peer.recv(1)
            script(peer)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        yield Broker("scripted", "0", 0, listener.getsockname()[1])
        thread.join(10)


def _connected(link: L) -> L:
    link.socket.sendall(b"\n")
    return link


def _message(number: int) -> bytes:
    return b"MESSAGE\nack:a%d\ncontent-length:5\n\nhello\0\n" % number


def _take(link: Link, count: int) -> None:
    while count > 0:
        count -= link.take()
    assert count == 0


@pytest.mark.parametrize("size", [1, 7, 100_000])
def test_frames_are_counted_however_they_are_cut(size: int) -> None:
    octets = b"".join(map(_message, range(50)))

    def script(peer: socket.socket) -> None:
        for at in range(0, len(octets), size):
            peer.sendall(octets[at : at + size])

    with _broker(script) as broker:
        link = _connected(Link(broker))
        _take(link, 50)
        link.close()


@pytest.mark.parametrize("size", [11, 100_000])
def test_each_hundredth_message_is_acked_and_the_rest_at_the_end(size: int) -> None:
    octets = b"".join(map(_message, range(250)))
    acked = bytearray()

    def script(peer: socket.socket) -> None:
        for at in range(0, len(octets), size):
            peer.sendall(octets[at : at + size])
        while data := peer.recv(4096):
            acked.extend(data)

    with _broker(script) as broker:
        link = _connected(AckingLink(broker))
        _take(link, 250)
        link.acknowledge_rest()
        link.close()

    assert acked == b"ACK\nid:a99\n\n\0ACK\nid:a199\n\n\0ACK\nid:a249\n\n\0"


def test_receipt_that_comes_before_the_first_message_is_not_acked() -> None:
    acked = bytearray()

    def script(peer: socket.socket) -> None:
        peer.sendall(b"RECEIPT\nreceipt-id:sub\n\n\0\n")
        peer.recv(1)
        peer.sendall(b"".join(map(_message, range(100))))
        while data := peer.recv(4096):
            acked.extend(data)

    with _broker(script) as broker:
        link = _connected(AckingLink(broker))
        _take(link, 1)
        _take(_connected(link), 100)
        link.acknowledge_rest()
        link.close()

    assert acked == b"ACK\nid:a98\n\n\0ACK\nid:a99\n\n\0"


def test_error_of_the_broker_ends_the_measurement_with_its_text() -> None:
    with _broker(lambda peer: peer.sendall(b"ERROR\nmessage:full\n\n\0")) as broker:
        link = _connected(Link(broker))
        with pytest.raises(ConnectionError, match="message:full"):
            link.take()
        link.close()


def test_closed_connection_ends_the_measurement() -> None:
    with _broker(lambda peer: None) as broker:
        link = _connected(Link(broker))
        with pytest.raises(ConnectionError, match="closed"):
            link.take()
        link.close()
