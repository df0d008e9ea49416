"""What a client does to read a stream."""

from __future__ import annotations

import math
from collections.abc import AsyncIterable, Callable, Iterable, Mapping
from functools import partial
from time import monotonic
from typing import Any, Concatenate, Final, ParamSpec, TypeVar, TypeVarTuple, Unpack, overload

import anyio

from nebula import headers as names
from nebula.errors import CallTimeout
from nebula.rpc.client.calling import request_body
from nebula.rpc.client.starting import Starting
from nebula.rpc.contract.context import AnyRequest
from nebula.rpc.contract.options import require_named
from nebula.rpc.contract.resolving import destination_of, resolve
from nebula.rpc.contract.unfitting import Unfitting
from nebula.rpc.middleware.chain import Call
from nebula.rpc.streams.reading import DEFAULT_CREDIT, Incoming, Stream
from nebula.rpc.wire.brokers import whole_milliseconds
from nebula.rpc.wire.deadlines import AMBIENT
from nebula.rpc.wire.envelope import JSON_TYPE
from nebula.rpc.wire.replies import reader_of

__all__ = ["Streaming"]

P = ParamSpec("P")
Ts = TypeVarTuple("Ts")
T = TypeVar("T")

# More than that changes nothing, see `Outflow`.
_MOST_CREDIT: Final = 1_000_000


_OPTIONS: Final = frozenset({"timeout", "result", "credit"})


class Streaming(Starting):
    """A part of `Client`."""

    @overload
    def stream(
        self, function: Callable[P, AsyncIterable[T] | Iterable[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Stream[T]: ...
    @overload
    def stream(
        self,
        function: Callable[Concatenate[AnyRequest, P], AsyncIterable[T] | Iterable[T]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
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

        See `Stream` for how it is read and left. There is no deadline for it unless one is given here, by
        `with_options`, by the anyio scopes around this call, or by the request whose handler makes it. But
        the service has to be heard of every 30 s, be it by a sign of life. A stream is not asked for again
        when its connection is lost: it may be half read.

        Args:
            target: a function that a service declared, which yields, followed by its arguments; or the name
                of a service (or a destination), followed by:
            verb: its name.
            parameters: as for `call`.
            result: the type to read each item as; by default JSON's.
            timeout: seconds for all of the stream.
            credit: items that may be under way or unread, from 1: what the stream may cost of memory.

        Raises:
            TypeError: the arguments do not fit the function, or nobody knows its service.
            ValueError: credit is below 1.
        """
        if isinstance(target, str):
            require_named("stream", target, args, kwargs, _OPTIONS)
            return self._stream_named(target, *args, **kwargs)
        known, contract = resolve(target, self._service, as_job=False)
        body = request_body(known.verb, contract.pack(args, kwargs, "stream"))
        ends_at, verb = _ends_at(self._timeout), known.verb
        opening = partial(self._open_stream, verb, known.destination, body, ends_at, DEFAULT_CREDIT)
        return Stream(opening, contract.load, (*self._rules.errors, *known.options.errors), self._explain)

    def _stream_named(
        self,
        service: str,
        verb: str,
        /,
        parameters: Any = None,
        *,
        result: Any = Any,
        timeout: float | None = None,
        credit: int = DEFAULT_CREDIT,
    ) -> Stream[Any]:
        if not 1 <= credit <= _MOST_CREDIT:
            raise ValueError(f"credit is from 1 to {_MOST_CREDIT}, not {credit}")
        ends_at = _ends_at(self._timeout if timeout is None else timeout)
        body = request_body(verb, parameters)
        opening = partial(self._open_stream, verb, destination_of(service), body, ends_at, credit)
        return Stream(
            opening,
            None if result is Any else reader_of(list[result]),
            self._rules.errors,
            self._explain,
        )

    async def _open_stream(
        self, verb: str, destination: str, body: bytes, ends_at: float, credit: int
    ) -> Incoming:
        async def work(call: Call) -> Incoming:
            ends = ends_at if call.timeout is None else min(ends_at, monotonic() + call.timeout)
            return await self._open_now(call.destination, body, ends, credit, call.headers)

        opened: Incoming = await self._through("stream", destination, verb, None, work)
        return opened

    async def _open_now(
        self, destination: str, body: bytes, ends_at: float, credit: int, extra: Mapping[str, str]
    ) -> Incoming:
        inbox = await self._caller.connected_inbox(min(ends_at - monotonic(), self._caller.options.timeout))
        seconds = None if ends_at == math.inf else ends_at - monotonic()
        if seconds is not None and seconds <= 0:
            raise CallTimeout(f"{destination}: the time for the stream was over before it was asked for")
        headers = {} if seconds is None else inbox.brand.expiry(whole_milliseconds(seconds))
        headers |= extra
        headers |= {"content-type": JSON_TYPE, names.STREAM: "true", names.CREDIT: str(credit)}
        if inbox.is_nebula:
            headers[names.REQUIRE_CONSUMERS] = "true"
        incoming = Incoming(destination, credit, seconds, inbox.brand)
        inbox.begin_stream(incoming, body, headers)
        return incoming


def _ends_at(timeout: float | None) -> float:
    """When a stream that is made now is over, on `time.monotonic`'s clock: the first of all that know."""
    now = monotonic()
    ends = [anyio.current_effective_deadline() - anyio.current_time() + now]
    if timeout is not None:
        ends.append(now + timeout)
    if (ambient := AMBIENT.get()) is not None:
        ends.append(ambient)
    return min(ends)
