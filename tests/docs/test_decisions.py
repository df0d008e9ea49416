"""Comments in the code link to the decisions that explain it, and each decision about the code is linked."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = {page.name[:4] for page in (ROOT / "docs/decisions").glob("[0-9]*.md")}

# Decisions that no place in `nebula/` follows from, with the reason.
ELSEWHERE = {
    "0035": "about `benchmarks/simulation.py`, which predicts figures and runs nothing of Nebula",
}

LINK = re.compile(r"docs/decisions/(\w+)")


def links() -> dict[str, list[str]]:
    """The places in the package that name a decision, by its number."""
    found: dict[str, list[str]] = {}
    for file in sorted((ROOT / "nebula").rglob("*.py")):
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            for decision in LINK.findall(line):
                found.setdefault(decision, []).append(f"{file.relative_to(ROOT)}:{number}")
    return found


def test_each_link_to_a_decision_has_its_page() -> None:
    assert {decision: places for decision, places in links().items() if decision not in PAGES} == {}


def test_each_decision_about_the_code_is_linked_from_it() -> None:
    assert len(PAGES) > 50
    assert PAGES - links().keys() == ELSEWHERE.keys()


def test_decisions_are_named_by_their_path() -> None:
    other = re.compile(r"\b[Dd]ecision \d{4}\b")
    files = (ROOT / "nebula").rglob("*.py")

    assert [str(file) for file in files if other.search(file.read_text(encoding="utf-8"))] == []
