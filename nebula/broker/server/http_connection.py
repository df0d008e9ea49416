"""A connection of an HTTP listener: reads one request and replies to it, or becomes a WebSocket.

h11 reads the request and does no I/O.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from http import HTTPStatus
from typing import Final, cast

import h11

from nebula.broker.core.access import ANONYMOUS
from nebula.broker.core.fixed_limits import HTTP_CHUNKS_AT_ONCE, MAX_HTTP_HEAD_BYTES
from nebula.broker.server.admission import place_of
from nebula.broker.server.body_writer import BodyWriter
from nebula.broker.server.http import HttpListener
from nebula.broker.server.http_posts import (
    NOT_ADMITTED,
    TOO_BUSY,
    Asked,
    Body,
    CutOff,
    Page,
    Post,
    Posted,
    Response,
    Streamed,
    asked_of,
    identify,
    is_admitted,
    problem,
    refusal_of,
    too_large,
    value_of,
)
from nebula.broker.server.linger import LingeringClose
from nebula.broker.server.websocket import WebSocketTransport, shake_hands
from nebula.headers import TIMEOUT

WEBSOCKET_PATH: Final = "/stomp"


_INTERNAL: Final = problem(HTTPStatus.INTERNAL_SERVER_ERROR, "internal", "the log says why")


class HttpConnection(asyncio.Protocol):
    """One connection of an HTTP listener, until its request is answered or it becomes a WebSocket.

    A connection has one request: what is asked here is asked rarely.

    Attributes:
        payer: whose it is: its principal where that is proved, else the address that it comes from.
    """

    def __init__(self, listener: HttpListener) -> None:
        self._listener = listener
        # h11 collects the head and raises above this size.
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HTTP_HEAD_BYTES)
        self._data = bytearray()  # of the request's head, as they came
        self._transport: asyncio.Transport
        self._address: str | None = None
        self.payer = ANONYMOUS
        self._timer: asyncio.TimerHandle
        self._showing: asyncio.Task[None] | None = None
        self._body: Body | None = None
        self._is_resting = False
        self._has_all = False
        self._streamed: Streamed | None = None
        self._body_writer: BodyWriter | None = None
        self._farewell: LingeringClose | None = None

    # --- asyncio.Protocol ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the request. The transport's first call."""
        self._transport = cast("asyncio.Transport", transport)
        seconds = self._listener.limits.connect_timeout
        self._timer = asyncio.get_running_loop().call_later(seconds, self._time_out)
        peername = transport.get_extra_info("peername")
        self._address = str(peername[0]) if peername else None
        if self._address is not None:
            self.payer = f"{ANONYMOUS}@{place_of(self._address)}"
        # The timer is running already; `connection_lost` cancels it.
        if not self._listener.admit(self, self._address):
            self.abort()

    def data_received(self, data: bytes) -> None:
        """Read bytes of the request. What follows the request is dropped, so that it fills no memory."""
        # A pipelined request is dropped as well: `connection: close` tells the sender that it was not read.
        if self._has_all:
            return
        self._http.receive_data(data)
        if self._body is None:
            # Kept as they came for the WebSocket's own parser, which reads the same head again
            # (`_upgrade`).
            self._data += data
            self._read_head()
        elif not self._is_resting:
            self._read_body(self._body)

    def eof_received(self) -> bool:
        """The peer has closed its half. It may still read a complete response, but not a stream."""
        # True keeps the transport open for writing. On TLS transports it has no effect but a warning of
        # asyncio.
        is_ending = self._farewell is not None and self.unread_bytes > 0
        return is_ending and self._transport.can_write_eof()

    def pause_writing(self) -> None:
        """The transport is still writing."""
        if (writer := self._farewell or self._body_writer) is not None:
            writer.pause()

    def resume_writing(self) -> None:
        """The transport has written everything."""
        if (writer := self._farewell or self._body_writer) is not None:
            writer.resume()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """The transport's last call, unless it became a WebSocket's."""
        self._timer.cancel()
        self._stop_writing()
        if self._showing is not None:
            self._showing.cancel()
        self._forget_body()
        self._listener.dismiss(self)

    # --- responding ---

    @property
    def unread_bytes(self) -> int:
        """The size of the response, or of a piece of it, until the peer has read all of it."""
        writer = self._farewell or self._body_writer
        return 0 if writer is None else writer.unread_bytes

    def respond_with_text(self, status: int, text: str, headers: Sequence[tuple[str, str]] = ()) -> None:
        """Respond with a short text, and end."""
        self._respond(Response(HTTPStatus(status), f"{text}\n".encode(), headers=headers))

    def _respond(self, response: Response) -> None:
        self._forget_body()
        has_rule = any(name == "cache-control" for name, _ in response.headers)
        written = h11.Response(
            status_code=response.status,
            reason=response.status.phrase,
            headers=[
                *response.headers,
                ("content-type", response.content_type),
                ("content-length", str(len(response.body))),
                *(() if has_rule else (("cache-control", "no-store"),)),
                ("connection", "close"),
            ],
        )
        # The response to a HEAD has no body, and h11 would not send one.
        # The headers are those for GET, with the length of its body (RFC 9110, 9.3.2).
        is_head = self._data.startswith(b"HEAD ")
        head = self._http.send(written) or b""
        self._end_with(head if is_head else head + response.body)

    def _end_with(self, data: bytes) -> None:
        self._has_all = True
        self._timer.cancel()
        self._listener.lifetimes.end(self)
        # The body of a refused request may still be coming; unread bytes would turn the close into a reset.
        self._transport.resume_reading()
        self._farewell = LingeringClose(self._transport, data, self._listener.limits.connect_timeout)
        # `pause_writing` was called before `_farewell` existed.
        if self._body_writer is not None and self._body_writer.is_blocked:
            self._farewell.pause()
        self._farewell.begin()
        if self.unread_bytes:
            self._listener.relieve()

    def abort(self) -> None:
        """Close at once."""
        self._stop_writing()
        self._transport.abort()

    def _stop_writing(self) -> None:
        if (writer := self._farewell or self._body_writer) is not None:
            writer.cancel()

    def _time_out(self) -> None:
        if self._showing is not None:
            self._showing.cancel()
        self.respond_with_text(408, f"no request came within {self._listener.limits.connect_timeout:g} s")

    # --- the head ---

    def _read_head(self) -> None:
        try:
            event = self._http.next_event()
        except h11.RemoteProtocolError as error:
            self._refuse(error)
            return
        if isinstance(event, h11.Request):
            self._route(event)

    def _refuse(self, error: h11.RemoteProtocolError) -> None:
        self.respond_with_text(error.error_status_hint, "this is not HTTP that can be read here")

    def _route(self, request: h11.Request) -> None:
        path = request.target.partition(b"?")[0].decode("latin-1")
        rules = self._listener.listener
        page = self._listener.pages.get(path)
        post = self._listener.post_at(path)
        read = self._listener.read_at(path)
        allowed = ["GET"] if page is None else ["GET", "HEAD"]
        if post is not None:
            self._begin_post(request, path, post)
        elif read is not None:
            self._begin_post(request, path, read, "GET")
        elif page is None and self._listener.make_connection is None:
            self.respond_with_text(404, "nothing is here")
        elif page is None and path != WEBSOCKET_PATH:
            self.respond_with_text(404, f"nothing is here; STOMP is spoken on {WEBSOCKET_PATH}")
        elif request.method.decode("latin-1") not in allowed:
            self.respond_with_text(405, "only GET is answered here", [("allow", ", ".join(allowed))])
        elif page is None:
            self._upgrade(request)
        elif not is_admitted(self._transport, rules, self._listener.lifetimes.wall_clock()):
            self.respond_with_text(HTTPStatus.FORBIDDEN, "not admitted")
        else:
            # A page takes no body, so further input is dropped. `connect_timeout` is for reading the request,
            # not for the page's work.
            self._has_all = True
            self._timer.cancel()
            asked = asked_of(request, rules)
            self._showing = asyncio.get_running_loop().create_task(self._show(page, asked))

    async def _show(self, page: Page, asked: Asked) -> None:
        try:
            response = await page(asked)
        except Exception:
            self._listener.log.exception("page failed")
            response = Response(HTTPStatus.INTERNAL_SERVER_ERROR, b"internal error\n")
        self._respond(response)

    # --- requests with a body ---

    def _begin_post(self, request: h11.Request, path: str, post: Post, method: str = "POST") -> None:
        listener = self._listener
        refusal = refusal_of(request, listener.listener, listener.max_posted_bytes, method)
        # A browser sends its user's certificate with requests of any page, so only the Origin tells a foreign
        # page from the user's own program.
        if refusal is None and not self._is_trusted(request):
            refusal = problem(HTTPStatus.FORBIDDEN, "wrong-origin", "pages of this origin may not post")
        if refusal is None and listener.is_stopping:
            refusal = problem(HTTPStatus.SERVICE_UNAVAILABLE, "stopping", "the broker is shutting down")
        if refusal is not None:
            self._respond(refusal)
            return
        # Strangers fill no memory and take no time: the body is read once its sender is known.
        self._rest()
        self._body = Body(listener.max_posted_bytes)
        self._showing = asyncio.get_running_loop().create_task(
            self._take_post(request, path, post, self._body)
        )

    async def _take_post(self, request: h11.Request, path: str, post: Post, body: Body) -> None:
        """Identify the sender, then read the body, then handle the request."""
        listener = self._listener
        try:
            authorization = value_of(request, b"authorization")
            wall = listener.lifetimes.wall_clock()
            identity = await identify(self._transport, listener.listener, authorization, wall)
            if identity is None:
                host, port = self._transport.get_extra_info("peername")[:2]
                listener.note_refused_login(f"{host}:{port}")
                self._respond(NOT_ADMITTED)
                return
            # The payer may change here: nothing of the body is reserved yet, and what is reserved is given
            # back to the same payer.
            if identity.is_proved:
                self.payer = identity.principal
            # A token may expire, and a user may be removed, while a call waits: `end_for` ends the request
            # then.
            listener.lifetimes.begin(self, listener.listener, identity)
            if self._http.they_are_waiting_for_100_continue:
                informational = h11.InformationalResponse(status_code=100, headers=[])
                self._transport.write(self._http.send(informational) or b"")
            self._go_on()
            # The task waits here for `_read_body`, which the transport calls. `_time_out` cancels it.
            posted = await body.whole
            self._timer.cancel()
            # Only now: a slow upload counts as a request, not as a call.
            if not listener.begin_call(self, self._address):
                self._respond(TOO_BUSY)
                return
            query = request.target.partition(b"?")[2].decode("latin-1")
            timeout = value_of(request, TIMEOUT.encode())
            accept = value_of(request, b"accept")
            response = await post(Posted(identity.principal, path, query, timeout, posted, accept))
        # Not CancelledError: whatever cancels the task has responded or closed.
        except Exception:
            listener.log.exception("post failed")
            response = _INTERNAL
        if isinstance(response, Streamed):
            await self._stream(response)
        else:
            self._respond(response)

    async def _stream(self, streamed: Streamed) -> None:
        """Respond piece by piece; each is requested once the one before is written."""
        self._forget_body()
        self._streamed = streamed
        listener = self._listener
        seconds = listener.limits.connect_timeout
        # `relieve` looks at all connections, so it is called only if the reader is slow.
        self._body_writer = writer = BodyWriter(self._http, self._transport, seconds, listener.relieve)
        # `b""` is a last piece without content: h11 still has to write the end of the body.
        last: bytes | None = b""
        try:
            writer.begin(streamed)
            while piece := await streamed.pieces.next():
                writer.load(piece)
                await writer.write()
        except TimeoutError:
            self._listener.log.info("reader cut off", reason="it reads nothing")
            self.abort()
            return
        except CutOff as error:
            self._listener.log.warning("response cut off", reason=str(error))
            self.abort()
            return
        except Exception:
            self._listener.log.exception("stream failed")
            last = streamed.pieces.failed(_INTERNAL)
        finally:
            # Also where the task was cancelled because the reader has gone.
            streamed.pieces.close()
        self._end_stream(writer, last)

    def _end_stream(self, writer: BodyWriter, last: bytes | None) -> None:
        """End a body with its last piece; None closes the connection, so that the reader sees the cut."""
        if last is None:
            self.abort()
        else:
            self._end_with(writer.end(last))

    def end_for(self, reason: str) -> None:  # noqa: ARG002  # the status says that it is its fault
        """Refuse the request in progress, because its sender is no longer valid. A call is cancelled."""
        # First, or the task might respond a second time when its call fails.
        self._stop_post()
        if self._body_writer is None or self._streamed is None:
            self._respond(NOT_ADMITTED)
        # With a `_farewell` the response is complete, and only waits to be read.
        elif self._farewell is None:
            self._end_stream(self._body_writer, self._streamed.pieces.failed(NOT_ADMITTED))

    def _rest(self) -> None:
        self._is_resting = True
        self._transport.pause_reading()

    def _go_on(self) -> None:
        """Read the body, beginning with the part that has arrived."""
        if self._body is None:
            return  # the peer is gone, or has its response
        self._is_resting = False
        self._read_body(self._body)
        if not self._is_resting:
            self._transport.resume_reading()

    def _read_body(self, body: Body) -> None:
        """Take in the part of the body that has arrived, at most one turn's work."""
        try:
            for _ in range(HTTP_CHUNKS_AT_ONCE):
                if not self._read_piece(body):
                    return
        except h11.RemoteProtocolError as error:
            self._stop_post()
            self._refuse(error)
            return
        self._rest()
        # `call_soon` and not a loop: other sockets are read in between.
        asyncio.get_running_loop().call_soon(self._go_on)

    def _read_piece(self, body: Body) -> bool:
        """Take in the next piece of the body; False: no piece has arrived, or no more is wanted."""
        event = self._http.next_event()
        # No return: `EndOfMessage` is not `Data`, so the next line ends the reading.
        if isinstance(event, h11.EndOfMessage):
            self._has_all = True
            body.end()
        if not isinstance(event, h11.Data):
            return False
        refusal = None
        # `_forget_body` gives back all bytes that the body has, so `take` must count this piece even if it is
        # refused.
        if not self._listener.take_posted(len(event.data), self.payer):
            refusal = problem(HTTPStatus.SERVICE_UNAVAILABLE, "busy", "too much is posted at once")
        elif not body.take(bytes(event.data)):
            refusal = too_large(self._listener.max_posted_bytes)
        if refusal is not None:
            self._stop_post()
            self._respond(refusal)
        return refusal is None

    def _stop_post(self) -> None:
        if self._showing is not None:
            self._showing.cancel()

    def _forget_body(self) -> None:
        if self._body is not None:
            self._listener.give_back_posted(self._body.size_bytes, self.payer)
            self._body = None

    # --- a WebSocket ---

    def _upgrade(self, request: h11.Request) -> None:
        """Become a WebSocket, or say why not."""
        if self._listener.is_stopping:
            self.respond_with_text(503, "the broker is shutting down")
        elif self._http.trailing_data[0]:
            # RFC 6455, 4.1: the client MUST wait for the answer before it sends any further data.
            self.respond_with_text(400, "a WebSocket begins after its upgrade was answered")
        elif not self._is_trusted(request):
            self.respond_with_text(403, "pages of this origin may not connect")
        else:
            self._shake_hands()

    def _is_trusted(self, request: h11.Request) -> bool:
        # h11 requires exactly one Host in HTTP/1.1. A request without an Origin does not come from a
        # browser's page.
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
        websocket, response = shake_hands(bytes(self._data), limits)
        if websocket is None:
            self._end_with(response)
            return
        self._timer.cancel()
        # From here on it counts as a connection: `connection_made` admits it by the broker's own limits.
        self._listener.dismiss(self)
        self._transport.write(response)
        assert self._listener.make_connection is not None
        WebSocketTransport(websocket, self._listener.make_connection(), limits).begin(self._transport)


def _values(request: h11.Request, name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in request.headers if key == name]
