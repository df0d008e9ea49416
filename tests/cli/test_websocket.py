"""Commands with a `ws://` address, to a broker that listens for HTTP on another port."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import state
from tests.cli.programs import nebula, running


@pytest.fixture(scope="module")
def ws_url(folder: Path) -> Iterator[str]:
    """A broker that hosts the shop, by its second address."""
    words = ("broker", "--port", "0", "--http", "0", "--store", "memory", "--app", "shop:app")
    with running(*words, cwd=folder, env=state(folder)) as (process, _):
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["url"]


def test_broker_names_its_http_listener(ws_url: str) -> None:
    assert ws_url.startswith("ws://127.0.0.1:")


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["call", "shop", "price", "item=lamp", "qty:=3"], '"3.75"\n'),
        (["jobs", "shop"], "[]\n"),
    ],
)
def test_command_works_over_a_websocket(ws_url: str, words: list[str], shown: str) -> None:
    ended = nebula(*words, env={"NEBULA_BROKER": ws_url})

    assert (ended.stdout, ended.stderr, ended.returncode) == (shown, "", 0)


def test_service_is_run_and_described_over_a_websocket(ws_url: str, folder: Path) -> None:
    (folder / "depot.py").write_text(
        "from nebula import Responder\n\napp = Responder('depot')\n\n"
        "@app.verb\ndef count() -> int:\n    return 7\n"
    )
    environment = {"NEBULA_BROKER": ws_url}

    with running("run", "depot:app", cwd=folder, env=environment | state(folder)):
        described = nebula("describe", "depot", env=environment)
        called = nebula("call", "depot", "count", env=environment)

    assert json.loads(described.stdout)["service"] == "depot"
    assert (called.stdout, called.returncode) == ("7\n", 0)
