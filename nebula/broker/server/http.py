"""The HTTP listener of the broker: paths, allowed origins, and limits on what requests may hold.

`http_connection` reads each connection. On `/stomp` a request for a WebSocket turns it into one
(`websocket`); elsewhere the reply is a page (`pages`), or the posted body is handed on (`http_posts`).

    listener = HttpListener(lambda: Connection(runtime), origins=["https://shop.example"])
    await loop.create_server(lambda: HttpConnection(listener), "127.0.0.1", 61680)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from nebula.broker.core.fixed_limits import HTTP_BODIES
from nebula.broker.core.limits import Limits
from nebula.broker.server.admission import Admission
from nebula.broker.server.connection import Connection
from nebula.broker.server.http_posts import Page, Post, is_ours
from nebula.broker.server.lifetimes import Lifetimes
from nebula.broker.server.listener import Listener, host_name, is_loopback
from nebula.logs import PacedLog

_NO_RULES = Listener(http=True)


class HttpPeer(Protocol):
    """A connection of an HTTP listener, as the listener sees it."""

    @property
    def payer(self) -> str:
        """The principal where that is proved, else the address."""
        ...

    @property
    def unread_bytes(self) -> int:
        """What it holds of its reply until the peer has read all of it."""
        ...

    def abort(self) -> None:
        """Close at once."""

    def end_for(self, reason: str) -> None:
        """End the request, because the sender's identity is no longer valid."""


