"""Typed calls: the overloads that type checkers see, and the service that a function's call goes to."""

# `resolve` is on the way of each call by function. What it needs of a function (signature, JSON form) is
# worked out at the first call and kept by function, in a bounded cache: functions made in a loop
# must not stay for ever. A verb and a job of one function are kept apart, as a job's parameters differ.

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import Any, Concatenate, Never, ParamSpec, TypeAlias, TypeVar, TypeVarTuple, Unpack, overload

from nebula.destinations import queue_named
from nebula.rpc.contract.call_options import CallOptions
from nebula.rpc.contract.context import AnyRequest, Request
from nebula.rpc.contract.job_context import Job
from nebula.rpc.contract.signature import Signature, job_signature
from nebula.rpc.contract.verbs import TARGET, Target, promises_of, verb_name_of

__all__ = [
    "ArgumentsGiven", "AsyncWithJob", "AsyncWithRequest", "TypedCalls", "Unfitting", "WithJob", "WithRequest",
    "resolve",
]  # fmt: skip

P = ParamSpec("P")
Ts = TypeVarTuple("Ts")
T = TypeVar("T")


AsyncWithRequest: TypeAlias = Callable[Concatenate[AnyRequest, P], Awaitable[T]]
"""An async function that takes its request first, which callers leave out."""

WithRequest: TypeAlias = Callable[Concatenate[AnyRequest, P], T]
"""A plain one."""

AsyncWithJob: TypeAlias = Callable[Concatenate[Job, P], Awaitable[T]]
"""An async function that takes its job first, which callers leave out."""

WithJob: TypeAlias = Callable[Concatenate[Job, P], T]
"""A plain one."""


class ArgumentsGiven:
    """Arguments that fit no function. Never instantiated: its name appears in messages of type checkers."""


# docs/decisions/0052: two overloads only for messages, as type checkers list all of them otherwise.
# For the messages of type checkers alone. mypy compares a call that fits no overload with those whose shape
# it has, and explains the first of them; without one it lists all overloads, 1,450 characters for
# one wrong argument. A signature with a `ParamSpec` has the shape of calls with both positional and keyword
# arguments, and of no others. So two overloads stand behind those: `Callable[[*Ts], object]` for positional
# calls, which shows what was given next to what is taken; and `Unfitting` for keyword calls, which shows what
# is taken. No verb is of that type.
Unfitting: TypeAlias = Callable[[Unpack[tuple[ArgumentsGiven, ...]]], Never]
"""A function that would take the arguments of a wrong call: no such function exists."""


class TypedCalls:
    """The `call` of a `Client`, and of a `Responder` for its handlers."""

    @overload
    async def call(self, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    @overload
    async def call(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    @overload
    async def call(self, function: AsyncWithRequest[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    @overload
    async def call(self, function: WithRequest[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
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
    def call(self, target: Any, /, *args: Any, **kwargs: Any) -> Any:  # type: ignore[misc]  # mypy: of no `*Ts`
        """Ask a service and wait for its reply.

        The request may have been handled although no reply came (`CallTimeout`, `ConnectionLost`), and a
        service that died before it replied may run it again: the verb has to tolerate that, or the call needs
        an `idempotency_key`. When the caller is cancelled, the service is informed: a request that still
        waits there never starts.

        Args:
            target: a function that a service declared, followed by its arguments; or the name of a service
                (or a destination), followed by:
            verb: its name.
            parameters: an object for keyword arguments, a list for positional ones, a scalar for a single
                one; anything that pydantic can write as JSON.
            result: the type to read the reply as; by default plain JSON.
            timeout: seconds; by default those of `with_options`, of the anyio scopes around the call, of the
                request whose handler calls, or the client's. Never more than that request has left.
            **options: see `CallOptions`; by default those of `with_options`.

        Returns:
            The verb's value, None for `success` with nothing to report.

        Raises:
            RemoteError: the service replied `error`; a declared code raises the `VerbError` of its class.
            NoResponder: no service listens there; nothing was stored.
            Rejected: the broker refused the request; it had no effect.
            CallTimeout: no reply in time.
            CircuitOpen: the breaker did not let this call through, after several failures in a row.
            UnexpectedReply: the reply's value is not of the type asked for.
            ConnectionLost, ServerError: the connection ended first, or there was none in time.
            TypeError: the arguments do not fit the function, or no service declared it.
        """
        # This method is not async itself: that saves a coroutine for each call.
        return self._called(target, args, kwargs)

    @abstractmethod
    def _called(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Awaitable[Any]:
        """Make a call."""


def resolve(
    function: Callable[..., Any], service: str | None, *, as_job: bool = False
) -> tuple[Target, Signature]:
    """Find out which service to ask for a function, and how its arguments and result travel.

    Args:
        function: a verb or a job.
        service: to be asked instead; None: the service that declared it.
        as_job: the caller wants to start it; else to call it.

    Raises:
        TypeError: no service declared it, or it is a job and is called, or a verb and is started.
    """
    # `target_of`, written out: each call comes here.
    known = getattr(function, TARGET, None)
    if not isinstance(known, Target):
        known = None
    contract_of = _contract_of_job if as_job else _contract_of
    if service is not None:
        name = verb_name_of(function) if known is None else known.verb
        return Target(service, queue_named(service), name, options=promises_of(function)), contract_of(
            function
        )
    if known is None:
        name = getattr(function, "__qualname__", repr(function))
        raise TypeError(
            f"no service declared {name}: say whom to ask, with client.service(NAME).call({name}, …)"
        )
    if known.is_job and not as_job:
        raise TypeError(f"{known.verb} is a job: use client.start(…), and .result() of what it returns")
    if as_job and not known.is_job:
        raise TypeError(f"{known.verb} is no job: use client.call(…)")
    return known, contract_of(function)


@lru_cache(maxsize=1024)
def _contract_of(function: Callable[..., Any]) -> Signature:
    return Signature(function, context=(Request, Job))


@lru_cache(maxsize=1024)
def _contract_of_job(function: Callable[..., Any]) -> Signature:
    return job_signature(function, context=(Request, Job))
