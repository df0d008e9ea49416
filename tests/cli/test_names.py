"""Names of destinations on the command line: one rule, and nothing is lost by a missing prefix."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from subprocess import CompletedProcess
from typing import Any

import anyio
import pytest

from nebula import Client
from tests.cli.programs import nebula, running

Ask = Callable[..., CompletedProcess[str]]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with running("broker", "--port", "0", "--store", "memory") as (_, line):
        yield line["url"]


@pytest.fixture
def ask(url: str) -> Ask:
    return lambda *words: nebula(*words, env={"NEBULA_BROKER": url})


def send_bare(url: str, destination: str) -> None:
    """As a client of others does, which knows no rule."""

    async def send() -> None:
        async with Client(url) as client:
            await client.stomp.send(destination, b"bare", receipt=True)

    anyio.run(send)


def told(ended: CompletedProcess[str]) -> Any:
    assert (ended.stderr, ended.returncode) == ("", 0)
    return json.loads(ended.stdout)


def test_what_is_published_to_a_bare_name_is_peeked_and_purged_by_it(ask: Ask) -> None:
    sent = told(ask("pub", "paper", "x"))
    seen = told(ask("peek", "paper"))
    purged = told(ask("purge", "paper", "--yes"))

    assert sent["destination"] == "/queue/paper"
    assert [one["body"] for one in seen] == ["x"]
    assert purged == {"queue": "/queue/paper", "purged": 1}


def test_queue_without_prefix_of_another_client_is_reached(ask: Ask, url: str) -> None:
    send_bare(url, "foreign/one")

    assert [one["body"] for one in told(ask("peek", "foreign/one"))] == ["bare"]
    assert told(ask("queues", "foreign/one"))["summary"]["queue"] == "foreign/one"
    assert told(ask("purge", "foreign/one", "--yes"))["purged"] == 1


def test_name_of_two_queues_is_refused_with_both_of_them(ask: Ask, url: str) -> None:
    send_bare(url, "twice")
    told(ask("pub", "twice", "prefixed"))

    refused = ask("purge", "twice", "--yes")
    usual = told(ask("peek", "/queue/twice"))
    exact = told(ask("peek", "twice", "--exact"))

    assert refused.returncode == 2
    assert "/queue/twice" in refused.stderr
    assert "--exact" in refused.stderr
    assert [one["body"] for one in (*usual, *exact)] == ["prefixed", "bare"]


@pytest.mark.parametrize(
    "words",
    [
        ("pub", "queue/orders", "x"),
        ("sub", "queue/orders"),
        ("peek", "queue/orders"),
        ("purge", "queue/orders", "--yes"),
        ("queues", "queue/orders"),
        ("record", "queue/orders", "--into", "recorded"),
        ("dlq", "list", "--from", "queue/orders"),
        ("dlq", "replay", "--all", "--to", "queue/orders"),
        ("delayed", "list", "--pattern", "queue/orders"),
        ("call", "queue/orders", "quote"),
        ("call", "orders", "quote", "--notify", "queue/orders"),
    ],
)
def test_half_a_prefix_is_refused(ask: Ask, words: tuple[str, ...]) -> None:
    ended = ask(*words)

    assert ended.returncode == 2
    assert "did you mean '/queue/orders'" in " ".join(ended.stderr.split())


def test_bare_name_is_no_topic(ask: Ask) -> None:
    ended = ask("topics", "news")

    assert ended.returncode == 2
    assert "'/queue/news'" in ended.stderr
    assert "'/topic/news'" in ended.stderr


def test_dead_letters_are_found_by_a_bare_name(ask: Ask) -> None:
    told(ask("pub", "dying", "x", "-H", "expires:1"))

    assert told(ask("dlq", "list", "--from", "dying"))["rows"][0]["source"] == "/queue/dying"
    assert told(ask("dlq", "purge", "--from", "dying", "--yes"))["purged"] == 1


@pytest.mark.parametrize(
    "words",
    [
        ("purge", "orders"),
        ("disconnect", "someone"),
        ("dlq", "purge", "--all"),
        ("delayed", "purge", "--all"),
        ("session", "end", "reader"),
        ("session", "purge", "reader"),
        ("engine", "restart", "reports"),
    ],
)
def test_what_destroys_needs_a_word_off_a_terminal(ask: Ask, words: tuple[str, ...]) -> None:
    ended = ask(*words)

    assert ended.returncode == 2
    assert ended.stderr.startswith("nebula: ")
    assert ended.stderr.endswith("? There is no terminal to ask on: give --yes\n")
