"""Inputs to begin with, made of the transcripts of tests/conformance and of examples of ours."""

from __future__ import annotations

import io
import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import fastavro

from nebula.stomp.codec import FrameParser
from nebula.stomp.dialects import DIALECTS
from nebula.stomp.frames import SERVER_COMMANDS
from tests.broker.browser import BINARY, CLOSE, CONTINUATION, PING, TEXT, UPGRADE, wrap
from tests.conformance.cases import Case, read_cases
from tests.conformance.envelopes import SCHEMAS, envelope
from tests.conformance.player import play
from tests.conformance.worlds import InMemory
from tests.fuzz.targets.avro import DEFINITIONS

_CONFORMANCE = Path(__file__).parents[1] / "conformance"
# Longer ones only slow a fuzzer down, which finds by itself that things may be long.
_MOST_OCTETS = 1_500
_FRAME = b"SEND\ndestination:/queue/a\nreceipt:r\n\nhello\0"
_READING = 'Reading_v1 {"gmid": "GM1", "turnover": 5}'
_STATUS = 'Status_v1 {"state": "OK"}'


class _Recorder(InMemory):
    """A world that notes what is said in it."""

    def __init__(self, case: Case, profile: str) -> None:
        super().__init__(case, profile)
        self.turns: list[bytes] = []
        self.said: defaultdict[str, bytes] = defaultdict(bytes)
        self._names: dict[str, str] = {}

    def accept(self, name: str, who: str) -> str:
        self._names.setdefault(name, "abcd"[len(self._names) % 4])
        return super().accept(name, who)

    def send(self, name: str, data: bytes) -> None:
        self._turn(name, b">", data)
        self.said[name] += data
        super().send(name, data)

    def lose(self, name: str) -> None:
        self._turn(name, b"<")
        super().lose(name)

    def advance(self, seconds: float) -> None:
        self.turns.append(b"a~%c" % min(int(seconds * 4), 255))
        super().advance(seconds)

    def set_blocked(self, name: str, *, is_blocked: bool) -> None:
        self._turn(name, b"!")
        super().set_blocked(name, is_blocked=is_blocked)

    def heard(self) -> Iterator[bytes]:
        return (peer.octets for peer in self._peers.values())

    def _turn(self, name: str, action: bytes, octets: bytes = b"") -> None:
        self.turns.append(self._names[name].encode() + action + octets)


def make() -> dict[str, set[bytes]]:
    """The inputs for each target."""
    seeds: defaultdict[str, set[bytes]] = defaultdict(set)
    for case in read_cases(_CONFORMANCE):
        profile = case.profiles[0]
        world = _Recorder(case, profile)
        play(case.text, world)
        setup = (profile == "maxam") * 2 + (bool(case.limits) and "limit" in case.text) * 4
        seeds["server"].add(b"%c" % (setup + 1) + b"\xff".join([*world.turns, b"a$"]))
        for octets in world.said.values():
            seeds["parser"].add(b"\x02\x05" + octets)
        for octets in world.heard():
            seeds["client"].add(b"\x03\x05" + octets)
            seeds["parser"].add(b"\x06\x05" + _behind_the_first(octets))
    for name, maker in _MAKERS.items():
        seeds[name].update(maker())
    return {name: {each for each in inputs if len(each) <= _MOST_OCTETS} for name, inputs in seeds.items()}


def _behind_the_first(octets: bytes) -> bytes:
    """What was said in the version that was agreed on."""
    return octets.partition(b"\0")[2] if octets.startswith(b"CONNECTED") else octets


def _envelopes() -> Iterator[bytes]:
    for text in ("tombstone", _READING):
        yield envelope(text)
    # In two blocks, one of which says how long it is; with keys that are not ours.
    yield bytes([2, 2, 6, 65, 66, 67, 1, 8, 6, 4, 1, 2, 0])
    yield bytes([4, 0x90, 1, 0, 8, 2, 2, 0])


