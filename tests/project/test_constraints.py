"""What `constraints.txt` pins."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parents[2]
PINNED = re.findall(r"^([\w.-]+)==", (ROOT / "constraints.txt").read_text(), re.MULTILINE)

# The oldest that `requires-python` in pyproject.toml allows. Debian 12 has 3.11.2.
OLDEST = "3.11.0"


@pytest.mark.parametrize("name", PINNED)
def test_package_that_is_pinned_runs_on_the_oldest_python(name: str) -> None:
    try:
        found = metadata(name)
    except PackageNotFoundError:
        pytest.skip("for another platform or version, or of a group that is not installed")

    assert OLDEST in SpecifierSet(",".join(found.get_all("Requires-Python") or []))
