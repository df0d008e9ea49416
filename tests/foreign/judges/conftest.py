"""Brokers of ours, and all their foreign judges at work on them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from urllib.parse import urlsplit
from uuid import uuid4

import pytest

from tests.cli.programs import running
from tests.foreign.install import install_node_modules, install_package, install_program
from tests.foreign.judges.page_server import PageServer
from tests.foreign.judges.trials import HERE, Ports, Trial, start_chromium, start_programs

_CONFIG = """\
[[listener]]
port = 0

[[listener]]
port = 0
http = true
"""

Trials = dict[tuple[str, str], Trial]


@pytest.fixture(scope="session")
def installed() -> None:
    """What judges need. Where it cannot be had the tests fail: who asked for them wants it."""
    for package in ("ruby-stomp", "libnet-stomp-perl", "php-stomp", "libactivemq-java"):
        install_package(package)
    programs = {
        "ruby": "ruby",
        "php": "php-cli",
        "javac": "default-jdk-headless",
        "node": "nodejs",
        "npm": "npm",
        "chromium": "chromium",
    }
    for program, package in programs.items():
        install_program(program, package)
    install_node_modules(HERE / "js")


@pytest.fixture(scope="session")
def trials(installed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trials]:
    """The trials by judge and version. All run at once: most of their time they wait for heart-beats.

    Each has a broker of its own: a broker has one queue for all dead letters, and of two who look for theirs
    at a time each may hold the other's.
    """
    folder = tmp_path_factory.mktemp("judges")
    config = folder / "nebula.toml"
    config.write_text(_CONFIG)
    pages = PageServer({"/stompjs/": HERE / "js/node_modules/@stomp/stompjs/esm6", "/": HERE / "js"})
    with ExitStack() as stack:

        def start_broker() -> Ports:
            words = ("broker", "--config", str(config), "--store", "memory")
            process, tcp = stack.enter_context(running(*words))
            assert process.stdout is not None
            http = json.loads(process.stdout.readline())
            return Ports(_port(tcp["url"]), _port(http["url"]))

        stack.enter_context(pages.serving())
        namespace = uuid4().hex
        programs = start_programs(stack, folder, start_broker, namespace)
        yield programs | start_chromium(stack, folder, start_broker, namespace, pages)


def _port(url: str) -> int:
    port = urlsplit(url).port
    assert port is not None
    return port
