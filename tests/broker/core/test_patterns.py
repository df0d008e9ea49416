"""Which patterns a destination matches: the same whether it is cold or warm, old or new."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nebula.broker.core import patterns
from nebula.broker.core.patterns import PatternTable
from nebula.globs import compile_glob, is_glob

PATTERNS = ("X/a", "X/b", "X/*", "X/**", "X/?", "X/[ab]", "X/[!a]", "X/*/c", "**")
DESTINATIONS = ("X/a", "X/b", "X/ab", "X/a/c", "Y/a")


# Families that differ in one part, and globs that differ in no plain character.
PIECES = st.sampled_from(
    ["a", "b", "ab", "/", "1", "22", "abcdefghij", "*", "**", "?", "[ab]", "[!a]", "[]a]"]
)
GLOBS = st.lists(PIECES, min_size=1, max_size=6).map("".join)
NAMES = st.lists(st.sampled_from(["a", "b", "/", "1", "22", "abcdefghij"]), max_size=6).map("".join)


def naive(present: dict[str, object], name: str) -> list[object]:
    """What matches by trying everything: the literal one first, then in order of subscription."""
    literal = [present[name]] if name in present else []
    globs = [text for text in present if is_glob(text) and compile_glob(text)(name)]
    return literal + [present[text] for text in globs]


def watch(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What globs are tried on, from now on."""
    tried: list[tuple[str, str]] = []

    def watched(pattern: str) -> object:
        def matches(text: str) -> object:
            tried.append((pattern, text))
            return compile_glob(pattern)(text)

        return matches

    monkeypatch.setattr(patterns, "compile_glob", watched)
    return tried


def test_literal_comes_first_then_globs_each_once() -> None:
    table: PatternTable[int] = PatternTable()
    for number, pattern in enumerate(["X/*", "X/a", "X/**", "X/b"]):
        table.add(pattern, number)

    assert table.matching("X/a") == [1, 0, 2]


def test_malformed_glob_leaves_nothing_behind() -> None:
    table: PatternTable[int] = PatternTable()
    with pytest.raises(ValueError, match="]"):
        table.add("X/[a", 1)

    assert not table.things
    assert not table.globs


def test_new_glob_is_tried_on_a_warm_destination_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = watch(monkeypatch)
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
    monkeypatch.setattr(patterns, "MAX_KNOWN_DESTINATIONS", 2)
    table: PatternTable[int] = PatternTable()
    table.add("X/*", 1)

    assert [table.matching(f"X/{number % 5}") for number in range(20)] == [[1]] * 20
    assert len(table._warm) == 2


def test_only_so_many_matches_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "MAX_KNOWN_MATCHES", 25)
    table: PatternTable[int] = PatternTable()
    for number in range(10):
        table.add(f"X/{'?' * number}*", number)

    assert [table.matching(f"X/{number:010}") for number in range(20)] == [list(range(10))] * 20
    assert len(table._warm) == 2
    for number in range(10):
        table.remove(f"X/{'?' * number}*")
    table.add("X/*", 1)
    for number in range(20):
        assert table.matching(f"X/{number:010}") == [1]
    assert table._warm_matches == sum(len(each.globs) for each in table._warm.values()) == 20


def test_glob_that_has_gone_is_not_kept_compiled_for_names_that_matched_it() -> None:
    table: PatternTable[int] = PatternTable()
    table.add("X/gone.*", 1)
    compiled = next(iter(table._globs.values())).matches
    assert table.matching("X/gone.1") == [1]
    table.remove("X/gone.*")

    assert not [each for match in table._warm.values() for each in match.globs if each.matches is compiled]
    table.add("X/gone.1*", 2)
    assert table.matching("X/gone.1") == [2]


def test_names_that_are_absurdly_long_are_not_remembered() -> None:
    table: PatternTable[int] = PatternTable()
    table.add("/topic/*", 1)

    assert table.matching("/topic/" + "n" * 10_000) == [1]
    assert not table._warm


