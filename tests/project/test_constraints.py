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


def pythons_of(name: str) -> SpecifierSet | None:
    """The versions of Python that an installed package runs on; None: it is not installed."""
    try:
        return SpecifierSet(",".join(metadata(name).get_all("Requires-Python") or []))
    except PackageNotFoundError:
        return None


# The rest is for another platform or version, or of a group that is not installed.
INSTALLED = {name: pythons for name in PINNED if (pythons := pythons_of(name)) is not None}


@pytest.mark.parametrize("name", INSTALLED)
def test_package_that_is_pinned_runs_on_the_oldest_python(name: str) -> None:
    assert OLDEST in INSTALLED[name]
