"""Programs that run until a signal ends them: the loop, the signals, the order of start and stop."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Coroutine
from typing import Any

from nebula import logs
from nebula.broker.policies import DestinationPolicy
from nebula.broker.server import Address, Server
from nebula.broker.settings import BrokerSettings
from nebula.errors import SettingsError


def run_broker(settings: BrokerSettings, on_listening: Callable[[str], None]) -> None:
    """Run a broker until SIGTERM or SIGINT; then end its connections and return within a second.

    Args:
        settings: everything it is told.
        on_listening: called with each URL once all of them listen.

    Raises:
        SettingsError: an address cannot be had.
    """
    logs.configure(settings.log_level)
    _run(_serve_broker(settings, on_listening))


async def _serve_broker(settings: BrokerSettings, on_listening: Callable[[str], None]) -> None:
    # From here on a signal is never lost: one that comes while we start ends us right after.
    stopping = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    server = Server(
        [Address(listener.host, listener.port) for listener in settings.listener],
        limits=settings.limits,
        policies=[DestinationPolicy(**dict(override)) for override in settings.destination],
    )
    try:
        await server.start()
    except OSError as error:
        raise SettingsError(f"the broker cannot listen: {error.strerror or error}") from error
    try:
        for url in server.urls:
            on_listening(url)
        await stopping.wait()
    finally:
        await server.stop()


def _run(program: Coroutine[Any, Any, None]) -> None:
    """Run on uvloop where there is one: it moves several times the messages of asyncio's own loop."""
    new_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
    with contextlib.suppress(ImportError):
        import uvloop

        new_loop = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(program)
