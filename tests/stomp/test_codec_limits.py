"""Limits of the codec: each at the limit, one under, one over; and the work that bytes may cost."""

from __future__ import annotations

import dataclasses
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from typing import Any, SupportsIndex

import pytest

from nebula.broker.protocol.send_headers import NAMES
from nebula.stomp import codec
from nebula.stomp.codec import FrameLimits, FrameParser
from nebula.stomp.dialects import OPENING, V1_2, Dialect
from nebula.stomp.frames import CLIENT_COMMANDS
from tests.stomp import ALL_DIALECTS, COMMANDS, receive, splits

SMALL = FrameLimits(
    max_headers=3,
    max_header_line_bytes=20,
    max_body_bytes=15,
    max_opening_frame_bytes=60,
    max_head_bytes=50,
)


def headers(count: int, end: str = "\n") -> bytes:
    return f"ACK{end}{''.join(f'h{i}:v{end}' for i in range(count))}{end}\0".encode()


def headers_with_receipt(count: int) -> bytes:
    lines = ["receipt:r", *(f"h{i}:v" for i in range(1, count))]
    return "\n".join(["SEND", *lines, "", "\0"]).encode()


def line(size: int) -> bytes:
    return b"SEND\nid:%b\n\n\0" % (b"x" * (size - 3))


def line_with_cr(size: int) -> bytes:
    return b"ACK\r\nid:%b\r\n\r\n\0" % (b"x" * (size - 3))


def receipt_line(size: int) -> bytes:
    return b"ACK\nreceipt:%b\n\n\0" % (b"x" * (size - 8))


def head(size: int, *last: str, end: str = "\n") -> bytes:
    """SEND whose command and headers, the last of them these, have so many bytes without CRs and last LF."""
    lines = ["SEND"]
    left = size - len("\n".join(["SEND", *last]))
    while left:
        octets = left if left < 2000 else 1000
        lines.append("a:" + "x" * (octets - 3))
        left -= octets
    return end.join([*lines, *last, "", "\0"]).encode()


def head_with_cr(size: int) -> bytes:
    return head(size, end="\r\n")


def head_with_receipt(size: int) -> bytes:
    return head(size, "receipt:r", "b:1")


def head_of_an_exchange(size: int) -> bytes:
    return head(size, "neb-reply-id:1")


def counted_body(size: int) -> bytes:
    return b"SEND\ncontent-length:%d\n\n%b\0" % (size, b"x" * size)


def body_until_nul(size: int) -> bytes:
    return b"SEND\n\n%b\0" % (b"x" * size)


