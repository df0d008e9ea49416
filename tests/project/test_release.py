"""What a release needs: a version, its section of the changelog, and a tag that fits both."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nebula.version import __version__

_ROOT = Path(__file__).parents[2]
_WORKFLOW = {"GITHUB_SERVER_URL": "https://github.example", "GITHUB_REPOSITORY": "us/nebula"}


def metadata(environment: dict[str, str]) -> dict[str, Any]:
    """The metadata of the package as a build with this environment makes it."""
    bare = {name: value for name, value in os.environ.items() if not name.startswith("GITHUB_")}
    said = subprocess.check_output(
        [sys.executable, "-m", "hatchling", "metadata"], cwd=_ROOT, env=bare | environment, text=True
    )
    found: dict[str, Any] = json.loads(said)
    return found


def links_of(text: str) -> list[str]:
    return re.findall(r"\]\(([^)\s]+)\)", text)


@pytest.fixture
def set_version(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """`.ci/set-version` in a checkout of its own."""
    for name in (".ci/set-version", "nebula/version.py", "CHANGELOG.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(_ROOT / name, tmp_path / name)

    def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, tmp_path / ".ci/set-version", *words]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    return run


def test_version_is_that_of_the_newest_section_of_the_changelog() -> None:
    changelog = (_ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    sections = re.findall(r"^## \[(.+)\](?: - (\d{4}-\d\d-\d\d))?$", changelog, re.MULTILINE)

    assert sections[0] == ("Unreleased", "")
    assert sections[1][0] == __version__
    assert all(date for _, date in sections[1:])
    assert [date for _, date in sections[1:]] == sorted((date for _, date in sections[1:]), reverse=True)


def test_tag_of_this_version_may_be_released_with_its_notes(
    tmp_path: Path, set_version: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    done = set_version(f"v{__version__}", tmp_path / "notes.md")

    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "notes.md").read_text(encoding="utf-8").strip()
    own = (_ROOT / "nebula/version.py").read_text(encoding="utf-8")
    assert (tmp_path / "nebula/version.py").read_text(encoding="utf-8") == own


@pytest.mark.parametrize("version", ["99.1.2", "99.2.0rc1"])
def test_release_has_the_version_of_its_tag(
    tmp_path: Path, set_version: Callable[..., subprocess.CompletedProcess[str]], version: str
) -> None:
    changelog = tmp_path / "CHANGELOG.md"
    changelog.write_text(f"# Changelog\n\n## [{version}] - 2030-01-31\n\nNew.\n", encoding="utf-8")

    done = set_version(f"v{version}")

    assert (done.returncode, done.stderr) == (0, "")
    assert f'\n__version__ = "{version}"\n' in (tmp_path / "nebula/version.py").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "tag", ["v99.0.0", __version__, f"v{__version__}-rc1", f"v{__version__}rc1", "v", ""]
)
def test_other_tags_are_refused(
    tmp_path: Path, set_version: Callable[..., subprocess.CompletedProcess[str]], tag: str
) -> None:
    done = set_version(tag)

    assert done.returncode == 1
    assert (
        "no section" if re.match(r"v\d", tag) and "-" not in tag else "no tag of a release"
    ) in done.stderr
    assert __version__ in (tmp_path / "nebula/version.py").read_text(encoding="utf-8")


def test_chart_and_page_name_this_version() -> None:
    chart = (_ROOT / "deploy/helm/nebula/Chart.yaml").read_text(encoding="utf-8")
    page = (_ROOT / "docs/how-to/install.md").read_text(encoding="utf-8")

    assert f'appVersion: "{__version__}"' in chart
    assert set(re.findall(r"nebula_rpc-([\d.]+)-py3", page)) == {__version__}


def test_npm_package_has_no_version_of_its_own() -> None:
    package = json.loads((_ROOT / "packages/client/package.json").read_text(encoding="utf-8"))

    assert "version" not in package


def test_package_of_a_workflow_links_to_its_repository_at_the_tag() -> None:
    package = metadata(_WORKFLOW)
    pages = f"https://github.example/us/nebula/blob/v{__version__}/"
    pictures = pages.replace("/blob/", "/raw/")

    links = links_of(package["readme"]["text"])
    own = [link.removeprefix(pages).removeprefix(pictures) for link in links]
    assert own == links_of((_ROOT / "README.md").read_text(encoding="utf-8"))
    assert [link for link in links if "://" not in link] == []
    assert [link for link in links if link.startswith(pictures)] == [
        link for link in links if link.endswith((".png", ".svg"))
    ]
    assert package["urls"] == {
        "Repository": "https://github.example/us/nebula",
        "Documentation": f"{pages}docs/README.md",
        "Changelog": f"{pages}CHANGELOG.md",
        "Issues": "https://github.example/us/nebula/issues",
    }


def test_package_of_another_build_names_no_repository() -> None:
    package = metadata({})

    assert "urls" not in package
    assert package["readme"]["text"] == (_ROOT / "README.md").read_text(encoding="utf-8")
