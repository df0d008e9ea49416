"""Notifications to systemd: sd_notify(3), a datagram for each state."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Iterator, Mapping
from typing import Final

from nebula.logs import get_logger

_log = get_logger("nebula.broker")

READY: Final = "READY=1"
STOPPING: Final = "STOPPING=1"
ALIVE: Final = "WATCHDOG=1"

# sd_watchdog_enabled(3) recommends half of the time that is given.
_WATCHDOG_SHARE = 0.5


class ServiceManager:
    """The service manager that started the program. Does nothing unless the environment names its socket.

    Args:
        environment: of the process.
    """

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        address = environment.get("NOTIFY_SOCKET", "")
        # `@` stands for the NUL of an abstract name.
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._watchdog_seconds = _watchdog_seconds(environment)

    def tell(self, *states: str) -> None:
        """Send states such as `READY`. Never raises: the program works without its service manager."""
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.setblocking(False)
                sender.sendto("\n".join(states).encode(), self._address)
        except OSError as error:
            _log.warning("service manager not told", states=states, error=str(error))

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Send `ALIVE` from this loop for the block. If the loop hangs, the service manager restarts the
        program."""
        seconds = self._watchdog_seconds
        if seconds is None:
            yield
            return
        loop = asyncio.get_running_loop()
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


def _watchdog_seconds(environment: Mapping[str, str]) -> float | None:
    """How long the program may be silent; None: it is not watched."""
    microseconds = environment.get("WATCHDOG_USEC", "")
    # It is inherited by processes that it is not meant for.
    is_meant = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
    if not is_meant or not (microseconds.isascii() and microseconds.isdigit()) or not int(microseconds):
        return None
    return int(microseconds) / 1e6
