"""The pages for readers of other projects: their programs do what is shown, over their own servers."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from benchmarks.peers import Broker
from tests.docs_runner import ROOT, SPARK_PAGES, Shell, matches, read_page
from tests.foreign.install import install_python_packages
from tests.foreign.redis_server import RedisServer
from tests.ports import free_port

# Blocks of commands that need what is not installed with ours; those of the shell stand for `console`.
_THEIRS = "shell-session"
_PAGES = [
    page
    for page in sorted((ROOT / "docs" / "coming-from").glob("*.md"))
    if read_page(page, _THEIRS).commands and page.name not in SPARK_PAGES
]


@pytest.fixture
def redis() -> Iterator[Mapping[str, int]]:
    server = RedisServer()
    yield {"6379": urlsplit(server.url).port or 0}
    server.stop()


@pytest.fixture
def nats() -> Mapping[str, int]:
    """The page starts its own server."""
    return {"4222": free_port()}


@pytest.fixture
def rabbit(rabbitmq: Broker) -> Mapping[str, int]:
    assert rabbitmq.amqp_port is not None
    return {"5672": rabbitmq.amqp_port, "61613": rabbitmq.port}


@pytest.fixture
def activemq(activemq_url: str) -> Mapping[str, int]:
    return {"61613": urlsplit(activemq_url).port or 0}


_SERVERS = {
    "activemq.md": "activemq",
    "celery.md": "redis",
    "faststream-fastapi.md": "rabbit",
    "nameko.md": "rabbit",
    "nats-micro.md": "nats",
    "rabbitmq-stomp.md": "rabbit",
}
_PACKAGES = {"celery.md": ["celery[redis]"], "nameko.md": ["nameko"]}


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[list[str]], None]:
    """Puts packages of Python before ours."""

    def install(packages: list[str]) -> None:
        folder = tmp_path / "packages"
        install_python_packages(folder, *packages)
        monkeypatch.setenv("PYTHONPATH", str(folder))
        monkeypatch.setenv("PATH", f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}")

    return install


@pytest.mark.foreign
@pytest.mark.timeout(300)
@pytest.mark.parametrize("path", _PAGES, ids=lambda path: path.stem)
def test_their_programs_do_what_the_page_shows(
    path: Path, tmp_path: Path, request: pytest.FixtureRequest, installed: Callable[[list[str]], None]
) -> None:
    ports: Mapping[str, int] = request.getfixturevalue(_SERVERS[path.name])
    if packages := _PACKAGES.get(path.name):
        installed(packages)
    page = read_page(path, _THEIRS)
    for name, text in page.files.items():
        for usual, port in ports.items():
            text = re.sub(rf"\b{usual}\b", str(port), text)
        (tmp_path / name).write_text(text)

    with Shell(tmp_path, ports) as shell:
        for command in page.commands:
            said = shell.type(command)
            assert matches(command.shown, said), f"$ {command.words}\n{said}\n--- not:\n{command.shown}"
