"""Hooks of MkDocs: the pages of the repository as a site, without a second copy of any of them.

- README.md of the repository is the landing page; docs/README.md, the list of all pages, moves to `pages`.
- SECURITY.md, CHANGELOG.md and other pages outside docs/ are pages of the site too.
- Links that work on GitHub work here: each is resolved in the repository, then translated.
- A pattern in the navigation, such as `decisions/0*.md`, stands for the pages that exist.

MkDocs loads this file by its path, also from `mike`, so it imports nothing of its own package.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).parents[1]

# Pages of the site by their place in the repository, where it is not the same below docs/.
MOVED: Final[Mapping[str, str]] = {
    "README.md": "index.md",
    "docs/README.md": "pages.md",
    "SECURITY.md": "project/security.md",
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "CODE_OF_CONDUCT.md": "project/code-of-conduct.md",
    "GOVERNANCE.md": "project/governance.md",
    "benchmarks/results.md": "project/benchmarks.md",
    "tests/conformance/README.md": "project/transcripts.md",
}
_ORIGINS: Final = {site: origin for origin, site in MOVED.items()}

# Mermaid's script, as npm installs it. Material would fetch one from elsewhere if a page had none.
MERMAID: Final = Path("node_modules/@mermaid-js/tiny/dist/mermaid.tiny.js")
MERMAID_URI: Final = "assets/javascripts/mermaid.js"

_FENCE: Final = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_LINK: Final = re.compile(r"(?P<image>!?)\[(?P<text>(?:[^\[\]]|\[[^\]]*\])*)\]\((?P<target>[^)\s]+)\)")


# --- navigation ---


def expanded(nav: Any, docs: Path) -> Any:
    """The navigation with the pages that exist in place of patterns, in the order of their names."""
    match nav:
        case list():
            found: list[Any] = []
            for entry in nav:
                if isinstance(entry, str) and "*" in entry:
                    found += sorted(path.relative_to(docs).as_posix() for path in docs.glob(entry))
                else:
                    found.append(expanded(entry, docs))
            # A section whose patterns match nothing would be an empty tab.
            return [entry for entry in found if entry not in ([], {}) and not _is_empty_section(entry)]
        case dict():
            return {title: expanded(entry, docs) for title, entry in nav.items()}
    return nav


def _is_empty_section(entry: Any) -> bool:
    return isinstance(entry, dict) and all(inner == [] for inner in entry.values())


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Write out the patterns of the navigation."""
    config.nav = expanded(config.nav, Path(config.docs_dir))
    return config


# --- pages that are not below docs/ ---


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages from outside docs/, and Mermaid."""
    readme = files.get_file_from_path("README.md")
    if readme is not None:
        files.remove(readme)
    for origin, site in MOVED.items():
        text = (ROOT / origin).read_text(encoding="utf-8")
        files.append(File.generated(config, site, content=landing(text) if site == "index.md" else text))
    mermaid = Path(__file__).parent / MERMAID
    if not mermaid.exists():
        raise PluginError("website/node_modules is missing: run `make docs`, or `npm ci` in website")
    files.append(File.generated(config, MERMAID_URI, abs_src_path=str(mermaid)))
    for asset in sorted((Path(__file__).parent / "assets").iterdir()):
        uri = f"assets/{asset.name}"
        files.append(File.generated(config, uri, abs_src_path=str(asset)))
    return files


def section(text: str, heading: str) -> str:
    """What a page says below a heading of the second level, without the heading.

    Raises:
        PluginError: the page has no such heading.
    """
    found = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    if found is None:
        raise PluginError(
            f"README.md has no heading `## {heading}`, and the landing page shows what is below it"
        )
    return found[1].strip()


_LANDING: Final = """\
---
title: Nebula
hide: [navigation, toc]
---

<div class="nebula-hero" markdown>
<div class="nebula-hero__words" markdown>

# Nebula

{summary}

[Tutorial](docs/tutorial.md){{ .md-button .md-button--primary }}
[What you can build in an hour](docs/how-to/build-in-an-hour.md){{ .md-button }}
[All pages](docs/README.md){{ .md-button }}

</div>
<div class="nebula-hero__code" markdown>

{service}

{call}

</div>
</div>

{readers}

## The parts

{picture}

{parts}

## What it is for

{purpose}

## Speed

