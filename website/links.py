"""Checks a built site: links and anchors lead somewhere, and a page loads nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

# What a browser fetches by itself: the attribute that says from where.
_FETCHED: Final = {
    "audio": "src",
    "iframe": "src",
    "img": "src",
    "script": "src",
    "source": "src",
    "video": "src",
}
_FETCHED_LINKS: Final = {
    "icon",
    "manifest",
    "preconnect",
    "preload",
    "prefetch",
    "modulepreload",
    "stylesheet",
}


class _Page(HTMLParser):
    """The anchors of a page, where it leads, and what it loads."""

    def __init__(self) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: set[str] = set()
        self.loads: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if given.get(name)}
        if tag == "a" and "href" in given:
            self.links.add(given["href"])
        if tag in _FETCHED and _FETCHED[tag] in given:
            self.loads.add(given[_FETCHED[tag]])
        if tag == "link" and _FETCHED_LINKS & set(given.get("rel", "").split()):
            self.loads.add(given.get("href", ""))


def problems(site: Path) -> Iterator[str]:
    """What is wrong with a site, each in a line."""
    pages: dict[Path, _Page] = {}
    for path in sorted(site.rglob("*.html")):
        pages[path] = _Page()
        pages[path].feed(path.read_text(encoding="utf-8"))
    for path, page in pages.items():
        # A server shows it for any path, so its links begin at the root of wherever the site will be.
        if path.name == "404.html":
            continue
        place = path.relative_to(site)
        for target in sorted(page.loads):
            if urlsplit(target).netloc:
                yield f"{place}: loads {target}"
        for target in sorted(page.links | page.loads):
            if (problem := _lost(path, target, site, pages)) is not None:
                yield f"{place}: {problem}"


def _lost(path: Path, target: str, site: Path, pages: dict[Path, _Page]) -> str | None:
    """What is wrong with a link of a page."""
    url = urlsplit(target)
    if url.scheme or url.netloc:
        return None
    file = (path.parent / unquote(url.path)).resolve() if url.path else path
    if not file.is_relative_to(site.resolve()):
        return f"{target} leaves the site"
    if file.is_dir():
        file /= "index.html"
    if not file.exists():
        return f"{target} does not exist"
    anchor = unquote(url.fragment)
    if anchor and file in pages and anchor not in pages[file].anchors:
        return f"{target}: there is no such anchor"
    return None
