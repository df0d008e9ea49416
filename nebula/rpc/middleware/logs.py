"""Log of requests and calls, without parameters, results and texts of errors."""

from __future__ import annotations

from secrets import token_hex
from typing import Any

from structlog.contextvars import bound_contextvars, get_contextvars

from nebula.headers import TRACEPARENT
from nebula.logs import get_logger
from nebula.rpc.contract.context import Request
from nebula.rpc.middleware.chain import Call, CallNext, MakeCall
from nebula.rpc.middleware.outcomes import Outcome
from nebula.rpc.wire.reply_body import ReplyBody
from nebula.trace_context import is_trace_id, trace_facts, traceparent_of

__all__ = ["log_calls", "log_requests"]

_log = get_logger(__name__)


async def log_requests(request: Request, call_next: CallNext) -> ReplyBody:
    """Log how each request ended, and after how many seconds: `Responder(middleware=[log_requests])`.

    Meanwhile `service`, `verb`, `request_id` (the `neb-reply-id`), `principal` and `trace_id` are bound in
    structlog's contextvars: whatever the handler logs, also in a thread, has them.
    """
    # No parameters, results or texts of errors, because they may be secret.
    known = {"service": request.service, "verb": request.verb, "request_id": request.reply_id}
    known["principal"] = request.principal
    facts: dict[str, Any] = {name: value for name, value in known.items() if value is not None}
    facts |= trace_facts(request.headers)
    outcome = Outcome()
    # Only for the block, because a worker keeps its context for the next request.
    with bound_contextvars(**facts):
        try:
            return await outcome.of_request(request, call_next)
        finally:
            facts["seconds"] = _seconds(outcome)
            # At info in either case: most errors are for the caller, and a bug of the service is logged with
            # its traceback by `error_reply`.
            if outcome.code:
                _log.info("request failed", code=outcome.code, **facts)
            else:
                _log.info("request answered", **facts)


async def log_calls(call: Call, call_next: MakeCall) -> Any:
    """Log how each call ended, and after how many seconds: `Client(middleware=[log_calls])`.

    A call without `traceparent` gets one. It belongs to the trace of the request that is being handled, if
    `log_requests` logs that, else to a new one. Its `trace_id` is in the log of whatever handles the call.
    """
    if TRACEPARENT not in call.headers:
        bound = get_contextvars().get("trace_id")
        trace_id = bound if is_trace_id(bound) else token_hex(16)
        call.headers[TRACEPARENT] = traceparent_of(trace_id, token_hex(8))
    outcome = Outcome()
    try:
        return await outcome.of_call(call, call_next)
    finally:
        facts = {"kind": call.kind, "service": call.service, "verb": call.verb, "seconds": _seconds(outcome)}
        # At the end: middleware behind this one may have put the call into another trace.
        facts |= trace_facts(call.headers)
        if outcome.code:
            _log.info("call failed", code=outcome.code, **facts)
        else:
            _log.info("call answered", **facts)


def _seconds(outcome: Outcome) -> float:
    # Microseconds; further digits are noise.
    return round(outcome.seconds, 6)
