"""Calls without `await`, by a handler's own function or by names."""

# All signatures in `nebula.sync` are derived from the async classes, with other results: T instead of an
# awaitable of T, `ScatterResult[T]` instead of `Scatter[T]`, a generator instead of a stream. Python's types
# cannot say "the same signature without await", so `python -m tests.typing.test_sync_signatures` writes them,
# and a test compares.

from __future__ import annotations

import copy
from collections.abc import AsyncIterable, Awaitable, Callable, Generator, Iterable
from functools import partial
from typing import Any, ParamSpec, Self, TypeVar, TypeVarTuple, Unpack, overload

from nebula.rpc.client.client import Client as AsyncClient
from nebula.rpc.contract.call_options import CallOptions, Options
from nebula.rpc.contract.start_options import StartOptions
from nebula.rpc.contract.typed_calls import AsyncWithJob, AsyncWithRequest, Unfitting, WithJob, WithRequest
from nebula.rpc.discovery import ScatterResult
from nebula.rpc.streams.reading import DEFAULT_CREDIT, Stream
from nebula.sync.jobs import JobHandle
from nebula.sync.loop import Loop

__all__ = ["Calls"]

P = ParamSpec("P")
Ts = TypeVarTuple("Ts")
T = TypeVar("T")


class Calls:
    """A part of `Client`.

    Args:
        client: whose calls these are.
    """

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        # One for all views, also for those that are made before the client is entered.
        self._loop = Loop()

    def with_options(self, *, timeout: float | None = None, **options: Unpack[Options]) -> Self:
        """The same client with other options for its calls, and for the jobs that it starts."""
        return self._view(self._client.with_options(timeout=timeout, **options))

    def service(self, name: str) -> Self:
        """The same client, whose calls by function go to the service `name`."""
        return self._view(self._client.service(name))

    @overload
    def call(self, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    @overload
    def call(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    @overload
    def call(self, function: AsyncWithRequest[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    @overload
    def call(self, function: WithRequest[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    # For messages alone, see `Unfitting`.
    @overload
    def call(self, function: Callable[[Unpack[Ts]], object], /, *args: *Ts) -> object: ...
    @overload
    def call(self, function: Unfitting, /, *args: Any, **kwargs: Any) -> Any: ...
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
        **options: Unpack[CallOptions],
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
        **options: Unpack[CallOptions],
    ) -> Any: ...
    def call(self, target: Any, /, *args: Any, **kwargs: Any) -> Any:  # type: ignore[misc]  # mypy: of no `*Ts`
        """Ask a service and wait for its reply: by name, or by function with its arguments."""
        return self._loop.do(partial(self._client.call, target, *args, **kwargs))

    @overload
    def stream(
        self, function: Callable[P, AsyncIterable[T] | Iterable[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Generator[T]: ...
    @overload
    def stream(
        self, function: WithRequest[P, AsyncIterable[T] | Iterable[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Generator[T]: ...
    # For messages alone, see `Unfitting`.
    @overload
    def stream(
        self, function: Callable[[Unpack[Ts]], AsyncIterable[object] | Iterable[object]], /, *args: *Ts
    ) -> Generator[object]: ...
    @overload
    def stream(self, function: Unfitting, /, *args: Any, **kwargs: Any) -> Generator[Any]: ...
    @overload
    def stream(
        self,
        service: str,
        verb: str,
        /,
        parameters: Any = None,
        *,
        result: type[T],
        timeout: float | None = None,
        credit: int = DEFAULT_CREDIT,
    ) -> Generator[T]: ...
    @overload
    def stream(
        self,
        service: str,
        verb: str,
        /,
        parameters: Any = None,
        *,
        result: Any = ...,
        timeout: float | None = None,
        credit: int = DEFAULT_CREDIT,
    ) -> Generator[Any]: ...
    def stream(self, target: Any, /, *args: Any, **kwargs: Any) -> Generator[Any]:  # type: ignore[misc]  # mypy: of no `*Ts`
        """What a verb yields, as it comes: `for item in client.stream(…)`. Leaving the loop ends it."""
        return self._streamed(partial(self._client.stream, target, *args, **kwargs))

    def _streamed(self, make: Callable[[], Stream[Any]]) -> Generator[Any]:
        # On the loop: that is where its deadline is looked for, and where it belongs.
        stream = self._loop.make(make)
        try:
            # By batches: each crossing of threads costs as much as a hundred items.
            while batch := self._loop.do(stream.next_batch):
                yield from batch
        finally:
            # Also when the reader leaves the loop early, so that the service stops and does not wait for
            # credit.
            self._loop.do(stream.aclose)

    @overload
    def call_all(
        self, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> ScatterResult[T]: ...
    @overload
    def call_all(
        self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> ScatterResult[T]: ...
    @overload
    def call_all(
        self, function: AsyncWithRequest[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> ScatterResult[T]: ...
    @overload
    def call_all(
        self, function: WithRequest[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> ScatterResult[T]: ...
    # For messages alone, see `Unfitting`.
    @overload
    def call_all(self, function: Callable[[Unpack[Ts]], object], /, *args: *Ts) -> ScatterResult[object]: ...
    @overload
    def call_all(self, function: Unfitting, /, *args: Any, **kwargs: Any) -> ScatterResult[Any]: ...
    @overload
    def call_all(
        self,
        service: str,
        verb: str,
        /,
        parameters: Any = None,
        *,
        result: type[T],
        timeout: float | None = None,
    ) -> ScatterResult[T]: ...
    @overload
    def call_all(
        self,
        service: str,
        verb: str,
        /,
        parameters: Any = None,
        *,
        result: Any = ...,
        timeout: float | None = None,
    ) -> ScatterResult[Any]: ...
    def call_all(self, target: Any, /, *args: Any, **kwargs: Any) -> ScatterResult[Any]:  # type: ignore[misc]  # mypy: of no `*Ts`
        """Ask every running instance of a service; returns when it waits for no more instances."""

        async def ask() -> ScatterResult[Any]:
            return await self._client.call_all(target, *args, **kwargs)

        return self._loop.do(ask)

    def call_queue(
        self, queue: str, verb: str, parameters: Any = None, *, timeout: float | None = None
    ) -> Any:
        """`call` by name, to the service that reads a queue, such as an instance's own."""
        return self._loop.do(partial(self._client.call_queue, queue, verb, parameters, timeout=timeout))

    @overload
    def send(self, function: Callable[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> None: ...
    @overload
    def send(self, function: WithRequest[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> None: ...
    # For messages alone, see `Unfitting`.
    @overload
    def send(self, function: Callable[[Unpack[Ts]], object], /, *args: *Ts) -> None: ...
    @overload
    def send(self, function: Unfitting, /, *args: Any, **kwargs: Any) -> None: ...
    @overload
    def send(
        self, service: str, verb: str, /, parameters: Any = None, *, expires_in: float | None = None
    ) -> None: ...
    def send(self, target: Any, /, *args: Any, **kwargs: Any) -> Any:  # type: ignore[misc]  # mypy: of no `*Ts`
        """Put a request into a service's queue, and ask for no reply."""
        return self._loop.do(partial(self._client.send, target, *args, **kwargs))

    @overload
    def start(
        self, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> JobHandle[T]: ...
    @overload
    def start(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> JobHandle[T]: ...
    @overload
    def start(self, function: AsyncWithJob[P, T], /, *args: P.args, **kwargs: P.kwargs) -> JobHandle[T]: ...
    @overload
    def start(self, function: WithJob[P, T], /, *args: P.args, **kwargs: P.kwargs) -> JobHandle[T]: ...
    # For messages alone, see `Unfitting`.
    @overload
    def start(self, function: Callable[[Unpack[Ts]], object], /, *args: *Ts) -> JobHandle[object]: ...
    @overload
    def start(self, function: Unfitting, /, *args: Any, **kwargs: Any) -> JobHandle[Any]: ...
    @overload
    def start(
        self,
        service: str,
        verb: str,
        /,
        parameters: Any = None,
        *,
        timeout: float | None = None,
        **options: Unpack[StartOptions],
    ) -> JobHandle[Any]: ...
    def start(self, target: Any, /, *args: Any, **kwargs: Any) -> Any:  # type: ignore[misc]  # mypy: of no `*Ts`
        """Have a service begin a job; returns once it is accepted."""
        return JobHandle(self._loop.do(partial(self._client.start, target, *args, **kwargs)), self._loop)

    def _view(self, client: AsyncClient) -> Self:
        # A shallow copy: all views share the loop, and only the entered client starts and ends it.
        view = copy.copy(self)
        view._client = client
        return view
