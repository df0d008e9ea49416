"""Heads that are recognised by what they have in common with others are read as if they came alone."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nebula.broker.protocol.send_headers import NAMES as SEND_HEADERS
from nebula.stomp.codec import FrameLimits, FrameParser
from nebula.stomp.dialects import V1_0, V1_1, V1_2, Dialect
from nebula.stomp.frames import CLIENT_COMMANDS, SERVER_COMMANDS, Frame
from nebula.stomp.head_patterns import HeadPattern
from nebula.stomp.header_lines import HeaderNames
from tests.depth import DEPTH

NAMES = HeaderNames({"destination", "content-length", "priority"}, {"sender", "receipt"})

READ = {b"destination", b"content-length", b"priority", b"sender"}
# As many heads as it takes to get a pattern.
LESSON = range(100, 220)

# Names of the same length, each first one read or dropped.
ALIKE = [
    [b"sender", b"sendor", b"Sender"],
    [b"receipt", b"receip7", b"deceipt"],
    [b"priority", b"prioritx", b"xriority"],
    [b"destination", b"destinatiom", b"traceparent"],
    [b"content-length", b"content-lengts", b"correlation-id"],
]

# Some of them begin like those that are read.
NAME = st.sampled_from(
    [
        b"destination",
        b"priority",
        b"content-length",
        b"sender",
        b"receipt",
        *[b"a", b"b", b"ab", b"prio"] * 2,
        *[name for names in ALIKE for name in names[1:]],
    ]
)
VALUE = st.sampled_from([b"1", b"2", b"17", b"x", b"", b"yy", b"01", b" 1", b"1 "])
# Lengths of the body that is sent, which is empty.
LENGTH = st.sampled_from([b"0", b"00", b"000", b"0" * 10, b"0" * 20])
USUAL = st.sampled_from([b"0", b"0", b"0", b"1:", b"http://a:", b"1\\c\\\\2\\n", b"\\c:"])
ODD = st.sampled_from(
    [
        b":",
        b"1:2:3",
        b"1\\c2",
        b"\\\\n",
        b"\\",
        b"\\r:",
        b"a:1",
        b"1\nb:1",
        b"1\ndestination:2",
        b"1\nb",
        b"\\n",
        b"\\x",
        b"\xc3\xa9",
        b"\xff",
        b"\r",
        b"\0",
        b"3",
    ]
)


def value_of(draw: st.DrawFn, name: bytes) -> bytes:
    """One that is in order, as most are."""
    if not draw(st.integers(0, 15)):
        return draw(ODD)
    return draw(LENGTH if name == b"content-length" else VALUE)


@st.composite
def heads(draw: st.DrawFn) -> list[bytes]:
    """Heads of one sender: values differ, and now and then a line comes, goes, or has another place."""
    names = draw(st.lists(NAME, min_size=1, max_size=9))
    # Of some lines all values have colons or escapes.
    usual = [(name, b"0" if name in READ else draw(USUAL)) for name in names]
    constant = draw(st.sets(st.integers(0, len(names) - 1)))
    changing = draw(st.sets(st.integers(0, len(names) - 1), max_size=4))
    lengths = draw(st.integers(1, 3))  # in how many of them the values come
    made = [
        _head(
            [
                (name, value if name in READ or place in constant else b"%b%d" % (value, number))
                for place, (name, value) in enumerate(usual)
            ]
        )
        for number in (each * 10 ** (each % lengths) for each in LESSON)
    ]
    for _ in range(draw(st.integers(4, 10))):
        now = list(usual)
        for place in changing:
            now[place] = (names[place], value_of(draw, names[place]))
        if not draw(st.integers(0, 7)):
            name = draw(NAME | st.just(b"receipt"))
            now.insert(draw(st.integers(0, len(now))), (name, value_of(draw, name)))
        if not draw(st.integers(0, 3)):
            # What has no letter in a form is told from the rest, but not from each other.
            place = draw(st.integers(0, len(now) - 1))
            other = draw(st.sampled_from([b"\0", b"\r", b"\xff"]))
            now[place] = (now[place][0], now[place][1].replace(b"\\", other, 1))
        if not draw(st.integers(0, 3)):
            # A line is renamed, and is as long as before.
            place = draw(st.integers(0, len(now) - 1))
            alike = [names for names in ALIKE if len(names[0]) == len(now[place][0])]
            if alike:
                now[place] = (draw(st.sampled_from(alike[0])), now[place][1])
        if not draw(st.integers(0, 7)):
            del now[draw(st.integers(0, len(now) - 1))]
        made.append(_head(now))
    return made


def _head(lines: list[tuple[bytes, bytes]]) -> bytes:
    return b"SEND\n" + b"".join(b"%b:%b\n" % line for line in lines) + b"\n"


def parser(dialect: Dialect, names: HeaderNames | None = NAMES) -> FrameParser:
    made = FrameParser(CLIENT_COMMANDS, FrameLimits(max_headers=9), names)
    made.begin(dialect)
    return made


def outcome(reader: FrameParser, head: bytes) -> tuple[list[Frame], str]:
    # What a parser waits for shows too.
    frames, failure = reader.feed(head + b"\0"), reader.failure
    refused = None if failure is None else failure.receipt
    return frames, f"{failure} {refused} {bytes(reader.held)!r}"


@pytest.mark.deep
@settings(max_examples=300 * DEPTH, deadline=None)
@given(
    dialect=st.sampled_from([V1_0, V1_1, V1_2, V1_2]),
    names=st.sampled_from([NAMES, NAMES, None]),
    sent=heads(),
)
def test_heads_that_come_after_others_are_read_as_if_they_came_alone(
    dialect: Dialect, names: HeaderNames | None, sent: list[bytes]
) -> None:
    one = parser(dialect, names)
    for head in sent:
        found = outcome(one, head)
        assert found == outcome(parser(dialect, names), head)
        if one.failure is not None or one.held:
            one = parser(dialect, names)


@pytest.mark.deep
@settings(max_examples=200 * DEPTH, deadline=None)
@given(
    dialect=st.sampled_from([V1_1, V1_2, V1_2]),
    names=st.sampled_from([NAMES, NAMES, None]),
    sent=heads(),
    cuts=st.lists(st.integers(0, 5_000), max_size=4),
)
def test_heads_in_one_chunk_are_read_as_if_each_came_alone(
    dialect: Dialect, names: HeaderNames | None, sent: list[bytes], cuts: list[int]
) -> None:
    expected: list[Frame] = []
    fault = ""
    whole = b""
    for head in sent:
        alone = parser(dialect, names)
        frames = alone.feed(head + b"\0")
        if alone.held:
            break
        expected += frames
        whole += head + b"\0"
        if alone.failure is not None:
            fault = str(alone.failure)
            break

    one = parser(dialect, names)
    found: list[Frame] = []
    ends = sorted({0, len(whole), *(min(cut, len(whole)) for cut in cuts)})
    for begin, end in pairwise(ends):
        found += one.feed(whole[begin:end])

    assert found == expected
    assert str(one.failure or "") == fault


def send(*values: str, body: str = "") -> bytes:
    """Four headers that are not read, one that is between them, and a length."""
    own = "a:{}\ndestination:/queue/a\nb:{}\nc:{}\npriority:4\nd:{}\n".format(*values)
    return f"SEND\n{own}content-length:{len(body)}\n\n{body}\0".encode()


def learned() -> FrameParser:
    """A parser that has seen enough heads of this kind."""
    reader = parser(V1_2)
    for number in range(100):
        reader.feed(send(str(number), f"2{number}", f"3{number}", f"4{number}", body="x" * (number % 11)))
    return reader


@pytest.fixture
def matches(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each head was recognised that was compared with a pattern."""
    told: list[bool] = []
    match = HeadPattern.match

    def note(self: HeadPattern, data: bytes, position: int) -> Any:
        found = match(self, data, position)
        told.append(found >= 0)
        return found

    monkeypatch.setattr(HeadPattern, "match", note)
    return told


