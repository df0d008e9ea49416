"""Whole numbers in headers, which anybody may have written."""

from __future__ import annotations

__all__ = ["whole_number"]


def whole_number(text: str | None, most_digits: int) -> int | None:
    """The number that a header's value is; None: there is none, or it is none.

    Args:
        text: of the header.
        most_digits: that a true one may have. Foreign brokers pass on what they do not check, and Python
            reads no number of some thousand digits.
    """
    # `int` would take signs, spaces and underscores, too.
    if text is None or not (text.isascii() and text.isdigit()) or len(text) > most_digits:
        return None
    return int(text)
