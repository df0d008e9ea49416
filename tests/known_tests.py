"""The names of all tests, for pages that refer to them."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parent


def known_tests() -> set[str]:
    sources = (path.read_text() for path in TESTS.rglob("test_*.py"))
    return {name for source in sources for name in re.findall(r"def test_(\w+)", source)}
