"""POST requests of an HTTP listener: their checks, the identity of the sender, and the body.

A browser sends what any page of the web asks it to, from inside a network and with its user's certificate.
So a request has to name a host that is ours, no page's origin but a trusted one, and a content type that no
form of a page can have.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import ipaddress
import json
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, Protocol, TypeAlias

import h11

from nebula.broker.core.fixed_limits import MAX_ACCEPTED_TYPES
from nebula.broker.server.identity import Identity
from nebula.broker.server.listener import Listener, host_name
from nebula.broker.server.peer import Peer
from nebula.errors import Refused

JSON_TYPE: Final = "application/json"

# RFC 9110, 11.6.1: both are taken.
_CHALLENGE: Final = (("www-authenticate", 'Basic realm="nebula", charset="UTF-8", Bearer'),)


@dataclass(frozen=True, slots=True)
class Response:
    """The response to a request."""

    status: HTTPStatus
    body: bytes
    content_type: str = "text/plain; charset=utf-8"
    headers: Collection[tuple[str, str]] = ()


class CutOff(Exception):
    """The rest of a response is not available, and its format cannot report an error; says why."""


class Pieces(Protocol):
    """The body of a response in pieces. Called on the broker's loop."""

    async def next(self) -> bytes:
        """Wait for the next piece; empty at the end.

        Raises:
            CutOff: the response is incomplete.
        """

    def failed(self, error: Response) -> bytes | None:
        """The last piece of a body that this error ends; None if the format has none: the body is cut off."""

    def close(self) -> None:
        """The reader is gone. Idempotent, and safe at any time."""


@dataclass(frozen=True, slots=True)
class Streamed:
    """A response in pieces, with status 200. Its receiver closes the pieces."""

    content_type: str
    pieces: Pieces
    headers: Collection[tuple[str, str]] = ()


@dataclass(frozen=True, slots=True)
class Posted:
    """A request that was posted.

    Attributes:
        principal: of its sender.
        path: without the query, escapes as they came.
        query: what follows the `?`.
        timeout: the header `Neb-Timeout`, or an empty text.
        body: JSON, not looked at yet.
        accept: the header `Accept`, or an empty text.
    """

    principal: str
    path: str
    query: str
    timeout: str
    body: bytes
    accept: str = ""


@dataclass(frozen=True, slots=True)
class Asked:
    """A GET of a page.

    Attributes:
        authorization: the header of that name, or an empty string.
        is_ours: whether its `Host` is one of this listener's, or missing; see `is_ours`.
        takes_gzip: whether its `Accept-Encoding` names gzip.
    """

    authorization: str
    is_ours: bool
    takes_gzip: bool = False


Page: TypeAlias = Callable[[Asked], Awaitable[Response]]
"""Handles a GET."""

Post: TypeAlias = Callable[[Posted], Awaitable[Response | Streamed]]
"""Handles a POST, or a GET that needs the sender's identity."""


def problem(
    status: HTTPStatus,
    code: str,
    message: str,
    headers: Collection[tuple[str, str]] = (),
    *,
    retryable: bool = False,
) -> Response:
    """An error as JSON, in the form in which services report theirs."""
    retryable = retryable or status is HTTPStatus.SERVICE_UNAVAILABLE
    fields = {"code": code, "message": message, "retryable": retryable}
    text = json.dumps(fields, separators=(",", ":"))
    return Response(status, f"{text}\n".encode(), JSON_TYPE, headers)


WRONG_HOST: Final = "this host is not served here; the listener's `hosts` name those that are"
# One reply for all reasons, so that a stranger learns neither whether a login exists nor whether a
# certificate is denied.
NOT_ADMITTED: Final = problem(HTTPStatus.UNAUTHORIZED, "not-admitted", "say who you are", _CHALLENGE)
TOO_BUSY: Final = problem(HTTPStatus.SERVICE_UNAVAILABLE, "busy", "too many calls wait for their answers")


