"""Deadlines of requests: the rules for how long a caller waits and a handler may run.

No event loop: the clock of scopes is an argument. The only clock that is read here is `time.monotonic`.
"""

# The theory
# ----------
#
# A deadline belongs to the caller: a reply after it is of no use. Three facts decide how it is kept.
#
# 1. Durations travel, never times of day. The clocks of two machines differ by seconds, so a request carries
#    `neb-timeout` in milliseconds (G.timeout), and each side adds it to its own monotonic clock: the caller
#    when it sends, the service when the message arrives. Nebula's broker drops a request that
#    expires in its queue, and hands on the time that is left (`protocol.encoding`); brokers that do not know
#    `neb-timeout` get a header of their own for it (`Brand.expiry`). Only the time on the network is not
#    subtracted, so the caller's clock decides.
#
# 2. A nested call never outlives the call that it serves. The service keeps the deadline of the request being
#    handled in `AMBIENT`, a context variable, and each call of the handler gets at most the time that is
#    left. Without this, a chain of three services with 30 s each could work for 90 s on a reply that its
#    caller gave up after 30.
#
# 3. The shortest limit counts. `Deadlines.seconds` for calls: the call's own timeout; else the anyio scopes
#    around it; else the client's default; and always `AMBIENT`. `Deadlines.end_of_stream` for streams is the
#    same rule without a default: a stream may run for days. Retries, the wait for a connection and a slow
#    cache spend the same seconds, because they are handed the result and do not ask again.
#
# Who ends what, and where:
#
#     caller      fails the call with CallTimeout                `client.inbox`
#     broker      drops the request from its queue               `broker.core` (time to live)
#     service     does not start a request that is over (D.50)   `service.request_reader`
#     handler     is cancelled at the deadline                   `service.cancellation`
#     reply       expires, on brokers that would keep it         `wire.reply_headers`
#
# Client and service each have one task that sweeps over all open requests: a timer for each request would
# cost more than the rest of a call.

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from math import inf
from time import monotonic
from typing import Final

from nebula import headers as names
from nebula.errors import CallTimeout
from nebula.milliseconds import MOST_DIGITS, Milliseconds

__all__ = ["AMBIENT", "Deadlines", "deadline_of", "handler_seconds", "whole_milliseconds"]

AMBIENT: Final[ContextVar[float | None]] = ContextVar("nebula_deadline", default=None)
"""The deadline of the request that is being handled, on `time.monotonic`'s clock, or None.

Set for each handler, on the loop or in a thread, and read by each call: a call from within a handler never
waits longer than the handler's own caller. A task that a handler leaves behind inherits it, as it does all
context; one that has to outlive the request begins with `AMBIENT.set(None)`.
"""

_YEAR_SECONDS: Final = 365 * 86400.0


class Deadlines:
    """How long the calls and streams of one client may take.

    Args:
        default: seconds of a call that nothing else limits.
        scope_deadline: when the scopes around the caller end, `inf` for never: anyio's
            `current_effective_deadline`.
        scope_time: the time on that clock: anyio's `current_time`.
    """

    __slots__ = ("_default", "_scope_deadline", "_scope_time")

    def __init__(
        self, default: float, scope_deadline: Callable[[], float], scope_time: Callable[[], float]
    ) -> None:
        self._default = default
        self._scope_deadline = scope_deadline
        self._scope_time = scope_time

    def seconds(self, timeout: float | None) -> float:
        """How long a call may take from now on.

        Args:
            timeout: of the call itself, in seconds; None if it has none.

        Returns:
            Seconds; `-inf` where a scope around the call is cancelled.

        Raises:
            CallTimeout: the request that is being handled has run out of time.
        """
        ambient = AMBIENT.get()
        if timeout is None:
            # With a timeout, a scope that ends earlier cancels the call by itself, and looking for the scope
            # costs more than sending.
            deadline = self._scope_deadline()
            if deadline != inf:
                timeout = deadline - self._scope_time()
            elif ambient is None:
                return self._default
            else:
                # The default is for callers without a deadline. A handler has one, even if it is longer.
                timeout = inf
        if ambient is None:
            return timeout
        left = ambient - monotonic()
        if left <= 0:
            raise CallTimeout("the time of the request that this call is for is over")
        return min(timeout, left)

    def end_of_stream(self, timeout: float | None) -> float:
        """When a stream that is made now ends, on `time.monotonic`'s clock; `inf` for never.

        The scopes count even with a timeout: a stream can be read outside of the scope it was made in, which
        then does not cancel it.

        Args:
            timeout: of the stream itself, in seconds; None if it has none.
        """
        now = monotonic()
        ends = [self._scope_deadline() - self._scope_time() + now]
        if timeout is not None:
            ends.append(now + timeout)
        if (ambient := AMBIENT.get()) is not None:
            ends.append(ambient)
        return min(ends)


def handler_seconds() -> float | None:
    """Seconds until the request ends that is being handled, below 0 if it is over; None without a limit."""
    ambient = AMBIENT.get()
    return None if ambient is None else ambient - monotonic()


def deadline_of(headers: Mapping[str, str], arrived: float) -> float | None:
    """When a request's caller stops waiting, by its `neb-timeout` (G.timeout); None if it does not say.

    Args:
        headers: of the request.
        arrived: when it came, on `time.monotonic`'s clock.
    """
    text = headers.get(names.TIMEOUT)
    # `seconds_of`, written out: every request comes here.
    if text is None or not (text.isascii() and text.isdigit()) or len(text) > MOST_DIGITS:
        return None
    return arrived + int(text) / 1000


def whole_milliseconds(seconds: float) -> Milliseconds:
    """Seconds as the wire has them: whole milliseconds, never 0, which would be over before it began, and no
    more than a year."""
    return Milliseconds(max(1, int(min(max(seconds, 0.0), _YEAR_SECONDS) * 1000)))