def _data() -> Iterator[bytes]:
    values: list[object] = [
        {"next": {"next": None}},
        {"name": "a", "below": [{"name": "é", "below": []}]},
        [None, None],
        {"a": None, "b": 5, "c": "x"},
        [{"a": -1, "b": True}] * 3,
        {"a": 1, "b": -(1 << 40), "c": b"\0\xff", "d": "€", "e": False, "f": 1.5, "g": -2.5},
        {"a": "B", "b": "S150", "c": b"abcd", "d": ("Suit", "C")},
        [{"k": ["a", "b"]}, {}],
        {},
        [{}, {}],
        {"a": 5, "b": 1000},
        {"a": b"\x01\x00"},
        {"a": "6ba7b810-9dad-11d1-80b4-00c04fd430c8", "b": None},
    ]
    for number, (definition, value) in enumerate(zip(DEFINITIONS, values, strict=True)):
        plain = json.loads(json.dumps(definition).replace('"logicalType"', '"was"'))
        buffer = io.BytesIO()
        fastavro.schemaless_writer(buffer, fastavro.parse_schema(plain), value)
        yield bytes([number]) + buffer.getvalue()


def _schemas() -> Iterator[bytes]:
    for definition in DEFINITIONS:
        text = json.dumps(definition, separators=(",", ":")).encode()
        if len(text) < 400:
            yield text + b"\0" + text + b"\0\2\0\2"
    first = (SCHEMAS / "Reading_v1.avsc").read_bytes().strip()
    yield first + b"\0" + first.replace(b'"long"', b'"double"') + b"\0\x02a\x04"


def _bodies() -> Iterator[bytes]:
    yield b'application/json\n{"verb":"add","parameters":{"a":1.5,"b":[null,true]},"description":"\xc3\xa9"}'
    yield b'\n{"verb":7,"params":false,"desc":[1]}'
    yield b"text/plain\nverb: add\nparams: 1\ndescription: d\n\n"
    yield b"text/plain; charset=latin-1\nverb: \xe9\n"
    yield b"\nboo"


def _globs() -> Iterator[bytes]:
    for text in ("X/*.b\nX/a.b", "**a*b/**\na/ab/x", "[!a-c]?[]x]*\nd/]", "/queue/**.[0-9]\n/queue/a/b.7"):
        yield text.encode()


def _requests() -> Iterator[bytes]:
    lines = [f"{name}: {value}" for name, value in UPGRADE.items()]
    more = ["Origin: https://shop.example", "Sec-WebSocket-Protocol: v12.stomp, v11.stomp"]
    for head in (["GET /stomp HTTP/1.1", *lines], ["GET /stomp?x HTTP/1.1", *lines, *more]):
        yield b"\7" + "\r\n".join([*head, "", ""]).encode()
    yield b"\7HEAD / HTTP/1.0\r\n\r\n"
    yield b"\7POST /stomp HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nab"


def _frames() -> Iterator[bytes]:
    yield b"\5" + wrap(TEXT, _FRAME) + wrap(PING, b"x") + wrap(CLOSE, b"\x03\xe8")
    pieces = wrap(BINARY, _FRAME[:9], fin=False) + wrap(PING, b"") + wrap(CONTINUATION, _FRAME[9:])
    yield b"\5" + pieces + wrap(TEXT, "é\0".encode()) + wrap(TEXT, b"\xff")
    yield b"\5" + wrap(BINARY, b"x" * 200) + wrap(TEXT, b"x" * 300)


def _parts() -> Iterator[bytes]:
    """Of each version and side, with the small limits too."""
    for choice in range(len(DIALECTS) + 1):
        yield bytes([choice, 3]) + _FRAME * 2 + b"ACK\nid:a\\cb\n\n\0"
        yield bytes([choice + 8, 3]) + b"\n" + _FRAME.replace(b"\n\n", b"\ncontent-length:5\n\n")
    assert FrameParser(SERVER_COMMANDS).failure is None
    yield b"\x0e\x03MESSAGE\ndestination:a\nmessage-id:1\n\nx\0"


_MAKERS: dict[str, Callable[[], Iterator[bytes]]] = {
    "parser": _parts,
    "envelope": _envelopes,
    "datum": _data,
    "schema": _schemas,
    "body": _bodies,
    "globs": _globs,
    "http": _requests,
    "websocket": _frames,
}
