"""The HTTP pages of a broker: `/healthz`, `/readyz`, `/metrics`, and the files of the console."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Callable, Coroutine, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

from nebula.broker.core.fixed_limits import METRICS_SECONDS
from nebula.broker.operations.metrics import CONTENT_TYPE, metrics_text
from nebula.broker.server.http_posts import WRONG_HOST, Asked, Page, Response
from nebula.broker.server.server import Server
from nebula.console.assets import REDIRECTED, Asset, assets
from nebula.console.assets import WRONG_HOST as WRONG_CONSOLE_HOST
from nebula.errors import SettingsError

# A token of this length cannot be guessed.
_FEWEST_CHARACTERS: Final = 16


class Token:
    """The token that requests for metrics must have: `Authorization: Bearer …` (RFC 6750, 2.1).

    Args:
        file: contains the token and nothing else; white space around it is ignored.

    Raises:
        SettingsError: the file cannot be used.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._token = b""
        self.reload()

    def reload(self) -> None:
        """Read the file again.

        Raises:
            SettingsError: it cannot be used; the token stays as it was.
        """
        try:
            text = self._file.read_text("ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "is not ASCII"
            raise SettingsError(f"{self._file}: cannot be read: {reason}") from None
        # An empty file must not pass: `compare_digest` finds an empty token equal to an empty one.
        if len(text) < _FEWEST_CHARACTERS or not text.isprintable() or " " in text:
            # The text is secret, so it is not shown.
            raise SettingsError(
                f"{self._file}: a token is one word of {_FEWEST_CHARACTERS} characters or more;"
                " `openssl rand -hex 16` makes one"
            )
        self._token = text.encode()

    def is_shown(self, authorization: str) -> bool:
        """Whether the header of a request has the token. The time does not depend on where they differ."""
        scheme, _, credentials = authorization.partition(" ")
        shown = credentials.strip().encode("utf-8", "surrogateescape")
        return scheme.lower() == "bearer" and hmac.compare_digest(shown, self._token)


class Shared:
    """A value that is computed once for all requests at the same time, and kept for a while.

    Args:
        make: computes it.
        seconds: how long it is kept.
    """

    def __init__(self, make: Callable[[], Coroutine[Any, Any, bytes]], seconds: float) -> None:
        self._make = make
        self._seconds = seconds
        self._making: asyncio.Task[bytes] | None = None
        self._fresh_until = 0.0

    async def _make_fresh(self) -> bytes:
        self._fresh_until = 0.0  # until it is there, and if it fails
        made = await self._make()
        self._fresh_until = asyncio.get_running_loop().time() + self._seconds
        return made

    async def get(self) -> bytes:
        """The value that is kept or being computed; otherwise a new one."""
        loop = asyncio.get_running_loop()
        # A task that has failed leaves `_fresh_until` at 0, so the next request tries again.
        if self._making is None or (self._making.done() and loop.time() >= self._fresh_until):
            self._making = loop.create_task(self._make_fresh())
        # A request that is cancelled must not cancel it for the others.
        return await asyncio.shield(self._making)


def pages_of(server: Server, token: Token | None) -> Mapping[str, Page]:
    """The pages by path.

    Args:
        server: what they report about; started when the first request comes.
        token: required for `/metrics`. If None, the request has to name a host of the listener; otherwise a
            web page could read the metrics through a name that points here (DNS rebinding). The other pages
            are for probes, which have no credentials and name any host; their reply is one word.
    """

    async def read_metrics() -> bytes:
        # One walk for all requests of a second: a walk visits every destination.
        return metrics_text(await server.runtime.walk(server.status()), server.runtime.commits)

    text = Shared(read_metrics, METRICS_SECONDS)

    async def health(_asked: Asked) -> Response:
        # A reply at all says that the loop runs.
        return Response(HTTPStatus.OK, b"ok\n")

    async def readiness(_asked: Asked) -> Response:
        reason = server.not_ready
        if reason is None:
            return Response(HTTPStatus.OK, b"ready\n")
        return Response(HTTPStatus.SERVICE_UNAVAILABLE, f"{reason}\n".encode())

    async def metrics(asked: Asked) -> Response:
        if token is None and not asked.is_ours:
            reason = f"{WRONG_HOST}; with metrics_token any is\n"
            return Response(HTTPStatus.MISDIRECTED_REQUEST, reason.encode())
        if token is not None and not token.is_shown(asked.authorization):
            headers = (("www-authenticate", 'Bearer realm="metrics"'),)
            return Response(HTTPStatus.UNAUTHORIZED, b"this wants the metrics token\n", headers=headers)
        return Response(HTTPStatus.OK, await text.get(), CONTENT_TYPE)

    return {"/healthz": health, "/readyz": readiness, "/metrics": metrics}


def console_pages() -> Mapping[str, Page]:
    """The files of the console by path, and the paths that lead to it.

    Each request has to name a host of the listener: from another name the page could not connect anyway.
    """
    pages = {path: _page_of(asset) for path, asset in assets().items()}
    return pages | {path: _redirection_to(target) for path, target in REDIRECTED.items()}


def _page_of(asset: Asset) -> Page:
    async def page(asked: Asked) -> Response:
        if not asked.is_ours:
            return Response(HTTPStatus.MISDIRECTED_REQUEST, f"{WRONG_CONSOLE_HOST}\n".encode())
        body, headers = asset.encoded(takes_gzip=asked.takes_gzip)
        return Response(HTTPStatus.OK, body, asset.content_type, headers)

    return page


def _redirection_to(target: str) -> Page:
    async def page(_asked: Asked) -> Response:
        return Response(HTTPStatus.TEMPORARY_REDIRECT, b"", headers=(("location", target),))

    return page
