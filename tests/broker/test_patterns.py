"""Which patterns a destination matches: the same whether it is cold or warm, old or new."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nebula.broker import patterns
from nebula.broker.globs import compile_glob
from nebula.broker.patterns import PatternTable

PATTERNS = ("X/a", "X/b", "X/*", "X/**", "X/?", "X/[ab]", "X/[!a]", "X/*/c", "**")
DESTINATIONS = ("X/a", "X/b", "X/ab", "X/a/c", "Y/a")


def test_literal_comes_first_then_globs_each_once() -> None:
    table: PatternTable[int] = PatternTable()
    for number, pattern in enumerate(["X/*", "X/a", "X/**", "X/b"]):
        table.add(pattern, number)

    assert table.matching("X/a")[0] == 1
    assert sorted(table.matching("X/a")) == [0, 1, 2]


def test_malformed_glob_leaves_nothing_behind() -> None:
    table: PatternTable[int] = PatternTable()
    with pytest.raises(ValueError, match="]"):
        table.add("X/[a", 1)

    assert not table.things
    assert not table.has_globs


def test_new_glob_is_tried_on_a_warm_destination_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def watched(pattern: str) -> object:
        def matches(text: str) -> object:
            tried.append((pattern, text))
            return compile_glob(pattern)(text)

        return matches

    monkeypatch.setattr(patterns, "compile_glob", watched)
    table: PatternTable[int] = PatternTable()
    for number in range(3):
        table.add(f"X/{number}*", number)
    table.matching("X/0")
    table.matching("X/0")
    assert len(tried) == 3
    tried.clear()
    table.add("X/?", 9)

    assert table.matching("X/0") == [0, 9]
    assert tried == [("X/?", "X/0")]


def test_only_so_many_destinations_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "_MAX_WARM", 2)
    table: PatternTable[int] = PatternTable()
    table.add("X/*", 1)

    assert [table.matching(f"X/{number % 5}") for number in range(20)] == [[1]] * 20
    assert len(table._warm) == 2


def test_names_that_are_absurdly_long_are_not_remembered() -> None:
    table: PatternTable[int] = PatternTable()
    table.add("/topic/*", 1)

    assert table.matching("/topic/" + "n" * 10_000) == [1]
    assert not table._warm


@given(
    st.lists(
        st.one_of(
            st.tuples(st.sampled_from(["add", "remove"]), st.sampled_from(PATTERNS)),
            st.tuples(st.just("ask"), st.sampled_from(DESTINATIONS)),
        )
    )
)
def test_answers_are_those_of_a_table_that_remembers_nothing(steps: list[tuple[str, str]]) -> None:
    table: PatternTable[object] = PatternTable()
    present: dict[str, object] = {}
    for command, text in steps:
        if command == "ask":
            expected = [thing for pattern, thing in present.items() if compile_glob(pattern)(text)]
            found = table.matching(text)
            assert len(found) == len(expected)
            assert set(map(id, found)) == set(map(id, expected))
        elif command == "add" and text not in present:
            present[text] = object()
            table.add(text, present[text])
        elif command == "remove" and text in present:
            del present[text]
            table.remove(text)
    assert table.things == present
