"""Suggestions for misspelt words."""

from __future__ import annotations

import pytest

from nebula.nearest import did_you_mean, nearest


@pytest.mark.parametrize("word", ["qoute", "quoet", "Quote", "quotes", "qute"])
def test_misspelt_word_has_its_neighbour(word: str) -> None:
    assert nearest(word, ["stock", "quote", "describe"]) == "quote"


def test_word_like_none_has_no_suggestion() -> None:
    assert did_you_mean("mix", ["quote"]) == ""
    assert did_you_mean("qoute", []) == ""
    assert did_you_mean("qoute", ["quote"]) == "; did you mean 'quote'?"


def test_long_word_of_a_stranger_is_not_compared() -> None:
    assert nearest("quote" * 100, ["quote" * 100]) is None
