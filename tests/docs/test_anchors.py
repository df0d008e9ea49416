"""Headings and files that the documentation names exist."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *sorted((ROOT / "docs").rglob("*.md"))]

LINK = re.compile(r"\]\(([^)\s]*)#([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


@cache
def anchors(page: Path) -> frozenset[str]:
    """The anchors that GitHub makes of a page's headings, and those that the page sets itself."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    found: list[str] = re.findall(r"<a (?:id|name)=\"([^\"]+)\"", text)
    for heading in re.findall(r"^#+ (.+?)\s*#*$", text, re.MULTILINE):
        shown = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", shown.lower()).replace(" ", "-")
        repeated = sum(1 for each in found if each == slug or re.fullmatch(rf"{re.escape(slug)}-\d+", each))
        found.append(f"{slug}-{repeated}" if repeated else slug)
    return frozenset(found)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_headings_that_exist(page: Path) -> None:
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    lost = []
    for target, anchor in LINK.findall(text):
        if "://" in target:
            continue
        other = (page.parent / target).resolve() if target else page
        if other.suffix == ".md" and anchor not in anchors(other):
            lost.append(f"{target}#{anchor}")

    assert lost == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_of_the_code_that_are_named_exist(page: Path) -> None:
    named = re.findall(
        r"(?<![\w/])((?:nebula|tests|benchmarks|services)/[\w/]+(?:\.\w+)+)", page.read_text(encoding="utf-8")
    )

    assert [path for path in named if not (ROOT / path).exists()] == []
