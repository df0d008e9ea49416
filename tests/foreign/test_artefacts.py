"""What is released, each in an empty environment: sdist, pure wheel and npm package call a service.

The compiled wheel takes a compiler and minutes: `make artefacts` tries it too.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from nebula.version import __version__
from tests.foreign.install import install_program

pytestmark = [pytest.mark.foreign, pytest.mark.slow, pytest.mark.timeout(900)]

_ROOT = Path(__file__).parents[2]


def done(*words: str | Path) -> str:
    """What a program says, once it has succeeded."""
    ran = subprocess.run(words, cwd=_ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def test_each_artefact_calls_a_service(tmp_path: Path) -> None:
    install_program("npm", "npm")
    done(sys.executable, "-m", "build", "--no-isolation", "--outdir", tmp_path, ".")
    done(sys.executable, _ROOT / ".ci/npm-package", tmp_path)
    files = sorted(tmp_path.iterdir())

    for_pypi = [file for file in files if file.suffix != ".tgz"]
    done(sys.executable, "-m", "twine", "check", "--strict", *for_pypi)
    said = done(sys.executable, _ROOT / ".ci/try-artefacts", *files)

    assert [file.name for file in files] == [
        f"nebula-rpc-client-{__version__}.tgz",
        f"nebula_rpc-{__version__}-py3-none-any.whl",
        f"nebula_rpc-{__version__}.tar.gz",
    ]
    assert said.count(f"called: nebula {__version__} (interpreted)") == 3
