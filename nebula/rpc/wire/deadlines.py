"""Deadlines of requests, and other context of the request being handled for the calls that its handler makes.

Durations travel (`neb-timeout`, milliseconds), never times of day: the clocks of machines differ. Each side
adds the duration to its own monotonic clock when the message arrives. The time on the way is not known and
counts for the caller, who waits by its own clock. How a caller gets its seconds: `nebula.rpc.client.calls`.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Final

from nebula import headers as names

AMBIENT: Final[ContextVar[float | None]] = ContextVar("nebula_deadline", default=None)
"""When the request ends that is being handled, on `time.monotonic`'s clock, or None.

Set for each handler, on the loop or in a thread, and read by each call: what is called from within a handler
never waits longer than the handler's own caller. A task that a handler leaves behind inherits it, as it does
all context; one that has to outlive the request begins with `AMBIENT.set(None)`.
"""

HANDLED: Final[ContextVar[Mapping[str, str] | None]] = ContextVar("nebula_handled", default=None)
"""The headers of the request that is being handled, or the trace of the job that runs; None outside of both.

Set and inherited as `AMBIENT` is; `Responder.client` hands on the trace that is in it.
"""

ASKED_BY: Final[ContextVar[str | None]] = ContextVar("nebula_asked_by", default=None)
"""The principal of the request that is being handled, or of the job that runs; None outside of both.

None, too, where the broker does not vouch for it: what a header claims is never in it. Set and inherited as
`AMBIENT` is; `Responder.client` names it as the principal it calls on behalf of.
"""

# Of milliseconds: thirty thousand years.
_MOST_DIGITS: Final = 15


def deadline_of(headers: Mapping[str, str], arrived: float) -> float | None:
    """When a request's caller stops waiting, by its `neb-timeout` (G.timeout); None if it does not say.

    Args:
        headers: of the request.
        arrived: when it came, on `time.monotonic`'s clock. Durations travel, never times of the day.
    """
    text = headers.get(names.TIMEOUT)
    # `digits.whole_number`, written out: every request comes here.
    if text is None or not (text.isascii() and text.isdigit()) or len(text) > _MOST_DIGITS:
        return None
    return arrived + int(text) / 1000
