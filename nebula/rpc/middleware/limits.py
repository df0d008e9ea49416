"""Time limit of requests, however long their callers would wait."""

from __future__ import annotations

import anyio

from nebula.rpc.contract.context import Request
from nebula.rpc.errors import VerbError
from nebula.rpc.middleware.chain import CallNext, Middleware
from nebula.rpc.wire.reply_body import ReplyBody

__all__ = ["limit_requests"]


def limit_requests(seconds: float) -> Middleware:
    """Reply `deadline-exceeded` where a handler takes longer.

    An async handler is cancelled, one that yields is closed. One in a thread cannot be stopped: it runs to
    its end, and its result is dropped. The caller's own deadline applies as well, if it is earlier.

    Args:
        seconds: of one request.
    """

    async def limit(request: Request, call_next: CallNext) -> ReplyBody:
        # A scope for each request, which the service itself avoids (docs/decisions/0017): only services with
        # this limit pay for it.
        with anyio.move_on_after(seconds) as scope:
            try:
                return await call_next(request)
            except VerbError:
                # What a stream makes of its end is not what ended it.
                if not scope.cancel_called:
                    raise
        raise VerbError("deadline-exceeded", f"the service gives a request {seconds:g} s")

    return limit
