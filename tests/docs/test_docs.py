"""README and docs do what they say: every file and every command on them is run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.rows import ROWS
from tests.docs_runner import ROOT, SPARK_PAGES, Command, matches, read_page, run_page

PAGES = [ROOT / "README.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").rglob("*.md"))]
DECISIONS = sorted((ROOT / "docs" / "decisions").glob("0*.md"))
# They need foreign programs; see tests/foreign.
FOREIGN_PAGES = {"postgresql-registry.md"}
# The first pages that a newcomer follows. Each command of a page starts a program; the other pages are slow.
QUICK_PAGES = {"README.md", "tutorial.md"}
RUN_PAGES = [
    pytest.param(page, marks=() if page.name in QUICK_PAGES else pytest.mark.slow)
    for page in PAGES
    if read_page(page).commands and page.name not in SPARK_PAGES | FOREIGN_PAGES
]


# As many programs are started, one after the other, as a page has commands.
@pytest.mark.timeout(300)
@pytest.mark.parametrize("path", RUN_PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_page_runs_as_it_stands(path: Path, tmp_path: Path) -> None:
    run_page(path, tmp_path)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(path: Path) -> None:
    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8"))

    assert [target for target in targets if not (path.parent / target).exists()] == []


def test_each_decision_is_in_the_index_and_has_its_parts() -> None:
    folder = ROOT / "docs" / "decisions"
    index = (folder / "README.md").read_text()
    for page in sorted(folder.glob("0*.md")):
        text = page.read_text()

        assert f"({page.name})" in index
        assert re.match(rf"# {page.name[:4]}: .+\n\nStatus: (proposed|accepted|replaced by \d{{4}})\n", text)
        for part in ("## The problem", "## The decision", "## Instead of", "## What would change our mind"):
            assert part in text


@pytest.mark.parametrize("page", DECISIONS, ids=lambda page: page.stem)
def test_tests_and_benchmarks_that_a_decision_names_exist(page: Path) -> None:
    for file, name in re.findall(r"`(tests/[\w/.]+)(?:::(\w+))?`", page.read_text()):
        path = ROOT / file
        assert path.exists(), file
        if name:
            assert re.search(rf"^(async )?def {name}\(", path.read_text(), re.MULTILINE), name
    for module in re.findall(r"python -m ((?:tests|benchmarks)[\w.]*)", page.read_text()):
        path = ROOT / module.replace(".", "/")
        assert path.with_suffix(".py").exists() or (path / "__main__.py").exists(), module


@pytest.mark.parametrize("page", DECISIONS, ids=lambda page: page.stem)
def test_rows_of_benchmarks_that_a_decision_names_exist(page: Path) -> None:
    text = page.read_text()
    said = re.findall(r"\brows?\s+((?:`[\w-]+`(?:,\s+|\s+and\s+)?)+)\s*of\s+`make bench`", text)
    named = re.findall(r"`([\w-]+)`", " ".join(said)) + re.findall(r"--rows ([\w-]+)", text)

    assert set(named) <= {row.name for row in ROWS}
    # Whoever runs the benchmarks has to know where to look.
    assert "`make bench`" not in text or named


def test_what_a_page_shows_is_compared_word_by_word_but_for_ellipses() -> None:
    assert matches("a  b\n...\nd", "a b\n c c\nd")
    assert matches("", "")
    assert not matches("a b", "a b c")
    assert not matches("a ... c", "a b")
    assert Command("nebula broker &", "").stays


def test_command_of_a_shell_of_its_own_stays(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```console stays\n$ nebula broker\nlistening\n```\n\n```console\n$ nebula queues\n```\n")

    assert [(one.words, one.stays) for one in read_page(page).commands] == [
        ("nebula broker &", True),
        ("nebula queues", False),
    ]
