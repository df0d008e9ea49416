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
    known = {"service": request.service, "verb": request.verb, "request_id": request.reply_id}
    known["principal"] = request.principal
    facts: dict[str, Any] = {name: value for name, value in known.items() if value is not None}
    outcome = Outcome()
    with bound_contextvars(**facts):
        try:
            return await outcome.of_request(request, call_next)
        finally:
            facts["seconds"] = _seconds(outcome)
            if outcome.code:
                _log.info("request failed", code=outcome.code, **facts)
            else:
                _log.info("request answered", **facts)


async def log_calls(call: Call, call_next: MakeCall) -> Any:
    """Log how each call ended, and after how many seconds: `Client(middleware=[log_calls])`."""
    outcome = Outcome()
    try:
        return await outcome.of_call(call, call_next)
    finally:
        facts = {"kind": call.kind, "service": call.service, "verb": call.verb, "seconds": _seconds(outcome)}
        if outcome.code:
            _log.info("call failed", code=outcome.code, **facts)
        else:
            _log.info("call answered", **facts)


def _seconds(outcome: Outcome) -> float:
    return round(outcome.seconds, 6)
