"""Whole numbers in headers."""

from __future__ import annotations

import pytest

from nebula.rpc.wire.digits import whole_number


@pytest.mark.parametrize(("text", "number"), [("0", 0), ("7", 7), ("007", 7), ("999", 999)])
def test_digits_are_a_number(text: str, number: int) -> None:
    assert whole_number(text, 3) == number


@pytest.mark.parametrize(
    "text", [None, "", " 1", "+1", "-1", "1_0", "1.0", "\u0661", "\u00b2", "1000", "9" * 5000]
)
def test_everything_else_is_invalid(text: str | None) -> None:
    assert whole_number(text, 3) is None
