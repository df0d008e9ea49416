"""Log of requests and calls, without parameters, results and texts of errors."""

from __future__ import annotations

from typing import Any

from structlog.contextvars import bound_contextvars

from nebula.logs import get_logger
from nebula.rpc.contract.context import Request
from nebula.rpc.middleware.chain import Call, CallNext, MakeCall
from nebula.rpc.middleware.outcomes import Outcome
from nebula.rpc.wire.reply_body import ReplyBody

__all__ = ["log_calls", "log_requests"]

_log = get_logger(__name__)


async def log_requests(request: Request, call_next: CallNext) -> ReplyBody:
    """Log how each request ended, and after how many seconds: `Responder(middleware=[log_requests])`.

    Meanwhile `service`, `verb`, `request_id` (the `neb-reply-id`) and `principal` are bound in structlog's
    contextvars: whatever the handler logs, also in a thread, has them.
    """
    # No parameters, results or texts of errors: they may be secret, and a log has other readers than a
    # service.
    known = {"service": request.service, "verb": request.verb, "request_id": request.reply_id}
    known["principal"] = request.principal
    outcome = Outcome()
    # For the block alone: a worker keeps its context for the next request.
    with bound_contextvars(**{name: value for name, value in known.items() if value is not None}):
        try:
            return await outcome.of_request(request, call_next)
        finally:
            _tell("request", outcome)


async def log_calls(call: Call, call_next: MakeCall) -> Any:
    """Log how each call ended, and after how many seconds: `Client(middleware=[log_calls])`."""
    outcome = Outcome()
    try:
        return await outcome.of_call(call, call_next)
    finally:
        _tell("call", outcome, kind=call.kind, service=call.service, verb=call.verb)


def _tell(what: str, outcome: Outcome, **known: str) -> None:
    # Microseconds: the digits behind them are noise.
    seconds = round(outcome.seconds, 6)
    # At info in either case: an error is the caller's affair, and what is the service's own is logged where
    # it happens, with its traceback.
    if outcome.code:
        _log.info(f"{what} failed", code=outcome.code, seconds=seconds, **known)
    else:
        _log.info(f"{what} answered", seconds=seconds, **known)
