"""The page of delivery guarantees names tests that are there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.known_tests import known_tests

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "delivery-guarantees.md"


def claims() -> Iterator[tuple[str, str]]:
    """What is said, and its tests, of each row of the tables that end in a column of tests."""
    is_tested = False
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if not line.startswith("| "):
            is_tested = False
        elif cells[-1] == "test":
            is_tested = True
        elif is_tested and cells[0] != "---":
            yield cells[0], cells[-1]


def test_page_has_claims() -> None:
    assert len(list(claims())) > 40


@pytest.mark.parametrize(("claim", "shown"), list(claims()))
def test_each_claim_has_tests_that_are_there(claim: str, shown: str) -> None:
    assert {name.strip() for name in shown.split(",")} <= known_tests(), claim
