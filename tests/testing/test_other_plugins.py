"""Our fixtures under pytest-asyncio, alone and together with anyio's plugin, as in a user's project."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest

from nebula import Responder
from nebula.testing import TestClient, broker, serving

PRICES = """
from decimal import Decimal

from nebula import Responder

app = Responder("prices")


@app.verb
async def quote(symbol: str, qty: int = 1) -> Decimal:
    return Decimal("10") * qty
"""

TESTS = """
from collections.abc import AsyncIterator, Iterator

import FIXTURES
import pytest
from prices import app, quote

from nebula import Client, OutsideBroker, sync
from nebula.testing import Faults, RunningBroker, Serve, TestClient

MARK


@FIXTURES.fixture
async def client() -> AsyncIterator[TestClient]:
    async with TestClient(app) as client:
        yield client


@FIXTURES.fixture
async def services(nebula_serve: Serve) -> AsyncIterator[None]:
    async with nebula_serve(app):
        yield


async def test_client_of_a_fixture(client: TestClient) -> None:
    assert await client.call(quote, "ABC") == 10


async def test_no_address_means_the_broker_of_the_fixture(client: TestClient) -> None:
    async with Client() as inner:
        assert await inner.call(quote, "ABC") == 10


async def test_services_of_a_fixture(services: None, nebula_client: Client) -> None:
    assert await nebula_client.call(quote, "ABC") == 10


async def test_services_of_a_test(nebula_serve: Serve, nebula_client: Client, nebula_faults: Faults) -> None:
    async with nebula_serve(app), Client(link=nebula_faults) as client:
        assert await client.call(quote, "ABC") == await nebula_client.call(quote, "ABC")


@pytest.mark.parametrize("nebula_transport", ["memory", "tcp", "tls"])
async def test_each_transport(nebula_serve: Serve, nebula_client: Client) -> None:
    async with nebula_serve(app), Client() as client:
        assert await client.call(quote, "ABC") == await nebula_client.call(quote, "ABC")


async def test_nobody_outside(client: TestClient) -> None:
    with pytest.raises(OutsideBroker):
        async with Client("stomp://broker.example"):
            pytest.fail("it must not be reached")
"""

PLAIN = """
from collections.abc import Iterator

import pytest
from prices import app, quote

from nebula import sync
from nebula.testing import RunningBroker, TestClient


@pytest.fixture
def client() -> Iterator[sync.Client]:
    with TestClient(app) as client:
        yield client


def test_plain_fixture(client: sync.Client) -> None:
    assert client.call(quote, "ABC") == 10


def test_plain_test_has_a_broker(nebula_broker: RunningBroker) -> None:
    with sync.Client() as client:
        client.publish("/queue/somewhere", "arrived")
"""

ASYNC_MODES = {
    "auto": ("pytest", "", ["-o", "asyncio_mode=auto"]),
    "strict": ("pytest_asyncio", "pytestmark = pytest.mark.asyncio", ["-o", "asyncio_mode=strict"]),
    "one loop for the module": (
        "pytest",
        'pytestmark = pytest.mark.asyncio(loop_scope="module")',
        ["-o", "asyncio_mode=auto", "-o", "asyncio_default_fixture_loop_scope=module"],
    ),
    "anyio beside it": ("pytest", "pytestmark = pytest.mark.anyio", []),
    "anyio alone": ("pytest", "pytestmark = pytest.mark.anyio", ["-p", "no:asyncio"]),
}


def run_pytest(folder: Path, options: Sequence[str]) -> str:
    """Run the tests of a folder in an interpreter of their own; what pytest said."""
    (folder / "prices.py").write_text(PRICES)
    (folder / "pytest.ini").write_text("[pytest]\n")
    environment = {**os.environ, "PYTEST_ADDOPTS": ""}
    environment.pop("NEBULA_BROKER", None)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore", *options]
    ended = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=100, check=False
    )
    return ended.stdout + ended.stderr


@pytest.mark.parametrize("mode", ASYNC_MODES)
def test_fixtures_work_under_each_plugin(mode: str, tmp_path: Path) -> None:
    module, mark, options = ASYNC_MODES[mode]
    if "anyio" not in mode:
        pytest.importorskip("pytest_asyncio")
    (tmp_path / "test_async.py").write_text(TESTS.replace("FIXTURES", module).replace("MARK", mark))
    (tmp_path / "test_plain.py").write_text(PLAIN)

    said = run_pytest(tmp_path, options)

    number = (2 if "anyio" in mode else 1) * 8 + 2  # anyio runs them on trio, too
    assert f"{number} passed" in said, said


def test_plain_test_is_told_that_the_client_is_for_async_ones(tmp_path: Path) -> None:
    (tmp_path / "test_plain.py").write_text("def test_it(nebula_client): ...\n")

    assert "nebula_client is for async tests" in run_pytest(tmp_path, [])


# --- what that takes: blocks that are entered and left in two tasks, and used in a third one ---

app = Responder("greeter")


@app.verb
async def greet(name: str) -> str:
    return f"hello, {name}"


def test_client_is_entered_used_and_left_in_three_tasks() -> None:
    client = TestClient(app)
    with asyncio.Runner() as runner:
        runner.run(client.__aenter__())
        assert runner.run(client.call("greeter", "greet", {"name": "Ada"})) == "hello, Ada"
        runner.run(client.__aexit__(None, None, None))


def test_services_are_entered_and_left_in_two_tasks() -> None:
    async def enter() -> None:
        await broker_block.__aenter__()
        await block.__aenter__()

    async def leave() -> None:
        await block.__aexit__(None, None, None)
        await broker_block.__aexit__(None, None, None)

    with asyncio.Runner() as runner:
        client = TestClient()
        runner.run(client.__aenter__())
        broker_block, block = broker(), serving(client.url, app)
        runner.run(enter())
        assert runner.run(client.call("greeter", "greet", {"name": "Ada"})) == "hello, Ada"
        runner.run(leave())
        runner.run(client.__aexit__(None, None, None))


def test_service_that_ends_fails_the_fixture_with_its_reason() -> None:
    class Mortal:
        name = "mortal"
        die = asyncio.Event()

        async def run(self, *_: object, started: anyio.Event | None = None, **__: object) -> None:
            assert started is not None
            started.set()
            await self.die.wait()
            raise LookupError("database lost")

    async def end(mortal: Mortal) -> None:
        mortal.die.set()
        await anyio.wait_all_tasks_blocked()

    mortal = Mortal()
    client = TestClient(mortal)
    with asyncio.Runner() as runner:
        runner.run(client.__aenter__())
        runner.run(end(mortal))
        with pytest.raises(LookupError, match="database lost"):
            runner.run(client.__aexit__(None, None, None))