@pytest.mark.interpreted
def test_heads_with_the_same_names_are_recognised(matches: list[bool]) -> None:
    reader = learned()
    matches.clear()
    (frame,) = reader.feed(send("8", "9", "10", "11", body="xyz"))

    assert matches == [True]
    assert frame.unread == b"\na:8\nb:9\nc:10\nd:11"
    assert frame.headers == {"destination": "/queue/a", "priority": "4", "content-length": ""}
    assert frame.body == b"xyz"


@pytest.mark.interpreted
@pytest.mark.parametrize("dialect", [V1_1, V1_2])
@pytest.mark.parametrize("value", ["18:10:{}", "18\\c10\\c{}"])
def test_values_with_colons_are_recognised_and_passed_on_with_escapes(
    matches: list[bool], dialect: Dialect, value: str
) -> None:
    reader = parser(dialect)
    head = f"SEND\na:1\ntimestamp:{value}\nb:2\ndestination:/queue/a\nurl:http://{{}}\n\n\0"
    for number in range(64):
        reader.feed(head.format(number, number).encode())
    matches.clear()
    (frame,) = reader.feed(head.format("77", "host").encode())

    assert matches == [True]
    assert frame.unread == b"\na:1\ntimestamp:18\\c10\\c77\nb:2\nurl:http\\c//host"