@pytest.mark.parametrize(
    "family",
    [
        "Y/device-{0:05}*",
        "X/EGM*device-{0:05}",
        "**.GM9{0:05}.**",
        "X/GM9{0:05}.*.Reading",
        "X/EGM.*.GM9{0:05}.*",
    ],
)
def test_globs_with_other_text_in_them_are_not_tried(monkeypatch: pytest.MonkeyPatch, family: str) -> None:
    tried = watch(monkeypatch)
    table: PatternTable[int] = PatternTable()
    for number in range(2000):
        table.add(family.format(number), number)
    table.add("X/EGM.*.GM000123.*", -1)

    assert table.matching("X/EGM.Q.GM000123.Reading") == [-1]
    assert len(tried) < 20


def test_foreign_subscriptions_that_come_and_go_cost_a_warm_destination_one_glob_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table: PatternTable[int] = PatternTable()
    tried = watch(monkeypatch)
    for number in range(2000):
        table.add(f"X/[{chr(500 + number)}]*", number)
    table.add("X/a*", -1)
    assert table.matching("X/a1") == [-1]
    tried.clear()
    for number in range(50):
        table.add(f"X/?{number}*", number)
        table.remove(f"X/?{number}*")
        table.add(f"Z/literal{number}", number)
        table.add(f"X/{number}?", number)
        assert table.matching("X/a1") == [-1]

    assert len(tried) == 50


def test_literal_subscription_concerns_its_own_destination_alone() -> None:
    table: PatternTable[int] = PatternTable()
    table.add("X/*", 0)
    before = table.matching("X/a")
    table.add("X/b", 1)
    assert table.matching("X/a") is before
    table.add("X/a", 2)
    assert table.matching("X/a") == [2, 0]
    table.remove("X/a")

    assert table.matching("X/a") == [0]


def test_glob_that_comes_again_with_the_same_thing_counts_once() -> None:
    table: PatternTable[int] = PatternTable()
    table.add("X/*", 0)
    assert table.matching("X/a") == [0]
    table.remove("X/*")
    table.add("X/*", 0)

    assert table.matching("X/a") == [0]


def test_table_is_empty_when_all_globs_have_gone() -> None:
    table: PatternTable[int] = PatternTable()
    for pattern in PATTERNS:
        table.add(pattern, 0)
    for pattern in PATTERNS:
        table.remove(pattern)

    assert not table._by_run
    assert not table.globs


@pytest.mark.parametrize("latest", [0, 3])
@given(
    globs=st.lists(GLOBS, unique=True, max_size=40),
    names=st.lists(NAMES, max_size=4),
    gone=st.sets(st.integers(0, 39)),
)
def test_index_finds_what_a_naive_matcher_does(
    latest: int, globs: list[str], names: list[str], gone: set[int]
) -> None:
    table: PatternTable[object] = PatternTable()
    table._latest = deque(maxlen=latest)
    present: dict[str, object] = {}
    for number, pattern in enumerate(globs):
        present[pattern] = object()
        table.add(pattern, present[pattern])
        if number % 10 == 9:
            assert [list(table.matching(name)) for name in names] == [naive(present, name) for name in names]
    for number in gone & set(range(len(globs))):
        del present[globs[number]]
        table.remove(globs[number])

    assert [list(table.matching(name)) for name in names] == [naive(present, name) for name in names]
    assert [sorted(map(id, table._filed(name))) for name in names if table.globs] == [
        sorted(map(id, _candidates(table, name))) for name in names if table.globs
    ]


def _candidates(table: PatternTable[object], name: str) -> list[object]:
    return [glob for glob in table._globs.values() if glob.run in name]


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
            assert list(table.matching(text)) == naive(present, text)
        elif command == "add" and text not in present:
            present[text] = object()
            table.add(text, present[text])
        elif command == "remove" and text in present:
            del present[text]
            table.remove(text)
    assert table.things == present
