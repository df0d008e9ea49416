"""Commands whose broker goes away: a sentence on stderr, a status, and nothing but JSON on stdout."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from nebula import sync
from tests.cli.conftest import state
from tests.cli.programs import DEADLINE, NEBULA, Program, environment, running


@pytest.fixture
def shop(folder: Path, tmp_path: Path) -> Iterator[tuple[Program, str]]:
    """A broker that hosts the shop, to be killed, and its address."""
    words = ("broker", "--port", "0", "--app", "shop:app")
    with running(*words, cwd=folder, env=state(tmp_path)) as (broker, line):
        yield broker, line["url"]


def started(url: str, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*NEBULA, *words, "--broker", url],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def is_told(ended: Program) -> None:
    """It ended as one whose broker is gone."""
    out, errors = ended.communicate(timeout=DEADLINE)

    for line in out.splitlines():
        json.loads(line)
    assert errors.startswith("nebula: "), errors
    assert errors.count("\n") == 1, errors
    assert ended.returncode == 3


@pytest.mark.parametrize(
    "words", ["services --watch", "ping shop --watch", "stats shop --watch", "describe shop --watch"]
)
def test_watching_command_ends_with_a_sentence(shop: tuple[Program, str], words: str) -> None:
    broker, url = shop
    with running(*words.split(), "--broker", url) as (watching, _):
        broker.kill()
        is_told(watching)


def test_reader_of_messages_ends_with_a_sentence(shop: tuple[Program, str]) -> None:
    broker, url = shop
    with sync.Client(url) as client:
        client.publish("X/lost.a", 1)
    with running("sub", "X/lost.*", "--eager", "--broker", url) as (reading, _):
        broker.kill()
        is_told(reading)


@pytest.mark.parametrize("words", ["call shop nap", "bench call shop nap --in-flight 8"])
def test_call_ends_with_a_sentence_however_many_are_under_way(
    shop: tuple[Program, str], tmp_path: Path, words: str
) -> None:
    broker, url = shop
    begun = tmp_path / "begun"
    calling = started(url, *words.split(), "seconds:=30", f"begun={begun}")
    try:
        while not begun.exists():
            assert calling.poll() is None
        broker.kill()
        is_told(calling)
    finally:
        calling.kill()
        calling.communicate()


def test_measured_publisher_ends_with_a_sentence(shop: tuple[Program, str]) -> None:
    broker, url = shop
    publishing = started(url, "bench", "pub", "--seconds", "60")
    try:
        with sync.Client(url) as client:
            while not client.call("nebula.broker", "queues.list", {"pattern": "/queue/bench.*"})["matched"]:
                assert publishing.poll() is None
        broker.kill()
        is_told(publishing)
    finally:
        publishing.kill()
        publishing.communicate()