@pytest.mark.interpreted
@pytest.mark.parametrize("value", ["1", "77", "777", "7:7", "a:b", "\\c7", ""])
def test_values_of_any_length_and_usual_form_are_recognised(matches: list[bool], value: str) -> None:
    reader = learned()
    matches.clear()

    for _ in range(40):
        (frame,) = reader.feed(send("100", value, "300", "400"))

    escaped = value.replace(":", "\\c")
    assert frame.unread == f"\na:100\nb:{escaped}\nc:300\nd:400".encode()
    assert matches == [True] * 40


@pytest.mark.interpreted
def test_values_of_four_lengths_are_found_without_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = parser(V1_2)
    heads = [
        send(str(number), "2", "3", "4", body="x" * 10**digits)
        for number in range(100, 200)
        for digits in range(4)
    ]
    reader.feed(b"".join(heads * 2))
    searched: list[bytes] = []
    search = HeadPattern._search

    def note(self: HeadPattern, data: bytes, position: int) -> Any:
        searched.append(data[position:])
        return search(self, data, position)

    monkeypatch.setattr(HeadPattern, "_search", note)
    frames = reader.feed(b"".join(heads))

    assert searched == []
    assert [len(frame.body) for frame in frames] == [1, 10, 100, 1000] * 100
    assert [frame.unread for frame in frames[::4]] == [
        b"\na:%d\nb:2\nc:3\nd:4" % number for number in range(100, 200)
    ]


@pytest.mark.interpreted
@pytest.mark.parametrize("prefix", ["", "order-"])
@pytest.mark.parametrize("digits", ["0123456789", "0123456789abcdef", "rstuvwxyz", "RSTxyz09"])
def test_values_of_any_letters_are_found_without_a_search(
    monkeypatch: pytest.MonkeyPatch, prefix: str, digits: str
) -> None:
    reader = parser(V1_2)
    chance = Random(1)

    def ids(count: int) -> list[str]:
        return [prefix + "".join(chance.choices(digits, k=12)) for _ in range(count)]

    # Some share their letters by chance, so that the first layouts are of no use.
    reader.feed(b"".join(send(each, "2", "3", "4") for each in ids(2000)))
    monkeypatch.setattr(HeadPattern, "_search", None)
    last = ids(100)
    frames = reader.feed(b"".join(send(each, "2", "3", "4") for each in last))

    assert [frame.unread for frame in frames] == [f"\na:{each}\nb:2\nc:3\nd:4".encode() for each in last]


@pytest.mark.interpreted
def test_line_that_begins_to_differ_is_learned(matches: list[bool]) -> None:
    reader = parser(V1_2)
    for number in range(200):
        reader.feed(send(str(number), f"{number // 100}", "3", "4"))
    matches.clear()

    (frame,) = reader.feed(send("200", "5", "3", "4"))

    assert matches == [True]
    assert frame.unread == b"\na:200\nb:5\nc:3\nd:4"


