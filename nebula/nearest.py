"""Suggestions for misspelt words: "did you mean …?"."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import SequenceMatcher
from heapq import nlargest
from itertools import islice
from typing import Final

__all__ = ["did_you_mean", "nearest"]

# Words come from peers, and a comparison takes time with the square of the length: a stranger's worst word
# costs a service with 60 verbs 1 ms, not 10.
_LONGEST_WORD: Final = 64
_MOST_KNOWN: Final = 256
_MOST_COMPARED: Final = 3

# Swapped letters in a word of three are near; two words with one prefix are not.
_LEAST_LIKENESS: Final = 0.65


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that a misspelt one is most like, in either case; None where none is near.

    Words that are long, and more known ones than a person would have, are not compared.
    """
    if len(word) > _LONGEST_WORD:
        return None
    # SequenceMatcher analyses `b` once, so that is the word that all others are compared with.
    matcher = SequenceMatcher(b=word.lower(), autojunk=False)

    def upper_bound(one: str) -> float:
        matcher.set_seq1(one.lower())
        return matcher.quick_ratio() if matcher.real_quick_ratio() >= _LEAST_LIKENESS else 0.0

    def likeness(one: str) -> float:
        matcher.set_seq1(one.lower())
        return matcher.ratio()

    # `ratio` is slow and `quick_ratio` an upper bound of it, so only the best by that are compared exactly.
    compared = nlargest(_MOST_COMPARED, islice(known, _MOST_KNOWN), key=upper_bound)
    best = max(compared, key=likeness, default=None)
    return best if best is not None and likeness(best) >= _LEAST_LIKENESS else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown word: `; did you mean 'quote'?`, or nothing."""
    near = nearest(word, known)
    return "" if near is None else f"; did you mean {near!r}?"
