"""The open listeners of a broker: sockets for TCP, TLS and HTTP, opened and closed together.

TLS handshakes are done here and not by the loop, which reports a connection only after its handshake: a peer
that stays silent during the handshake would hold a file descriptor and be counted by no cap.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias, cast

from nebula.broker.core.fixed_limits import KEEPALIVE_PROBES, TLS_LINGER_SECONDS
from nebula.broker.core.limits import Limits
from nebula.broker.operations.event_log import EventLog
from nebula.broker.server.admission import Admission
from nebula.broker.server.connection import Connection
from nebula.broker.server.http import HttpListener
from nebula.broker.server.http_connection import HttpConnection
from nebula.broker.server.http_posts import Page, Post
from nebula.broker.server.lifetimes import Lifetimes
from nebula.broker.server.listener import Listener

_Maker: TypeAlias = Callable[[], asyncio.Protocol]


class OpenListeners:
    """The open listeners of a broker.

    Args:
        make_connection: makes the broker's end of what a listener accepts.
        admission: where connections are counted; those of TLS from before their handshake.
        limits: what peers may use.
        pages: handlers of GET requests of HTTP listeners, by path.
        console: the same, of listeners with a console in addition.
        posts: handlers of POST requests of listeners with `calls`, by the beginning of the path.
        reads: handlers of GET requests that need the sender's identity, likewise.
        lifetimes: ends requests whose sender is no longer valid.
        events: returns the log of events, once a listener is open.
    """

    def __init__(
        self,
        make_connection: Callable[[Listener], Connection],
        admission: Admission,
        limits: Limits,
        pages: dict[str, Page],
        console: dict[str, Page],
        posts: dict[str, Post],
        reads: dict[str, Post],
        lifetimes: Lifetimes,
        events: Callable[[], EventLog],
    ) -> None:
        self._make_connection = make_connection
        self._admission = admission
        self._limits = limits
        self._pages, self._console = pages, console
        self._posts, self._reads = posts, reads
        self._lifetimes = lifetimes
        self._events = events
        self._servers: list[asyncio.Server] = []
        self._http_servers: list[asyncio.Server] = []
        self._http_listeners: list[HttpListener] = []
        self._is_closed = False
        self._is_ended = False
        # The handshake task of each new connection, which nothing else references, and its socket.
        self._handshakes: dict[object, tuple[asyncio.Task[None], socket.socket]] = {}

    @property
    def are_open(self) -> bool:
        """Whether at least one accepts connections."""
        return bool(self._servers or self._http_servers) and not self._is_closed

    @property
    def have_handshakes(self) -> bool:
        """Whether a TLS handshake is under way."""
        return bool(self._handshakes)

    async def open(self, listener: Listener) -> list[str]:
        """Open a listener; returns its URLs.

        Raises:
            OSError: the address cannot be used.
        """
        server = await asyncio.get_running_loop().create_server(
            # More than asyncio's 100: all clients reconnect at once after a restart, and those that find the
            # kernel's queue full have to repeat their SYN.
            self._maker(listener),
            listener.host,
            listener.port,
            backlog=1024,
            start_serving=False,
        )
        (self._http_servers if listener.http else self._servers).append(server)
        for each in server.sockets:
            _keep_alive(each, self._limits.keepalive_seconds)
        await server.start_serving()
        addresses = [each.getsockname()[:2] for each in server.sockets]
        return [
            f"{listener.scheme}://{f'[{host}]' if ':' in host else host}:{port}" for host, port in addresses
        ]

    def close(self) -> None:
        """Accept no more connections. Open ones stay; TLS handshakes are ended. Idempotent.

        HTTP pages are served until `end`.
        """
        self._is_closed = True
        for server in self._servers:
            server.close()
        self._servers.clear()
        # Their sockets stay open: `/readyz` has to report that the broker is stopping.
        for http in self._http_listeners:
            http.is_stopping = True
        self._end_handshakes()

    def end(self) -> None:
        """Stop listening, and end HTTP requests. Idempotent."""
        self.close()
        self._is_ended = True
        for server in self._http_servers:
            server.close()
        self._http_servers.clear()
        for http in self._http_listeners:
            http.close()

    def end_handshake(self, guest: object) -> bool:
        """End a TLS handshake in progress. Returns False if the guest is in no handshake."""
        found = self._handshakes.get(guest)
        if found is None:
            return False
        # The handshake fails, and is cleaned up like any other that fails.
        with contextlib.suppress(OSError):
            # Not closed: the loop still watches the descriptor, and closes it when the handshake has failed.
            found[1].shutdown(socket.SHUT_RDWR)
        return True

    def _end_handshakes(self) -> None:
        for guest in self._handshakes:
            self.end_handshake(guest)

    def _greet(
        self, peer: socket.socket, make: _Maker, context: ssl.SSLContext, admission: Admission
    ) -> None:
        """Admit a peer of a TLS listener and begin its handshake; or close its socket."""
        try:
            host, port = peer.getpeername()[:2]
        except OSError:  # it is gone
            peer.close()
            return
        # One object from the handshake to the end, so that the connection is counted once.
        guest = make()
        # HTTP connections have their own admission, and are served until `end`.
        is_closed = self._is_closed if admission is self._admission else self._is_ended
        refusal = "the broker is shutting down" if is_closed else admission.enter(guest, host)
        if refusal is not None:
            # Counted here, because it never becomes a connection that could tell its end.
            self._events().warning("connection refused", address=f"{host}:{port}", reason=refusal)
            peer.close()
            return
        handshake = asyncio.get_running_loop().create_task(self._shake_hands(peer, guest, context, admission))
        self._handshakes[guest] = handshake, peer
        handshake.add_done_callback(lambda _: self._handshakes.pop(guest))

    async def _shake_hands(
        self, peer: socket.socket, guest: asyncio.Protocol, context: ssl.SSLContext, admission: Admission
    ) -> None:
        """Do the handshake of an admitted guest. If it fails, the guest leaves; otherwise its connection
        makes it leave later."""
        is_made = False
        # A failed handshake of a stranger is not worth a log event.
        try:
            with contextlib.suppress(OSError):
                # The loop's own TLS: another engine gains less than a tenth, see docs/decisions/0066.
                transport, _ = await asyncio.get_running_loop().connect_accepted_socket(
                    lambda: guest,
                    peer,
                    ssl=context,
                    ssl_handshake_timeout=self._limits.connect_timeout,
                    # Closing waits for the peer's close_notify; asyncio's default is 30 s.
                    ssl_shutdown_timeout=TLS_LINGER_SECONDS,
                )
                # The guest may have been refused in its `connection_made`, which closes the transport.
                is_made = not transport.is_closing()
        finally:
            if not is_made:
                admission.leave(guest)

    def _maker(self, listener: Listener) -> _Maker:
        admission = self._admission
        # The loops call it like any `asyncio.Protocol`, see `Connection`.
        make = cast("_Maker", partial(self._make_connection, listener))
        if listener.http:
            http = HttpListener(
                partial(self._make_connection, listener),
                origins=listener.origins,
                limits=self._limits,
                pages={**self._pages, **self._console} if listener.console else self._pages,
                posts=self._posts if listener.calls else None,
                reads=self._reads if listener.calls else None,
                listener=listener,
                lifetimes=self._lifetimes,
                note_refused_login=lambda address: self._events().info("login refused", address=address),
            )
            make = partial(HttpConnection, http)
            admission = http.admission
            self._http_listeners.append(http)
        if listener.tls is None:
            return make
        # A stand-in that stays the same object over reloads (`tls`).
        context = listener.tls.context
        return lambda: _Arrival(lambda peer: self._greet(peer, make, context, admission))


class _Arrival(asyncio.Protocol):
    """A new peer of a TLS listener: takes its socket, and hands it on for the handshake."""

    def __init__(self, greet: Callable[[socket.socket], None]) -> None:
        self._greet = greet

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the socket before anything is read, and drop the transport."""
        found = transport.get_extra_info("socket")
        try:
            # A duplicate of the descriptor: the transport closes its own one when it is aborted.
            peer = socket.fromfd(found.fileno(), found.family, found.type)
        except OSError:  # the process may have used up its file descriptors
            return
        finally:
            cast("asyncio.Transport", transport).abort()
        peer.setblocking(False)
        self._greet(peer)


def _keep_alive(listening: Any, seconds: float) -> None:
    """Turn TCP keepalive on, with probes after this many seconds of silence.

    Connections inherit it from the listening socket, which saves four system calls for each.
    """
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    # Not all systems let the time be chosen; it is two hours there.
    if hasattr(socket, "TCP_KEEPIDLE"):
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, max(1, round(seconds)))
        listening.setsockopt(
            socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, max(1, round(seconds / KEEPALIVE_PROBES))
        )
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, KEEPALIVE_PROBES)
