"""Clients on imitations of macOS and Windows, with a broker and a service on this system."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.programs import running

_ROOT = Path(__file__).parents[2]
_PLATFORMS = ("darwin", "win32")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A broker with the service `prices` in it."""
    words = ("broker", "--port", "0", "--store", "memory", "--app", "tests.platforms.client_program:app")
    with running(*words, cwd=_ROOT) as (_, told):
        yield told["url"]


def run_on(platform: str, *words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a module on an imitation of a platform."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.platforms.imitation", platform, *words],
        env={**os.environ, "PYTHONPATH": str(_ROOT), "HOME": str(folder), "APPDATA": str(folder)},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("platform", _PLATFORMS)
def test_client_works_without_what_only_linux_or_posix_has(platform: str, url: str, tmp_path: Path) -> None:
    done = run_on(platform, "tests.platforms.client_program", url, folder=tmp_path)

    assert (done.returncode, done.stdout, done.stderr) == (0, f"called on {platform}\n", "")


@pytest.mark.parametrize("platform", _PLATFORMS)
@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (("call", "prices", "quote", "symbol=ABC"), "1.25"),
        (("stream", "prices", "ticks", "count=2"), "0\n1"),
        (("describe", "prices"), "quote"),
        (("stubs", "prices", "--typescript"), "export class Prices"),
        (("queues",), "/queue/prices"),
        (("top", "--once"), '"queues"'),
        (("contexts",), ""),
        (("--help",), "Usage"),
    ],
    ids=lambda words: words[0] if isinstance(words, tuple) else "",
)
def test_command_works_there_too(
    platform: str, words: tuple[str, ...], shown: str, url: str, tmp_path: Path
) -> None:
    options = {"contexts": (), "--help": ()}.get(words[0], ("--broker", url))

    done = run_on(platform, "nebula", *words, *options, folder=tmp_path)

    assert (done.returncode, done.stderr) == (0, "")
    assert shown in done.stdout


def test_folder_is_not_used_without_locks(tmp_path: Path) -> None:
    words = ("broker", "--port", "0", "--data", str(tmp_path / "data"))

    done = run_on("win32", "nebula", *words, folder=tmp_path)

    assert done.returncode != 0
    assert "flock" in done.stderr
    assert "Traceback" not in done.stderr


def test_imitation_takes_away_what_it_says(tmp_path: Path) -> None:
    (tmp_path / "look.py").write_text(
        "import json, os, signal, socket, sys\n"
        "try:\n    import fcntl\nexcept ModuleNotFoundError:\n    fcntl = None\n"
        "print(json.dumps([sys.platform, hasattr(os, 'fork'), hasattr(signal, 'SIGHUP'),"
        " hasattr(socket, 'AF_UNIX'), fcntl is not None]))\n"
    )

    told = {one: json.loads(run_on(one, "look", folder=tmp_path).stdout) for one in _PLATFORMS}

    assert told == {
        "darwin": ["darwin", True, True, True, True],
        "win32": ["win32", False, False, False, False],
    }
