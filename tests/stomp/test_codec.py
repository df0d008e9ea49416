"""The codec by examples: the cases of PROTOCOL E that bytes alone can tell (E 1 to 21, 26 to 28)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

from nebula.stomp.codec import FrameLimits, FrameParser, serialize
from nebula.stomp.dialects import OPENING, V1_0, V1_1, V1_2, Dialect
from nebula.stomp.frames import CLIENT_COMMANDS, SERVER_COMMANDS, Frame
from tests.stomp import (
    ALL_DIALECTS,
    INVENTED,
    NEXT,
    NEXT_FRAME,
    Example,
    always,
    frames,
    receive,
    splits,
)


def send(body: bytes = b"", receipt: str | None = None, /, **headers: str) -> Frame:
    return Frame("SEND", {"destination": "/queue/a", **headers}, body, receipt)


def escapes(dialect: Dialect) -> bool:
    return bool(dialect.escapes)


def escapes_cr(dialect: Dialect) -> bool:
    return "r" in dialect.escapes


def allows_crlf(dialect: Dialect) -> bool:
    return dialect.allows_crlf


def lacks_crlf(dialect: Dialect) -> bool:
    return not dialect.allows_crlf


def lacks_escapes(dialect: Dialect) -> bool:
    return not dialect.escapes


def trims(dialect: Dialect) -> bool:
    return dialect.trims_values


def keeps_spaces(dialect: Dialect) -> bool:
    return not dialect.trims_values


def ignores_stray_bodies(dialect: Dialect) -> bool:
    return dialect.ignores_stray_bodies


EXAMPLES = [
    Example("E1 a body ends at NUL", b"SEND\ndestination:/queue/a\n\nhello\0", (send(b"hello"),)),
    Example(
        "E2 lines end with CR LF",
        b"SEND\r\ndestination:/queue/a\r\n\r\nhi\0\r\n",
        (send(b"hi"),),
        allows_crlf,
    ),
    Example(
        "E2 line ends are mixed",
        b"SEND\ndestination:/queue/a\r\nx:1\n\r\nhi\n\n\r\n\0\r\nSEND\r\ndestination:/queue/a\n\n\0",
        (send(b"hi\n\n\r\n", x="1"), send()),
        allows_crlf,
    ),
    Example(
        "E4 a counted body holds NUL",
        b"SEND\ndestination:/queue/a\ncontent-length:3\n\na\0b\0",
        (Frame("SEND", {"destination": "/queue/a", "content-length": "3"}, b"a\0b"),),
        is_canonical=True,
    ),
    Example(
        "E4 a counted body holds what looks like heads",
        b"SEND\ncontent-length:14\n\nSEND\r\n\r\n\n\nx\0\n\n\0",
        (Frame("SEND", {"content-length": "14"}, b"SEND\r\n\r\n\n\nx\0\n\n"),),
        is_canonical=True,
    ),
    Example(
        "E7 line ends between frames are skipped",
        b"\n\r\n\n\nSEND\ndestination:/queue/a\n\nx\0\n\n\r\n",
        (send(b"x"),),
    ),
    Example(
        "E8 the first of repeated headers counts",
        b"SEND\ndestination:/queue/a\nfoo:World\nfoo:Hello\n\n\0",
        (send(foo="World"),),
    ),
    Example(
        "E9 escapes are read in one pass",
        b"SEND\ndestination:/queue/a\nk\\c1:a\\cb\\\\c\\nd\\re\n\n\0",
        (Frame("SEND", {"destination": "/queue/a", "k:1": "a:b\\c\nd\re"}),),
        escapes_cr,
    ),
    Example(
        "E9 a backslash before another one is itself",
        b"ACK\nid:\\\\\\\\c\\c\\\\n\\\\\n\n\0",
        (Frame("ACK", {"id": "\\\\c:\\n\\"}),),
        escapes,
        is_canonical=True,
    ),
    Example(
        "E12 without escapes a backslash is data",
        b"SEND\ndestination:/queue/a\nx:a\\cb\n\n\0",
        (send(x="a\\cb"),),
        lacks_escapes,
    ),
    Example(
        "E14 a space is data",
        b"SEND\ndestination: /queue/a \n\nx\0",
        (Frame("SEND", {"destination": " /queue/a "}, b"x"),),
        keeps_spaces,
    ),
    Example("E14 spaces are trimmed", b"SEND\ndestination:  /queue/a \n\nx\0", (send(b"x"),), trims),
    Example("E15 a value is empty", b"SEND\ndestination:/queue/a\nx:\n\ny\0", (send(b"y", x=""),)),
    Example(
        "E18 a stray body is ignored",
        b"SUBSCRIBE\nid:0\ndestination:/queue/a\n\nbody\0",
        (Frame("SUBSCRIBE", {"id": "0", "destination": "/queue/a"}),),
        ignores_stray_bodies,
    ),
    Example(
        "E20 content headers stand on any frame",
        b"ACK\nid:s m\ncontent-length:0\ncontent-type:text/plain; charset=UTF-8\n\n\0",
        (Frame("ACK", {"id": "s m", "content-length": "0", "content-type": "text/plain; charset=UTF-8"}),),
    ),
    Example(
        "E21 a colon is escaped",
        b"MESSAGE\ndestination:X/EGM.X.123.Game.7\\c2.GameDetectedConfig\ncontent-length:0\n\n\0",
        (
            Frame(
                "MESSAGE",
                {"destination": "X/EGM.X.123.Game.7:2.GameDetectedConfig", "content-length": "0"},
            ),
        ),
        escapes,
        is_canonical=True,
    ),
    Example("a raw colon in a value is kept", b"ACK\nid:a:b:\n\n\0", (Frame("ACK", {"id": "a:b:"}),)),
    Example("a frame has no headers", b"DISCONNECT\n\n\0", (Frame("DISCONNECT", {}),), is_canonical=True),
    Example(
        "headers are UTF-8",
        "MESSAGE\nköpfe:Grüße 🌌\ncontent-length:2\n\n".encode() + b"\xff\xfe\0",
        (Frame("MESSAGE", {"köpfe": "Grüße 🌌", "content-length": "2"}, b"\xff\xfe"),),
        is_canonical=True,
    ),
    Example(
        "a receipt stands apart, first",
        b"SEND\nreceipt:r1\ndestination:/queue/a\n\n\0",
        (send(b"", "r1"),),
    ),
    Example(
        "a receipt stands apart, last",
        b"UNSUBSCRIBE\nid:0\nreceipt:r1\n\n\0",
        (Frame("UNSUBSCRIBE", {"id": "0"}, b"", "r1"),),
        is_canonical=True,
    ),
    Example(
        "a receipt is the only header",
        b"DISCONNECT\nreceipt:\n\n\0",
        (Frame("DISCONNECT", {}, b"", ""),),
        is_canonical=True,
    ),
    Example(
        "a receipt stands between a body's headers",
        b"SEND\ndestination:/queue/a\nreceipt:r1\ncontent-length:1\n\n\n\0",
        (Frame("SEND", {"destination": "/queue/a", "content-length": "1"}, b"\n", "r1"),),
        is_canonical=True,
    ),
    Example(
        "the first of repeated receipts counts",
        b"SEND\ndestination:/queue/a\nreceipt:r1\nx:1\nreceipt:r2\n\n\0" * 2,
        (send(b"", "r1", x="1"),) * 2,
    ),
    Example(
        "a receipt is unescaped",
        b"SEND\ndestination:/queue/a\nreceipt:a\\cb\n\n\0",
        (send(b"", "a:b"),),
        escapes,
    ),
    Example(
        "a receipt ends with CR LF",
        b"SEND\r\ndestination:/queue/a\r\nreceipt:r1\r\n\r\n\0\nSEND\r\nreceipt:r2\r\ndestination:/queue/a\r\n\r\n\0",
        (send(b"", "r1"), send(b"", "r2")),
        allows_crlf,
    ),
    Example(
        "a receipt is trimmed",
        b"SEND\ndestination:/queue/a\nreceipt: r1 \n\n\0",
        (send(b"", "r1"),),
        trims,
    ),
    Example(
        "names that begin or end like receipt are others",
        b"SEND\ndestination:/queue/a\nxreceipt:1\nreceipts:2\nReceipt:3\n\n\0",
        (send(xreceipt="1", receipts="2", Receipt="3"),),
    ),
    Example(
        "frames share a head and differ in body and receipt",
        b"SEND\ndestination:/queue/a\nreceipt:1\n\none\0SEND\ndestination:/queue/a\n\ntwo\0"
        b"SEND\ndestination:/queue/a\nreceipt:3\n\n\0",
        (send(b"one", "1"), send(b"two"), send(b"", "3")),
    ),
]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_example_is_read_however_its_octets_come(example: Example) -> None:
    assert example.dialects()
    frames(example.wire, *example.frames, dialects=example.dialects())


@pytest.mark.parametrize(
    "example", [example for example in EXAMPLES if example.is_canonical], ids=lambda example: example.name
)
def test_example_is_written_as_it_is_read(example: Example) -> None:
    for dialect in example.dialects():
        assert b"".join(serialize(frame, dialect) for frame in example.frames) == example.wire


def test_every_version_has_examples_of_its_own() -> None:
    for dialect in ALL_DIALECTS:
        others = [example for example in EXAMPLES if dialect not in example.dialects()]

        assert 0 < len(others) < len(EXAMPLES) // 2


class Malformed(NamedTuple):
    """Octets with a fault, and the words that must name it."""

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
        "NUL octet before the end of the headers",
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
    Malformed("E17 TLS where none is spoken", b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03", "NUL octet"),
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
            ("8388609", "a body exceeds 8388608 octets"),
            ("9" * 5000, "a body exceeds 8388608 octets"),
        ]
    ),
    Malformed("a header is not UTF-8", HEAD + b"x:\xff\n\n\0", "not UTF-8", "r7"),
    Malformed("a receipt is not UTF-8", b"SEND\nreceipt:\xff\n\n\0", "not UTF-8"),
    Malformed("NUL inside a header", b"SEND\nx:a\0b\n\n\0", "NUL octet before the end of the headers"),
    Malformed("NUL inside a receipt", b"SEND\nreceipt:a\0b\n\n\0", "NUL octet before the end of the headers"),
    Malformed("NUL after a command", b"SEND\0", "NUL octet before the end of the headers"),
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


# The opening frame


@pytest.mark.parametrize("command", ["CONNECT", "STOMP"])  # E26
def test_opening_frame_is_not_unescaped_and_splits_at_the_first_colon(command: str) -> None:
    wire = f"{command}\naccept-version:1.2\nhost:a:b\\cc\n\n\0".encode()  # E27
    expected = Frame(command, {"accept-version": "1.2", "host": "a:b\\cc"})

    for data in (wire, wire.replace(b"\n", b"\r\n"), b"\n\r\n" + wire + b"\r\n\n"):
        for pieces in splits(data):
            assert receive(pieces, OPENING) == ([expected], None)


def test_values_of_the_opening_frame_are_not_trimmed() -> None:
    found, _ = receive([b"CONNECT\nlogin: guest\n\n\0"], OPENING)

    assert found == [Frame("CONNECT", {"login": " guest"})]  # D.45: its reader may, once it knows the version


@pytest.mark.parametrize("behind", [b"ACK\nid:1\n\n\0", b"\nSEND\ndestination:/queue/a\n\nhello\0\n" * 3])
def test_frames_behind_the_opening_frame_wait_for_the_version(behind: bytes) -> None:
    opening = b"CONNECT\nhost:x\n\n\0"
    expected, _ = receive([behind], V1_1)

    for pieces in splits(opening + behind):
        parser = FrameParser(CLIENT_COMMANDS)
        first = [frame for piece in pieces for frame in parser.feed(piece)]
        parser.begin(V1_1)
        rest = parser.feed(b"")

        assert first == [Frame("CONNECT", {"host": "x"})]
        assert rest == expected
        assert parser.feed(NEXT) == [NEXT_FRAME]
        assert parser.failure is None


def test_frames_behind_the_opening_frame_are_read_by_the_rules_of_the_version() -> None:
    for dialect, ack_id in ((V1_0, "a\\cb"), (V1_1, "a:b"), (V1_2, "a:b")):
        parser = FrameParser(CLIENT_COMMANDS)
        parser.feed(b"CONNECT\n\n\0ACK\nid:a\\cb\n\n\0")
        parser.begin(dialect)

        assert parser.feed(b"") == [Frame("ACK", {"id": ack_id})]


def test_head_read_before_the_version_is_not_taken_for_known_after_it() -> None:
    parser = FrameParser(CLIENT_COMMANDS)
    wire = b"SEND\ndestination:a\\cb\n\n\0"
    before = parser.feed(wire)  # E28: parsed here, refused by the table of what is legal when
    parser.begin(V1_2)

    assert before[0].headers["destination"] == "a\\cb"
    assert parser.feed(wire)[0].headers["destination"] == "a:b"


@pytest.mark.parametrize(
    ("wire", "words"),
    [
        (b"CONNECT\nhost\n\n\0", "without a colon"),
        (b"CONNECT\n\nbody\0", "CONNECT must not have a body"),
        (b"CONNECT\nhost:\xff\n\n\0", "not UTF-8"),
        (b"HELO\n\n\0", "unknown command 'HELO'"),
    ],
)
def test_fault_in_the_opening_frame_is_named_and_nothing_is_read_after_it(wire: bytes, words: str) -> None:
    for pieces in splits(wire):
        parser = FrameParser(CLIENT_COMMANDS)
        found = [frame for piece in pieces for frame in parser.feed(piece)]

        assert found == []
        assert words in str(parser.failure)
        parser.begin(V1_2)
        assert parser.feed(NEXT) == []


# The serializer


def test_content_length_is_ours_on_frames_with_a_body_and_absent_on_others() -> None:
    lying = {"destination": "/queue/a", "content-length": "99"}

    assert serialize(Frame("SEND", lying, b"abc"), V1_2).endswith(b"\ncontent-length:3\n\nabc\0")
    assert serialize(Frame("SUBSCRIBE", lying), V1_2) == b"SUBSCRIBE\ndestination:/queue/a\n\n\0"


@pytest.mark.parametrize("command", ["CONNECT", "STOMP", "CONNECTED"])
def test_opening_frames_are_written_without_escapes(command: str) -> None:
    for dialect in ALL_DIALECTS:
        wire = serialize(Frame(command, {"host": "a:b\\c"}), dialect)

        assert wire == f"{command}\nhost:a:b\\c\n\n\0".encode()


def test_value_that_no_octets_can_express_becomes_a_space() -> None:
    frame = Frame("ACK", {"id": "a\nb\rc\0d"})

    assert serialize(frame, V1_0) == b"ACK\nid:a b c d\n\n\0"
    assert serialize(frame, V1_1) == b"ACK\nid:a\\nb c d\n\n\0"
    assert serialize(frame, V1_2) == b"ACK\nid:a\\nb\\rc d\n\n\0"
    assert serialize(frame, INVENTED) == b"ACK\nid:a\\nb c d\n\n\0"


def test_colon_in_a_name_cannot_forge_another_header_where_nothing_is_escaped() -> None:
    frame = Frame("MESSAGE", {"sender:root": "eve"})

    assert serialize(frame, V1_0).startswith(b"MESSAGE\nsender root:eve\n")
    assert serialize(frame, V1_2).startswith(b"MESSAGE\nsender\\croot:eve\n")


def test_lone_surrogate_does_not_stop_the_serializer() -> None:
    assert serialize(Frame("ACK", {"id": "a\ud800b"}), V1_2) == b"ACK\nid:a?b\n\n\0"
