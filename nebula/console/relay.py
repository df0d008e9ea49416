"""The console next to any broker: serves its files, and relays its WebSocket to the broker.

The bytes go through unchanged: a browser speaks STOMP to the broker, with its own login. The relay only knows
how to reach the broker, by TCP, TLS or WebSocket, and tells that address to the page, whose users copy calls
as code. If it has a client certificate, the broker takes each user of the relay for its holder. So it listens
on loopback unless told otherwise, and only its own pages may connect.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final
from urllib.parse import quote

import anyio
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.typing import Subprotocol

from nebula.console.assets import PATH, REDIRECTED, Asset, assets, page_about
from nebula.logs import get_logger
from nebula.stomp.client.addresses import Address
from nebula.stomp.client.link import Link
from nebula.stomp.client.network_links import connect_link
from nebula.stomp.client.tls import ClientTls, explain
from nebula.stomp.client.websocket_link import WebSocketLink
from nebula.stomp.dialects import DIALECTS

_SOCKET_PATH: Final = "/stomp"
_SUBPROTOCOLS: Final = [Subprotocol(f"v{version.replace('.', '')}.stomp") for version in reversed(DIALECTS)]

# The browser's messages: STOMP frames, or parts of them.
_MAX_MESSAGE_BYTES: Final = 16 * 1024 * 1024
# What a browser has not taken yet; above it the broker is not read.
_HIGH_WATER_BYTES: Final = 1024 * 1024
# Close codes of RFC 6455, 7.4.1: the broker has gone; it could not be reached.
_GOING_AWAY: Final = 1001
_TRY_AGAIN_LATER: Final = 1013

_log = get_logger("nebula.console")


@dataclass(frozen=True, slots=True)
class Relay:
    """A console next to a broker.

    Attributes:
        address: of the broker.
        tls: for addresses with TLS.
        host: name or address of the interface to listen on.
        port: 0: the system picks one.
        names: host names that browsers may use in addition to `host`, addresses and `localhost`.
    """

    address: Address
    tls: ClientTls | None = None
    host: str = "127.0.0.1"
    port: int = 0
    names: tuple[str, ...] = ()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        """Serve during the block, on asyncio; the value is the URL of the console.

        Raises:
            OSError: the address cannot be used.
        """
        async with serve(
            self._relay,
            self.host,
            self.port,
            process_request=self._respond,
            subprotocols=_SUBPROTOCOLS,
            # STOMP has heart-beats of its own, and small messages gain nothing by compression.
            ping_interval=None,
            compression=None,
            max_size=_MAX_MESSAGE_BYTES,
            server_header=None,
        ) as server:
            yield _url_of(server)

    # --- pages ---

    def _respond(self, connection: ServerConnection, request: Request) -> Response | None:
        """The response to a request; None: it becomes a WebSocket."""
        path = request.path.partition("?")[0]
        hosts = request.headers.get_all("Host")
        # A name that is not ours may have been made to point here (DNS rebinding).
        if len(hosts) != 1 or not self._is_ours(hosts[0]):
            return connection.respond(HTTPStatus.MISDIRECTED_REQUEST, "this host is not served here\n")
        if path == _SOCKET_PATH:
            origins = request.headers.get_all("Origin")
            # A program that is no browser sends none, and may connect to the broker itself as well.
            if len(origins) != 1 or origins[0].lower() not in (f"http://{hosts[0]}", f"https://{hosts[0]}"):
                return connection.respond(HTTPStatus.FORBIDDEN, "pages of this origin may not connect\n")
            return None
        if path in REDIRECTED:
            response = connection.respond(HTTPStatus.TEMPORARY_REDIRECT, "")
            response.headers["Location"] = REDIRECTED[path]
            return response
        asset = page_about(url_of(self.address)) if path == PATH else assets().get(path)
        if asset is None:
            return connection.respond(HTTPStatus.NOT_FOUND, f"nothing is here; the console is at {PATH}\n")
        return _response_of(asset, request)

    def _is_ours(self, host: str) -> bool:
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
        name = name.strip("[]").lower()
        if name in {"localhost", self.host.lower(), *(each.lower() for each in self.names)}:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True

    # --- the WebSocket ---

    async def _relay(self, browser: ServerConnection) -> None:
        try:
            link: Link = await connect_link(self.address, self.tls if self.address.is_tls else None)
        except OSError as error:
            _log.warning("broker not reached", address=self.address.place, reason=explain(error))
            await browser.close(_TRY_AGAIN_LATER, "the broker cannot be reached")
            return
        if self.address.path is not None:
            link = WebSocketLink(link, self.address)
        async with anyio.create_task_group() as tasks:
            downstream = _Downstream(browser, link)
            link.start(downstream, tasks)
            try:
                tasks.start_soon(downstream.run)
                async for message in browser:
                    link.write(message.encode() if isinstance(message, str) else message)
                    await link.drain()
            except ConnectionClosed:
                pass
            finally:
                link.close()
                tasks.cancel_scope.cancel()


class _Downstream:
    """From the broker to the browser: receives from the link, and is read by a task."""

    def __init__(self, browser: ServerConnection, link: Link) -> None:
        self._browser = browser
        self._link = link
        self._pieces: list[bytes] = []
        self._unsent_bytes = 0
        self._has_ended = False
        self._wake = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        self._pieces.append(data)
        self._unsent_bytes += len(data)
        if self._unsent_bytes > _HIGH_WATER_BYTES:
            self._link.pause_reading()
        self._wake.set()

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002  # the browser sees the end
        self._has_ended = True
        self._wake.set()

    async def run(self) -> None:
        """Send until the broker ends; then close the WebSocket."""
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                pieces, self._pieces = self._pieces, []
                if pieces:
                    await self._browser.send(b"".join(pieces))
                    self._unsent_bytes = sum(map(len, self._pieces))
                    self._link.resume_reading()
                if self._has_ended and not self._pieces:
                    await self._browser.close(_GOING_AWAY, "the broker has closed the connection")
                    return
        except ConnectionClosed:
            return


def url_of(address: Address) -> str:
    """A broker's address without login and passcode."""
    scheme = ("stomp" if address.path is None else "ws") + "s" * address.is_tls
    path = f"/{quote(address.virtual_host, safe='')}" if address.virtual_host != "/" else ""
    return f"{scheme}://{_place(address.host, address.port)}{path if address.path is None else address.path}"


def _place(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _response_of(asset: Asset, request: Request) -> Response:
    accepted = ", ".join(request.headers.get_all("Accept-Encoding"))
    body, headers = asset.encoded(takes_gzip="gzip" in accepted)
    fields = Headers(
        [
            *headers,
            ("content-type", asset.content_type),
            ("content-length", str(len(body))),
            ("connection", "close"),
        ]
    )
    return Response(HTTPStatus.OK.value, HTTPStatus.OK.phrase, fields, body)


def _url_of(server: Server) -> str:
    host, port = next(iter(server.sockets)).getsockname()[:2]
    return f"http://{_place(host, port)}{PATH}"
