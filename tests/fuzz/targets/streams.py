"""The codec, and the client's side of a connection: any octets, however they are cut."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from nebula.stomp.client_protocol import ClientProtocol
from nebula.stomp.client_states import State
from nebula.stomp.codec import FrameLimits, FrameParser
from nebula.stomp.dialects import DIALECTS, OPENING, Dialect
from nebula.stomp.frames import CLIENT_COMMANDS, COMMANDS_WITH_BODY, SERVER_COMMANDS, Frame
from tests.fuzz.targets.pieces import cut, sizes

_DIALECTS = (*DIALECTS.values(), OPENING)
_SMALL = FrameLimits(
    max_headers=6,
    max_header_line_bytes=40,
    max_body_bytes=60,
    max_opening_frame_bytes=120,
    max_head_bytes=90,
)
_VERSIONS = (("1.0",), ("1.1",), ("1.2",), ("1.0", "1.1", "1.2"))
# Unlike a server's parser a client's ends with the first ERROR, and what follows counts for nothing.
_ENDS = "ERROR"


class _Found(NamedTuple):
    frames: list[Frame]
    fault: str | None

    def is_like(self, other: _Found) -> bool:
        """The same frames, and a fault in both or in neither: which of two faults of a frame is reported may
        depend on the split."""
        return self.frames == other.frames and (self.fault is None) == (other.fault is None)


def parse(data: bytes) -> object:
    """The first octet chooses dialect, side and limits, the second how the rest is cut."""
    if len(data) < 2:
        return None
    choice, seed, octets = data[0], data[1], data[2:]
    dialect = _DIALECTS[choice % 4]
    commands = SERVER_COMMANDS if choice & 4 else CLIENT_COMMANDS
    limits = _SMALL if choice & 8 else FrameLimits()
    if dialect is OPENING:
        # What stands behind an opening frame is bounded by the chunk: there the split does matter.
        limits = replace(limits, max_opening_frame_bytes=100_000)
    whole, *others = (_parse(cut(octets, size), dialect, commands, limits) for size in sizes(octets, seed))
    for other in others:
        assert other.is_like(whole), "the frames hang on how their octets come"
    return repr(whole)


def _parse(pieces: list[bytes], dialect: Dialect, commands: frozenset[str], limits: FrameLimits) -> _Found:
    parser = FrameParser(commands, limits)
    if dialect is not OPENING:
        parser.begin(dialect)
    frames: list[Frame] = []
    for piece in pieces:
        frames += parser.feed(piece)
        assert parser.failure is None or not parser.held, "octets are held that nobody will read"
    for frame in frames:
        _check_frame(frame, commands, limits)
    return _Found(frames, _text(parser.failure))


def _text(fault: Exception | None) -> str | None:
    return None if fault is None else str(fault)


def _check_frame(frame: Frame, commands: frozenset[str], limits: FrameLimits) -> None:
    assert frame.command in commands
    assert not frame.body or frame.command in COMMANDS_WITH_BODY
    assert len(frame.body) <= max(limits.max_body_bytes, limits.max_opening_frame_bytes)
    assert "receipt" not in frame.headers
    assert "" not in frame.headers
    names = frame.all_headers()
    assert len(names) + (frame.receipt is not None) <= limits.max_headers
    for text in (*names, *names.values(), frame.receipt or ""):
        assert "\0" not in text


def hear(data: bytes) -> object:
    """What a client hears that has said CONNECT. The first octet chooses what it offered."""
    if len(data) < 2:
        return None
    versions, seed, octets = _VERSIONS[data[0] % 4], data[1], data[2:]
    whole, *others = (_hear(cut(octets, size), versions) for size in sizes(octets, seed))
    for other in others:
        assert other.is_like(whole), "what a client hears hangs on how its octets come"
    return repr(whole)


def _hear(pieces: list[bytes], versions: tuple[str, ...]) -> _Found:
    protocol = ClientProtocol(versions=versions)
    protocol.connect(host="h")
    heard: list[Frame] = []
    for piece in pieces:
        frames = protocol.receive(piece, 0.0)
        assert not frames or _ENDS not in {frame.command for frame in heard}, "heard after the end"
        heard += frames
    is_over = protocol.failure is not None or any(frame.command == _ENDS for frame in heard)
    assert (protocol.state is State.ENDED) == is_over
    for frame in heard:
        required = {"MESSAGE": {"destination", "message-id"}, "RECEIPT": {"receipt-id"}}
        assert required.get(frame.command, set()) <= frame.headers.keys()
    connected = [frame for frame in heard if frame.command == "CONNECTED"]
    assert len(connected) <= 1
    assert heard[:1] == connected or heard[0].command == _ENDS or not heard
    return _Found(heard, _text(protocol.failure))
