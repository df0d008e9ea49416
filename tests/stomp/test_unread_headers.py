"""Headers of a SEND that are passed on unread: what a parser that is told some names does with all others."""

from __future__ import annotations

import pytest

from nebula.errors import RemoteProtocolError
from nebula.stomp import header_lines
from nebula.stomp.codec import FrameLimits, FrameParser
from nebula.stomp.dialects import V1_0, V1_1, V1_2, Dialect
from nebula.stomp.frames import CLIENT_COMMANDS, Frame
from nebula.stomp.header_lines import HeaderNames

NAMES = HeaderNames({"destination", "content-length", "priority"}, {"sender", "receipt"})
DIALECTS = [V1_0, V1_1, V1_2]


def parser(dialect: Dialect = V1_2, limits: FrameLimits | None = None) -> FrameParser:
    made = FrameParser(CLIENT_COMMANDS, limits, NAMES)
    made.begin(dialect)
    return made


def read(*lines: str, dialect: Dialect = V1_2) -> Frame:
    """The SEND with these header lines."""
    made = parser(dialect)
    frames = made.feed("\n".join(["SEND", *lines, "", ""]).encode() + b"\0")
    if made.failure is not None:
        raise made.failure
    (frame,) = frames
    return frame


def test_headers_that_are_named_are_read_and_others_stay_lines() -> None:
    frame = read("a:1", "destination:/queue/a", "b:2", "priority:3", "c:3")

    assert frame.headers == {"destination": "/queue/a", "priority": "3"}
    assert frame.unread == b"\na:1\nb:2\nc:3"


def test_frames_that_differ_in_unread_headers_share_those_that_are_read() -> None:
    one = "SEND\nid:{0}\ndestination:/queue/a\ncontent-length:{1}\ntime:{0}\n\n{2}\0"
    frames = parser().feed("".join(one.format(size * 7, size, "x" * size) for size in range(3)).encode())

    assert frames[0].headers is frames[1].headers is frames[2].headers
    assert [frame.unread for frame in frames] == [b"\nid:0\ntime:0", b"\nid:7\ntime:7", b"\nid:14\ntime:14"]
    assert [frame.body for frame in frames] == [b"", b"x", b"xx"]


def test_long_heads_share_the_headers_that_are_read() -> None:
    one = "SEND\ndestination:/queue/a\nlong:{}\n\n\0"
    frames = parser().feed("".join(one.format(letter * 1000) for letter in "ab").encode())

    assert frames[0].headers is frames[1].headers


def test_many_bytes_that_are_read_are_not_kept_for_later() -> None:
    """Colons, which have to be escaped, make the unread lines longer than they came."""
    send = f"SEND\ndestination:/queue/{'a' * 600}\nown:{':' * 600}\n\n\0"

    first, second = parser().feed((send + send).encode())

    assert first.headers == second.headers
    assert first.headers is not second.headers


def test_headers_that_are_dropped_are_in_neither_part() -> None:
    frame = read("sender:mallory", "destination:/queue/a", "sender:eve", "receipt:1", "receipt:2")

    assert (dict(frame.headers), frame.unread, frame.receipt) == ({"destination": "/queue/a"}, b"", "1")


def test_name_that_only_begins_like_one_that_is_read_is_not_read() -> None:
    frame = read("destination:/queue/a", "priority-of:1", "prio:2", "xpriority:3", "priority :4")

    assert dict(frame.headers) == {"destination": "/queue/a"}
    assert frame.unread == b"\npriority-of:1\nprio:2\nxpriority:3\npriority :4"


def test_first_of_repeated_headers_counts() -> None:
    frame = read("destination:/queue/a", "destination:/queue/b", "a:1", "a:2")

    assert frame.all_headers() == {"destination": "/queue/a", "a": "1"}


def test_first_of_two_lengths_counts() -> None:
    frames = parser().feed(b"SEND\ndestination:/queue/a\ncontent-length:2\na:1\ncontent-length:x\n\nhi\0")

    assert [frame.body for frame in frames] == [b"hi"]


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda each: each.version)
@pytest.mark.parametrize(
    "line", ["time:12:30", "time:12:30:", "a: padded ", "ä:ö", "a:", "a:\N{FACE WITH MEDICAL MASK}"]
)
def test_unread_header_says_what_it_would_say_if_it_were_read(line: str, dialect: Dialect) -> None:
    plain = FrameParser(CLIENT_COMMANDS)
    plain.begin(dialect)
    (whole,) = plain.feed(f"SEND\ndestination:/queue/a\n{line}\n\n\0".encode())

    frame = read("destination:/queue/a", line, dialect=dialect)

    assert frame.all_headers() == dict(whole.headers)
    assert header_lines.usual_lines(frame.unread) == 1 or b"\\" in frame.unread or not line.isascii()


