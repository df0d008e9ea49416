"""The page of other brokers says what the suite that runs over them checks."""

from __future__ import annotations

from tests.foreign.lacks import PAGE, table


def test_page_of_brokers_has_the_table() -> None:
    assert table() in PAGE.read_text(encoding="utf-8"), "python -m tests.foreign.lacks writes it"
