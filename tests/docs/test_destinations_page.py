"""What the page of destinations lists is what the code does."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from nebula import headers
from nebula.broker.core.limits import Limits
from nebula.broker.keys import key_function
from nebula.broker.settings import BrokerSettings
from nebula.globs import compile_glob, is_glob
from tests.broker.harness import BrokerHarness

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "destinations.md"
TEXT = PAGE.read_text(encoding="utf-8")


def rows(heading: str) -> list[list[str]]:
    """The cells of a table, by the cell that its head begins with."""
    table = re.search(rf"^\| {heading} \|.*\n\|[ -|]+\|\n((?:\|.*\n)+)", TEXT, re.MULTILINE)
    assert table is not None
    return [[cell.strip(" `") for cell in line.strip("|").split(" | ")] for line in table[1].splitlines()]


@pytest.mark.parametrize(("prefix", "kind", "example"), [row[:3] for row in rows("begins with")])
def test_kind_is_read_from_the_name(prefix: str, kind: str, example: str) -> None:
    assert example.startswith(prefix) or prefix == "anything else"
    assert BrokerHarness().broker.context.kind_of(example).name == kind


def test_prefixes_of_last_values_are_the_default_ones() -> None:
    prefixes = [prefix for prefix, kind, *_ in rows("begins with") if kind == "last-value"]

    assert prefixes == list(BrokerSettings().last_value.prefixes)


@pytest.mark.parametrize(("glob", "matching", "other"), rows("glob"))
def test_glob_matches_what_the_page_says(glob: str, matching: str, other: str) -> None:
    matches = compile_glob(glob)

    assert is_glob(glob)
    assert matches(matching)
    assert not matches(other)


def test_key_pattern_leaves_out_what_the_page_says() -> None:
    found = re.search(
        "With `([^`]+)` a value sent to `([^`]+)` replaces that of `([^`]+)`", " ".join(TEXT.split())
    )
    assert found is not None
    pattern, sent, replaced = found.groups()
    key_of = key_function(BrokerSettings().last_value.prefixes, [pattern])
    assert key_of is not None

    assert sent != replaced
    assert key_of(sent) == key_of(replaced)


def test_limits_on_the_page_exist() -> None:
    named = set(re.findall(r"`((?:max|session)_\w+)`", TEXT))

    assert named
    assert named <= {field.name for field in dataclasses.fields(Limits)}


def test_headers_and_verdicts_on_the_page_are_ours() -> None:
    stomps_own = {"message-id"}
    named = set(re.findall(r"`([a-z]+(?:-[a-z]+)+)(?::[a-z]+)?`", TEXT)) - {"client-individual"}

    assert named - stomps_own <= {value for name, value in vars(headers).items() if name.isupper()}