def message(number: int, text: str = "a\\cb") -> bytes:
    """What a client receives."""
    head = f"subscription:1\nmessage-id:{number}\ndestination:/queue/a\ntext:{text}\ncontent-length:2"
    return f"MESSAGE\n{head}\n\nxy\0".encode()


@pytest.mark.interpreted
def test_all_headers_of_a_message_are_read(matches: list[bool]) -> None:
    reader = FrameParser(SERVER_COMMANDS)
    reader.begin(V1_2)
    for number in range(100):
        reader.feed(message(number))
    matches.clear()

    frames = reader.feed(b"".join(map(message, (100, 101, 1000))))

    assert matches == [True] * 3
    assert [frame.headers["message-id"] for frame in frames] == ["100", "101", "1000"]
    assert frames[0].headers == {
        "subscription": "1",
        "message-id": "100",
        "destination": "/queue/a",
        "text": "a:b",
        "content-length": "2",
    }
    assert {frame.body for frame in frames} == {b"xy"}


def test_headers_of_messages_are_not_shared_where_they_differ() -> None:
    reader = FrameParser(SERVER_COMMANDS)
    reader.begin(V1_2)
    kept = [frame for number in range(300) for frame in reader.feed(message(number, f"{number}\\c"))]

    assert [frame.headers["message-id"] for frame in kept] == [str(number) for number in range(300)]
    assert [frame.headers["text"] for frame in kept] == [f"{number}:" for number in range(300)]


@pytest.mark.parametrize("step", [0, 1])
def test_headers_of_a_message_may_be_changed_by_its_receiver(step: int) -> None:
    reader = FrameParser(SERVER_COMMANDS)
    reader.begin(V1_2)
    for number in range(100, 200):
        (frame,) = reader.feed(message(number * step))
        assert frame.headers["text"] == "a:b"
        assert "own" not in frame.headers
        assert isinstance(frame.headers, dict)
        frame.headers.update(text="changed", own="1")


def test_repeated_header_of_a_message_does_not_count() -> None:
    reader = FrameParser(SERVER_COMMANDS)
    reader.begin(V1_2)
    head = "MESSAGE\na:{}\nreceipt:{}\na:x{}\nreceipt:y{}\n\n\0"
    kept = [frame for number in range(300) for frame in reader.feed(head.format(*[number] * 4).encode())]

    assert [(frame.headers, frame.receipt) for frame in kept] == [({"a": f"{n}"}, f"{n}") for n in range(300)]


@pytest.mark.interpreted
def test_settled_messages_are_recognised(matches: list[bool]) -> None:
    reader = parser(V1_2)
    acks = [f"ACK\nid:1 {number}\n\n\0".encode() for number in range(100, 200)]
    reader.feed(b"".join(acks[:50]))
    matches.clear()

    frames = reader.feed(b"".join(acks[50:]))

    assert matches == [True] * 50
    assert [frame.headers["id"] for frame in frames] == [f"1 {number}" for number in range(150, 200)]


@pytest.mark.interpreted
def test_few_patterns_are_kept() -> None:
    reader = parser(V1_2)
    for number in range(3_000):
        reader.feed(f"SEND\ndestination:/queue/{number % 100}\na:{number}\n\n\0".encode())

    assert len(reader._patterns) == 8


def receipted(number: object) -> bytes:
    """A head that asks for a receipt, between headers that are not read."""
    return f"SEND\na:{number}\ndestination:/queue/a\nreceipt:{number}\nb:2\ncontent-length:0\n\n\0".encode()


@pytest.mark.interpreted
def test_heads_with_receipts_are_recognised(matches: list[bool]) -> None:
    reader = parser(V1_2)
    for number in range(100):
        reader.feed(receipted(number))
    matches.clear()

    (frame,) = reader.feed(receipted("last"))

    assert matches == [True]
    assert (frame.receipt, frame.unread) == ("last", b"\na:last\nb:2")
    assert frame.headers == {"destination": "/queue/a", "content-length": ""}


