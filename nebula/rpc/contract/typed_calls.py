"""Calls as type checkers see them: by a function with its arguments, or by names."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any, Concatenate, ParamSpec, TypeVar, TypeVarTuple, Unpack, overload

from nebula.rpc.client.retry import CallOptions
from nebula.rpc.contract.context import AnyRequest
from nebula.rpc.contract.unfitting import Unfitting

__all__ = ["TypedCalls"]

P = ParamSpec("P")
Ts = TypeVarTuple("Ts")
T = TypeVar("T")


class TypedCalls:
    """What has `call`: a `Client`, and a `Responder` for its handlers."""

    @overload
    async def call(self, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    @overload
    async def call(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    @overload
    async def call(
        self,
        function: Callable[Concatenate[AnyRequest, P], Awaitable[T]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T: ...
    @overload
    async def call(
        self, function: Callable[Concatenate[AnyRequest, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T: ...
    # For messages alone, see `Unfitting`.
    @overload
    async def call(self, function: Callable[[Unpack[Ts]], object], /, *args: *Ts) -> object: ...
    @overload
    async def call(self, function: Unfitting, /, *args: Any, **kwargs: Any) -> Any: ...
    @overload
    async def call(
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
    async def call(
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
    # Not async itself: a coroutine less for each call.
    def call(self, target: Any, /, *args: Any, **kwargs: Any) -> Any:  # type: ignore[misc]  # mypy: of no `*Ts`
        """Ask a service and wait for its answer.

        The request may have been handled although no answer came (`CallTimeout`, `ConnectionLost`), and a
        service may run it again if it died before it answered: calls have to bear that, or carry a key of
        their own. When the caller is cancelled the service is told: what is still waiting there never starts.

        Args:
            target: a function that a service declared, followed by its arguments; or the name of a service
                (or a destination), followed by:
            verb: its name.
            parameters: an object for keywords, a list for positions, a scalar for the single one; whatever
                pydantic can write as JSON.
            result: the type to read the answer as; by default JSON's.
            timeout: seconds; else those of `with_options`, of the anyio scopes around, of the request whose
                handler calls, or the client's. Never more than that request has left.
            **options: see `CallOptions`; else those of `with_options`.

        Returns:
            The verb's value, None for `success` with nothing to report.

        Raises:
            RemoteError: the service answered `error`; for a code that is declared, a `VerbError` of that
                class.
            NoResponder: nobody listens there; nothing was stored.
            Rejected: the broker refused the request; it had no effect.
            CallTimeout: no answer in time.
            CircuitOpen: so many calls there failed that this one was not sent.
            UnexpectedReply: the answer's value is not of the type asked for.
            ConnectionLost, ServerError: the connection ended first, or there was none in time.
            TypeError: the arguments do not fit the function, or nobody knows its service.
        """
        return self._called(target, args, kwargs)

    @abstractmethod
    def _called(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Awaitable[Any]:
        """Make a call."""
