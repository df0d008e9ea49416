"""Outcome of a request or call: its error code and duration, for logs and metrics."""

from __future__ import annotations

from time import monotonic
from typing import Any

from nebula.errors import NebulaError, RemoteError
from nebula.rpc.contract.context import Request
from nebula.rpc.errors import VerbError
from nebula.rpc.middleware.chain import Call, CallNext, MakeCall
from nebula.rpc.wire.reply_body import ReplyBody
from nebula.rpc.wire.upstream import upstream_error

__all__ = ["Outcome"]


class Outcome:
    """What became of one request or call, from now on.

    Attributes:
        code: of its error; empty where there was none, `cancelled` until it has ended otherwise.
    """

    def __init__(self) -> None:
        # For a cancellation, a BaseException that no clause below catches.
        self.code = "cancelled"
        self._began = monotonic()

    @property
    def seconds(self) -> float:
        """How long it has taken so far."""
        return monotonic() - self._began

    async def of_request(self, request: Request, call_next: CallNext) -> ReplyBody:
        """Have a request handled; see `CallNext`."""
        try:
            reply = await call_next(request)
        except VerbError as error:
            self.code = error.code
            raise
        except Exception as error:
            # The code that the caller gets (`error_reply`): log and metrics must agree with the reply.
            told = upstream_error(error)
            self.code = "internal" if told is None else told.code
            raise
        # An error that a middleware returns as a reply counts like one that is raised.
        self.code = reply.code or ""
        return reply

    async def of_call(self, call: Call, call_next: MakeCall) -> Any:
        """Have a call made. Where there is no reply, the code is the name of the exception."""
        try:
            result = await call_next(call)
        except (RemoteError, VerbError) as error:
            self.code = error.code
            raise
        # Without a reply there is no code. The classes are few, so their names can be labels.
        except NebulaError as error:
            self.code = type(error).__name__
            raise
        self.code = ""
        return result