{speed}
"""


def landing(readme: str) -> str:
    """The landing page, made of what README.md says."""
    summary, picture, parts = _opening(readme)
    quick = section(readme, "Quick start")
    fences = _FENCE.findall(quick)
    service = next(fence for fence in fences if fence.startswith("```python"))
    call = next(fence for fence in fences if "$ nebula call" in fence)
    return _LANDING.format(
        summary=summary,
        picture=picture,
        parts=parts,
        service=service,
        call=call,
        purpose=section(readme, "What it is for"),
        speed=section(readme, "Speed"),
        readers=(Path(__file__).parent / "readers.md").read_text(encoding="utf-8").strip(),
    )


def _opening(readme: str) -> tuple[str, str, str]:
    """The first paragraph of README.md, its picture, and what follows up to the next heading."""
    found = re.match(
        r"# Nebula\n\n(.*?)\n\n(```mermaid\n.*?^```)\n\n(.*?)\n\n## ", readme, re.MULTILINE | re.DOTALL
    )
    if found is None:
        raise PluginError(
            "README.md does not open with a paragraph, a picture of the parts, and a list of them"
        )
    return found[1], found[2], found[3]


# --- links ---


def origin_of(site: str) -> str:
    """The place in the repository of a page of the site."""
    return _ORIGINS.get(site, f"docs/{site}")


def translated(target: str, site: str, repository: str | None) -> str | None:
    """A link of a page as it leads to the same place on the site.

    Args:
        target: as it stands in the page, with or without an anchor.
        site: the page that has it, such as `how-to/jobs.md`.
        repository: where files can be read that the site does not have.

    Returns:
        The link; None: the site has no such page, and there is no repository to read it in.
    """
    place, mark, anchor = target.partition("#")
    if not place or "://" in place or place.startswith("mailto:"):
        return target
    origin = posixpath.normpath(posixpath.join(posixpath.dirname(origin_of(site)), place))
    if origin in MOVED or origin.startswith("docs/"):
        other = MOVED.get(origin, origin.removeprefix("docs/"))
        return posixpath.relpath(other, posixpath.dirname(site) or ".") + mark + anchor
    if not repository or not (ROOT / origin).exists():
        return None
    kind = "tree" if (ROOT / origin).is_dir() else "blob"
    return f"{repository.rstrip('/')}/{kind}/main/{origin}{mark}{anchor}"


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    """Translate what is written for GitHub."""
    return for_the_site(markdown, page.file.src_uri, config.repo_url or repository(os.environ))


def repository(environment: Mapping[str, str]) -> str | None:
    """The address of the repository whose workflow runs; None outside of GitHub Actions.

    It is no `repo_url` of the site: Material's script would ask GitHub for the stars of the repository.
    """
    # Also in hatch_build.py and .ci/npm-package: each of the three must work without the others.
    server, name = environment.get("GITHUB_SERVER_URL"), environment.get("GITHUB_REPOSITORY")
    return f"{server}/{name}" if server and name else None


def for_the_site(markdown: str, site: str, repository: str | None = None) -> str:
    """A page, changed so that Python-Markdown shows what GitHub shows: its links, lists and fences."""

    def link(found: re.Match[str]) -> str:
        # The text may hold a link of its own: a badge.
        text = _LINK.sub(link, found["text"])
        target = translated(found["target"], site, repository)
        return text if target is None else f"{found['image']}[{text}]({target})"

    def prose(text: str) -> str:
        return _LINK.sub(link, "\n".join(_indented(text.split("\n"))))

    parts: list[str] = []
    end = 0
    for fence in _FENCE.finditer(markdown):
        # The word `stays` is for tests/docs_runner.py.
        plain = re.sub(r"\A```console stays$", "```console", fence[0], count=1, flags=re.MULTILINE)
        parts += [prose(markdown[end : fence.start()]), plain]
        end = fence.end()
    parts.append(prose(markdown[end:]))
    return "".join(parts)


def _indented(lines: Iterable[str]) -> Iterator[str]:
    """Lines with four columns for what belongs to an item of a list.

    CommonMark wants as many as the item's own mark takes: two for `- `, three for `1. `.
    """
    mark = 0  # columns of the item that a line may belong to
    before = ""
    is_loose = False  # the item has paragraphs or code of its own
    for line in lines:
        item = re.match(r"(?:-|\d+\.) ", line)
        if item is not None:
            if is_loose and before.strip():
                # Otherwise the item would continue the paragraph before it.
                yield ""
            mark, is_loose = item.end(), False
            yield line
        elif not line.strip():
            yield line
        elif mark and line.startswith(" " * mark):
            is_loose = is_loose or not before.strip()
            yield " " * (4 - mark) + line
        else:
            mark, is_loose = 0, False
            yield line
        before = line


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    """Put each picture into a frame, in which a wide one scrolls on a narrow screen."""
    framed = r'<div class="nebula-picture" tabindex="0">\g<0></div>'
    return re.sub(r'<pre class="mermaid">.*?</pre>', framed, html, flags=re.DOTALL)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:  # noqa: ARG001
    """Name the search for screen readers, and load Mermaid where a page has a picture."""
    output = output.replace('role="dialog"', 'role="dialog" aria-label="Search"', 1)
    # Before the theme's script: without a Mermaid that script would fetch one from elsewhere.
    if 'class="mermaid"' not in output:
        return output
    script = posixpath.relpath(MERMAID_URI, posixpath.dirname(page.file.dest_uri) or ".")
    # The theme's script comes last in the page.
    before, found, rest = output.rpartition("<script src=")
    if not found:
        raise PluginError(f"{page.file.src_uri}: the theme's script is not where it was")
    return f'{before}<script src="{script}"></script>{found}{rest}'


# `mkdocs serve` sees changes below docs/ only.
def on_serve(server: Any, config: MkDocsConfig, builder: Any) -> Any:  # noqa: ARG001
    """Build anew when a page outside docs/ changes."""
    for origin in MOVED:
        if not origin.startswith("docs/"):
            server.watch(os.fspath(ROOT / origin))
    return server
