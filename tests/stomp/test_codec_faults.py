"""Malformed bytes: each fault is named, and frames before it are kept (E.3 to E.19)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

from nebula.stomp.codec import FrameLimits, FrameParser
from nebula.stomp.dialects import V1_2, Dialect
from nebula.stomp.frames import CLIENT_COMMANDS, SERVER_COMMANDS, Frame
from tests.stomp import (
    ALL_DIALECTS,
    NEXT,
    NEXT_FRAME,
    allows_crlf,
    always,
    escapes,
    escapes_cr,
    ignores_stray_bodies,
    lacks_crlf,
    receive,
    send,
    splits,
)


class Malformed(NamedTuple):
    """Bytes with a fault, and the words that must name it."""

    name: str
    wire: bytes
    words: str
    receipt: str | None = None  # of the frame at fault, where it can be read before the fault
    before: tuple[Frame, ...] = ()
    where: Callable[[Dialect], bool] = always


HEAD = b"SEND\nreceipt:r7\ndestination:/queue/a\n"

MALFORMED = [
    Malformed(
        "E3 CR LF where only LF ends a line",
        b"SEND\r\ndestination:/queue/a\r\n\r\nhi\0\r\n",
        "unknown command 'SEND\\r'",
        where=lacks_crlf,
    ),
    Malformed("E5 a body is longer than counted", HEAD + b"content-length:2\n\nabc\0", "not NUL", "r7"),
    Malformed(
        "E6 a body that is not counted holds NUL",
        b"SEND\ndestination:/queue/a\n\na\0b\0",
        "NUL before the end of the headers",
        before=(send(b"a"),),
    ),
    Malformed(
        "E10 an escape is undefined", HEAD + b"x:a\\qb\n\n\0", "undefined escape \\q", "r7", where=escapes
    ),
    Malformed("E10 in a name", HEAD + b"\\q:a\n\n\0", "undefined escape \\q", "r7", where=escapes),
    Malformed(
        "E11 the escape of CR is undefined",
        HEAD + b"x:a\\rb\n\n\0",
        "undefined escape \\r",
        "r7",
        where=lambda dialect: escapes(dialect) and not escapes_cr(dialect),
    ),
    Malformed("E13 a lone backslash", HEAD + b"x:abc\\\n\n\0", "lone backslash", "r7", where=escapes),
    Malformed("E13 three backslashes", HEAD + b"x:\\\\\\\n\n\0", "lone backslash", "r7", where=escapes),
    Malformed("E16 a header has no colon", HEAD + b"nocolon\n\n\0", "without a colon: 'nocolon'", "r7"),
    Malformed("E16 a header has no name", HEAD + b":v\n\n\0", "without a name: ':v'", "r7"),
    Malformed("E16 receipt has no colon", b"SEND\nreceipt\n\n\0", "without a colon: 'receipt'"),
    Malformed(
        "E17 a command in small letters", b"send\ndestination:/queue/a\n\nx\0", "unknown command 'send'"
    ),
    Malformed("E17 a request of HTTP", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "unknown command 'GET / HTTP/1"),
    Malformed("E17 TLS where none is spoken", b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03", "a NUL before"),
    Malformed(
        "E17 a lone CR between frames",
        b"\rSEND\n\n\0",
        "unknown command '\\rSEND'",
        where=lacks_crlf,
    ),
    Malformed(
        "E18 a body where none may be",
        b"SUBSCRIBE\nid:0\nreceipt:r7\n\nbody\0",
        "SUBSCRIBE must not have a body",
        "r7",
        where=lambda dialect: not ignores_stray_bodies(dialect),
    ),
    *(
        Malformed(
            f"E19 content-length {text!r}", HEAD + b"content-length:%b\n\n\0" % text.encode(), words, "r7"
        )
        for text, words in [
            ("-1", "content-length '-1' is not a number"),
            ("+1", "content-length '+1' is not a number"),
            ("abc", "content-length 'abc' is not a number"),
            ("", "content-length '' is not a number"),
            ("1_0", "content-length '1_0' is not a number"),
            ("٣", "is not a number"),
            ("8388609", "a body exceeds 8388608 bytes"),
            ("9" * 5000, "a body exceeds 8388608 bytes"),
        ]
    ),
    Malformed("a header is not UTF-8", HEAD + b"x:\xff\n\n\0", "not UTF-8", "r7"),
    Malformed("a receipt is not UTF-8", b"SEND\nreceipt:\xff\n\n\0", "not UTF-8"),
    Malformed("NUL inside a header", b"SEND\nx:a\0b\n\n\0", "NUL before the end of the headers"),
    Malformed("NUL inside a receipt", b"SEND\nreceipt:a\0b\n\n\0", "NUL before the end of the headers"),
    Malformed("NUL after a command", b"SEND\0", "NUL before the end of the headers"),
    Malformed("a bad escape in a receipt", b"SEND\nreceipt:\\q\n\n\0", "undefined escape", where=escapes),
    Malformed("CR inside a header", b"SEND\nx:a\rb\n\n\0", "a CR inside a header", where=allows_crlf),
    Malformed("CR inside a receipt", b"SEND\nreceipt:a\r\r\n\n\0", "a CR inside a header", where=allows_crlf),
]


@pytest.mark.parametrize("case", MALFORMED, ids=lambda case: case.name)
def test_malformed_frame_fails_by_name_and_frames_before_it_are_returned(case: Malformed) -> None:
    dialects = [dialect for dialect in ALL_DIALECTS if case.where(dialect)]
    assert dialects
    for dialect in dialects:
        for pieces in splits(NEXT + case.wire):
            found, failure = receive([*pieces, NEXT], dialect)

            assert found == [NEXT_FRAME, *case.before], (dialect.version, pieces)
            assert failure is not None, (dialect.version, pieces)
            assert case.words in str(failure), (dialect.version, pieces)


@pytest.mark.parametrize("case", [case for case in MALFORMED if case.receipt], ids=lambda case: case.name)
def test_failure_bears_the_receipt_of_the_frame_at_fault(case: Malformed) -> None:
    _, failure = receive([NEXT + case.wire], next(filter(case.where, ALL_DIALECTS)))

    assert failure is not None
    assert failure.receipt == case.receipt


def test_failure_does_not_bear_the_receipt_of_the_frame_before() -> None:
    _, failure = receive([b"BEGIN\ntransaction:t\nreceipt:r1\n\n\0bogus\n\n\0"], V1_2)

    assert failure is not None
    assert failure.receipt is None


def test_receipt_of_a_refused_body_is_told_also_when_the_body_came_in_pieces() -> None:
    limits = FrameLimits(max_body_bytes=4)
    wire = b"SEND\nreceipt:r1\ndestination:/queue/a\n\n12345"

    for pieces in splits(wire):
        _, failure = receive(pieces, V1_2, limits)
        assert failure is not None
        assert failure.receipt == "r1"


def test_body_of_a_failed_frame_is_not_told() -> None:
    _, failure = receive([b"SEND\ncontent-length:2\n\nsecret\0"], V1_2)

    assert "secret" not in str(failure)


def test_command_of_the_other_side_is_unknown() -> None:
    for commands, wire in ((CLIENT_COMMANDS, b"MESSAGE\n\n\0"), (SERVER_COMMANDS, b"SEND\n\n\0")):
        parser = FrameParser(commands)

        assert parser.feed(wire) == []
        assert "unknown command" in str(parser.failure)
