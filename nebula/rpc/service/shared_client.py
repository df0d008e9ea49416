"""Client of a service, for the calls of its handlers and for schemas: one connection for the process."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio

from nebula.errors import ConnectionLost, LocalProtocolError
from nebula.headers import ON_BEHALF_OF, TRACEPARENT, TRACESTATE
from nebula.rpc.client.client import Client
from nebula.rpc.contract.context import HANDLED_HEADERS, HANDLED_PRINCIPAL
from nebula.rpc.middleware.chain import Call, CallingMiddleware, CallMiddleware, MakeCall
from nebula.rpc.wire.deadlines import handler_seconds

__all__ = ["SharedClient", "call_middleware"]

# For the first connection, where no caller waits: as long as for a reply.
_CONNECT_SECONDS: Final = 30.0


# docs/decisions/0045: one for all handlers, as a client for each request is a connection for each.
class SharedClient:
    """Opens one client when it is first wanted, and closes it with its service.

    Args:
        make: a client, not entered, that waits for its first connection.
    """

    def __init__(self, make: Callable[[], Client]) -> None:
        self._make = make
        self._client: Client | None = None
        self._is_wanted = anyio.Event()
        self._is_open = anyio.Event()
        self._is_over = anyio.Event()

    async def get(self) -> Client:
        """The client, once it has had a connection. It is not to be entered, nor left.

        Raises:
            ConnectionLost: there was no connection before the time of the request that is being handled was
                over, or within 30 s without a request.
            LocalProtocolError: the service has ended.
        """
        if self._is_over.is_set():
            raise LocalProtocolError("the service has ended, and its client with it")
        if self._client is None:
            self._is_wanted.set()
            left = handler_seconds()
            with anyio.move_on_after(_CONNECT_SECONDS if left is None else left):
                await self._is_open.wait()
        if self._client is None:
            raise ConnectionLost("no connection to the broker in time")
        return self._client

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[None]:
        """Have it for the block."""
        async with anyio.create_task_group() as tasks:
            # A task of its own enters and leaves it: the first user of it is gone by the end.
            tasks.start_soon(self._live, name="client of the service")
            try:
                yield
            finally:
                self._is_over.set()
                if self._client is None:
                    tasks.cancel_scope.cancel()

    async def _live(self) -> None:
        await self._is_wanted.wait()
        async with self._make() as self._client:
            self._is_open.set()
            await self._is_over.wait()


def call_middleware(middleware: Sequence[object]) -> list[CallMiddleware]:
    """What stands around the calls of a service's client, by the middleware of the service."""
    # Nebula's two are innermost, so that they see what the user's middleware has set.
    theirs = [one.around_call for one in middleware if isinstance(one, CallingMiddleware)]
    return [*theirs, _carry_trace, _carry_principal]


async def _carry_trace(call: Call, call_next: MakeCall) -> Any:
    """Hand on the trace of what is being handled, unless another middleware has a span of its own."""
    handled = HANDLED_HEADERS.get()
    if handled is not None and TRACEPARENT in handled and TRACEPARENT not in call.headers:
        call.headers |= {name: handled[name] for name in (TRACEPARENT, TRACESTATE) if name in handled}
    return await call_next(call)


async def _carry_principal(call: Call, call_next: MakeCall) -> Any:
    """Add the claim on whose behalf a call is made: the principal that the broker vouched for."""
    # Of this request alone: middleware may have copied another one's headers.
    # docs/decisions/0048: a claim for one hop that gives no rights.
    call.headers.pop(ON_BEHALF_OF, None)
    if principal := HANDLED_PRINCIPAL.get():
        call.headers[ON_BEHALF_OF] = principal
    return await call_next(call)
