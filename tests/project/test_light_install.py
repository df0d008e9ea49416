"""An install by pip without extras, in an empty environment: it serves, calls, and says what it lacks."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.cli.programs import environment, running
from tests.missing_extras import ASK, PRICES
from tests.ports import free_port

ROOT = Path(__file__).parents[2]
# Builds the package and installs its libraries, from PyPI where pip has not kept them.
_DEADLINE = 270.0

# Packages with most of the bytes, or that must be compiled where there is no wheel.
_OF_EXTRAS = {"argon2-cffi", "cryptography", "h11", "prometheus_client", "PyJWT", "rich", "typer", "uvloop"}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def run(words: Sequence[str | Path], folder: Path, url: str = "") -> subprocess.CompletedProcess[str]:
    """Run a program to its end, with no module of the checkout in its way."""
    env = environment({"NEBULA_BROKER": url} if url else {})
    env.pop("PYTHONPATH", None)
    return subprocess.run(
        words, cwd=folder, env=env, capture_output=True, text=True, timeout=_DEADLINE, check=False
    )


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the commands of an environment with the package alone."""
    folder = tmp_path_factory.mktemp("light")
    uv = shutil.which("uv")
    made = run([ROOT / ".ci" / "make-venv", "venv", uv or ""], folder)
    assert made.returncode == 0, made.stderr
    python = folder / "venv" / "bin" / "python"
    pip: list[str | Path] = [python, "-m", "pip", "install"]
    if uv is not None:
        pip = [uv, "pip", "install", "--python", python]
    installed = run([*pip, "--quiet", "--constraint", ROOT / "constraints.txt", ROOT], folder)
    assert installed.returncode == 0, installed.stderr
    return python.parent


def test_light_install_has_no_library_of_an_extra(commands: Path) -> None:
    listing = "import importlib.metadata as m; print(*{each.name for each in m.distributions()})"
    said = run([commands / "python", "-c", listing], commands.parent)

    installed = set(said.stdout.split())
    assert "nebula-rpc" in installed
    assert not installed & _OF_EXTRAS


def test_light_install_serves_and_calls_a_verb(commands: Path, tmp_path: Path) -> None:
    (tmp_path / "prices.py").write_text(PRICES)
    (tmp_path / "ask.py").write_text(ASK)
    port = str(free_port())
    with running("broker", "--port", port, "--store", "memory"):
        said = run([commands / "python", "ask.py"], tmp_path, f"stomp://127.0.0.1:{port}")

    assert (said.stdout, said.stderr, said.returncode) == ("25.0\n37.5\n", "", 0)


def test_command_of_a_light_install_says_which_extra_it_needs(commands: Path, tmp_path: Path) -> None:
    said = run([commands / "nebula", "services"], tmp_path)

    assert said.stderr == (
        "nebula: the command nebula needs typer, which is not installed: pip install 'nebula-rpc[cli]'\n"
    )
    assert said.returncode == 2
