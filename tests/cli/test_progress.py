"""Progress of a broker's start that takes long."""

from __future__ import annotations

import io

import anyio
import pytest

from nebula.cli.progress import StartView
from nebula.cli.terminal import Screen
from tests.own_logs import own_logs

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def _console(*, terminal: bool) -> Screen:
    return Screen(file=io.StringIO(), force_terminal=terminal, width=100)


def _text(console: Screen) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


async def test_quick_start_shows_nothing() -> None:
    console = _console(terminal=True)
    view = StartView(console, patience=1000.0)

    with view.shown(), own_logs() as logs:
        await anyio.to_thread.run_sync(view.tell, "reading", 0.5)

    assert (_text(console), logs) == ("", [])


async def test_slow_start_draws_a_bar_on_a_terminal() -> None:
    console = _console(terminal=True)
    view = StartView(console, patience=0.0)

    with anyio.fail_after(10), view.shown():
        view.tell("reading", 0.25)
        while "25%" not in _text(console):
            await anyio.sleep(0.01)

    assert "reading the store" in _text(console)


async def test_slow_start_is_logged_off_a_terminal() -> None:
    console = _console(terminal=False)
    view = StartView(console, patience=0.0)

    with anyio.fail_after(10), own_logs() as logs, view.shown():
        view.tell("checking", None)
        while not logs:
            await anyio.sleep(0.01)

    assert logs[0] == {"event": "start delayed", "log_level": "info", "store": "checking"}
    assert _text(console) == ""
