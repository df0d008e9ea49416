"""The broker's shell: listeners, the clock, and the doing of what the core decided.

It runs on one asyncio loop (uvloop where there is one) and never waits for a peer.

    server = Server(listeners=[Address("127.0.0.1", 0)])
    await server.start()
    print(server.urls)          # ['stomp://127.0.0.1:40123']
    ...
    await server.stop()
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from nebula import __version__
from nebula.broker.connection import Connection
from nebula.broker.core import Broker
from nebula.broker.limits import Limits
from nebula.broker.policies import DestinationPolicy, PolicyTable

if TYPE_CHECKING:
    from collections.abc import Callable

_log = structlog.get_logger("nebula.broker")

# How often time passes for the core: expiry, and senders that wait in vain.
_ADVANCE_SECONDS = 0.25

# Connections with much to say are read so many at a time, for at most a read each: with 256 KB a
# read the others, timers and signals wait for one MB at most, however many such peers there are.
_LONG_READS_AT_ONCE = 4

# How long clients may take to read why they were ended when the broker stops.
_STOP_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Address:
    """Where a listener listens. Port 0: the system picks one."""

    host: str = "127.0.0.1"
    port: int = 61613


class Server:
    """A broker with its listeners.

    Args:
        listeners: where to listen; none at all is fine for a broker that is only embedded.
        limits: what peers may use.
        policies: limits of single destinations.

    Attributes:
        broker: the core.
        urls: where it listens, from `start` on.
    """

    def __init__(
        self,
        listeners: Sequence[Address] = (Address(),),
        *,
        limits: Limits | None = None,
        policies: Sequence[DestinationPolicy] = (),
    ) -> None:
        # Chance comes in here and nowhere below.
        incarnation = secrets.token_hex(4)
        self.broker = Broker(limits, PolicyTable(policies), incarnation=incarnation)
        self.name = f"nebula/{__version__}"
        self.urls: list[str] = []
        self._listeners = tuple(listeners)
        self._servers: list[asyncio.Server] = []
        self._connections: set[Connection] = set()
        self._in_line: deque[Connection] = deque()
        self._clock: asyncio.TimerHandle | None = None
        self._is_working = False
        self.loop: asyncio.AbstractEventLoop = None  # type: ignore[assignment]  # until start
        self.time: Callable[[], float] = None  # type: ignore[assignment]

    async def start(self) -> None:
        """Listen.

        Raises:
            OSError: an address cannot be had; nothing listens then.
        """
        self.loop = asyncio.get_running_loop()
        self.time = self.loop.time
        try:
            for address in self._listeners:
                await self._listen(address)
        except OSError:
            self._close_listeners()
            raise
        self._advance()

    async def stop(self) -> None:
        """End all connections with an ERROR that says so, within about half a second. Idempotent."""
        self._close_listeners()
        for connection in list(self._connections):
            connection.end("the broker is shutting down")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_STOP_SECONDS):
                while self._connections:
                    await asyncio.sleep(0.01)
        for connection in list(self._connections):
            connection.abort()
        if self._clock is not None:
            self._clock.cancel()

    def admit(self, connection: Connection) -> bool:
        """Count a connection in; False when there are too many."""
        is_admitted = len(self._connections) < self.broker.limits.max_connections
        self._connections.add(connection)
        return is_admitted

    def dismiss(self, connection: Connection) -> None:
        """Count it out."""
        self._connections.discard(connection)

    def line_up(self, connection: Connection) -> None:
        """Have the connection, which has stopped to read, `read_on` when those before it had their turn."""
        if not self._in_line:
            self.loop.call_soon(self._read_on)
        self._in_line.append(connection)

    def _read_on(self) -> None:
        for _ in range(min(_LONG_READS_AT_ONCE, len(self._in_line))):
            self._in_line.popleft().read_on()
        if self._in_line:
            self.loop.call_soon(self._read_on)

    def work(self, now: float) -> None:
        """Do what the core decided. Called after every input."""
        if self._is_working:
            return
        self._is_working = True
        try:
            take_work = self.broker.take_work
            work = take_work(now)
            while work.dirty or work.resumed:
                for session in work.dirty:
                    try:
                        session.connection.flush(now)
                    except Exception:  # a fault at one peer must not harm the others
                        session.connection.crash()
                for session, in_vain in work.resumed:
                    session.connection.go_on(now, in_vain=in_vain)
                work = take_work(now)
        finally:
            self._is_working = False

    async def _listen(self, address: Address) -> None:
        server = await self.loop.create_server(
            lambda: Connection(self), address.host, address.port, backlog=1024
        )
        self._servers.append(server)
        for socket in server.sockets:
            host, port = socket.getsockname()[:2]
            shown = f"[{host}]" if ":" in host else host
            self.urls.append(f"stomp://{shown}:{port}")

    def _close_listeners(self) -> None:
        for server in self._servers:
            server.close()
        self._servers.clear()

    def _advance(self) -> None:
        now = self.time()
        self.broker.advance(now)
        self.work(now)
        self._clock = self.loop.call_later(_ADVANCE_SECONDS, self._advance)