def opening_frame(size: int) -> bytes:
    """CONNECT of `size` bytes, without its NUL, in header lines of ten."""
    spare = size - len(b"CONNECT\n\n")
    lines = [b"a:" + b"x" * 7 + b"\n"] * (spare // 10 - 1)
    lines.append(b"b:" + b"x" * (spare - 10 * len(lines) - 3) + b"\n")
    return b"CONNECT\n" + b"".join(lines) + b"\n\0"


def opening_error(size: int) -> bytes:
    """ERROR, the opening frame that may have a body."""
    start = b"ERROR\nmessage:no\n\n"
    return start + b"x" * (size - len(start)) + b"\0"


def opening_error_counted(size: int) -> bytes:
    start = b"ERROR\ncontent-length:%d\n\n"
    length = size - len(start % size)
    return start % length + b"x" * length + b"\0"


# For each limit: what its failure says, and frames that are as large as told.
Maker = Callable[[int], bytes]
CASES: dict[str, tuple[str, tuple[Maker, ...]]] = {
    "max_headers": ("more than {} headers", (headers, headers_with_receipt, lambda n: headers(n, "\r\n"))),
    "max_header_line_bytes": ("a header line exceeds {} bytes", (line, line_with_cr, receipt_line)),
    "max_head_bytes": (
        "the headers of a frame exceed {} bytes",
        (head, head_with_cr, head_with_receipt, head_of_an_exchange),
    ),
    "max_body_bytes": ("a body exceeds {} bytes", (counted_body, body_until_nul)),
    "max_opening_frame_bytes": (
        "the opening frame exceeds {} bytes",
        (opening_frame, opening_error, opening_error_counted),
    ),
}
LIMITS = [field.name for field in dataclasses.fields(FrameLimits)]


def dialect_of(limit: str) -> Dialect:
    return OPENING if limit == "max_opening_frame_bytes" else V1_2


def in_pieces(data: bytes, size: int) -> list[bytes]:
    return [data[i : i + size] for i in range(0, len(data), size)]


@pytest.mark.parametrize("limit", LIMITS)
def test_every_limit_holds_at_one_under_and_one_over_its_default(limit: str) -> None:
    words, makers = CASES[limit]
    limits = FrameLimits()
    if limit == "max_opening_frame_bytes":  # else its many short lines are too many headers
        limits = dataclasses.replace(limits, max_headers=10_000, max_head_bytes=100_000)
    number = getattr(limits, limit)
    for maker in makers:
        for pieces in (lambda data: [data], lambda data: in_pieces(data, 4096)):
            for fits in (number - 1, number):
                found, failure = receive(pieces(maker(fits)), dialect_of(limit), limits)
                assert (len(found), failure) == (1, None)

            found, failure = receive(pieces(maker(number + 1)), dialect_of(limit), limits)
            assert found == []
            assert words.format(number) in str(failure)


@pytest.mark.parametrize("limit", LIMITS)
def test_every_limit_is_a_setting_and_holds_however_the_bytes_come(limit: str) -> None:
    words, makers = CASES[limit]
    number = getattr(SMALL, limit)
    limits = dataclasses.replace(FrameLimits(), **{limit: number})
    for maker in makers:
        for size in (number - 1, number, number + 1):
            for pieces in splits(maker(size)):
                found, failure = receive(pieces, dialect_of(limit), limits)
                if size <= number:
                    assert (len(found), failure) == (1, None)
                else:
                    assert found == []
                    assert words.format(number) in str(failure)


def test_known_head_with_a_receipt_has_no_more_headers_than_another() -> None:
    wire = b"SEND\na:1\nb:2\nc:3\n\n\0"
    over = b"SEND\na:1\nb:2\nc:3\nreceipt:r\n\n\0"

    for pieces in splits(wire + over):
        found, failure = receive(pieces, V1_2, SMALL)
        assert len(found) == 1
        assert "more than 3 headers" in str(failure)


def test_body_over_the_limit_is_refused_from_its_content_length_alone() -> None:
    found, failure = receive([b"SEND\nreceipt:r1\ncontent-length:8388609\n\n"], V1_2)

    assert found == []
    assert failure is not None
    assert (str(failure), failure.receipt) == ("a body exceeds 8388608 bytes", "r1")


def test_opening_frame_is_refused_from_its_content_length_alone() -> None:
    _, failure = receive([b"ERROR\ncontent-length:65536\n\n"], OPENING)

    assert "the opening frame exceeds 65536 bytes" in str(failure)


@pytest.mark.parametrize(
    "wire",
    [
        b"bogus\n",
        b"SEND\n" + b"h:v\n" * 140,
        b"SEND\nh:" + b"x" * 20_000,
        b"SEND\ncontent-length:9999999\n\nabc",
    ],
)
def test_nothing_of_a_refused_frame_is_held(wire: bytes) -> None:
    for pieces in ([wire], in_pieces(wire, 100)):
        parser = FrameParser(CLIENT_COMMANDS)
        parser.begin(V1_2)
        for piece in pieces:
            parser.feed(piece)
            assert len(parser.held) < 20_000

        assert parser.failure is not None
        assert parser.held == b""
        parser.feed(wire)
        assert parser.held == b""


ENDLESS = {
    "a command": (b"", b"SEND", 20),
    "headers": (b"SEND\n", b"h:v\n", 5 + 4 * 4),
    "a head": (b"SEND\n", b"h:v\n", 50 + 17 + 2),
    "a header line": (b"SEND\n", b"h:", 5 + 20 + 2),
    "a body": (b"SEND\n\n", b"x", 6 + 15 + 1),
    "line ends": (b"", b"\r\n", None),
    "an opening frame": (b"CONNECT\n", b"h:v\n", 60),
}


@pytest.mark.parametrize("what", ENDLESS)
def test_frame_that_never_ends_is_refused_at_its_limit_byte_by_byte(what: str) -> None:
    start, more, most = ENDLESS[what]
    limits = dataclasses.replace(SMALL, max_headers=100) if what in ("a head", "an opening frame") else SMALL
    parser = FrameParser(CLIENT_COMMANDS, limits)
    if "opening" not in what:
        parser.begin(V1_2)
    fed = 0
    for octet in start + more * 200:
        assert parser.feed(bytes([octet])) == []
        if parser.failure is not None:
            break
        fed += 1
        assert len(parser.held) <= (most or 2)

    assert (parser.failure is None) == (most is None)
    assert fed <= (most or 10_000)


def test_body_that_is_ignored_is_bounded_too() -> None:
    for dialect in ALL_DIALECTS:
        _, failure = receive([b"SUBSCRIBE\nid:0\n\n", b"x" * 16], dialect, SMALL)

        assert "a body exceeds 15 bytes" in str(failure)


def test_bytes_before_the_opening_frame_is_answered_are_bounded() -> None:
    parser = FrameParser(CLIENT_COMMANDS)
    parser.feed(b"CONNECT\n\n\0" + b"\n" * 100_000)  # one chunk of any size: its reader chose it
    assert parser.failure is None

    parser.feed(b"\n")

    assert "before the reply to the opening frame" in str(parser.failure)
    assert parser.held == b""


# The work. No clock: bytes that a search, a copy or a decoding goes over are counted.


class Work:
    """Counts bytes. Cheap operations on one byte or on none count as one."""

    octets = 0

    def did(self, octets: int) -> None:
        self.octets += max(1, octets)


WORK = Work()


def span(size: int, start: SupportsIndex | None, end: SupportsIndex | None) -> tuple[int, int]:
    begin, stop, _ = slice(start, end).indices(size)
    return begin, stop


class CountedBytes(bytes):
    """Bytes that count what is done to them; slices of them count too."""

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        if isinstance(found, int):
            return found
        WORK.did(len(found))
        return CountedBytes(found)

    def find(self, sub: Any, start: Any = None, end: Any = None, /) -> int:
        found = super().find(sub, start, end)
        begin, stop = span(len(self), start, end)
        WORK.did((found + 1 if found >= 0 else stop) - begin)
        return found

    def __contains__(self, key: Any) -> bool:
        found = super().find(key)
        WORK.did(found + 1 if found >= 0 else len(self))
        return found >= 0

    def replace(self, *args: Any) -> CountedBytes:
        WORK.did(len(self))
        return CountedBytes(super().replace(*args))

    def removesuffix(self, suffix: Any, /) -> CountedBytes:
        WORK.did(len(self))
        return CountedBytes(super().removesuffix(suffix))

    def split(self, *args: Any, **named: Any) -> list[bytes]:
        WORK.did(len(self))
        return super().split(*args, **named)

    def count(self, *args: Any) -> int:
        WORK.did(len(self))
        return super().count(*args)

    def decode(self, *args: Any, **named: Any) -> str:
        WORK.did(len(self))
        return super().decode(*args, **named)


class CountedArray(bytearray):
    """The same for what the parser holds."""

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        WORK.did(1 if isinstance(found, int) else len(found))
        return found

    def find(self, sub: Any, start: Any = None, end: Any = None, /) -> int:
        found = super().find(sub, start, end)
        begin, stop = span(len(self), start, end)
        WORK.did((found + 1 if found >= 0 else stop) - begin)
        return found

    def rfind(self, sub: Any, start: Any = None, end: Any = None, /) -> int:
        found = super().rfind(sub, start, end)
        begin, stop = span(len(self), start, end)
        WORK.did(stop - max(found, begin))
        return found

    def __contains__(self, key: Any) -> bool:
        found = super().find(key)
        WORK.did(found + 1 if found >= 0 else len(self))
        return found >= 0

    def count(self, *args: Any) -> int:
        WORK.did(len(self))
        return super().count(*args)

    def __bytes__(self) -> bytes:
        WORK.did(len(self))
        return CountedBytes(self[:])


# What a linear parser needs: three searches, a copy or two and a decoding, and all of them anew
# for each byte where bytes come alone. Going over anything twice costs hundreds.
FEW = 32


def work(pieces: Iterable[bytes], limits: FrameLimits | None = None) -> float:
    """How often a byte is gone over, on average."""
    parser = FrameParser(COMMANDS, limits)
    parser.begin(V1_2)
    WORK.octets = total = 0
    for piece in pieces:
        parser.feed(CountedBytes(piece))
        total += len(piece)
    assert parser.failure is None
    return WORK.octets / total


LF_FRAMES = b"SEND\ndestination:/queue/a\nreceipt:r\ncontent-length:9\n\n\r\nx\0\nx\r\n\0\0\n" * 2000
BIG_HEAD = b"SEND\n" + b"".join(b"h%d:%b\n" % (i, b"x" * 2000) for i in range(32)) + b"\n"
LONG_LINE = b"SEND\n" + b"h:%b\n" % (b"x" * 16_000)


def uncounted(body: bytes, size: int) -> Iterator[bytes]:
    yield b"SEND\ndestination:/queue/a\n\n"
    yield from in_pieces(body, size)
    yield b"\0"


SHAPES: dict[str, Callable[[], Iterable[bytes]]] = {
    "LF heads in one chunk": lambda: [LF_FRAMES],
    "CR LF heads in one chunk": lambda: [LF_FRAMES.replace(b"\n", b"\r\n").replace(b":9\r", b":12\r")],
    "heads of both kinds in one chunk": lambda: [b"ACK\nid:1\n\n\0ACK\r\nid:2\r\n\r\n\0" * 2000],
    "CR LF heads, then one of LF": lambda: [b"ACK\r\nid:2\r\n\r\n\0" * 4000 + b"ACK\nid:1\n\n\0"],
    "LF heads, CR in the last body": lambda: [b"ACK\nid:2\n\n\0" * 4000 + b"SEND\n\n\r\0"],
    "small frames octet by octet": lambda: in_pieces(LF_FRAMES[:5000], 1),
    "a big head octet by octet": lambda: in_pieces(BIG_HEAD + b"\0", 1),
    "a big head in pieces": lambda: in_pieces(BIG_HEAD + b"\0", 100),
    "a long line octet by octet": lambda: in_pieces(LONG_LINE + b"\n\0", 1),
    "most headers octet by octet": lambda: in_pieces(headers(128), 1),
    "most headers, then a long line": lambda: in_pieces(headers(127)[:-2] + LONG_LINE[5:] + b"\n\0", 1),
    "an uncounted body in pieces": lambda: uncounted(b"x" * 200_000, 7),
    "a counted body in pieces": lambda: in_pieces(
        b"SEND\ncontent-length:200000\n\n" + b"\n" * 200_000 + b"\0", 7
    ),
    "line ends in one chunk": lambda: [b"\n" * 100_000, b"\r\n" * 50_000],
    "line ends octet by octet": lambda: in_pieces(b"\n\r\n" * 3000, 1),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_bytes_are_gone_over_a_few_times_whatever_their_shape(
    shape: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(codec, "bytearray", CountedArray, raising=False)

    assert 0 < work(SHAPES[shape]()) < FEW


def test_uncounted_body_near_its_limit_behind_a_big_head_costs_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(codec, "bytearray", CountedArray, raising=False)
    # The head alone is larger than a body may be: its bytes must not count as the body's.
    pieces = [BIG_HEAD, *in_pieces(b"x" * 5000, 1), b"\0"]

    assert work(pieces, FrameLimits(max_body_bytes=5000)) < FEW


def test_long_lines_that_are_passed_on_are_not_remembered() -> None:
    parser = FrameParser(CLIENT_COMMANDS, names=NAMES)
    parser.begin(V1_2)
    tracemalloc.start()
    for number in range(32):
        assert len(parser.feed(f"SEND\ndestination:/q{number}\na:{'x' * 16_000}\n\n\0".encode())) == 1
    held_bytes = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()

    assert held_bytes < 100_000


def test_heads_of_many_tiny_headers_are_not_all_remembered() -> None:
    parser = FrameParser(CLIENT_COMMANDS)
    parser.begin(V1_2)
    tracemalloc.start()
    for number in range(32):
        lines = [f"{chr(256 + line)}:{chr(512 + number)}x" for line in range(60)]
        frame = "\n".join(["SEND", f"destination:/q{number}", *lines, "", "\0"]).encode()
        assert len(frame) < 512
        assert len(parser.feed(frame)) == 1
    held_bytes = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()

    assert held_bytes < 100_000
