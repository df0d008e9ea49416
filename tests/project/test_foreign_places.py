"""Tests that need foreign programs are where `make test-foreign` looks: it collects no others."""

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
