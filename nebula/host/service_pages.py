"""A service's HTTP port: `/healthz`, `/readyz` and `/metrics`, for orchestrators and Prometheus."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Final

from nebula.broker.operations.metrics import CONTENT_TYPE
from nebula.broker.server.http import HttpListener
from nebula.broker.server.http_connection import HttpConnection
from nebula.broker.server.http_posts import Asked, Page, Response
from nebula.broker.server.listener import is_loopback
from nebula.errors import SettingsError
from nebula.host.service_metrics import service_metrics
from nebula.rpc.service.responder import Responder

_NOT_SERVING: Final = "no requests are taken now"


@asynccontextmanager
async def pages_served(app: Responder, host: str, port: int) -> AsyncIterator[str]:
    """Answer probes about a service during the block, on asyncio; it need not run yet.

    `/healthz` asks its `live` hooks, `/readyz` its `ready` hooks and whether it takes requests: 200, or 503
    with what is not well. A service whose loop hangs answers neither.

    Args:
        app: the service.
        host: name or address of an interface.
        port: 0: the system picks one.

    Yields:
        The URL.

    Raises:
        SettingsError: the address cannot be used.
    """
    # The broker's HTTP listener, which limits requests and closes connections gracefully.
    listener = HttpListener(None, pages=_pages_of(app, is_local=is_loopback(host)))
    try:
        server = await asyncio.get_running_loop().create_server(lambda: HttpConnection(listener), host, port)
    except OSError as error:
        raise SettingsError(f"--http {host}:{port}: {error.strerror or error}") from error
    try:
        name, number = server.sockets[0].getsockname()[:2]
        yield f"http://{f'[{name}]' if ':' in name else name}:{number}"
    finally:
        server.close()
        listener.close()


def _pages_of(app: Responder, *, is_local: bool) -> Mapping[str, Page]:
    async def ready() -> list[str]:
        # Hooks are called only while it serves; before that they may need what does not exist yet.
        return await app.not_ready() if app.is_serving else [_NOT_SERVING]

    async def metrics(asked: Asked) -> Response:
        # Otherwise a web page could read them in a browser on this machine, through a name that points here
        # (DNS rebinding). On other addresses a scraper may use any name.
        if is_local and not asked.is_ours:
            return Response(HTTPStatus.MISDIRECTED_REQUEST, b"this host is not served here\n")
        return Response(HTTPStatus.OK, service_metrics(app), CONTENT_TYPE)

    return {
        "/healthz": _probe(app.not_live, "ok"),
        "/readyz": _probe(ready, "ready"),
        "/metrics": metrics,
    }


def _probe(failing: Callable[[], Awaitable[list[str]]], well: str) -> Page:
    async def page(_asked: Asked) -> Response:
        reasons = await failing()
        if not reasons:
            return Response(HTTPStatus.OK, f"{well}\n".encode())
        # The reasons are names of hooks, so they quote nothing of any request.
        return Response(HTTPStatus.SERVICE_UNAVAILABLE, f"{', '.join(reasons)}\n".encode())

    return page
