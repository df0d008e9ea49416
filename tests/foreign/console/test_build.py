"""The console's own tests, its types, and that what is committed is what its source builds to."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from nebula.console.assets import FOLDER
from tests.foreign.console.conftest import HERE
from tests.foreign.install import install_node_modules, install_program

pytestmark = [pytest.mark.foreign, pytest.mark.timeout(900)]

SOURCE = HERE.parents[2] / "console"


@pytest.fixture(scope="module", autouse=True)
def modules() -> None:
    for program, package in {"node": "nodejs", "npm": "npm"}.items():
        install_program(program, package)
    install_node_modules(SOURCE)


def npm(*words: str) -> None:
    done = subprocess.run(["npm", *words], cwd=SOURCE, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(each.relative_to(folder)): each.read_bytes() for each in folder.rglob("*") if each.is_file()}


def test_types_are_right() -> None:
    npm("run", "check")


def test_unit_tests_pass() -> None:
    npm("test")


def test_committed_files_are_what_the_source_builds_to(tmp_path: Path) -> None:
    npm("run", "build", "--", "--outDir", str(tmp_path), "--emptyOutDir")

    built, committed = files_of(tmp_path), files_of(FOLDER)
    assert sorted(built) == sorted(committed), "run `make console`, and commit nebula/console/assets"
    assert built == committed, "run `make console`, and commit nebula/console/assets"
