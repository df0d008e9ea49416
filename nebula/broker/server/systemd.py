"""Notifications to systemd: sd_notify(3), a datagram for each state."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator, Mapping
from typing import Final

from nebula.environment import BrokerEnvironment
from nebula.logs import get_logger

_log = get_logger("nebula.broker")

READY: Final = "READY=1"
STOPPING: Final = "STOPPING=1"
ALIVE: Final = "WATCHDOG=1"

# sd_watchdog_enabled(3) recommends half of the time that is given.
_WATCHDOG_SHARE = 0.5


class ServiceManager:
    """The service manager that started the program; `tell` does nothing if the environment names no socket.

    Args:
        environment: used instead of the environment of the process.
    """

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        given = BrokerEnvironment.read(environment)
        address = given.notify_socket
        # `@` stands for the NUL of an abstract name.
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._watchdog_seconds = given.watchdog_seconds

    def tell(self, *states: str) -> None:
        """Send these, as `READY`. Never raises: the program does not depend on who watches it."""
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                # Otherwise sending could block while the reader hangs, and the loop with it.
                sender.setblocking(False)
                sender.sendto("\n".join(states).encode(), self._address)
        except OSError as error:
            _log.warning("service manager not told", states=states, error=str(error))

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Say `ALIVE` from this loop as often as is wanted: a loop that hangs does not, and is restarted."""
        seconds = self._watchdog_seconds
        if seconds is None:
            yield
            return
        loop = asyncio.get_running_loop()
        # A handle that does nothing yet, so that `finally` always has one to cancel.
        timer: asyncio.Handle = loop.call_soon(lambda: None)

        def beat() -> None:
            nonlocal timer
            self.tell(ALIVE)
            timer = loop.call_later(seconds * _WATCHDOG_SHARE, beat)

        beat()
        try:
            yield
        finally:
            timer.cancel()