@pytest.mark.interpreted
def test_pattern_is_tried_first_after_another_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = parser(V1_2)
    for number in range(100):
        reader.feed(receipted(number))
    read: list[bytes] = []
    read_new_head = FrameParser._read_new_head

    def note(self: FrameParser, head: bytes, whole: bytes) -> Any:
        read.append(head)
        return read_new_head(self, head, whole)

    monkeypatch.setattr(FrameParser, "_read_new_head", note)
    reader.feed(b"ACK\nid:1\n\n\0".join(receipted(number) for number in (1, 2, 3)))

    assert read == [b"ACK\nid:1"] * 2


@pytest.mark.parametrize(("written", "meant"), [("a\\cb", "a:b"), ("a:b", "a:b"), ("", ""), ("é", "é")])
def test_receipt_of_another_form_is_read_as_ever(written: str, meant: str) -> None:
    reader = parser(V1_2)
    for number in range(100):
        reader.feed(receipted(number))

    (frame,) = reader.feed(receipted(1).replace(b"receipt:1", f"receipt:{written}".encode()))

    assert frame.receipt == meant
    assert reader.feed(receipted(2))[0].receipt == "2"


@pytest.mark.interpreted
def test_fault_in_a_head_with_a_receipt_names_the_receipt(matches: list[bool]) -> None:
    reader = parser(V1_2)
    for number in range(100):
        reader.feed(receipted(number))
    matches.clear()

    reader.feed(receipted(101).replace(b"\n\n\0", b"\n\nx"))

    assert matches == [True]
    assert reader.failure is not None
    assert reader.failure.receipt == "101"


