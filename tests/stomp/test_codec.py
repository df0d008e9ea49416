"""The codec by examples: the conformance cases that bytes alone can decide (E.1 to E.21, E.26 to E.28)."""

from __future__ import annotations

import pytest

from nebula.stomp.codec import FrameParser, serialize
from nebula.stomp.dialects import OPENING, V1_0, V1_1, V1_2
from nebula.stomp.frames import CLIENT_COMMANDS, Frame
from tests.stomp import (
    ALL_DIALECTS,
    INVENTED,
    NEXT,
    NEXT_FRAME,
    Example,
    allows_crlf,
    escapes,
    escapes_cr,
    frames,
    ignores_stray_bodies,
    keeps_spaces,
    lacks_escapes,
    receive,
    send,
    splits,
    trims,
)

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
def test_example_is_read_however_its_bytes_come(example: Example) -> None:
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


def test_cr_inside_a_header_of_the_opening_frame_is_data() -> None:
    found, failure = receive([b"CONNECT\r\npasscode:a\rb\r\n\r\n\0"], OPENING)

    assert (found, failure) == (
        [Frame("CONNECT", {"passcode": "a\rb"})],
        None,
    )  # the version is not known yet


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


def test_value_that_no_bytes_can_express_becomes_a_space() -> None:
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