class Body:
    """The body of a request, collected as it arrives.

    Args:
        max_bytes: its maximum size.

    Attributes:
        size_bytes: of the part that has arrived.
        whole: the body, once it is complete.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._data = bytearray()
        self.size_bytes = 0
        self.whole: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def take(self, data: bytes) -> bool:
        """Add a piece; False: the body is too large."""
        # Added before the check: `size_bytes` is what the listener has reserved and gets back.
        self._data += data
        self.size_bytes += len(data)
        return self.size_bytes <= self._max_bytes

    def end(self) -> None:
        """The body is complete."""
        # The waiter is gone if the request was cancelled between two pieces.
        if not self.whole.done():
            self.whole.set_result(bytes(self._data))
        self._data.clear()


def refusal_of(
    request: h11.Request, listener: Listener, max_bytes: int, method: str = "POST"
) -> Response | None:
    """Why the head of a request does not allow it, or None if it does.

    Whether the page's origin may post is checked elsewhere, for WebSockets too.
    """
    if request.method != method.encode():
        message = f"only {method} is answered here"
        return problem(HTTPStatus.METHOD_NOT_ALLOWED, "method-not-allowed", message, (("allow", method),))
    if not is_ours(value_of(request, b"host"), listener):
        return problem(HTTPStatus.MISDIRECTED_REQUEST, "wrong-host", WRONG_HOST)
    if method == "POST" and not is_json(value_of(request, b"content-type")):
        message = f"the body is JSON, and the request says so: `Content-Type: {JSON_TYPE}`"
        return problem(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "not-json", message)
    length = value_of(request, b"content-length")
    # `Body.take` checks bodies without a length. h11 refuses a length that is not a number.
    return too_large(max_bytes) if length.isdigit() and int(length) > max_bytes else None


def too_large(max_bytes: int) -> Response:
    """The response to a body that is larger than this."""
    message = f"the body may have {max_bytes} bytes"
    return problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too-large", message)


def is_ours(host: str, listener: Listener) -> bool:
    """Whether a request that names this host was meant for this listener.

    A name that is not ours may have been made to point here by a page that its user has open (DNS
    rebinding): to the browser such a request is the page's own. An address cannot be made to.
    """
    name = host_name(f"//{host}").lower()
    if name in ("localhost", listener.host.lower()):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        pages = (host_name(origin) for origin in listener.origins)
        return name in {other.lower() for other in (*listener.hosts, *pages)}
    return True


def asked_of(request: h11.Request, listener: Listener) -> Asked:
    """The parts of a request that a page needs."""
    host = value_of(request, b"host")
    # Only HTTP/1.0 may leave it out, and no browser does.
    return Asked(
        value_of(request, b"authorization"),
        not host or is_ours(host, listener),
        "gzip" in preferences(value_of(request, b"accept-encoding")),
    )


def is_admitted(transport: asyncio.Transport, listener: Listener, wall: float) -> bool:
    """Whether a page may be shown, judged by the client certificate. A client that the handshake let in
    without one may see it.

    Args:
        wall: seconds since 1970.
    """
    try:
        # The age of this peer is never read, so its time may be 0.
        Peer(transport, listener, 0.0).identify(wall)
    except Refused:
        return False
    return True


def is_json(content_type: str) -> bool:
    """Whether a content type is JSON's, which is always UTF-8."""
    essence, _, parameters = content_type.lower().partition(";")
    # RFC 8259, 8.1: JSON between systems is UTF-8, so no other charset has to be decoded.
    return essence.strip() == JSON_TYPE and parameters.strip().replace('"', "") in ("", "charset=utf-8")


def preferences(accept: str) -> list[str]:
    """The media types of an `Accept`, by weight (RFC 9110, 12.5.1), then in their order; or the codings of an
    `Accept-Encoding`.

    Lower case, without parameters. What is not wanted (`q=0`) or has a weight that cannot be read is left
    out, and so is what follows the twentieth.
    """
    named = [
        part.strip().lower().partition(";")
        for part in accept.split(",", MAX_ACCEPTED_TYPES)[:MAX_ACCEPTED_TYPES]
    ]
    weighed = [(_weight_of(words), name.strip()) for name, _, words in named]
    # `sorted` is stable, so equal weights keep the order of the header.
    return [name for weight, name in sorted(weighed, key=lambda each: -each[0]) if weight > 0 and name]


def _weight_of(words: str) -> float:
    for word in words.split(";"):
        name, _, value = word.partition("=")
        if name.strip() == "q":
            try:
                return min(1.0, float(value))
            except ValueError:
                return 0.0
    return 1.0


def value_of(request: h11.Request, name: bytes) -> str:
    """The value of a header, or an empty text. RFC 9110, 5.3: several are one, with commas in between."""
    return ", ".join(value.decode("latin-1") for key, value in request.headers if key == name)


def credentials_of(authorization: str) -> tuple[str | None, str] | None:
    """Login and passcode of an `Authorization`; None: it has no credentials that can be read.

    Returns:
        Both for `Basic`; for `Bearer` no login, because a token names its holder.
    """
    scheme, _, words = authorization.partition(" ")
    words = words.strip()
    if scheme.lower() == "bearer" and words:
        return None, words
    if scheme.lower() != "basic":
        return None
    try:
        login, colon, passcode = base64.b64decode(words, validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        return None
    # RFC 7617, 2: the first colon separates; a passcode may contain more of them.
    return (login, passcode) if colon else None


async def identify(
    transport: asyncio.Transport, listener: Listener, authorization: str, wall: float
) -> Identity | None:
    """The identity of a request's sender; None: it is not proved, or may not be admitted.

    A client certificate must be valid if there is one. The `Authorization` of the request counts first, and
    must be right; then the certificate; otherwise the sender is anonymous, if the listener allows that. A
    listener that cannot check an `Authorization` ignores it, as it ignores a STOMP login.

    Args:
        wall: seconds since 1970.
    """
    peer = Peer(transport, listener, 0.0)
    authenticator = listener.authenticator
    try:
        identity = peer.identify(wall)
    except Refused:
        return None
    if authorization and authenticator is not None:
        # Unreadable credentials are refused like wrong ones: (None, None) finds no identity.
        login, passcode = credentials_of(authorization) or (None, None)
        return await authenticator.verify(login, passcode, peer.place, is_strict=True)
    if identity is None and authenticator is not None:
        # Anonymous, if the listener allows that.
        return authenticator.admit_at_once(None)
    return identity
