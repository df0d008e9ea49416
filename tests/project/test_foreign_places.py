"""Tests that need foreign programs: `make test-foreign` finds all of them."""

from __future__ import annotations

import re
from pathlib import Path

_ROOT = Path(__file__).parents[2]


def test_make_looks_wherever_foreign_tests_are() -> None:
    recipe = re.search(r"-m pytest .*-m foreign (?P<folders>.+)", (_ROOT / "Makefile").read_text())
    assert recipe is not None
    folders = [_ROOT / folder for folder in recipe["folders"].split()]
    marked = [
        path for path in (_ROOT / "tests").rglob("test_*.py") if "pytest.mark.foreign" in path.read_text()
    ]

    elsewhere = [path for path in marked if not any(path.is_relative_to(folder) for folder in folders)]

    assert marked != []
    # This very file names the mark.
    assert elsewhere == [Path(__file__)]


def test_whole_folder_is_foreign() -> None:
    # `make test` does not even collect it (tests/conftest.py): a test without the mark would never run.
    modules = sorted((_ROOT / "tests" / "foreign").glob("test_*.py"))

    assert modules != []
    assert [path.name for path in modules if not _is_foreign(path.read_text())] == []


def _is_foreign(text: str) -> bool:
    """Whether the module, or each of its tests, has the mark."""
    if re.search(r"^pytestmark = .*mark\.foreign", text, re.MULTILINE):
        return True
    return text.count("@pytest.mark.foreign\n") == len(
        re.findall(r"^(?:async )?def test_", text, re.MULTILINE)
    )
