"""Signatures of a client's calls: the overloads that type checkers see, with the contract of each method.

The work is done by `Client`. A method takes a function, and is typed by its signature; or names.
"""

# Why four overloads for each method
# ----------------------------------
#
# A call by function is typed by that function: `client.start(report, month=1)` is checked like
# `report(month=1)`, and gives a `JobHandle` of its result. Two things stand between the two, and each
# doubles the overloads of a function:
#
# - The function may be async or plain, and the result is the same for the caller. A union (`Callable[P,
#   Awaitable[T] | T]`) would say so in one overload, but mypy infers `Never` for T with it.
# - It may take a `Request` (or a `Job`) first, which the caller leaves out. With a union of both forms
#   pyright takes the first that fits the function, without a look at the arguments.
#
# What the methods return differs in the class around T (`Scatter[T]`, `Stream[T]`, `JobHandle[T]`), and
# Python has no variable for such a class. So the four are repeated for each method, under short names from
# `nebula.rpc.contract.typed_calls`. tests/typing proves both ways that they work: right calls have the
# right type, and wrong ones are rejected, by two type checkers.

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable
from typing import Any, ParamSpec, TypeVar, TypeVarTuple, Unpack, overload

from nebula.rpc.contract.start_options import StartOptions
from nebula.rpc.contract.typed_calls import (
    AsyncWithJob,
    AsyncWithRequest,
    TypedCalls,
    Unfitting,
    WithJob,
    WithRequest,
)
from nebula.rpc.discovery.scatter import Scatter
from nebula.rpc.jobs.handle import JobHandle
from nebula.rpc.streams.reading import DEFAULT_CREDIT, Stream

__all__ = ["TypedClient"]

P = ParamSpec("P")
Ts = TypeVarTuple("Ts")
T = TypeVar("T")


