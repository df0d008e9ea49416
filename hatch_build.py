"""Metadata hook of the build: addresses of the project, and links in README.md that work on PyPI.

The address of the repository is that of the GitHub workflow that runs the build, so a fork names itself. A
build outside of GitHub Actions takes README.md as it is, and sets no addresses. A wheel that is built from an
sdist has the metadata of the sdist.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_RELATIVE_LINK = re.compile(r"(?P<before>(?P<image>!?)\[[^\[\]]*\]\()(?P<path>[\w.][\w./-]*)(?=[)#])")


def repository(environment: Mapping[str, str]) -> str | None:
    """The address of the repository whose workflow runs; None outside of GitHub Actions."""
    # Also in website/hooks.py and .ci/npm-package: each of the three must work without the others.
    server, name = environment.get("GITHUB_SERVER_URL"), environment.get("GITHUB_REPOSITORY")
    return f"{server}/{name}" if server and name else None


def urls(address: str, tag: str) -> dict[str, str]:
    """Where to read about the project, as PyPI lists it."""
    return {
        "Repository": address,
        "Documentation": f"{address}/blob/{tag}/docs/README.md",
        "Changelog": f"{address}/blob/{tag}/CHANGELOG.md",
        "Issues": f"{address}/issues",
    }


def with_absolute_links(text: str, address: str, tag: str) -> str:
    """A page of the repository whose links and pictures work elsewhere."""

    def absolute(found: re.Match[str]) -> str:
        kind = "raw" if found["image"] else "blob"
        return f"{found['before']}{address}/{kind}/{tag}/{found['path']}"

    return _RELATIVE_LINK.sub(absolute, text)


class ProjectMetadataHook(MetadataHookInterface):
    """Sets `readme` and `urls` of the project."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        address = repository(os.environ)
        if address is not None:
            tag = f"v{metadata['version']}"
            text = with_absolute_links(text, address, tag)
            metadata["urls"] = urls(address, tag)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
