"""Comments in the code link to the decisions that explain it, each decision about the code is linked from it,
and each page ends with what checks it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.rows import ROWS

ROOT = Path(__file__).parents[2]
DECISIONS = sorted((ROOT / "docs/decisions").glob("[0-9]*.md"))
PAGES = {page.name[:4] for page in DECISIONS}

# Decisions that no place in `nebula/` follows from, with the reason.
ELSEWHERE = {
    "0035": "about `benchmarks/simulation.py`, which predicts figures and runs nothing of Nebula",
    "0068": "about `benchmarks/report.py`, the page of results",
    "0072": "about `console/src/forms`, which is TypeScript",
    "0076": "about `deploy/helm/nebula`, the chart for Kubernetes",
    "0073": "about `website/hooks.py` and `mkdocs.yml`, the documentation site",
    "0074": "about `website/`, the pictures of the documentation site",
}

LINK = re.compile(r"docs/decisions/(\w+)")

# The end of a page: a line of its own, and a list.
CHECKED_BY = re.compile(r"^Checked by:\n\n((?:- .+\n(?:  .+\n)*)+)\Z", re.MULTILINE)
REPLACED = re.compile(r"^Status: replaced by", re.MULTILINE)


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


def is_a_test(file: str, name: str) -> bool:
    """Whether a file has a test of this name."""
    path = ROOT / file
    return path.is_file() and bool(re.search(rf"^(async )?def {name}\(", path.read_text(), re.MULTILINE))


def checks_in(item: str) -> dict[str, bool]:
    """Tests, rows and programs of benchmarks that an item of the list names, and whether each exists."""
    item = " ".join(item.split())
    tests = re.findall(r"`([\w/.]+)::(\w+)`", item)
    found = {f"{file}::{name}": is_a_test(file, name) for file, name in tests}
    before, bench, _ = item.partition(" of `make bench`")
    if bench:
        named = {row.name for row in ROWS}
        found |= {name: name in named for name in re.findall(r"`([a-z0-9-]+)`", before)}
    for module in re.findall(r"`python -m (benchmarks\.\w+)", item):
        found[module] = (ROOT / module.replace(".", "/")).with_suffix(".py").is_file()
    return found


@pytest.mark.parametrize("page", DECISIONS, ids=lambda page: page.stem)
def test_decision_ends_with_what_checks_it(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    if REPLACED.search(text):
        return
    said = CHECKED_BY.search(text)
    assert said, "the page does not end with the list `Checked by:`"

    checks: dict[str, bool] = {}
    for item in re.split(r"^- ", said[1], flags=re.MULTILINE):
        checks |= checks_in(item)

    assert [name for name, exists in checks.items() if not exists] == []
    assert checks, "the list names no test and no benchmark"


def test_list_that_names_nothing_that_exists_is_found() -> None:
    assert checks_in("not checked: the figures\n") == {}
    assert checks_in("`tests/docs/test_decisions.py::test_gone`\n") == {
        "tests/docs/test_decisions.py::test_gone": False
    }
    assert checks_in("the rows `deep` and\n  `gone` of `make bench`\n") == {"deep": True, "gone": False}
    assert checks_in("`python -m benchmarks.ids`\n") == {"benchmarks.ids": True}