@pytest.mark.parametrize(
    ("said", "line", "heard", "expected"),
    [
        (V1_2, r"a:1\c2", V1_2, r"a:1\c2"),
        (V1_2, r"a:1\c2", V1_0, "a:1:2"),
        (V1_2, r"a:1\r2", V1_1, "a:1 2"),
        (V1_2, r"a\cb:1", V1_0, "a b:1"),
        (V1_1, r"a:1\\2", V1_2, r"a:1\\2"),
        (V1_1, "a:1\r2", V1_2, r"a:1\r2"),
        (V1_0, r"a:1\2:3", V1_2, r"a:1\\2\c3"),
        (V1_0, r"a:1\2:3", V1_0, r"a:1\2:3"),
        (V1_2, "a:1:2", V1_1, r"a:1\c2"),
    ],
)
def test_unread_header_is_written_in_the_version_of_its_receiver(
    said: Dialect, line: str, heard: Dialect, expected: str
) -> None:
    frame = read("destination:/queue/a", line, dialect=said)

    assert header_lines.in_dialect(frame.unread, heard) == f"\n{expected}".encode()


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("a", "without a colon"),
        (":1", "without a name"),
        ("a\0:1", "a NUL before the end of the headers"),
        ("a:1:\0", "a NUL before the end of the headers"),
        (r"a:\t", "undefined escape"),
        (r"a\x:1", "undefined escape"),
        ("a:1\\", "lone backslash"),
        ("a:1\r2", "a CR inside a header"),
    ],
)
def test_fault_in_an_unread_header_is_found(line: str, fault: str) -> None:
    with pytest.raises(RemoteProtocolError, match=fault):
        read("b:1", line, "destination:/queue/a")


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        (b"sender:a\0b", "a NUL before the end of the headers"),
        (b"sender:\\t", "undefined escape"),
        (b"sender:\xff", "not UTF-8"),
    ],
)
@pytest.mark.parametrize("is_split", [False, True])
def test_fault_in_a_header_that_is_dropped_is_found(line: bytes, fault: str, *, is_split: bool) -> None:
    made = parser()
    data = b"SEND\ndestination:/queue/a\n" + line + b"\n\n\0"
    for chunk in [data[at : at + 1] for at in range(len(data))] if is_split else [data]:
        made.feed(chunk)

    assert fault in str(made.failure)


def test_unread_header_that_is_not_utf_8_is_a_fault() -> None:
    made = parser()
    made.feed(b"SEND\ndestination:/queue/a\na:\xff\n\n\0")

    assert "not UTF-8" in str(made.failure)


@pytest.mark.parametrize("read_count", [0, 2])
def test_headers_of_all_kinds_count_against_the_limit(read_count: int) -> None:
    made = parser(limits=FrameLimits(max_headers=8))
    more = ["priority:1"] * read_count + [f"h{number}:x" for number in range(4 - read_count)]
    head = "\n".join(["SEND", "destination:/queue/a", *more])

    assert len(made.feed(f"{head}\nsender:s\ncontent-length:0\n\n\0".encode())) == 1
    made.feed(f"{head}\nsender:s\nreceipt:r\ncontent-length:0\n\n\0".encode())
    assert made.failure is None
    made.feed(f"{head}\nsender:s\na:1\nreceipt:r\ncontent-length:0\n\n\0".encode())
    assert "more than 8 headers" in str(made.failure)


def test_values_are_found_by_name_in_unread_lines() -> None:
    lines = header_lines.write([("ab", "1"), ("b", "x:y"), ("b", "2")])

    assert (header_lines.find(lines, b"\nb:"), header_lines.find(lines, b"\nc:")) == ("x:y", None)
    assert header_lines.read(lines) == (("ab", "1"), ("b", "x:y"), ("b", "2"))


def test_receipt_stands_apart_and_the_rest_of_the_head_is_shared() -> None:
    parser = FrameParser(CLIENT_COMMANDS, None, NAMES)
    parser.begin(V1_2)

    frames = parser.feed(b"".join(b"SEND\ndestination:/queue/a\nreceipt:%d\n\nx\0" % at for at in range(3)))

    assert [frame.receipt for frame in frames] == ["0", "1", "2"]
    assert frames[1].headers is frames[2].headers
    assert dict(frames[2].headers) == {"destination": "/queue/a"}


def test_head_that_was_seen_behind_another_receipt_has_its_own() -> None:
    reader = parser()
    reader.feed(b"SEND\ndestination:/queue/a\nreceipt:1\nreceipt:2\n\n\0")
    (frame,) = reader.feed(b"SEND\ndestination:/queue/a\nreceipt:2\n\n\0")

    assert frame.receipt == "2"