@pytest.mark.interpreted
def test_sender_with_new_names_in_each_head_gets_few_patterns(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []
    make = HeadPattern.__init__

    def note(self: HeadPattern, *args: Any) -> None:
        made.append(self)
        make(self, *args)

    monkeypatch.setattr(HeadPattern, "__init__", note)
    reader = parser(V1_2)
    for number in range(5_000):
        reader.feed(f"SEND\ndestination:/queue/a\nname-{number}:1\n\n\0".encode())

    assert len(made) == 25  # after 16 heads, 32 more, 48 more, ...


def test_line_in_a_value_is_a_line() -> None:
    (frame,) = learned().feed(send("1\npriority:9\nx:y", "2", "3", "4"))

    assert frame.headers["priority"] == "9"
    assert frame.unread == b"\na:1\nx:y\nb:2\nc:3\nd:4"


def test_length_that_does_not_count_may_differ() -> None:
    reader = parser(V1_2)
    one = "SEND\ncontent-length:2\na:{0}\ncontent-length:{1}\n\nxy\0"
    frames = [
        frame for number in range(200) for frame in reader.feed(one.format(number, number % 3).encode())
    ]

    assert [frame.body for frame in frames] == [b"xy"] * 200


def test_length_of_too_many_digits_is_refused() -> None:
    reader = learned()
    reader.feed(send("1", "2", "3", "4").replace(b"length:0", b"length:" + b"0" * 20))

    assert str(reader.failure).startswith("a body exceeds")


def test_what_comes_between_heads_of_a_kind_is_read_as_ever() -> None:
    reader = learned()
    usual = send("1", "2", "3", "4", body="xyz")
    chunk = [
        usual,
        usual.replace(b"\na:", b"\nreceipt:r\na:"),  # a receipt
        usual,
        b"\n\n" + usual.replace(b"\n", b"\r\n"),  # line ends, and other line ends
        b"ACK\nid:1\n\n\0",
        b"SEND\ndestination:/queue/a\n\n\0",  # known as a whole
        usual,
        b"SEND\ndestination:/queue/a\n\n\0",
        usual,
    ]

    frames = reader.feed(b"".join(chunk))

    assert reader.failure is None
    assert [(frame.command, frame.receipt, frame.body) for frame in frames] == [
        ("SEND", None, b"xyz"), ("SEND", "r", b"xyz"), ("SEND", None, b"xyz"), ("SEND", None, b"xyz"),
        ("ACK", None, b""), ("SEND", None, b""), ("SEND", None, b"xyz"), ("SEND", None, b""),
        ("SEND", None, b"xyz"),
    ]  # fmt: skip
    assert {frame.unread for frame in frames if frame.body} == {b"\na:1\nb:2\nc:3\nd:4"}


def test_head_that_is_like_others_and_too_long_is_refused() -> None:
    reader = learned()
    reader.feed(send("1", "2", "3", "4"))
    reader.feed(send("1", "2" * 1_000_000, "3", "4"))

    assert "exceed" in str(reader.failure)


@pytest.mark.interpreted
@pytest.mark.parametrize(
    "head", ["", "persistent:true\n", "receipt:{0}\n", "transaction:t\ncontent-length:0\n"]
)
def test_headers_that_the_broker_reads_do_not_stand_in_the_way(matches: list[bool], head: str) -> None:
    reader = parser(V1_2, SEND_HEADERS)
    frame = f"SEND\ndestination:/queue/a\ncorrelation-id:{{0}}\n{head}\n\0"
    for number in range(100):
        reader.feed(frame.format(number).encode())
    matches.clear()

    reader.feed(frame.format(1000).encode())

    assert matches == [True]


@pytest.mark.parametrize("name", sorted(SEND_HEADERS.read | SEND_HEADERS.dropped))
def test_line_that_is_renamed_is_read_where_its_new_name_is_read(name: str) -> None:
    # Each differs from the new name in one place.
    for place in range(len(name)):
        former = f"{name[:place]}#{name[place + 1 :]}"
        reader = parser(V1_2, SEND_HEADERS)
        frame = "SEND\ndestination:/queue/a\n{}:{:03}\nb:{:03}\n\n"
        for number in range(64):
            reader.feed(frame.format(former, number, number).encode() + b"\0")
        renamed = frame.format(name, 0, 0).encode()

        assert outcome(reader, renamed) == outcome(parser(V1_2, SEND_HEADERS), renamed)


@pytest.mark.interpreted
def test_line_that_is_passed_on_may_be_renamed(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = parser(V1_2)
    for number in range(100, 200):
        reader.feed(send(str(number), "2", "3", "4"))
    monkeypatch.setattr(HeadPattern, "_search", None)
    monkeypatch.setattr(FrameParser, "_read_new_head", None)
    (frame,) = reader.feed(send("100", "2", "3", "4").replace(b"\na:", b"\ne:"))

    assert frame.unread == b"\ne:100\nb:2\nc:3\nd:4"


@pytest.mark.parametrize("written", [b"\0c", b"\rc", b"\xffc", b"\\q", b"\\n", b"xc", b":c"])
def test_line_with_an_escape_that_did_not_differ_is_read_when_it_does(written: bytes) -> None:
    reader = parser(V1_2)
    frame = b"SEND\ndestination:/queue/a\nurl:http%b//host\nid:%03d\n\n"
    for number in range(100):
        reader.feed(frame % (b"\\c", number) + b"\0")
    other = frame % (written, 100)

    assert outcome(reader, other) == outcome(parser(V1_2), other)


def test_second_receipt_counts_where_the_first_is_missing() -> None:
    reader = parser(V1_2)
    for _ in range(3):
        (both,) = reader.feed(b"SEND\ndestination:/queue/a\nreceipt:1\nreceipt:2\n\n\0")
        (second,) = reader.feed(b"SEND\ndestination:/queue/a\nreceipt:2\n\n\0")

        assert (both.receipt, second.receipt) == ("1", "2")


@pytest.mark.interpreted
@pytest.mark.parametrize(
    "lines", ["sender:{0}\n", "a:{0}\na:{0}\n", "content-length:0\ncontent-length:{0}\n"]
)
def test_heads_with_dropped_or_repeated_lines_are_read_each_time(matches: list[bool], lines: str) -> None:
    reader = parser(V1_2)
    for number in range(100):
        reader.feed(f"SEND\ndestination:/queue/a\n{lines}\n\0".format(number).encode())

    assert matches == []