class HttpListener:
    """What the connections of an HTTP listener share: its rules, pages and limits.

    Args:
        make_connection: makes the broker's end of a new WebSocket; None: there are no WebSockets here.
        origins: whose pages may connect, each as browsers send it (`https://shop.example`). Pages of
            this machine and clients that are no browsers need not be named.
        limits: what peers may use.
        pages: handlers of GET requests, by path.
        posts: handlers of POST requests, by the beginning of the path.
        reads: handlers of GET requests that need the sender's identity, likewise.
        listener: has the rules for authentication, and the host names that are served.
        lifetimes: ends a request in progress when its sender is no longer valid.
        note_refused_login: called with the address of a sender who did not prove who it is.

    Attributes:
        admission: counts connections that are not upgraded and wait for no call; over TLS from before their
            handshake.
        calling: counts connections that wait for a call.
        is_stopping: WebSockets and posts are refused; pages are still served.
        posted_bytes: bytes of the bodies of requests without a response.
    """

    def __init__(
        self,
        make_connection: Callable[[], Connection] | None,
        *,
        origins: Collection[str] = (),
        limits: Limits | None = None,
        pages: Mapping[str, Page] | None = None,
        posts: Mapping[str, Post] | None = None,
        reads: Mapping[str, Post] | None = None,
        listener: Listener = _NO_RULES,
        lifetimes: Lifetimes | None = None,
        note_refused_login: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.make_connection = make_connection
        self.limits = limits or Limits()
        self.pages = pages or {}
        self.posts = posts or {}
        self.reads = reads or {}
        self.listener = listener
        self.lifetimes = Lifetimes() if lifetimes is None else lifetimes
        # A call becomes one message, so a body that the broker would refuse as a message is not read at
        # all.
        self.max_posted_bytes = min(self.limits.max_http_body_bytes, self.limits.max_body_bytes)
        self.posted_bytes = 0
        self._posted_by: Counter[str] = Counter()
        # Not `log`: the caller counts these events for the metrics.
        self.note_refused_login = note_refused_login
        self.log = PacedLog("nebula.broker")
        self._origins = frozenset(origin.lower().rstrip("/") for origin in origins)
        self.is_stopping = False
        self._asking: set[HttpPeer] = set()
        # A request is no connection that the broker counts, but holds a file descriptor.
        # Two counts: with a single one, slow calls would make `/readyz` fail, and a supervisor would restart
        # a healthy broker.
        self.admission = _admission(self.limits.max_http_requests)
        self.calling = _admission(self.limits.max_http_calls)
        self._callers: dict[HttpPeer, str] = {}
        self._calls_by: Counter[str] = Counter()

    def close(self) -> None:
        """End all connections that were not upgraded; WebSockets belong to the broker."""
        for connection in list(self._asking):
            connection.abort()

    def admit(self, connection: HttpPeer, address: str | None) -> bool:
        """Count a connection in until it is upgraded or closed.

        Returns:
            False: there are too many, or too many of one address.
        """
        self._asking.add(connection)
        return self.admission.enter(connection, address) is None

    def dismiss(self, connection: HttpPeer) -> None:
        """Count it out."""
        self._asking.discard(connection)
        self.lifetimes.end(connection)
        self.admission.leave(connection)
        self.calling.leave(connection)
        if (payer := self._callers.pop(connection, None)) is not None:
            # `Counter` subtraction drops keys that reach zero.
            self._calls_by -= Counter([payer])

    def begin_call(self, connection: HttpPeer, address: str | None) -> bool:
        """Count it among the connections that wait for a call. It no longer counts as a request, so that slow
        calls do not keep probes out.

        Returns:
            False: too many wait, or too many of one address or principal: streams last as long as their
                readers want.
        """
        payer = connection.payer
        # Half of all for one principal, in addition to half for one address: behind a proxy all calls come
        # from one address, and one principal may call from many.
        if self._calls_by[payer] >= max(1, self.limits.max_http_calls // 2):
            return False
        if self.calling.enter(connection, address) is not None:
            return False
        self._callers[connection] = payer
        self._calls_by[payer] += 1
        self.admission.leave(connection)
        return True

    @property
    def unread_bytes(self) -> int:
        """Bytes of responses that were not read to their end. They are held whole until then."""
        return sum(connection.unread_bytes for connection in self._asking)

    def relieve(self) -> None:
        """One more response waits for its reader.

        If all of them together are too large, the largest one is cut off, of the principal or address whose
        responses hold most.
        """
        # Linear in the connections of this listener, and only run when a reader is slow
        # (`BodyWriter.on_wait`) or a response did not fit into the system's buffer.
        while (unread_bytes := self.unread_bytes) > self.limits.max_http_unread_bytes:
            held: Counter[str] = Counter()
            for connection in self._asking:
                held[connection.payer] += connection.unread_bytes
            ((payer, _),) = held.most_common(1)
            theirs = [connection for connection in self._asking if connection.payer == payer]
            slowest = max(theirs, key=lambda connection: connection.unread_bytes)
            # A single response is bounded by its own time limit, and cutting it off would make room for no
            # other.
            if slowest.unread_bytes == unread_bytes:
                break  # it is the only one
            slowest.abort()
            self.log.warning("response cut off", reason="too much waits to be read")

    def post_at(self, path: str) -> Post | None:
        """The handler of a POST request."""
        return next((post for prefix, post in self.posts.items() if path.startswith(prefix)), None)

    def read_at(self, path: str) -> Post | None:
        """The handler of a GET request that needs the sender's identity."""
        return next((read for prefix, read in self.reads.items() if path.startswith(prefix)), None)

    def take_posted(self, size: int, payer: str) -> bool:
        """Reserve room for the bytes of a body, if there is some. One payer may have half of it."""
        # A body is in memory until its call has a reply. One payer may have half, so that large bodies of one
        # sender do not keep out the others.
        most = HTTP_BODIES * self.max_posted_bytes
        if self.posted_bytes + size > most or self._posted_by[payer] + size > most // 2:
            return False
        self.posted_bytes += size
        self._posted_by[payer] += size
        return True

    def give_back_posted(self, size: int, payer: str) -> None:
        """Give reserved room back."""
        self.posted_bytes -= size
        self._posted_by[payer] -= size
        if not self._posted_by[payer]:
            del self._posted_by[payer]

    def trusts(self, origin: str, host: str) -> bool:
        """Whether a page of this origin may connect, in a request that named this host.

        A browser lets any page of the web open a WebSocket to a broker on its user's machine: the
        origin is all that tells them apart. A page of the same host is trusted where that host is this
        machine by name or address. Any other name might have been made to point here (DNS rebinding).

        Where this listener serves the console, its own pages are trusted too: those whose origin is the host
        and port that the request names, if that host is one of this listener's (`is_ours`). A name that was
        made to point here is none of them.
        """
        if origin.lower() in self._origins:
            return True
        if self.listener.console and is_ours(host, self.listener) and _is_same_place(origin, host):
            return True
        page = host_name(origin)
        # The names must be equal: a page of `http://localhost:3000` may not connect to `127.0.0.1`. Ports may
        # differ.
        return is_loopback(page) and page == host_name(f"//{host}")


def _is_same_place(origin: str, host: str) -> bool:
    # Behind a proxy that ends TLS the page's scheme is not the listener's, so the scheme does not count.
    scheme, _, place = origin.lower().partition("://")
    return scheme in ("http", "https") and place == host.lower()


def _admission(most: int) -> Admission:
    # Half of them from one address, so that it cannot keep all others out.
    return Admission(most, max(1, most // 2))
