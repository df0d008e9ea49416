"""What systemd is told, over a socket like its own."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from nebula.broker.server.systemd import READY, ServiceManager
from tests.broker.service_manager import Manager
from tests.cli.programs import running


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    """One with a socket in a folder."""
    manager = Manager(str(tmp_path / "notify"))
    with manager.socket:
        yield manager


def test_word_goes_to_the_socket_that_the_environment_names(manager: Manager) -> None:
    ServiceManager({"NOTIFY_SOCKET": manager.socket.getsockname()}).tell(READY, "STATUS=fine")

    assert manager.hear() == "READY=1\nSTATUS=fine"


def test_abstract_socket_is_written_with_an_at_sign() -> None:
    manager = Manager(f"\0nebula-test-{os.getpid()}")
    with manager.socket:
        ServiceManager({"NOTIFY_SOCKET": f"@nebula-test-{os.getpid()}"}).tell(READY)

        assert manager.hear() == "READY=1"


@pytest.mark.parametrize("environment", [{}, {"NOTIFY_SOCKET": ""}, {"NOTIFY_SOCKET": "/nowhere/notify"}])
def test_program_does_not_depend_on_who_watches_it(environment: dict[str, str]) -> None:
    ServiceManager(environment).tell(READY)


def watch(environment: dict[str, str], turns: int) -> None:
    async def main() -> None:
        with ServiceManager(environment).watched():
            for _ in range(turns):
                await asyncio.sleep(0)

    asyncio.run(main())


def test_watchdog_is_fed_while_the_loop_turns(manager: Manager) -> None:
    async def main() -> None:
        environment = {"NOTIFY_SOCKET": manager.socket.getsockname(), "WATCHDOG_USEC": "1000"}
        with ServiceManager(environment).watched():
            for _ in range(3):
                assert await asyncio.to_thread(manager.hear) == "WATCHDOG=1"

    asyncio.run(main())


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"WATCHDOG_USEC": "0"},
        {"WATCHDOG_USEC": "soon"},
        {"WATCHDOG_USEC": "1", "WATCHDOG_PID": "1"},
    ],
)
def test_watchdog_that_is_not_wanted_is_not_fed(manager: Manager, environment: dict[str, str]) -> None:
    watch({"NOTIFY_SOCKET": manager.socket.getsockname(), **environment}, turns=10)
    manager.socket.setblocking(False)

    with pytest.raises(BlockingIOError):
        manager.hear()


def test_broker_says_when_it_is_ready_and_when_it_stops(manager: Manager) -> None:
    environment = {"NOTIFY_SOCKET": manager.socket.getsockname(), "WATCHDOG_USEC": "2000000"}
    with running("broker", "--port", "0", "--store", "memory", env=environment) as (process, _):
        assert manager.hears("READY=1")
        assert manager.hears("WATCHDOG=1")

        process.send_signal(signal.SIGTERM)

        assert manager.hears("STOPPING=1")
        assert process.wait(timeout=20) == 0
