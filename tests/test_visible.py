"""Text of others as a terminal may have it."""

from __future__ import annotations

import json
import sys

import pytest

from nebula.visible import encodable_json, visible, visible_json

OBEYED = [
    *(chr(code) for code in range(0x20)),
    *(chr(code) for code in range(0x7F, 0xA0)),
    *"\u061c\u200b\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufeff",
    "\ud800",
    "\udfff",
    "\U000e0041",
]


@pytest.mark.parametrize("each", OBEYED)
def test_what_a_terminal_obeys_is_shown_by_its_code(each: str) -> None:
    shown = visible(f"a{each}b")

    assert shown.isprintable()
    assert shown.startswith("a\\")
    assert shown.encode().decode("unicode_escape") == f"a{each}b"


@pytest.mark.parametrize("each", OBEYED)
def test_json_with_what_a_terminal_obeys_is_the_same_value(each: str) -> None:
    value = {f"k{each}": [f"a{each}b", 1]}

    for written in (json.dumps(value, ensure_ascii=False), json.dumps(value, ensure_ascii=False, indent=1)):
        shown = visible_json(written)

        assert all(one.isprintable() or one == "\n" for one in shown)
        assert json.loads(shown) == value


def test_no_character_that_is_not_printable_is_dropped() -> None:
    every = "".join(map(chr, range(sys.maxunicode + 1)))

    shown = visible(every)

    assert shown.isprintable()
    assert sum(each.isprintable() for each in every) < len(every) < len(shown)


def test_text_of_people_stays_as_it_is() -> None:
    text = "Grüße, 日本語, עברית, 🙂 [bold]a\\b"

    assert visible(text) is text
    assert visible_json(text) is text


def test_lines_stay_lines_where_they_may() -> None:
    assert visible("a\n\tb\x1b", keep="\n\t") == "a\n\tb\\x1b"
    assert visible("a\nb") == "a\\nb"


def test_json_with_a_lone_surrogate_can_be_written() -> None:
    written = json.dumps(["\ud800", "ü\x1b"], ensure_ascii=False)

    assert json.loads(encodable_json(written).encode()) == ["\ud800", "ü\x1b"]
