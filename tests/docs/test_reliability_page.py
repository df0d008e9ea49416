"""The page on reliability names tests and settings that are there."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator

import pytest

from nebula.broker.core.limits import Limits
from nebula.broker.settings import IdentitySettings
from tests.known_tests import TESTS, known_tests

PAGE = TESTS.parent / "docs" / "explanation" / "reliability.md"

_SETTINGS = {field.name for field in dataclasses.fields(Limits)} | set(IdentitySettings.model_fields)

_HEADS = ("---", "what a peer does", "bound")


def rows() -> Iterator[list[str]]:
    """The cells of all tables of peers that misbehave and of bounds, without their heads."""
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("| ") and len(cells) in (4, 5) and cells[0] not in _HEADS:
            yield cells


def promises() -> Iterator[tuple[str, str]]:
    """The rows of what is promised: the sentence, and its tests."""
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("| ") and len(cells) == 2 and cells[0] not in ("---", "what is promised"):
            yield cells[0], cells[1]


def test_page_has_rows() -> None:
    assert len(list(rows())) > 20
    assert len([row for row in rows() if len(row) == 5]) > 20
    assert len(list(promises())) > 20


@pytest.mark.parametrize("shown", [tests for _, tests in promises()])
def test_each_promise_has_tests_that_are_there(shown: str) -> None:
    names = [name.strip() for name in shown.split(",")]
    files = {f"`{path.name}`" for path in TESTS.rglob("test_*.py")}

    assert set(names) <= files | known_tests()


@pytest.mark.parametrize("row", list(rows()), ids=lambda row: row[0][:50])
def test_row_names_tests_that_are_there(row: list[str]) -> None:
    shown = row[-1]
    files = {path.name for path in TESTS.rglob("test_*.py")}
    assert set(re.findall(r"(test_\w+\.py)", shown)) <= files

    names = {word for word in re.findall(r"\w+", re.sub(r"`[^`]*`", "", shown)) if word.count("_") > 1}
    assert names <= known_tests()
    assert names or "`limits`" in shown or ".py`" in shown


@pytest.mark.parametrize("row", list(rows()), ids=lambda row: row[0][:50])
def test_row_names_settings_that_are_there(row: list[str]) -> None:
    assert set(re.findall(r"`(\w+)`", row[-2])) - {"identity"} <= _SETTINGS
