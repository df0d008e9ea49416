"""`nebula stream`, as a shell sees it."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from nebula import sync
from tests.cli.programs import DEADLINE, NEBULA, environment, nebula, running
from tests.cli.strangers import run as on_a_terminal

SHOP = """
import threading
from collections.abc import AsyncIterator

import anyio

from nebula import Responder, VerbError

app = Responder("shop", stream_idle=1.0)
closed = threading.Event()


@app.verb
async def count(up_to: int, size: int = 0) -> AsyncIterator[dict[str, object]]:
    try:
        for number in range(up_to):
            yield {"n": number, "é": "x" * size}
    finally:
        closed.set()


@app.verb
async def failing(after: int) -> AsyncIterator[int]:
    for number in range(after):
        yield number
    raise VerbError("sold-out", "none left")


@app.verb
async def quiet() -> AsyncIterator[str]:
    try:
        yield "\\x1b[31mred"
        await anyio.sleep_forever()
    finally:
        closed.set()


@app.verb
async def lines() -> AsyncIterator[str]:
    yield "a\\nb"


@app.verb
async def one() -> int:
    return 7


@app.verb
def was_closed(seconds: float = 10) -> bool:
    try:
        return closed.wait(seconds)
    finally:
        closed.clear()
"""

Ask: TypeAlias = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where `shop:app` can be found."""
    path = tmp_path_factory.mktemp("streams")
    (path / "shop.py").write_text(SHOP)
    return path


@pytest.fixture(scope="module")
def url(folder: Path) -> Iterator[str]:
    """A broker that hosts the service."""
    with running("broker", "--port", "0", "--store", "memory", "--app", "shop:app", cwd=folder) as (_, tcp):
        yield tcp["url"]


@pytest.fixture
def ask(url: str) -> Ask:
    """Runs a command to its end."""
    return lambda *words: nebula(*words, env={"NEBULA_BROKER": url})


def was_closed(url: str) -> bool:
    """Whether the handler of the last stream is closed; forgets it."""
    with sync.Client(url) as client:
        return client.call("shop", "was_closed", result=bool)


def test_each_item_is_a_line_of_json(ask: Ask) -> None:
    ended = ask("stream", "shop", "count", "up_to:=1000")

    assert [json.loads(line)["n"] for line in ended.stdout.splitlines()] == list(range(1000))
    assert ended.stdout.startswith('{"n": 0, "é": ""}\n')
    assert (ended.stderr, ended.returncode) == ("", 0)


def test_items_come_as_they_are_yielded_and_ctrl_c_closes_the_handler(url: str) -> None:
    with running("stream", "shop", "quiet", env={"NEBULA_BROKER": url}) as (process, first):
        assert str(first) == "\x1b[31mred"
        process.send_signal(signal.SIGINT)

        assert process.wait(DEADLINE) == 130
    assert was_closed(url)


def test_count_ends_it_and_closes_the_handler(url: str, ask: Ask) -> None:
    was_closed(url)

    ended = ask("stream", "shop", "count", "up_to:=1000000000", "-n", "300")

    assert (len(ended.stdout.splitlines()), ended.returncode) == (300, 0)
    assert was_closed(url)


def test_reader_that_goes_ends_it_and_closes_the_handler(url: str) -> None:
    process = start(url, "stream", "shop", "count", "up_to:=1000000000")
    assert process.stdout is not None
    assert process.stdout.readline()
    process.stdout.close()

    assert process.wait(DEADLINE) == 1
    assert process.stderr is not None
    assert process.stderr.read() == ""
    process.stderr.close()
    assert was_closed(url)


def test_reader_that_is_slow_loses_nothing(url: str) -> None:
    was_closed(url)
    process = start(url, "stream", "shop", "count", "up_to:=2000", "size:=4000")
    assert process.stdout is not None
    first = process.stdout.readline()
    with sync.Client(url) as client:
        # It waits for the pipe, longer than its service bears silence: it says that it is there.
        assert client.call("shop", "was_closed", {"seconds": 3}) is False
    lines = [first, *process.stdout]
    process.communicate()

    assert [json.loads(line)["n"] for line in lines] == list(range(2000))
    assert process.returncode == 0


def test_ctrl_c_ends_it_even_if_its_output_is_not_read(url: str) -> None:
    process = start(url, "stream", "shop", "count", "up_to:=1000000000", "size:=4000")
    assert process.stdout is not None
    assert process.stdout.readline()
    process.send_signal(signal.SIGINT)

    assert process.wait(DEADLINE) == 130
    process.communicate()
    assert was_closed(url)


def test_error_comes_behind_the_items_before_it(ask: Ask) -> None:
    ended = ask("stream", "shop", "failing", "after:=2")

    assert (ended.stdout, ended.stderr) == ("0\n1\n", "nebula: sold-out: none left\n")
    assert ended.returncode == 1


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["shop", "cont"], 1, "nebula: unknown-verb: "),
        (["shop", "count", "up_to=x"], 1, "nebula: bad-parameters: up_to: "),
        (["shop", "count", "3"], 2, "nebula: '3' is not a parameter"),
        (["nobody", "count"], 3, "nebula: no service listens on /queue/nobody; is the service running?"),
        (["shop", "quiet", "--timeout", "0.3"], 3, "nebula: /queue/shop: the time for the stream is over"),
        (["shop", "count", "up_to:=1", "-n", "0"], 2, "Usage: "),
    ],
)
def test_failure_is_a_sentence_on_stderr_and_a_status(
    ask: Ask, words: list[str], status: int, said: str
) -> None:
    ended = ask("stream", *words)

    assert ended.returncode == status
    assert ended.stderr.startswith(said)
    assert "Traceback" not in ended.stderr


def test_service_that_is_killed_amid_is_told_when_another_one_begins_anew(folder: Path) -> None:
    with running("broker", "--port", "0", "--store", "memory") as (_, tcp):
        service = ("run", "shop:app", "--broker", tcp["url"])
        words = ("stream", "shop", "quiet", "--broker", tcp["url"])
        with running(*service, cwd=folder) as (first, _), running(*words) as (reading, _):
            first.send_signal(signal.SIGKILL)
            with running(*service, cwd=folder):
                assert reading.wait(DEADLINE) == 1
                assert reading.stderr is not None
                assert "the stream began anew" in reading.stderr.read()


def test_verb_that_does_not_stream_has_its_answer_shown(ask: Ask) -> None:
    ended = ask("stream", "shop", "one")

    assert (ended.stdout, ended.returncode) == ("7\n", 0)


def test_terminal_has_texts_as_they_are_and_obeys_none(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def shown(*words: str) -> str:
        return on_a_terminal(monkeypatch, "stream", "shop", *words, env={"NEBULA_BROKER": url}).out

    assert shown("lines") == "a\\nb\n"
    assert shown("quiet", "-n", "1") == "\\x1b[31mred\n"
    assert shown("quiet", "-n", "1", "--json") == '"\\u001b[31mred"\n'


def test_describe_shows_how_a_stream_is_read(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = on_a_terminal(monkeypatch, "describe", "shop", "count", env={"NEBULA_BROKER": url}).out

    assert "nebula stream shop count up_to:=1" in re.sub(r"\x1b\[[0-9;]*m", "", shown)
    assert "Accept: application/x-ndjson" in shown


def start(url: str, *words: str) -> subprocess.Popen[str]:
    """A command whose output is read by the test, when it likes."""
    return subprocess.Popen(
        [*NEBULA, *words],
        env=environment({"NEBULA_BROKER": url}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        stdin=subprocess.DEVNULL,
    )
