"""The pages for readers of other projects: their programs compile, and use names that those projects have.

`tests/docs/test_docs.py` runs our halves, and `tests/foreign/test_coming_from.py` theirs.
"""

from __future__ import annotations

import ast
import re
import sys
from importlib import import_module
from pathlib import Path
from textwrap import dedent

import pytest

from tests.docs_runner import ROOT, read_page

FOLDER = ROOT / "docs" / "coming-from"
PAGES = sorted(page for page in FOLDER.glob("*.md") if page.name != "README.md")
SECTIONS = [
    "What is better",
    "What is worse",
    "What is missing",
    "Their term, ours",
    "Move step by step",
]
# Not installed with ours. tests/foreign/test_coming_from.py installs the first two and runs their programs.
# Livy, which `requests` asks, cannot be had from the registries.
NOT_HERE = {"celery", "nameko", "requests"}

_each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)


@_each_page
def test_page_compares_both_ways_and_ends_with_the_steps(page: Path) -> None:
    titles = re.findall(r"^## (.+)$", page.read_text(), re.MULTILINE)

    assert titles[-len(SECTIONS) :] == SECTIONS
    assert titles[0].startswith("The program ")


def test_index_links_each_page() -> None:
    index = (FOLDER / "README.md").read_text()

    assert [page.name for page in PAGES if f"({page.name})" not in index] == []


@_each_page
def test_programs_compile(page: Path) -> None:
    programs = re.findall(r"^( *)```python\n(.*?)^\1```$", page.read_text(), re.MULTILINE | re.DOTALL)

    assert len(programs) > 1
    for _, program in programs:
        compile(dedent(program), str(page), "exec")


@_each_page
def test_names_that_programs_import_exist(page: Path) -> None:
    files = read_page(page).files
    own = {name.removesuffix(".py") for name in files}
    imports = [
        node
        for text in files.values()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    missing = []
    for node in imports:
        wanted = (
            [f"{node.module}:{alias.name}" for alias in node.names]
            if isinstance(node, ast.ImportFrom)
            else [f"{alias.name}:" for alias in node.names]
        )
        missing += [name for name in wanted if not _is_found(name, own)]

    assert missing == []


def _is_found(wanted: str, own: set[str]) -> bool:
    module, _, name = wanted.partition(":")
    package = module.partition(".")[0]
    if package in own | NOT_HERE or package in sys.stdlib_module_names:
        return True
    try:
        return not name or hasattr(import_module(module), name)
    except ImportError:
        return False
