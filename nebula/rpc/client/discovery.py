"""What a client can do with all instances of a service: the part of `Client` that is about them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from time import monotonic
from typing import Any, Concatenate, Final, ParamSpec, TypeVar, TypeVarTuple, Unpack, overload

from nebula.errors import NebulaError, Rejected
from nebula.rpc.client.caller import Caller
from nebula.rpc.client.calling import Asking, request_body
from nebula.rpc.client.retry import CallRules
from nebula.rpc.contract.context import AnyRequest
from nebula.rpc.contract.options import require_named
from nebula.rpc.contract.resolving import resolve
from nebula.rpc.contract.unfitting import Unfitting
from nebula.rpc.discovery.instances import Instance
from nebula.rpc.discovery.presence import Presence, present, watching
from nebula.rpc.discovery.scatter import Scatter
from nebula.rpc.discovery.suggesting import Suggestions
from nebula.rpc.wire.replies import reader_of

__all__ = ["AsksAll"]

P = ParamSpec("P")
Ts = TypeVarTuple("Ts")
T = TypeVar("T")

_QUEUE = "/queue/"


_OPTIONS: Final = frozenset({"timeout", "result"})


class AsksAll(Asking):
    """A part of `Client`: finds the instances of services, and asks them all. Args: as for `Asking`."""

    def __init__(self, caller: Caller, rules: CallRules) -> None:
        super().__init__(caller, rules)
        # One for all views of the client.
        self._suggestions = Suggestions()

    async def _explain(self, error: Rejected) -> None:
        with suppress(NebulaError):  # a connection that is lost, a time that is over
            await self._suggestions.explain(error, self.stomp, self._seconds(None))

    async def services(self, service: str | None = None, *, timeout: float | None = None) -> list[Instance]:
        """The instances that are there now, by service and name.

        Brokers without last values do not know them: there all are asked, and those that answer within a
        second are there.

        Args:
            service: whose instances; None: of all services that this client may call.
            timeout: seconds, at most.

        Raises:
            Refused: the broker does not show them to this client.
            ConnectionLost, ServerError: the connection ended, or there was none in time.
        """
        ends = monotonic() + self._seconds(timeout)
        stomp = await self._caller.connected(ends - monotonic())
        return await present(stomp, _name_of(service), max(0.0, ends - monotonic()))

    def watch_services(
        self, service: str | None = None, *, timeout: float | None = None
    ) -> AbstractAsyncContextManager[Presence]:
        """Know who is there during a block, from its begin on:

            async with client.watch_services("prices") as presence:
                print(presence.instances)
                async for change in presence.changes():
                    print(change.instance.name, "has gone" if change.is_gone else "is there")

        It ends with its connection: then `changes` raises, and `instances` are those that were there.

        Args:
            service: whose instances; None: of all services that this client may call.
            timeout: seconds until it is known who is there at first.

        Raises:
            Refused, ConnectionLost, ServerError: as for `services`.
        """
        return self._watching(_name_of(service), timeout)

    @asynccontextmanager
    async def _watching(self, service: str | None, timeout: float | None) -> AsyncGenerator[Presence]:
        ends = monotonic() + self._seconds(timeout)
        stomp = await self._caller.connected(ends - monotonic())
        async with watching(stomp, service, max(0.0, ends - monotonic())) as presence:
            yield presence

    @overload
    def call_all(
        self, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Scatter[T]: ...
    @overload
    def call_all(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Scatter[T]: ...
    @overload
    def call_all(
        self,
        function: Callable[Concatenate[AnyRequest, P], Awaitable[T]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Scatter[T]: ...
    @overload
    def call_all(
        self, function: Callable[Concatenate[AnyRequest, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> Scatter[T]: ...
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
        """Ask every instance of a service that is there.

        Await it for a `ScatterResult`, or enter it for the answers as they come, see `Scatter`. An
        instance that answers `error` has answered; one that dies, or is too slow, is `missing`.

        Args:
            target: a function that a service declared, followed by its arguments; or the name of a service,
                followed by:
            verb: its name.
            parameters: as for `call`.
            result: the type to read each answer as; by default JSON's.
            timeout: seconds that all of it may take, by default as for `call`.

        Raises:
            Refused: the broker does not show the instances to this client.
            ConnectionLost, ServerError: the connection ended first, or there was none in time.
            TypeError: the arguments do not fit the function, or nobody knows its service.
        """
        if isinstance(target, str):
            require_named("call_all", target, args, kwargs, _OPTIONS)
            return self._call_all_named(target, *args, **kwargs)
        known, contract = resolve(target, self._service, as_job=False)
        body = request_body(known.verb, contract.pack(args, kwargs, "call_all"), contract.avro)
        rules = self._rules.promised(known.options.errors, is_idempotent=known.options.idempotent)
        return self._scatter(known.service, known.verb, body, self._timeout, rules, contract.load)

    def _call_all_named(
        self,
        service: str,
        verb: str,
        /,
        parameters: Any = None,
        *,
        result: Any = Any,
        timeout: float | None = None,
    ) -> Scatter[Any]:
        seconds = self._timeout if timeout is None else timeout
        read = None if result is Any else reader_of(result)
        return self._scatter(service, verb, request_body(verb, parameters), seconds, self._rules, read)

    def _scatter(
        self,
        service: str,
        verb: str,
        body: bytes,
        timeout: float | None,
        rules: CallRules,
        read: Callable[[Any], Any] | None,
    ) -> Scatter[Any]:
        async def ask(queue: str, /, *, timeout: float) -> Any:
            return await self._ask(verb, queue, body, timeout, rules, read)

        name = service.removeprefix(_QUEUE)
        return Scatter(self._caller.connected, name, ask, self._caller.seconds(timeout))

    def _seconds(self, timeout: float | None) -> float:
        return self._caller.seconds(self._timeout if timeout is None else timeout)


def _name_of(service: str | None) -> str | None:
    return None if service is None else service.removeprefix(_QUEUE)