class TypedClient(TypedCalls):
    """The methods of a `Client` that take a function or names; `call` is in `TypedCalls`."""

    @overload
    def call_all(
        self, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Scatter[T]: ...
    @overload
    def call_all(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Scatter[T]: ...
    @overload
    def call_all(
        self, function: AsyncWithRequest[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> Scatter[T]: ...
    @overload
    def call_all(self, function: WithRequest[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Scatter[T]: ...
    # For messages alone, see `Unfitting`.
    @overload
    def call_all(self, function: Callable[[Unpack[Ts]], object], /, *args: *Ts) -> Scatter[object]: ...
    @overload
    def call_all(self, function: Unfitting, /, *args: Any, **kwargs: Any) -> Scatter[Any]: ...
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
    ) -> Scatter[T]: ...
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
    ) -> Scatter[Any]: ...
    def call_all(self, target: Any, /, *args: Any, **kwargs: Any) -> Scatter[Any]:  # type: ignore[misc]  # mypy: of no `*Ts`
        """Ask every running instance of a service.

        Await it for a `ScatterResult`, or enter it for the replies as they come, see `Scatter`. An instance
        that replies `error` has replied; one that dies, or is too slow, is `missing`.

        Args:
            target: a function that a service declared, followed by its arguments; or the name of a service,
                followed by:
            verb: its name.
            parameters: as for `call`.
            result: the type to read each reply as; by default plain JSON.
            timeout: seconds that all of it may take, by default as for `call`.

        Raises:
            Refused: the broker does not show the instances to this client.
            ConnectionLost, ServerError: the connection ended first, or there was none in time.
            TypeError: the arguments do not fit the function, or no service declared it.
        """
        return self._called_all(target, args, kwargs)

    @overload
    def stream(
        self, function: Callable[P, AsyncIterable[T] | Iterable[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Stream[T]: ...
    @overload
    def stream(
        self, function: WithRequest[P, AsyncIterable[T] | Iterable[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Stream[T]: ...
    # For messages alone, see `Unfitting`.
    @overload
    def stream(
        self, function: Callable[[Unpack[Ts]], AsyncIterable[object] | Iterable[object]], /, *args: *Ts
    ) -> Stream[object]: ...
    @overload
    def stream(self, function: Unfitting, /, *args: Any, **kwargs: Any) -> Stream[Any]: ...
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
    ) -> Stream[T]: ...
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
    ) -> Stream[Any]: ...
    def stream(self, target: Any, /, *args: Any, **kwargs: Any) -> Stream[Any]:  # type: ignore[misc]  # mypy: of no `*Ts`
        """Ask a service for what a verb yields: `async for item in client.stream(ticks, "ABC")`.

        See `Stream` for how to read it and how to stop. It has no deadline unless one is given here, by
        `with_options`, by the anyio scopes around this call, or by the request whose handler makes it. But
        the service must send something every 30 s, if only a keepalive. A stream is not requested again when
        its connection is lost, because part of it may have been read.

        Args:
            target: a function that yields, declared by a service, followed by its arguments; or the name of a
                service (or a destination), followed by:
            verb: its name.
            parameters: as for `call`.
            result: the type to read each item as; by default plain JSON.
            timeout: seconds for all of the stream.
            credit: items that may be in flight or unread, at least 1: bounds the stream's memory.

        Raises:
            TypeError: the arguments do not fit the function, or no service declared it.
            ValueError: credit is below 1.
        """
        return self._streamed(target, args, kwargs)

    @overload
    async def start(
        self, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> JobHandle[T]: ...
    @overload
    async def start(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> JobHandle[T]: ...
    @overload
    async def start(
        self, function: AsyncWithJob[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> JobHandle[T]: ...
    @overload
    async def start(self, function: WithJob[P, T], /, *args: P.args, **kwargs: P.kwargs) -> JobHandle[T]: ...
    # For messages alone, see `Unfitting`.
    @overload
    async def start(self, function: Callable[[Unpack[Ts]], object], /, *args: *Ts) -> JobHandle[object]: ...
    @overload
    async def start(self, function: Unfitting, /, *args: Any, **kwargs: Any) -> JobHandle[Any]: ...
    @overload
    async def start(
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
        """Have a service begin a job. Returns once the job is accepted, long before it is done.

        The request is stored: if the service is away, the job begins when it returns. If no reply comes in
        time, a handle is returned all the same, because the client makes the id; its `status` then shows
        whether the service knows the job.

        Args:
            target: a function that a service declared with `job`, followed by its arguments; or the name of
                a service, followed by verb and parameters, see `call`.
            timeout: seconds to wait for the early reply; it does not limit the job.
            **options: of the job, see `StartOptions`; by default, and always for a function, those of
                `with_options`.

        Returns:
            The handle; for a job started by its function, typed with what the function returns.

        Raises:
            RemoteError: the service refused: `bad-parameters`, `busy`, …; there is no job.
            Rejected: the broker refused; there is no job.
            UnexpectedReply: the verb is not a job.
            ConnectionLost, ServerError: the connection ended repeatedly, or there was none in time; there may
                be a job.
        """
        return self._started(target, args, kwargs)

    @overload
    async def send(self, function: Callable[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> None: ...
    @overload
    async def send(self, function: WithRequest[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> None: ...
    # For messages alone, see `Unfitting`.
    @overload
    async def send(self, function: Callable[[Unpack[Ts]], object], /, *args: *Ts) -> None: ...
    @overload
    async def send(self, function: Unfitting, /, *args: Any, **kwargs: Any) -> None: ...
    @overload
    async def send(
        self, service: str, verb: str, /, parameters: Any = None, *, expires_in: float | None = None
    ) -> None: ...
    def send(self, target: Any, /, *args: Any, **kwargs: Any) -> Any:  # type: ignore[misc]  # mypy: of no `*Ts`
        """Put a request into a service's queue without waiting for a reply (D.50).

        When this returns, the broker has the request, even if no service listens yet: it runs when a service
        comes, at least once.

        Args:
            target: as for `call`, with its arguments, or followed by verb and parameters.
            expires_in: seconds after which it is dropped; by default never. For a function it is an option
                of `with_options`.

        Raises:
            Rejected: the broker refused it; it had no effect.
            CallTimeout: the broker did not confirm it in time; it may have it.
            ConnectionLost, ServerError: the connection ended first; the broker may have it.
        """
        return self._sent(target, args, kwargs)

    @abstractmethod
    def _called_all(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Scatter[Any]:
        """Call all instances."""

    @abstractmethod
    def _streamed(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Stream[Any]:
        """Open a stream."""

    @abstractmethod
    def _started(
        self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Awaitable[JobHandle[Any]]:
        """Start a job."""

    @abstractmethod
    def _sent(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Awaitable[None]:
        """Send a request without a reply."""
