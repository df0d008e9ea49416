"""Globs: what they match, against a naive matcher too, and what a hostile one is told."""

from __future__ import annotations

import re
from functools import cache

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nebula.globs import (
    GLOB_CHARACTERS,
    MAX_GLOB_CHARACTERS,
    MAX_GLOB_STARS,
    compile_glob,
    escape_glob,
    is_glob,
    plain_runs,
)

READING = "X/EGM.Q.GM000123.EGMMeterReading"

# A small alphabet, so that patterns and names meet. `-` makes ranges with the slash in them.
_NAMES = st.text(alphabet="ab/.0", max_size=12)
_PIECES = st.sampled_from(
    ["a", "b", "/", ".", "0", "*", "**", "?", "[ab]", "[!a]", "[.-0]", "[]a]", "[!]a]", "[^b]", "[a-]"]
)
_PATTERNS = st.lists(_PIECES, max_size=9).map("".join)


def matches(pattern: str, name: str) -> bool:
    return bool(compile_glob(pattern)(name))


def naive(pattern: str, name: str) -> bool:
    """The same by trying everything, with each class and star read as a person would."""
    tokens = re.findall(r"\*\*+|\*|\?|\[!?.[^\]]*\]|.", pattern, re.DOTALL)

    def fits(token: str, character: str) -> bool:
        if token == "?":
            return character != "/"
        if len(token) == 1:
            return token == character
        inside = token[1:-1].removeprefix("!")
        if inside == ".-0":
            inside = "./0"
        return character != "/" and (character in inside) != token.startswith("[!")

    @cache
    def rest(i: int, j: int) -> bool:
        if i == len(tokens):
            return j == len(name)
        if tokens[i].startswith("*"):
            may_take = j < len(name) and (len(tokens[i]) > 1 or name[j] != "/")
            return rest(i + 1, j) or (may_take and rest(i, j + 1))
        return j < len(name) and fits(tokens[i], name[j]) and rest(i + 1, j + 1)

    return rest(0, 0)


@given(_PATTERNS, _NAMES)
@example("**a*b", "a/ab")
@example("**a*b/**", "a/ab/x")
@example("*a/b*a", "xa/ba/ba")
@example("**a/*b**b", "a/a/bb")
@example("a**b", "ab\nb")
def test_glob_matches_what_a_naive_matcher_does(pattern: str, name: str) -> None:
    assert matches(pattern, name) == naive(pattern, name)


@given(st.lists(st.sampled_from(["a", "b", "/", "*", "**"]), max_size=8).map("".join), st.data())
def test_name_that_was_made_from_a_glob_matches_it(pattern: str, data: st.DataObject) -> None:
    def fill(star: re.Match[str]) -> str:
        return data.draw(st.text(alphabet="ab/" if len(star[0]) > 1 else "ab", max_size=4))

    assert matches(pattern, re.sub(r"\*+", fill, pattern))


@given(_PATTERNS, _NAMES)
@example("*a[]a]b", "xaab")
def test_name_that_matches_has_all_plain_runs_in_it(pattern: str, name: str) -> None:
    assert not matches(pattern, name) or all(run in name for run in plain_runs(pattern))


@pytest.mark.parametrize(
    ("pattern", "runs"),
    [
        ("X/EGM.*.GM?1", ["X/EGM.", ".GM", "1"]),
        ("**", []),
        ("a[]*b]c[!]x]d", ["a", "c", "d"]),
        ("[ab]?*", []),
    ],
)
def test_plain_runs_of_a_pattern(pattern: str, runs: list[str]) -> None:
    assert plain_runs(pattern) == runs


@given(st.text(), st.text())
def test_escaped_text_matches_itself_alone(text: str, other: str) -> None:
    text = text[: MAX_GLOB_CHARACTERS // 3]

    assert matches(escape_glob(text), text)
    assert matches(escape_glob(text), other) == (text == other)
    assert matches("*" + escape_glob(text), "x" + text)


@pytest.mark.parametrize(
    ("pattern", "name", "expected"),
    [
        ("X/EGM.*", READING, True),
        ("X/EGM.*.*.EGMMeterReading", READING, True),
        ("X/EGM.*.*.EGMStatus", READING, False),
        ("X/EGM.[QG].*", READING, True),
        ("X/EGM.[!Q].*", READING, False),
        ("X/EGM.?.GM??????.EGMMeterReading", READING, True),
        ("*", READING, False),
        ("**", READING, True),
        ("X/**Reading", READING, True),
        ("/queue/*", "/queue/a/b", False),
        ("/queue/**", "/queue/a/b", True),
        ("/queue/a*", "/queue/a", True),
        ("/queue/orders", "/queue/Orders", False),
        ("a[+-9]b", "a/b", False),
        ("a[!x]b", "a/b", False),
        ("[^a]", "^", True),
        ("[a-]", "-", True),
        ("[[&&~~||a-]", "[", True),
        ("a*", "a\n", True),
        ("a", "a\n", False),
        ("a?", "a\n\n", False),
    ],
)
def test_glob_matches_whole_names(pattern: str, name: str, expected: bool) -> None:
    assert matches(pattern, name) is expected


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("X/[ab", 'has a "[" without its "]": write "[[]" for the character itself'),
        ("X/[]", 'has a "[" without its "]": write "[[]" for the character itself'),
        ("X/ab]", 'has a "]" without its "[": write "[]]" for the character itself'),
        ("X/[z-a]", 'has the range "z-a", which runs backwards: write "a-z"'),
        ("X[a/]", 'has "/" in [a/], and a class never matches it: take it out'),
        (
            "*" + "a" * MAX_GLOB_CHARACTERS,
            f"has {MAX_GLOB_CHARACTERS + 1} characters: a glob has at most {MAX_GLOB_CHARACTERS}",
        ),
        ("*a" * (MAX_GLOB_STARS + 1), f"has {MAX_GLOB_STARS + 1} stars: a glob has at most {MAX_GLOB_STARS}"),
    ],
)
def test_bad_glob_is_told_what_is_wrong(pattern: str, said: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(said)}$"):
        compile_glob(pattern)


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("*a" * MAX_GLOB_STARS + "b", "a" * 8192),
        ("**a" * MAX_GLOB_STARS + "b", "a" * 8192),
        ("**a" * MAX_GLOB_STARS + "b", "a/" * 4096),
        ("**" + "*/" * (MAX_GLOB_STARS - 1) + "b", "a/" * 4096),
        ("**" + "a" * 240 + "*" + "a" * 240 + "b", "a" * 8192),
        ("**" + "[!b]" * 100 + "b", "a" * 8192),
        ("*" * MAX_GLOB_CHARACTERS, "/" * 8192 + "b"),
    ],
)
def test_worst_globs_come_to_an_end(pattern: str, name: str) -> None:
    # Going back over every split would outlast this test's deadline by far.
    assert matches(pattern, name) is (set(pattern) == {"*"})


def test_plain_name_has_no_special_character() -> None:
    assert not is_glob("/queue/orders.eu-1 {a}!^")
    assert all(is_glob(f"/queue/a{character}") for character in GLOB_CHARACTERS)


def test_long_plain_name_is_no_glob_and_so_not_bounded_as_one() -> None:
    name = "/queue/" + "a" * (2 * MAX_GLOB_CHARACTERS)

    assert matches(name, name)
