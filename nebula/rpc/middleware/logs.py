"""Each request or call in the log (structlog). Parameters, results and texts of errors never are."""

from __future__ import annotations

from time import monotonic
from typing import Any

import structlog
from structlog.contextvars import bound_contextvars

from nebula.errors import NebulaError, RemoteError
from nebula.rpc.answers import Answer
from nebula.rpc.chain import Call, CallNext, MakeCall
from nebula.rpc.context import Request
from nebula.rpc.errors import VerbError

__all__ = ["log_calls", "log_requests"]

_log = structlog.get_logger()


async def log_requests(request: Request, call_next: CallNext) -> Answer:
    """Log how each request ended, and after how many seconds: `Responder(middleware=[log_requests])`.

    Meanwhile `service`, `verb`, `request_id` (the `neb-reply-id`) and `principal` are bound in structlog's
    contextvars: whatever the handler logs, also in a thread, bears them.
    """
    known = {"service": request.service, "verb": request.verb, "request_id": request.reply_id}
    known["principal"] = request.principal
    began, code = monotonic(), "cancelled"
    with bound_contextvars(**{name: value for name, value in known.items() if value is not None}):
        try:
            answer = await call_next(request)
        except VerbError as error:
            code = error.code
            raise
        except Exception:
            code = "internal"
            raise
        else:
            code = answer.code or ""
            return answer
        finally:
            seconds = round(monotonic() - began, 6)
            if code:
                _log.info("request failed", code=code, seconds=seconds)
            else:
                _log.info("request answered", seconds=seconds)


async def log_calls(call: Call, call_next: MakeCall) -> Any:
    """Log how each call ended, and after how many seconds: `Client(middleware=[log_calls])`."""
    began, code = monotonic(), "cancelled"
    try:
        result = await call_next(call)
    except (RemoteError, VerbError) as error:
        code = error.code
        raise
    except NebulaError as error:
        code = type(error).__name__
        raise
    else:
        code = ""
        return result
    finally:
        known = {"kind": call.kind, "service": call.service, "verb": call.verb}
        seconds = round(monotonic() - began, 6)
        if code:
            _log.info("call failed", code=code, seconds=seconds, **known)
        else:
            _log.info("call answered", seconds=seconds, **known)
