"""Middleware: functions around each request that a service handles, or each call that a client makes.

    async def timed(request: Request, call_next: CallNext) -> ReplyBody:
        began = monotonic()
        try:
            return await call_next(request)
        finally:
            print(request.verb, monotonic() - began)

The chain is put together once. Without middleware there is no chain, and a request pays nothing for it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol, TypeAlias, TypeVar, runtime_checkable

from nebula.rpc.contract.context import Request
from nebula.rpc.wire.reply_body import ReplyBody

__all__ = [
    "SENT",
    "Call",
    "CallKind",
    "CallMiddleware",
    "CallNext",
    "CallingMiddleware",
    "MakeCall",
    "Middleware",
    "Publication",
    "PublishNext",
    "PublishingMiddleware",
    "call_chain",
    "publish_chain",
    "request_chain",
    "unless_sent",
]  # fmt: skip

T = TypeVar("T")
R = TypeVar("R")

CallNext: TypeAlias = Callable[[Request], Awaitable[ReplyBody]]
"""Handles a request and returns its reply. Raises what the handler raises; a `VerbError` is for its
caller."""

# docs/decisions/0026 says why validation and deadlines are not middleware.
Middleware: TypeAlias = Callable[[Request, CallNext], Awaitable[ReplyBody]]
"""Called around each request for a verb that exists.

It runs before rights and parameters are checked, on the event loop. It returns what `call_next` returned, or
a `ReplyBody` of its own, or raises what the handler might raise. It may call `call_next` again. An object
that is also a `JobMiddleware` is called around the runs of jobs, one that is also a `CallingMiddleware`
around the calls that handlers make with `Responder.client`.
"""

# Not None, because a middleware without a `return` gives None, and that is an error.
SENT: Final = ReplyBody("")
"""The reply of a request whose reply went out already, as a stream."""


CallKind: TypeAlias = Literal["call", "send", "start", "stream"]
"""The method of a client."""


@dataclass(slots=True)
class Call:
    """One call of a client, for its middleware. Headers and timeout may be changed: they are what is sent.

    Attributes:
        kind: the client's method; `call` also for each instance of `call_all`. For a stream, it is the
            opening.
        destination: the service's queue.
        verb: what is asked for.
        headers: additional ones; do not set headers of Nebula or of STOMP here.
        timeout: seconds, None where the client's defaults count.
        broker: host and port of the client's broker; None where it has no address.
    """

    kind: CallKind
    destination: str
    verb: str
    timeout: float | None
    headers: dict[str, str] = field(default_factory=dict)
    work: Callable[[Call], Awaitable[Any]] = field(kw_only=True, repr=False)
    """For the client: makes the call."""
    broker: tuple[str, int] | None = field(default=None, kw_only=True)
    on_end: Callable[[BaseException | None], None] | None = field(default=None, kw_only=True, repr=False)
    """For a stream: called once when it is over, with its error or None. Middleware that sets it calls what
    was there before."""

    @property
    def service(self) -> str:
        """The name of the service, or of whatever is asked."""
        return self.destination.removeprefix("/queue/")


@dataclass(slots=True)
class Publication:
    """One message that a client publishes, for its middleware. Its headers may be changed.

    Attributes:
        destination: of the message.
        body: as it is sent.
        headers: of the message.
        broker: see `Call`.
    """

    destination: str
    body: bytes
    headers: dict[str, str]
    broker: tuple[str, int] | None
    work: Callable[[Publication], Awaitable[None]] = field(kw_only=True, repr=False)
    """For the client: sends it."""


PublishNext: TypeAlias = Callable[[Publication], Awaitable[None]]
"""Publishes a message, and returns when the broker has it. Raises what `Client.publish` raises."""


MakeCall: TypeAlias = Callable[[Call], Awaitable[Any]]
"""Makes a call and returns its result. Raises what the call raises."""

CallMiddleware: TypeAlias = Callable[[Call, MakeCall], Awaitable[Any]]
"""Called around each call, outside of its retries and the cache. It returns what `call_next` returned."""


@runtime_checkable
class CallingMiddleware(Protocol):
    """Middleware of a responder that stands around what its handlers call, too: see `trace_requests`."""

    @property
    def around_call(self) -> CallMiddleware:
        """For each call of `Responder.client`."""


@runtime_checkable
class PublishingMiddleware(Protocol):
    """Middleware of a client that stands around what it publishes, too: see `trace_calls`.

    That is `publish`, `send_avro`, and setting and deleting a last value.
    """

    async def around_publish(self, publication: Publication, publish_next: PublishNext) -> None:
        """Around one message, as `CallMiddleware` around a call."""


def publish_chain(middleware: Sequence[object]) -> PublishNext | None:
    """Publishes through those of these that want it, the first one outermost; None if none does."""
    theirs = [one.around_publish for one in middleware if isinstance(one, PublishingMiddleware)]
    return _compose(theirs, _publish) if theirs else None


def request_chain(middleware: Sequence[Middleware]) -> CallNext:
    """Handles requests through all of these, the first one outermost."""
    return _compose(middleware, _handle)


def call_chain(middleware: Sequence[CallMiddleware]) -> MakeCall:
    """Makes calls through all of these, the first one outermost."""
    return _compose(middleware, _call)


def unless_sent(reply: object) -> ReplyBody | None:
    """The reply that has not been sent yet, if any.

    Raises:
        TypeError: a middleware forgot to return it, and its caller would wait for ever.
    """
    if not isinstance(reply, ReplyBody):
        raise TypeError(f"middleware returned {reply!r}; let it return what `call_next` gave, or a ReplyBody")
    # By identity, because an empty reply of a middleware may be equal to `SENT`.
    return None if reply is SENT else reply


async def _handle(request: Request) -> ReplyBody:
    reply: ReplyBody | None = await request.work()
    return SENT if reply is None else reply


async def _call(call: Call) -> Any:
    return await call.work(call)


async def _publish(publication: Publication) -> None:
    await publication.work(publication)


# Built from the inside out, once: a request then costs one call for each middleware, and no list is
# walked.
def _compose(
    middleware: Sequence[Callable[[T, Callable[[T], Awaitable[R]]], Awaitable[R]]],
    last: Callable[[T], Awaitable[R]],
) -> Callable[[T], Awaitable[R]]:
    chain = last
    for one in reversed(middleware):
        chain = _link(one, chain)
    return chain


def _link(
    one: Callable[[T, Callable[[T], Awaitable[R]]], Awaitable[R]], after: Callable[[T], Awaitable[R]]
) -> Callable[[T], Awaitable[R]]:
    # A function of its own, so that `one` and `after` are bound here: a lambda in the loop would see the
    # last ones.
    return lambda subject: one(subject, after)
