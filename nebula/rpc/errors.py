"""What can go wrong in RPC: the table of codes that an `error` reply may bear, and the errors behind them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from nebula.errors import NebulaError, RemoteError
from nebula.rpc.envelope import Envelope

__all__ = ["CODES", "ErrorCode", "UnexpectedReply", "VerbError", "remote_error"]


@dataclass(frozen=True, slots=True)
class ErrorCode:
    """One code of an `error` reply, or of a job's failure.

    Attributes:
        code: the stable kebab-case word.
        meaning: what happened and what to do, in a sentence.
        is_retryable: the same request may succeed later.
    """

    code: str
    meaning: str
    is_retryable: bool = False


# PROTOCOL G, "RPC error codes"; below the line those of jobs (SPARK 4.9).
_TABLE: Final = (
    ErrorCode("bad-request", "The body cannot be read: send JSON or text with a verb."),
    ErrorCode("unknown-verb", "The service has no such verb: ask `describe`."),
    ErrorCode("bad-parameters", "The parameters do not fit the verb: `details` says why, field by field."),
    ErrorCode("not-allowed", "The caller's principal may not use this verb, or not this job."),
    ErrorCode("busy", "The service has too much to do: try again later.", is_retryable=True),
    ErrorCode("deadline-exceeded", "The time for the request is over.", is_retryable=True),
    ErrorCode("cancelled", "The caller withdrew the request."),
    ErrorCode("too-many-attempts", "The request was delivered too often without an answer: not run again."),
    ErrorCode("streaming-only", "The verb's result is too long for one reply."),
    ErrorCode("not-found", "The thing asked for does not exist (any more)."),
    ErrorCode("elsewhere", "Another instance holds the job: ask the queue in `details.via`."),
    ErrorCode("internal", "The service failed; its log has the cause."),
    # Jobs.
    ErrorCode("engine-unavailable", "The Spark engine cannot start.", is_retryable=True),
    ErrorCode("analysis", "Spark refused the query (SQLSTATE 42xxx)."),
    ErrorCode("data", "The data do not fit the computation (SQLSTATE 22xxx)."),
    ErrorCode("python", "Python code in a Spark worker raised an exception."),
    ErrorCode("worker-crashed", "A Python worker of Spark died."),
    ErrorCode(
        "result-too-large", "The result is larger than a reply may be, or than the engine may collect."
    ),
    ErrorCode("out-of-memory", "The engine ran out of memory.", is_retryable=True),
    ErrorCode("engine-lost", "The engine died under the job.", is_retryable=True),
    ErrorCode("job", "The job's own code raised an exception."),
)

CODES: Final[Mapping[str, ErrorCode]] = MappingProxyType({row.code: row for row in _TABLE})

_KEBAB_CASE: Final = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


class VerbError(NebulaError):
    """Raised by a handler to answer `error` with a code and a text of its own.

    Args:
        code: kebab-case: one of `CODES`, or the verb's own word.
        message: a text for the caller. It goes out as it is: no secrets.
        details: anything JSON can hold.
        retryable: the same request may succeed later; by default what `CODES` says of the code.
    """

    def __init__(
        self, code: str, message: str, *, details: Any = None, retryable: bool | None = None
    ) -> None:
        if not _KEBAB_CASE.fullmatch(code):
            raise ValueError(f"error code {code!r} is not kebab-case, like `sold-out`")
        super().__init__(message)
        known = CODES.get(code)
        self.code = code
        self.message = message
        self.details = details
        self.retryable = retryable if retryable is not None else known is not None and known.is_retryable


class UnexpectedReply(NebulaError):
    """A reply came in time, but its value is not of the type that the caller asked for."""


def remote_error(envelope: Envelope, header_code: str | None = None) -> RemoteError:
    """The exception for an `error` reply of any shape (C.2).

    Ours has code, message and details among its parameters; of a stranger's only the description is sure,
    and its code is `error`.
    """
    fields = envelope.parameters if isinstance(envelope.parameters, dict) else {}
    code = fields.get("code") or header_code
    message = fields.get("message") or envelope.description or ""
    if not isinstance(code, str):
        code = "error"
    known = CODES.get(code)
    retryable = fields.get("retryable", known is not None and known.is_retryable)
    return RemoteError(code, str(message), details=fields.get("details"), retryable=retryable is True)
