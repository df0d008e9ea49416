"""The broker's HTTP listener: it reads one request of each connection, and knows what is where.

h11 reads the request and does no I/O. On `/stomp` a request for a WebSocket makes the connection one,
see `nebula.broker.websocket`; elsewhere it is answered with a page, see `nebula.broker.pages`, or what is
posted is handed on, see `nebula.broker.http_posts`.

    listener = HttpListener(lambda: Connection(server), origins=["https://shop.example"])
    await loop.create_server(listener, "127.0.0.1", 61680)
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from http import HTTPStatus
from typing import Final, TypeAlias, cast

import h11

from nebula.broker.connection import Connection
from nebula.broker.doorway import Doorway, keep_alive
from nebula.broker.http_posts import (
    NOT_ADMITTED,
    Answer,
    Body,
    Post,
    Posted,
    identify,
    only_value,
    problem,
    refusal_of,
    too_large,
)
from nebula.broker.limits import Limits
from nebula.broker.listeners import Listener, host_name, is_loopback
from nebula.broker.websocket import WebSocketTransport, part_from, shake_hands
from nebula.headers import TIMEOUT
from nebula.logs import PacedLog

WEBSOCKET_PATH: Final = "/stomp"

# A browser's cookies for this host fit.
_MAX_REQUEST_BYTES = 16 * 1024

# Of what is posted and not answered yet, all listeners' bodies together: so many of the largest.
_LARGEST_BODIES = 64

__all__ = ["Answer", "HttpConnection", "HttpListener", "Page"]

Page: TypeAlias = Callable[[str], Awaitable[Answer]]
"""Answers a GET; it is handed the `Authorization` of the request, or an empty text."""


_NO_RULES = Listener(http=True)


class HttpListener:
    """Makes the protocol of each connection that an HTTP listener accepts: for `loop.create_server`.

    Args:
        make_connection: makes the broker's end of a new WebSocket; None: there are no WebSockets here.
        origins: whose pages may connect, each as browsers send it (`https://shop.example`). Pages of
            this machine and clients that are no browsers need not be named.
        limits: what peers may use.
        pages: what is answered, by path.
        posts: what answers a POST, by what its path begins with.
        listener: by whose rules the senders of those are told apart.

    Attributes:
        doorway: where those are counted who were not upgraded yet; over TLS, from before their handshake.
        is_stopping: nobody may have a WebSocket any more, or post; pages are still answered.
        posted_bytes: of bodies that are not answered yet.
    """

    def __init__(
        self,
        make_connection: Callable[[], Connection] | None,
        *,
        origins: Collection[str] = (),
        limits: Limits | None = None,
        pages: Mapping[str, Page] | None = None,
        posts: Mapping[str, Post] | None = None,
        listener: Listener = _NO_RULES,
    ) -> None:
        self.make_connection = make_connection
        self.limits = limits or Limits()
        self.pages = pages or {}
        self.posts = posts or {}
        self.listener = listener
        self.max_posted_bytes = min(self.limits.max_http_body_bytes, self.limits.max_body_bytes)
        self.posted_bytes = 0
        self.log = PacedLog("nebula.broker")
        self._origins = frozenset(origin.lower().rstrip("/") for origin in origins)
        self.is_stopping = False
        self._asking: set[HttpConnection] = set()
        # Who has not been upgraded yet is no connection that the broker counts, but holds a file of ours.
        most = self.limits.max_http_requests
        self.doorway = Doorway(most, max(1, most // 2))

    def __call__(self) -> HttpConnection:
        """The protocol of one more connection."""
        return HttpConnection(self)

    def close(self) -> None:
        """End all who are not upgraded; those who are belong to the broker."""
        for connection in list(self._asking):
            connection.abort()

    def admit(self, connection: HttpConnection, address: str | None) -> bool:
        """Count one in until it is upgraded or gone; False when there are too many, or of one address."""
        self._asking.add(connection)
        return self.doorway.enter(connection, address) is None

    def dismiss(self, connection: HttpConnection) -> None:
        """Count it out."""
        self._asking.discard(connection)
        self.doorway.leave(connection)

    def post_at(self, path: str) -> Post | None:
        """What answers a POST there."""
        return next((post for prefix, post in self.posts.items() if path.startswith(prefix)), None)

    def has_room_for(self, size: int) -> bool:
        """Take so many bytes of a body in, if there is room; they are given back by `posted_bytes`."""
        if self.posted_bytes + size > _LARGEST_BODIES * self.max_posted_bytes:
            return False
        self.posted_bytes += size
        return True

    def trusts(self, origin: str, host: str) -> bool:
        """Whether a page of this origin may connect, who asked for this host.

        A browser lets any page of the web open a WebSocket to a broker on its user's machine: the
        origin is all that tells them apart. A page of the same host is trusted where that host is this
        machine by name or address. Any other name might have been made to point here (DNS rebinding).
        """
        if origin.lower() in self._origins:
            return True
        page = host_name(origin)
        return is_loopback(page) and page == host_name(f"//{host}")


class HttpConnection(asyncio.Protocol):
    """One connection of an HTTP listener, until its request is answered or it becomes a WebSocket.

    A connection has one request: what is asked here is asked rarely.
    """

    def __init__(self, listener: HttpListener) -> None:
        self._listener = listener
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=_MAX_REQUEST_BYTES)
        self._octets = bytearray()  # of the request, as they came
        self._transport: asyncio.Transport
        self._timer: asyncio.TimerHandle
        self._showing: asyncio.Task[None] | None = None
        self._body: Body | None = None
        self._is_answered = False

    # --- asyncio.Protocol ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the request. The transport's first call."""
        self._transport = cast("asyncio.Transport", transport)
        seconds = self._listener.limits.connect_timeout
        self._timer = asyncio.get_running_loop().call_later(seconds, self._time_out)
        address = keep_alive(transport, self._listener.limits.keepalive_seconds)
        if not self._listener.admit(self, address):
            self.abort()

    def data_received(self, data: bytes) -> None:
        """Octets of the request came."""
        if self._is_answered or (self._showing is not None and self._body is None):
            return
        if self._body is None:
            self._octets += data
        try:
            self._http.receive_data(data)
            if self._body is None:
                event = self._http.next_event()
                if isinstance(event, h11.Request):
                    self._route(event)
            if self._body is not None:
                self._read_body(self._body)
        except h11.RemoteProtocolError as error:
            self.answer(error.error_status_hint, "this is not HTTP that can be read here")

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """The transport's last call, unless it became a WebSocket's."""
        self._timer.cancel()
        if self._showing is not None:
            self._showing.cancel()
        self._forget_body()
        self._listener.dismiss(self)

    # --- answering ---

    def answer(self, status: int, text: str, headers: Sequence[tuple[str, str]] = ()) -> None:
        """Answer with a short text, and end."""
        self._answer(Answer(HTTPStatus(status), f"{text}\n".encode(), headers=headers))

    def _answer(self, answer: Answer) -> None:
        self._forget_body()
        response = h11.Response(
            status_code=answer.status,
            reason=answer.status.phrase,
            headers=[
                *answer.headers,
                ("content-type", answer.content_type),
                ("content-length", str(len(answer.body))),
                ("cache-control", "no-store"),
                ("connection", "close"),
            ],
        )
        # No body of ours follows a HEAD, and h11 would not let it.
        is_head = self._octets.startswith(b"HEAD ")
        head = self._http.send(response) or b""
        self._end_with(head if is_head else head + answer.body)

    def abort(self) -> None:
        """Close at once."""
        self._transport.abort()

    def _route(self, request: h11.Request) -> None:
        path = request.target.partition(b"?")[0].decode("latin-1")
        page = self._listener.pages.get(path)
        post = self._listener.post_at(path)
        allowed = ["GET"] if page is None else ["GET", "HEAD"]
        if post is not None:
            self._begin_post(request, path, post)
        elif page is None and self._listener.make_connection is None:
            self.answer(404, "nothing is here")
        elif page is None and path != WEBSOCKET_PATH:
            self.answer(404, f"nothing is here; STOMP is spoken on {WEBSOCKET_PATH}")
        elif request.method.decode("latin-1") not in allowed:
            self.answer(405, "only GET is answered here", [("allow", ", ".join(allowed))])
        elif page is None:
            self._upgrade(request)
        else:
            self._timer.cancel()
            authorization = "".join(_values(request, b"authorization")[:1])
            self._showing = asyncio.get_running_loop().create_task(self._show(page, authorization))

    async def _show(self, page: Page, authorization: str) -> None:
        try:
            answer = await page(authorization)
        except Exception:
            self._listener.log.exception("page failed")
            answer = Answer(HTTPStatus.INTERNAL_SERVER_ERROR, b"internal error\n")
        self._answer(answer)

    # --- what is posted ---

    def _begin_post(self, request: h11.Request, path: str, post: Post) -> None:
        listener = self._listener
        refusal = refusal_of(request, listener.listener, listener.max_posted_bytes)
        if refusal is None and not self._is_trusted(request):
            refusal = problem(HTTPStatus.FORBIDDEN, "wrong-origin", "pages of this origin may not post")
        if refusal is None and listener.is_stopping:
            refusal = problem(HTTPStatus.SERVICE_UNAVAILABLE, "stopping", "the broker is shutting down")
        if refusal is not None:
            self._answer(refusal)
            return
        # Strangers fill no memory: its body is read when it is known who sends it.
        self._transport.pause_reading()
        self._body = Body(listener.max_posted_bytes)
        self._showing = asyncio.get_running_loop().create_task(
            self._take_post(request, path, post, self._body)
        )

    async def _take_post(self, request: h11.Request, path: str, post: Post, body: Body) -> None:
        """Find out who it is, then read its body, then have it answered."""
        try:
            authorization = only_value(request, b"authorization")
            principal = await identify(self._transport, self._listener.listener, authorization)
            if principal is None:
                host, port = self._transport.get_extra_info("peername")[:2]
                self._listener.log.info("login refused", address=f"{host}:{port}")
                self._answer(NOT_ADMITTED)
                return
            if self._http.they_are_waiting_for_100_continue:
                informational = h11.InformationalResponse(status_code=100, headers=[])
                self._transport.write(self._http.send(informational) or b"")
            self._transport.resume_reading()
            await body.whole
            self._timer.cancel()
            query = request.target.partition(b"?")[2].decode("latin-1")
            timeout = only_value(request, TIMEOUT.encode())
            answer = await post(Posted(principal, path, query, timeout, bytes(body.octets)))
        except Exception:
            self._listener.log.exception("post failed")
            answer = problem(HTTPStatus.INTERNAL_SERVER_ERROR, "internal", "the log says why")
        self._answer(answer)

    def _read_body(self, body: Body) -> None:
        while True:
            event = self._http.next_event()
            if not isinstance(event, h11.Data):
                break
            data = bytes(event.data)
            if not self._listener.has_room_for(len(data)):
                message = "too much is posted at once"
                self._end_post(problem(HTTPStatus.SERVICE_UNAVAILABLE, "busy", message))
                return
            if not body.take(data):
                self._end_post(too_large(self._listener.max_posted_bytes))
                return
        if isinstance(event, h11.EndOfMessage):
            body.end()

    def _end_post(self, answer: Answer) -> None:
        if self._showing is not None:
            self._showing.cancel()
        self._answer(answer)

    def _forget_body(self) -> None:
        if self._body is not None:
            self._listener.posted_bytes -= len(self._body.octets)
            self._body = None

    def _upgrade(self, request: h11.Request) -> None:
        """Become a WebSocket, or say why not."""
        if self._listener.is_stopping:
            self.answer(503, "the broker is shutting down")
        elif self._http.trailing_data[0]:
            # RFC 6455, 4.1: the client MUST wait for the answer before it sends any further data.
            self.answer(400, "a WebSocket begins after its upgrade was answered")
        elif not self._is_trusted(request):
            self.answer(403, "pages of this origin may not connect")
        else:
            self._shake_hands()

    def _is_trusted(self, request: h11.Request) -> bool:
        # h11 has seen to it that there is exactly one Host in HTTP/1.1. What has no Origin is no browser.
        origins = _values(request, b"origin")
        hosts = _values(request, b"host")
        is_trusted = not origins or (
            len(origins) == len(hosts) == 1 and self._listener.trusts(origins[0], hosts[0])
        )
        if not is_trusted:
            host = hosts[0][:200] if hosts else None
            self._listener.log.info("origin refused", origin=origins[0][:200], host=host)
        return is_trusted

    def _shake_hands(self) -> None:
        limits = self._listener.limits
        websocket, octets = shake_hands(bytes(self._octets), limits)
        if websocket is None:
            self._end_with(octets)
            return
        self._timer.cancel()
        self._listener.dismiss(self)
        self._transport.write(octets)
        assert self._listener.make_connection is not None
        WebSocketTransport(websocket, self._listener.make_connection(), limits).begin(self._transport)

    def _time_out(self) -> None:
        if self._showing is not None:
            self._showing.cancel()
        self.answer(408, f"no request came within {self._listener.limits.connect_timeout:g} s")

    def _end_with(self, octets: bytes) -> None:
        self._is_answered = True
        self._timer.cancel()
        self._transport.write(octets)
        self._timer = part_from(self._transport)


def _values(request: h11.Request, name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in request.headers if key == name]
