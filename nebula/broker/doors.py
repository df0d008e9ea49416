"""Where a broker listens: sockets by TCP, TLS and HTTP, all opened and closed together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from nebula.broker.connection import Connection
from nebula.broker.http import HttpListener, Page
from nebula.broker.limits import Limits
from nebula.broker.listeners import Listener

# Who does not answer the end of its TLS holds a file of ours. As long as `Connection` lets a peer take for
# its last octets.
_TLS_SHUTDOWN_SECONDS = 5.0


class Doors:
    """The open listeners of a broker.

    Args:
        make_connection: makes the broker's end of what a listener accepts.
        limits: what peers may use.
        pages: what HTTP listeners answer, by path.
    """

    def __init__(
        self, make_connection: Callable[[Listener], Connection], limits: Limits, pages: dict[str, Page]
    ) -> None:
        self._make_connection = make_connection
        self._limits = limits
        self._pages = pages
        self._servers: list[asyncio.Server] = []
        self._http_listeners: list[HttpListener] = []

    @property
    def are_open(self) -> bool:
        """At least one is."""
        return bool(self._servers)

    async def open(self, listener: Listener) -> list[str]:
        """Listen there too; returns the URLs at which clients find it.

        Raises:
            OSError: the address cannot be had.
        """
        make: Callable[[], asyncio.Protocol] = self._maker(listener)
        context = None if listener.tls is None else listener.tls.context
        server = await asyncio.get_running_loop().create_server(
            make,
            listener.host,
            listener.port,
            backlog=1024,
            ssl=context,
            ssl_handshake_timeout=None if context is None else self._limits.connect_timeout,
            ssl_shutdown_timeout=None if context is None else _TLS_SHUTDOWN_SECONDS,
        )
        self._servers.append(server)
        addresses = [socket.getsockname()[:2] for socket in server.sockets]
        return [
            f"{listener.scheme}://{f'[{host}]' if ':' in host else host}:{port}" for host, port in addresses
        ]

    def close(self) -> None:
        """Listen no more. Who is there stays, but for those who have only asked by HTTP. Idempotent."""
        for server in self._servers:
            server.close()
        self._servers.clear()
        for http in self._http_listeners:
            http.close()

    def _maker(self, listener: Listener) -> Callable[[], asyncio.Protocol]:
        def make() -> Connection:
            return self._make_connection(listener)

        if not listener.http:
            return make
        http = HttpListener(make, origins=listener.origins, limits=self._limits, pages=self._pages)
        self._http_listeners.append(http)
        return http
