"""Milliseconds of the wire as a type of their own, and their conversion to and from seconds.

Everything but the wire counts seconds, as a float. If milliseconds were an `int`, the type checker would take
them for a float, and a deadline could be wrong by a factor of a thousand. So `Milliseconds` is no number: it
can be written into a header, and only `to_seconds` makes a time of it. At run time it is a plain `int`, and
what reads a header on the hot path (`seconds_of`) makes none at all.
"""

from __future__ import annotations

from typing import Final, NewType

__all__ = ["MOST_DIGITS", "Milliseconds", "seconds_of", "to_milliseconds", "to_seconds"]

Milliseconds = NewType("Milliseconds", object)
"""A whole number of them, as a header has it: the type checker refuses it wherever seconds are meant."""

# Thirty thousand years. Python refuses to read a number of some thousand digits.
MOST_DIGITS: Final = 15


def to_seconds(milliseconds: Milliseconds) -> float:
    """What came by the wire, in seconds."""
    return milliseconds / 1000  # type: ignore[operator]


def to_milliseconds(seconds: float) -> Milliseconds:
    """Seconds as the wire has them, rounded."""
    # What is below a millisecond must not become 0, which turns beats off.
    return Milliseconds(max(1, round(seconds * 1000)) if seconds > 0 else 0)


def seconds_of(text: str) -> float | None:
    """The value of a header in milliseconds, as seconds; None: it is no whole number, or too large."""
    # `int` would take signs, spaces and underscores too.
    return int(text) / 1000 if text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS else None
