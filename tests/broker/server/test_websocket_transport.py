"""What a WebSocket promises as a transport, without sockets and without a broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nebula.broker.core.limits import Limits
from nebula.broker.server.websocket import WebSocketTransport, shake_hands
from tests.broker.browser import BINARY, CLOSE, CONTINUATION, PING, PONG, TEXT, UPGRADE, unwrap, wrap
from tests.host.loops import Side

REQUEST = "\r\n".join(["GET /stomp HTTP/1.1", *(f"{k}: {v}" for k, v in UPGRADE.items()), "", ""]).encode()


class Socket:
    """As much of a socket's transport as a WebSocket needs."""

    def __init__(self) -> None:
        self.written = bytearray()
        self.write: Callable[[bytes], None] = self.written.extend
        self.is_ended = False
        self.is_reset = False
        self.calls: list[str] = []

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None: ...

    def is_closing(self) -> bool:
        return False

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        if self.is_reset:
            raise OSError("Transport endpoint is not connected")
        self.is_ended = True

    def pause_reading(self) -> None:
        self.calls.append("pause")

    def resume_reading(self) -> None:
        self.calls.append("resume")

    def abort(self) -> None:
        self.calls.append("abort")


class Peer(Side):
    """In the place of a broker's connection."""

    def __init__(self) -> None:
        super().__init__()
        self.ends = 0
        self.waits = 0
        self.is_partial = False

    def connection_made(self, transport: WebSocketTransport) -> None:
        self.transport = transport

    def note_partial(self, held_bytes: int) -> None:
        self.is_partial = held_bytes > 0

    def wait_for_turn(self) -> None:
        self.waits += 1
        self.transport.pause_reading()

    def eof_received(self) -> bool:
        self.ends += 1
        return False


def upgraded() -> tuple[WebSocketTransport, Socket, Peer]:
    websocket, _ = shake_hands(REQUEST, Limits())
    assert websocket is not None
    socket, peer = Socket(), Peer()
    transport = WebSocketTransport(websocket, cast("Any", peer), Limits())
    transport.begin(cast("Any", socket))
    return transport, socket, peer


def sent(socket: Socket) -> list[tuple[int | None, bytes]]:
    messages: list[tuple[int | None, bytes]] = []
    rest = bytes(socket.written)
    while rest:
        opcode, payload, rest = unwrap(rest)
        assert opcode is not None
        messages.append((opcode, payload))
    return messages


@given(st.lists(st.tuples(st.booleans(), st.lists(st.text(max_size=8), min_size=1, max_size=4))), st.data())
def test_octets_arrive_as_they_were_sent_however_they_are_framed_and_cut(
    messages: list[tuple[bool, list[str]]], data: st.DataObject
) -> None:
    octets = bytearray()
    for is_text, fragments in messages:
        for number, fragment in enumerate(fragments):
            opcode = CONTINUATION if number else TEXT if is_text else BINARY
            octets += wrap(opcode, fragment.encode(), fin=number == len(fragments) - 1)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(octets)), max_size=8)))
    transport, _, peer = upgraded()

    for start, end in zip([0, *cuts], [*cuts, len(octets)], strict=True):
        transport.data_received(bytes(octets[start:end]))

    assert peer.received == "".join(text for _, texts in messages for text in texts).encode()
    assert peer.ends == 0


@given(st.binary(max_size=300))
def test_any_octets_are_taken_or_end_the_connection_once(octets: bytes) -> None:
    async def feed() -> tuple[Peer, Socket]:
        transport, socket, peer = upgraded()
        for start in range(0, len(octets), 7):
            transport.data_received(octets[start : start + 7])
        transport.eof_received()
        return peer, socket

    peer, _ = asyncio.run(feed())

    assert peer.ends == 1


@given(
    octets=st.binary(min_size=1, max_size=200) | st.text(min_size=1).map(str.encode), likes_text=st.booleans()
)
def test_what_is_written_arrives_as_text_only_where_it_is_text(octets: bytes, *, likes_text: bool) -> None:
    transport, socket, _ = upgraded()
    transport.data_received(wrap(TEXT if likes_text else BINARY, b"\n"))

    transport.write(octets)

    is_text = octets.decode(errors="ignore").encode() == octets
    assert sent(socket) == [(TEXT if likes_text and is_text else BINARY, octets)]


