"""What holds for every frame, every split and any bytes at all."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nebula.errors import RemoteProtocolError
from nebula.stomp.codec import FrameLimits, FrameParser, serialize
from nebula.stomp.dialects import OPENING, V1_0, V1_1, V1_2, Dialect
from nebula.stomp.frames import COMMANDS_WITH_BODY, UNESCAPED_COMMANDS, Frame
from tests.stomp import ALL_DIALECTS, COMMANDS, INVENTED, NEXT, cut, receive

LIMITS = FrameLimits(
    max_headers=6,
    max_header_line_bytes=40,
    max_body_bytes=60,
    max_opening_frame_bytes=120,
    max_head_bytes=100,
)

dialects = st.sampled_from(ALL_DIALECTS)
places = st.lists(st.integers(0, 400), max_size=12)

# Whole frames, parts of frames and faults. In a row they make streams that look like STOMP.
fragments = st.sampled_from(
    [
        b"SEND\n",
        b"SEND\r\n",
        b"ACK\n",
        b"SUBSCRIBE\nid:0\n",
        b"CONNECT\n",
        b"destination:/queue/a\n",
        b"destination: /queue/a\r\n",
        b"receipt:r1\n",
        b"receipt:\\c\\\\\r\n",
        b"receipt:r\\q\n",
        b"content-length:3\n",
        b"content-length:60\n",
        b"content-length:61\n",
        b"content-length:x\n",
        b"x:a\\cb\\rc\n",
        b"x:\xff\n",
        b"nocolon\n",
        b":noname\n",
        b"h:" + b"x" * 38 + b"\n",
        b"\n",
        b"\r\n",
        b"\r",
        b"\0",
        b"a\0b",
        b"body",
        b"x" * 30,
        b"SEND\ndestination:/queue/a\n\nhello\0",
        b"SEND\r\nreceipt:r1\r\ndestination:/queue/a\r\n\r\n\0\r\n",
        b"ACK\nid:1\n\n\0",
        NEXT,
    ]
)
streams = st.lists(fragments | st.binary(max_size=3), max_size=12).map(b"".join)


def within(places: list[int], data: bytes) -> list[bytes]:
    return cut(data, [place for place in places if place < len(data)])


@given(streams, places, st.sampled_from([*ALL_DIALECTS, OPENING]))
@settings(max_examples=600, deadline=None)
def test_any_split_gives_the_same_frames_and_a_fault_or_none(
    data: bytes, places: list[int], dialect: Dialect
) -> None:
    # What stands behind an opening frame is bounded by the chunk: there the split does matter.
    limits = dataclasses.replace(LIMITS, max_opening_frame_bytes=1000) if dialect is OPENING else LIMITS
    whole, failure = receive([data], dialect, limits)

    for pieces in (within(places, data), [data[i : i + 1] for i in range(len(data))]):
        found, other = receive(pieces, dialect, limits)
        # Which of two faults of one frame is told may hang on the split, never whether there is one.
        assert (found, other is None) == (whole, failure is None)


@given(streams | st.binary(), places, dialects)
@settings(max_examples=400, deadline=None)
def test_any_bytes_give_frames_or_a_failure_and_little_is_held(
    data: bytes, places: list[int], dialect: Dialect
) -> None:
    parser = FrameParser(COMMANDS, LIMITS)
    parser.begin(dialect)
    most = 7 * 42 + 60 + 2  # a head at its limits, a body at its limit

    for piece in within(places, data):
        for frame in parser.feed(piece):
            assert frame.command in COMMANDS
            assert len(frame.headers) + (frame.receipt is not None) <= LIMITS.max_headers
            assert len(frame.body) <= LIMITS.max_body_bytes
            assert not frame.body or frame.command in COMMANDS_WITH_BODY
            assert "receipt" not in frame.headers
        assert len(parser.held) <= most
        assert parser.failure is None or parser.held == b""


text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
octets_of_note = st.text(":\\ncrt\n\r /\x85\u2028", max_size=8)
values = text | octets_of_note
names = values.filter(lambda name: name not in ("", "receipt", "content-length"))
header_blocks = st.dictionaries(names, values, max_size=6)
commands = st.sampled_from(sorted(COMMANDS - UNESCAPED_COMMANDS))


@st.composite
def frames(draw: st.DrawFn) -> Frame:
    """Frames of any content. Versions that cannot express all of it are for `expressible`."""
    command = draw(commands)
    body = draw(st.binary(max_size=40)) if command in COMMANDS_WITH_BODY else b""
    return Frame(command, draw(header_blocks), body, draw(st.none() | values))


def expressible(value: str, dialect: Dialect) -> str:
    """What of a value the version can say (A.2, A.3); found from its row, not from its code."""
    for octet in "\n\r":
        if octet not in dialect.escapes.values():
            value = value.replace(octet, " ")
    return value.strip(" ") if dialect.trims_values else value


def expected(frame: Frame, dialect: Dialect) -> Frame:
    headers: dict[str, str] = {}
    for name, value in frame.headers.items():
        written = name if dialect.escapes else name.replace(":", " ")
        for octet in "\n\r":
            if octet not in dialect.escapes.values():
                written = written.replace(octet, " ")
        headers.setdefault(written, expressible(value, dialect))
    if frame.command in COMMANDS_WITH_BODY:
        headers["content-length"] = str(len(frame.body))
    receipt = None if frame.receipt is None else expressible(frame.receipt, dialect)
    return Frame(frame.command, headers, frame.body, receipt)


@given(st.lists(frames(), max_size=4), places, dialects)
@settings(max_examples=400, deadline=None)
def test_frames_survive_being_written_and_read(
    sent: list[Frame], places: list[int], dialect: Dialect
) -> None:
    wire = b"".join(serialize(frame, dialect) for frame in sent)

    found, failure = receive(within(places, wire), dialect)

    assert failure is None
    assert found == [expected(frame, dialect) for frame in sent]


@given(values.map(lambda value: "".join(octet for octet in value if octet not in "\n\r")))
def test_opening_frame_survives_being_written_and_read_without_escapes(value: str) -> None:
    frame = Frame("CONNECT", {"passcode": value})

    for dialect in (V1_0, V1_1, V1_2, INVENTED):
        assert receive([serialize(frame, dialect)], OPENING) == ([frame], None)


def stepwise(text: str, escapes: Mapping[str, str]) -> str:
    """The meaning of `text`, read one character after the other; KeyError: it has an unknown escape."""
    letters = iter(text)
    return "".join(escapes[next(letters, "")] if letter == "\\" else letter for letter in letters)


@given(st.text("\\ncrt0:xé\0", max_size=12), dialects)
def test_unescaping_at_once_is_unescaping_step_by_step(value: str, dialect: Dialect) -> None:
    for each in (dialect, dataclasses.replace(dialect, escapes={"\\": "\\", **dialect.escapes, "0": "\0"})):
        try:
            expected = stepwise(value, each.escapes) if each.escapes else value
        except KeyError as error:
            (letter,) = error.args
            what = rf"undefined escape \\{re.escape(letter)} " if letter else "a lone backslash"
            with pytest.raises(RemoteProtocolError, match=what):
                each.unescape(value)
        else:
            assert each.unescape(value) == expected


@given(values, dialects)
def test_unescaping_undoes_escaping_where_all_can_be_escaped(value: str, dialect: Dialect) -> None:
    everything = dataclasses.replace(dialect, escapes={**V1_2.escapes, "0": "\0"})

    assert everything.unescape(everything.escape(value)) == value
