"""The engine host's language: what is said on one side is heard on the other, or the talk ends."""

from __future__ import annotations

import dataclasses
import typing
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nebula.spark import lines

HELLO = lines.Hello(lines.VERSION, 7)
EXAMPLES: list[lines.Line] = [
    lines.Configure("reports", "a1", "/state/engine", "/state/results", "local[2]", "1g", {}, 10, 20, 1.5),
    lines.Submit("J1", 1, "delays", "app:delays", {"month": 1}),
    lines.Cancel("J1", 1),
    lines.Stop(),
    HELLO,
    lines.Ready("4.0.0", "Java 17", 8, 2.5),
    lines.Broken("no Java"),
    lines.Beat(1000, 5),
    lines.Started("J1", 1),
    lines.Progressed("J1", 1, 0.5, "aggregate", (1, 2, "aggregate"), (5, 10, 2)),
    lines.Progressed("J1", 1, None, "", None, None),
    lines.Logged("J1", 1, "two\nlines, \u2028 and é"),
    lines.Done("J1", 1, [{"carrier": "UA"}], None, None, None, None),
    lines.Done("J1", 1, None, "/results/J1.parquet", 3, 900, {"id": "bigint"}),
    lines.Failed("J1", 1, "data", "Division by zero.", "22012", "Traceback"),
    lines.Cancelled("J1", 1, slots_free=False),
    lines.SlotsFree("J1", 1),
    lines.Stuck("J1", 1),
    lines.Starved("J1", 1),
    lines.Bye("asked to stop"),
]


def spoken(*said: lines.Line) -> bytes:
    writer = lines.LineWriter()
    return b"".join(writer.encode(line) for line in said)


def heard(data: bytes) -> tuple[list[lines.Line], str]:
    reader = lines.LineReader()
    return reader.feed(data), str(reader.failure or "")


def test_every_kind_of_line_has_an_example_here() -> None:
    kinds = {*typing.get_args(lines.Command), *typing.get_args(lines.Event)}

    assert {type(line) for line in EXAMPLES} == kinds


@given(st.lists(st.integers(0, 4000), max_size=12))
def test_any_split_of_the_bytes_gives_the_same_lines(cuts: list[int]) -> None:
    data = spoken(*EXAMPLES)
    reader = lines.LineReader()
    edges = sorted({0, *(cut % len(data) for cut in cuts), len(data)})
    received = [line for start, end in pairwise(edges) for line in reader.feed(data[start:end])]

    assert received == EXAMPLES
    assert reader.failure is None


def test_lines_are_hashable_values_that_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        HELLO.pid = 9  # type: ignore[misc]  # that is what is tried here


def test_missing_line_is_noticed() -> None:
    first, _, third = spoken(HELLO, lines.Beat(1, 1), lines.Bye("")).splitlines(keepends=True)

    assert heard(first + third) == ([HELLO], "line 2 where line 1 was due")


def test_doubled_line_is_noticed_after_what_was_good() -> None:
    assert heard(spoken(HELLO) * 2) == ([HELLO], "line 0 where line 1 was due")


def test_other_version_is_refused_by_name() -> None:
    data = spoken(lines.Hello(lines.VERSION + 1, 7))

    assert heard(data) == ([], f"version {lines.VERSION + 1} is spoken there, {lines.VERSION} here")


@pytest.mark.parametrize(
    "data",
    [
        b"Traceback (most recent call last):\n",
        b"[]\n",
        b"{}\n",
        b'{"n":0,"line":"dance"}\n',
        b'{"n":0,"line":"stop","grace":1}\n',
        b'{"n":0,"line":"cancel","job":"J1"}\n',
        b"\xff\xfe\n",
        b"\n",
    ],
)
def test_what_is_no_line_ends_the_talk(data: bytes) -> None:
    received, failure = heard(data)

    assert received == []
    assert failure.startswith(f"not a line of version {lines.VERSION}")


def test_nothing_is_heard_after_a_fault() -> None:
    reader = lines.LineReader()
    reader.feed(b"?\n")

    assert reader.feed(spoken(HELLO)) == []


def test_endless_line_is_given_up() -> None:
    received, failure = heard(b"x" * (lines.MAX_LINE_BYTES + 1))

    assert received == []
    assert failure == f"a line of more than {lines.MAX_LINE_BYTES} bytes"


def test_value_that_is_no_json_uses_up_no_number() -> None:
    writer = lines.LineWriter()
    for value in (object(), float("nan")):
        with pytest.raises((TypeError, ValueError)):
            writer.encode(lines.Done("J1", 1, value, None, None, None, None))

    assert heard(writer.encode(HELLO)) == ([HELLO], "")


def test_line_that_nobody_would_read_is_not_said() -> None:
    writer = lines.LineWriter()
    long = lines.Done("J1", 1, "x" * lines.MAX_LINE_BYTES, None, None, None, None)
    for say in (writer.encode, lines.check):
        with pytest.raises(lines.LineTooLong, match="bytes as JSON, more than 16777216"):
            say(long)

    assert heard(writer.encode(HELLO)) == ([HELLO], "")


def test_longest_line_that_is_said_is_read() -> None:
    room = lines.MAX_LINE_BYTES - len(spoken(lines.Broken("")))
    said = lines.Broken("x" * room)

    assert heard(spoken(said)) == ([said], "")


def test_of_a_long_text_a_log_keeps_the_end() -> None:
    assert lines.Logged.of("J1", 1, "x" * 5000 + "!").text == "…" + "x" * 3999 + "!"
    assert lines.Logged.of("J1", 1, "short").text == "short"


@given(st.binary(max_size=200))
def test_arbitrary_bytes_give_lines_or_one_failure(data: bytes) -> None:
    received, failure = heard(data)

    assert not received
    assert bool(failure) == (b"\n" in data)
