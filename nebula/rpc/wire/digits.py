"""Whole numbers in headers. Any peer may have written them."""

from __future__ import annotations

__all__ = ["whole_number"]


def whole_number(text: str | None, most_digits: int) -> int | None:
    """The number in a header's value; None if it is missing or no number.

    Args:
        text: of the header.
        most_digits: that a true one may have. Foreign brokers pass on what they do not check, and Python
            reads no number of some thousand digits.
    """
    # `int` would take signs, spaces and underscores, too.
    if text is None or not (text.isascii() and text.isdigit()) or len(text) > most_digits:
        return None
    return int(text)
