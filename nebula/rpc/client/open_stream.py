"""Opening streams: a request whose reply comes in parts, against credit.

What comes is read by `nebula.rpc.streams.reading`. A stream has no deadline of its own by default, and is
never asked for again: it may be half read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from time import monotonic
from typing import Any, Final

from nebula import headers as names
from nebula.errors import CallTimeout
from nebula.rpc.client.calls import Calls
from nebula.rpc.errors import VerbError
from nebula.rpc.middleware.chain import Call
from nebula.rpc.streams.reading import Incoming, Stream
from nebula.rpc.wire.deadlines import whole_milliseconds
from nebula.rpc.wire.envelope import JSON_TYPE

__all__ = ["new_stream"]

# More than that changes nothing, see `Outflow`.
_MOST_CREDIT: Final = 1_000_000


def new_stream(
    calls: Calls,
    verb: str,
    destination: str,
    body: bytes,
    *,
    timeout: float | None,
    credit: int,
    read: Callable[[Any], Any] | None,
    errors: Sequence[type[VerbError]] = (),
) -> Stream[Any]:
    """A stream that is opened when its first item is asked for.

    Args:
        calls: of the client.
        verb: for middleware.
        destination: of the service.
        body: of the request.
        timeout: seconds for all of the stream, from now on; None: no limit of its own.
        credit: items that may be under way or unread.
        read: makes a list of items of what JSON gave; None takes them as they are.
        errors: that were declared.

    Raises:
        ValueError: credit is not between 1 and a million.
    """
    if not 1 <= credit <= _MOST_CREDIT:
        raise ValueError(f"credit is from 1 to {_MOST_CREDIT}, not {credit}")
    opening = partial(_open, calls, verb, destination, body, calls.deadlines.end_of_stream(timeout), credit)
    return Stream(opening, read, errors, calls.explain)


async def _open(
    calls: Calls, verb: str, destination: str, body: bytes, ends_at: float, credit: int
) -> Incoming:
    async def work(call: Call) -> Incoming:
        ends = ends_at if call.timeout is None else min(ends_at, monotonic() + call.timeout)
        incoming = await _open_now(calls, call.destination, body, ends, credit, call.headers)
        incoming.on_end = call.on_end
        return incoming

    opened: Incoming = await calls.through("stream", destination, verb, None, work)
    return opened


async def _open_now(
    calls: Calls, destination: str, body: bytes, ends_at: float, credit: int, extra: Mapping[str, str]
) -> Incoming:
    connection = calls.connection
    inbox = await connection.next_inbox(min(ends_at - monotonic(), connection.options.timeout))
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
