"""The client without `await`, for scripts and notebooks.

The same calls with the same contracts as `nebula.rpc.client.Client`: read them there. Each waits until it
is done. The loop that does the work runs on a thread of its own.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack
from functools import partial
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, overload

from anyio.from_thread import BlockingPortal, start_blocking_portal

from nebula.errors import LocalProtocolError
from nebula.rpc.client import Client as AsyncClient
from nebula.rpc.context import Request
from nebula.rpc.envelope import JSON_TYPE

__all__ = ["Client"]

P = ParamSpec("P")
T = TypeVar("T")


class Client:
    """Calls verbs of services, over one connection. See `nebula.rpc.client.Client`.

    A context manager: entering it connects, leaving it disconnects. It may be used from several threads.

    Args:
        url: of the broker.
        timeout: seconds that a call waits unless it says otherwise.
    """

    def __init__(self, url: str | None = None, *, timeout: float = 30.0) -> None:
        self._client = AsyncClient(url, timeout=timeout)
        self._stack = ExitStack()
        self._portal: BlockingPortal | None = None

    def __enter__(self) -> Self:
        with self._stack:
            self._portal = self._stack.enter_context(start_blocking_portal())
            self._stack.enter_context(self._portal.wrap_async_context_manager(self._client))
            self._stack = self._stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def with_options(self, *, timeout: float) -> Self:
        """The same client with another `timeout` in seconds."""
        return self._view(self._client.with_options(timeout=timeout))

    def service(self, name: str) -> Self:
        """The same client, whose calls by function go to the service `name`."""
        return self._view(self._client.service(name))

    @overload
    def call(
        self,
        service: str,
        verb: str,
        /,
        parameters: Any = None,
        *,
        result: type[T],
        timeout: float | None = None,
    ) -> T: ...
    @overload
    def call(
        self,
        service: str,
        verb: str,
        /,
        parameters: Any = None,
        *,
        result: Any = ...,
        timeout: float | None = None,
    ) -> Any: ...
    @overload
    def call(
        self, function: Callable[Concatenate[Request, P], Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> T: ...
    @overload
    def call(
        self, function: Callable[Concatenate[Request, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T: ...
    @overload
    def call(self, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    @overload
    def call(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    def call(self, target: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Ask a service and wait for its answer: by name, or by function with its arguments."""
        return self._do(partial(self._client.call, target, *args, **kwargs))

    @overload
    def send(
        self, service: str, verb: str, /, parameters: Any = None, *, expires_in: float | None = None
    ) -> None: ...
    @overload
    def send(
        self, function: Callable[Concatenate[Request, P], Any], /, *args: P.args, **kwargs: P.kwargs
    ) -> None: ...
    @overload
    def send(self, function: Callable[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> None: ...
    def send(self, target: Any, /, *args: Any, **kwargs: Any) -> None:
        """Put a request into a service's queue, and ask for no answer."""
        self._do(partial(self._client.send, target, *args, **kwargs))

    def publish(
        self,
        destination: str,
        body: Any,
        *,
        content_type: str = JSON_TYPE,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Send a message that is no request, and wait until the broker has it."""
        send = partial(self._client.publish, content_type=content_type, headers=headers)
        self._do(partial(send, destination, body))

    def _view(self, client: AsyncClient) -> Self:
        view = copy.copy(self)
        view._client = client
        return view

    def _do(self, work: Callable[[], Awaitable[T]]) -> T:
        if self._portal is None:
            raise LocalProtocolError("the client is not connected: enter it with `with`")
        return self._portal.call(work)
