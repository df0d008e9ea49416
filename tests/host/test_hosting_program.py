"""`nebula broker --app`: a broker and its services as one program."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import threading
import time
from pathlib import Path

import pytest

from nebula.errors import ConnectionLost, NoResponder, ServerError
from nebula.sync import Client
from tests.cli.programs import nebula, running

APPS = '''
import asyncio
import time

from nebula import NebulaError, Responder

prices = Responder("prices")
orders = Responder("orders")
no_app = "not a responder"
refused = Responder("refused", queues=["/topic/re[fused"])


@prices.verb
async def quote(symbol: str) -> str:
    return symbol * 2


@prices.verb
async def slow(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "answered"


@orders.verb
def compute(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


class Mortal(Responder):
    """Fails when it is told to, with an error of a kind of its own."""

    error: BaseException

    async def run(self, url=None, **options):
        self.dies = asyncio.Event()
        serving = asyncio.ensure_future(super().run(url, **options))
        dying = asyncio.ensure_future(self.dies.wait())
        await asyncio.wait([serving, dying], return_when=asyncio.FIRST_COMPLETED)
        serving.cancel()
        raise self.error


mortal = Mortal("mortal")
mortal.error = NebulaError("its time has come")
buggy = Mortal("buggy")
buggy.error = ZeroDivisionError("a bug")


class Hanging(Responder):
    """Never takes a request."""

    async def run(self, url=None, **options):
        print('{"event": "hanging"}', flush=True)
        await asyncio.sleep(3600)


hanging = Hanging("hanging")


@mortal.verb
async def die() -> None:
    mortal.dies.set()


@buggy.verb
async def die() -> None:
    buggy.dies.set()
'''


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where `apps:…` can be found."""
    folder = tmp_path_factory.mktemp("apps")
    (folder / "apps.py").write_text(APPS)
    return folder


def hosting(*apps: str) -> list[str]:
    return ["broker", "--port", "0", *(word for app in apps for word in ("--app", f"apps:{app}"))]


def test_services_answer_once_it_says_that_it_listens(folder: Path) -> None:
    with running(*hosting("prices", "orders"), cwd=folder) as (_, line), Client(line["url"]) as client:
        assert client.call("prices", "quote", {"symbol": "AB"}) == "ABAB"
        assert client.call("orders", "ping") is None


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_broker_and_services(folder: Path, number: signal.Signals) -> None:
    patient = {"NEBULA_SERVER_LIMITS__DRAIN_SECONDS": "60"}
    with (
        running(*hosting("prices", "orders"), cwd=folder, env=patient) as (process, line),
        Client(line["url"]) as client,
    ):
        client.call("prices", "ping")
        process.send_signal(number)

        assert process.wait(timeout=20) == 0  # it would not if it waited for anybody


def test_signal_ends_it_though_a_service_hangs_as_it_starts(folder: Path) -> None:
    with running(*hosting("prices", "hanging"), cwd=folder) as (process, line):
        assert line["event"] == "hanging"
        process.terminate()
        _, err = process.communicate(timeout=10)

    assert process.returncode == 0
    assert [text for text in err.splitlines() if not is_log(text)] == []


def test_request_under_way_is_answered_before_it_ends(folder: Path) -> None:
    with (
        running(*hosting("prices"), cwd=folder) as (process, line),
        Client(line["url"]) as caller,
        Client(line["url"]) as other,
    ):
        answers: list[str] = []
        calling = threading.Thread(
            target=lambda: answers.append(caller.call("prices", "slow", {"seconds": 0.5}, result=str))
        )
        calling.start()
        while other.call("prices", "stats")["busy"] < 2:  # the other one is `stats` itself
            pass
        process.terminate()
        calling.join(10)

        assert answers == ["answered"]
        assert process.wait(timeout=10) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_second_signal_ends_it_at_once_while_a_request_is_handled(
    folder: Path, number: signal.Signals
) -> None:
    patient = {"NEBULA_SERVER_LIMITS__DRAIN_SECONDS": "120"}
    with (
        running(*hosting("prices"), cwd=folder, env=patient) as (process, line),
        Client(line["url"]) as client,
    ):
        client.send("prices", "slow", {"seconds": 120.0})
        while client.call("prices", "stats")["busy"] < 2:  # the other one is `stats` itself
            pass
        process.send_signal(number)
        # It no longer listens, so it has received the first one.
        while listens(line["url"]):
            time.sleep(0.01)
        process.send_signal(number)

        assert process.wait(timeout=20) == -number


def listens(url: str) -> bool:
    host, _, port = url.partition("://")[2].rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except ConnectionError:
        return False
    return True


def test_broker_serves_others_while_a_service_computes(folder: Path) -> None:
    with running(*hosting("prices", "orders"), cwd=folder) as (_, line), Client(line["url"]) as client:
        client.send("orders", "compute", {"seconds": 60.0})
        for _ in range(50):
            client.call("prices", "ping")

        # It computes still; the other one is `stats` itself.
        assert client.call("orders", "stats")["busy"] == 2


def test_service_that_the_broker_refuses_ends_it_with_one_sentence(folder: Path) -> None:
    ended = nebula(*hosting("prices", "refused"), cwd=folder)

    assert ended.returncode == 3
    assert ended.stdout == ""
    (sentence,) = [line for line in ended.stderr.splitlines() if line.startswith("nebula: ")]
    assert '/topic/re[fused has a "["' in sentence
    assert "Traceback" not in ended.stderr
    assert "never retrieved" not in ended.stderr


@pytest.mark.parametrize(
    ("app", "said"), [("no_app", "is not a Responder"), ("missing", "is not a Responder")]
)
def test_what_is_no_service_ends_it_before_anything_listens(folder: Path, app: str, said: str) -> None:
    ended = nebula(*hosting(app), cwd=folder)

    assert ended.returncode == 2
    assert ended.stdout == ""
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr


def test_service_that_fails_later_ends_the_broker_with_its_sentence(folder: Path) -> None:
    with running(*hosting("prices", "mortal"), cwd=folder) as (process, line):
        with Client(line["url"]) as client:
            client.send("mortal", "die")
        _, err = process.communicate(timeout=10)

    assert process.returncode == 1
    assert [text for text in err.splitlines() if not is_log(text)] == ["nebula: its time has come"]


def test_bug_in_a_service_ends_the_broker_with_its_traceback(folder: Path) -> None:
    with running(*hosting("buggy"), cwd=folder) as (process, line):
        # The broker may be gone before it has said that it has the request.
        with Client(line["url"]) as client, contextlib.suppress(ServerError, ConnectionLost):
            client.send("buggy", "die")
        _, err = process.communicate(timeout=10)

    assert process.returncode == 1
    assert err.rstrip().endswith("ZeroDivisionError: a bug")
    assert "never retrieved" not in err


def test_nobody_answers_for_a_service_that_is_not_hosted(folder: Path) -> None:
    with (
        running(*hosting("prices"), cwd=folder) as (_, line),
        Client(line["url"]) as client,
        pytest.raises(NoResponder),
    ):
        client.call("orders", "ping")


def is_log(line: str) -> bool:
    try:
        return "event" in json.loads(line)
    except ValueError:
        return False