def test_who_pings_and_does_not_read_is_owed_the_last_pong_alone() -> None:
    transport, socket, _ = upgraded()
    transport.data_received(wrap(PING, b"first"))
    transport.pause_writing()

    for number in range(1000):
        transport.data_received(wrap(PING, str(number).encode()))
    before = sent(socket)
    transport.resume_writing()

    assert before == [(PONG, b"first")]
    assert sent(socket) == [(PONG, b"first"), (PONG, b"999")]


def test_connection_learns_when_its_peer_does_not_keep_up() -> None:
    transport, _, peer = upgraded()

    transport.pause_writing()
    stopped = peer.is_told_to_stop
    transport.resume_writing()

    assert (stopped, peer.is_told_to_stop) == (True, False)


def test_pause_stops_the_reading_of_the_socket() -> None:
    transport, socket, _ = upgraded()

    transport.pause_reading()
    transport.resume_reading()

    assert socket.calls == ["pause", "resume"]


def test_nothing_is_written_behind_a_close() -> None:
    transport, socket, _ = upgraded()

    transport.write_eof()
    transport.write(b"late")
    transport.write_eof()

    assert [opcode for opcode, _ in sent(socket)] == [CLOSE]


@pytest.mark.parametrize("is_reset", [False, True])
def test_peer_that_closes_is_parted_from_even_if_it_has_gone(*, is_reset: bool) -> None:
    async def close() -> tuple[Socket, Peer]:
        transport, socket, peer = upgraded()
        socket.is_reset = is_reset
        transport.data_received(wrap(CLOSE, b""))
        transport.connection_lost(None)
        return socket, peer

    socket, peer = asyncio.run(close())

    assert sent(socket) == [(CLOSE, b"")]
    assert (socket.is_ended, peer.ends, peer.losses) == (not is_reset, 1, [None])


def test_messages_of_one_read_are_handed_on_at_once() -> None:
    transport, _, peer = upgraded()
    pieces: list[bytes] = []
    peer.on_data = pieces.append

    transport.data_received(wrap(TEXT, b"a") + wrap(PING, b"") + wrap(TEXT, b"b") + wrap(TEXT, b"c")[:3])
    transport.data_received(wrap(TEXT, b"c")[3:])

    assert pieces == [b"ab", b"c"]


def test_very_many_frames_of_one_read_take_several_turns_and_arrive_in_order() -> None:
    pieces: list[bytes] = []

    async def run() -> list[int]:
        transport, socket, peer = upgraded()
        peer.on_data = pieces.append
        transport.data_received(b"".join(wrap(BINARY, b"%d," % number) for number in range(5000)))
        transport.data_received(wrap(BINARY, b"end"))
        waits = [peer.waits]
        while peer.waits > len(waits) - 1:
            waits.append(peer.waits)
            transport.resume_reading()
            await asyncio.sleep(0)
        assert socket.calls == ["pause"] * peer.waits + ["resume"]
        return waits

    waits = asyncio.run(run())
    assert waits[0] == 1
    assert len(waits) > 5
    assert b"".join(pieces) == b"".join(b"%d," % number for number in range(5000)) + b"end"


def test_what_was_read_already_counts_when_the_peer_has_gone() -> None:
    transport, _, peer = upgraded()

    transport.data_received(wrap(BINARY, b"x") * 5000)
    transport.eof_received()

    assert (bytes(peer.received), peer.ends) == (b"x" * 5000, 1)


def test_frame_that_is_not_whole_is_noted_until_it_is() -> None:
    transport, _, peer = upgraded()
    transport.write(b"CONNECTED")
    notes = []

    for octets in (wrap(BINARY, b"xy")[:-1], wrap(BINARY, b"xy")[-1:]):
        transport.data_received(octets)
        notes.append(peer.is_partial)

    assert notes == [True, False]
