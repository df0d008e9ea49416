"""The documentation site has every page and shows what GitHub shows; tests/foreign/test_site.py builds it."""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import markdown
import pytest
import yaml
from markdown_it import MarkdownIt
from mkdocs.exceptions import PluginError

from website import console
from website.hooks import MOVED, expanded, for_the_site, landing, origin_of, section, translated
from website.terminal import FOLDER, SCENES

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [*MOVED, *(str(path.relative_to(ROOT)) for path in sorted(DOCS.rglob("*.md")))]


class Loader(yaml.SafeLoader):
    """Reads mkdocs.yml without importing what it names."""


Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)
CONFIG: dict[str, Any] = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), Loader)


def listed(nav: Any) -> Iterator[str]:
    """The pages of a navigation."""
    match nav:
        case str():
            yield nav
        case dict():
            yield from (page for inner in nav.values() for page in listed(inner))
        case list():
            yield from (page for inner in nav for page in listed(inner))


def test_each_page_is_in_the_navigation_once() -> None:
    pages = Counter(listed(expanded(CONFIG["nav"], DOCS)))
    written = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")} - {"README.md"}

    assert sorted(written - set(pages)) == [], "add them to `nav` in mkdocs.yml"
    assert [page for page, times in pages.items() if times > 1] == []


def test_each_page_of_the_navigation_exists() -> None:
    pages = set(listed(expanded(CONFIG["nav"], DOCS)))

    assert sorted(page for page in pages if not (ROOT / origin_of(page)).exists()) == []
    assert set(MOVED.values()) <= pages


def test_pattern_of_the_navigation_stands_for_the_pages_that_exist(tmp_path: Path) -> None:
    for name in ("b1.md", "b2.md", "a.md"):
        (tmp_path / name).touch()

    assert expanded([{"A": ["a.md", "b*.md"]}, {"None": ["c*.md"]}], tmp_path) == [
        {"A": ["a.md", "b1.md", "b2.md"]}
    ]


@pytest.mark.parametrize(
    ("target", "site", "link"),
    [
        ("jobs.md#states", "how-to/spark-job.md", "jobs.md#states"),
        ("../README.md#reference-and-background", "how-to/jobs.md", "../pages.md#reference-and-background"),
        ("../../SECURITY.md", "how-to/jobs.md", "../project/security.md"),
        ("docs/tutorial.md", "index.md", "tutorial.md"),
        ("../../docs/reference/protocol.md", "project/transcripts.md", "../reference/protocol.md"),
        ("plots/rpc.svg", "explanation/performance.md", "plots/rpc.svg"),
        ("#below", "tutorial.md", "#below"),
        ("https://stomp.github.io/", "tutorial.md", "https://stomp.github.io/"),
        ("../services/shop", "pages.md", None),
    ],
)
def test_link_leads_to_the_same_place_on_the_site(target: str, site: str, link: str | None) -> None:
    if site == "pages.md" and link is None:
        # docs/README.md, which is not at its place on the site.
        assert translated(target, site, "https://example.org/nebula/") == (
            "https://example.org/nebula/tree/main/services/shop"
        )
    assert translated(target, site, None) == link


def test_link_to_what_the_site_lacks_is_text_alone() -> None:
    assert for_the_site("See [the shop](../services/shop) and [jobs](how-to/jobs.md).", "pages.md") == (
        "See the shop and [jobs](how-to/jobs.md)."
    )


def test_links_in_code_stay() -> None:
    fence = "```python\nx = [one](two.md)\n```"

    assert for_the_site(fence, "how-to/jobs.md") == fence


def test_landing_page_is_made_of_the_readme() -> None:
    page = landing(README)

    assert "@app.verb" in page
    assert "nebula call prices quote" in page
    assert "flowchart LR" in page
    assert section(README, "What it is for") in page
    assert section(README, "Speed") in page
    assert page.count("\n# ") == 1 + page.count("\n# prices.py")


def test_landing_page_misses_a_heading_of_the_readme() -> None:
    with pytest.raises(PluginError, match="no heading `## Speed`"):
        landing(README.replace("## Speed\n", "## Pace\n"))


def structure(page: str) -> Counter[str]:
    return Counter(re.findall(r"<(li|ul|ol|table|tr|td|h[1-6]|pre|blockquote|a|img)[ >]", page))


@pytest.mark.parametrize("page", PAGES)
def test_site_and_github_see_the_same_structure(page: str) -> None:
    """Lists, tables, code and links: two dialects of Markdown read them in the same way."""
    text = (ROOT / page).read_text(encoding="utf-8")
    on_the_site = for_the_site(
        text, MOVED.get(page, page.removeprefix("docs/")), "https://example.org/nebula"
    )
    extensions = ["tables", "attr_list", "md_in_html", "pymdownx.superfences", "admonition"]

    shown = structure(markdown.markdown(on_the_site, extensions=extensions))
    expected = structure(MarkdownIt("commonmark", {"html": True}).enable("table").render(text))
    assert shown == expected


def test_site_loads_no_fonts_from_elsewhere() -> None:
    assert CONFIG["theme"]["font"] is False


def test_each_picture_of_the_terminal_is_drawn_by_the_script_and_shown_by_a_page() -> None:
    drawn = {path.stem: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.svg")}
    shown = {
        name
        for page in DOCS.rglob("*.md")
        for name in re.findall(r"\]\(pictures/([\w-]+)\.svg\)", page.read_text())
    }

    assert set(drawn) == {scene.name for scene in SCENES} == shown
    for scene in SCENES:
        said = html.unescape(" ".join(re.findall(r">([^<>]+)</text>", drawn[scene.name]))).replace(
            "\xa0", " "
        )
        assert [command for command in scene.commands if command.split(" '")[0] not in said] == []


def test_each_picture_of_the_console_is_taken_by_the_script_and_shown_by_a_page() -> None:
    taken = {path.stem: path for path in FOLDER.glob("*.png")}
    shown = set(re.findall(r"\]\(pictures/([\w-]+)\.png\)", (DOCS / "how-to/console.md").read_text()))

    assert set(taken) == {scene.name for scene in console.SCENES} == shown
    assert [name for name, path in taken.items() if path.stat().st_size > 150_000] == []


def test_pages_show_only_pictures_that_exist_and_say_what_is_on_them() -> None:
    pictures = [
        (page, words, target)
        for page in PAGES
        for words, target in re.findall(r"!\[([^\]]*)\]\((?!https?:)([^)\s]+)\)", (ROOT / page).read_text())
    ]

    assert pictures
    assert [each for each in pictures if not (ROOT / each[0]).parent.joinpath(each[2]).is_file()] == []
    assert [each for each in pictures if len(each[1]) < 20] == []


def test_pictures_of_the_terminal_load_nothing() -> None:
    pictures = [path.read_text(encoding="utf-8") for path in FOLDER.glob("*.svg")]

    assert {url for picture in pictures for url in re.findall(r"https?://[\w.]+", picture)} <= {
        "http://www.w3.org",
        "https://www.textualize.io",
        "http://127.0.0.1",
    }
