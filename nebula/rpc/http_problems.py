"""HTTP statuses and bodies for failed calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

from nebula.errors import CallTimeout, JobEnded, NebulaError, NoResponder, Rejected, RemoteError
from nebula.headers import REJECTED_FULL, REJECTED_UNAUTHORISED
from nebula.rpc.errors import CODES, StreamBroken, UnexpectedReply, VerbError

__all__ = ["Problem", "problem_of", "status_of"]

# Codes of the framework. `status_of` gives 503 or 422 to those that are not in here.
_STATUSES: Final[Mapping[str, HTTPStatus]] = {
    "bad-request": HTTPStatus.BAD_REQUEST,
    "bad-parameters": HTTPStatus.UNPROCESSABLE_ENTITY,
    "not-allowed": HTTPStatus.FORBIDDEN,
    "unknown-verb": HTTPStatus.NOT_FOUND,
    "not-found": HTTPStatus.NOT_FOUND,
    "elsewhere": HTTPStatus.CONFLICT,
    "cancelled": HTTPStatus.CONFLICT,
    "streaming-only": HTTPStatus.NOT_ACCEPTABLE,
    "deadline-exceeded": HTTPStatus.GATEWAY_TIMEOUT,
    "bad-result": HTTPStatus.INTERNAL_SERVER_ERROR,
    "upstream-timeout": HTTPStatus.GATEWAY_TIMEOUT,
    "upstream-error": HTTPStatus.BAD_GATEWAY,
    "internal": HTTPStatus.INTERNAL_SERVER_ERROR,
    "too-many-attempts": HTTPStatus.INTERNAL_SERVER_ERROR,
    "not-ended": HTTPStatus.CONFLICT,
    "no-rows": HTTPStatus.NOT_ACCEPTABLE,
    "result-gone": HTTPStatus.GONE,
    "result-unreadable": HTTPStatus.INTERNAL_SERVER_ERROR,
    "result-too-large": HTTPStatus.INTERNAL_SERVER_ERROR,
    "error": HTTPStatus.INTERNAL_SERVER_ERROR,
    # Ends of jobs.
    "timed-out": HTTPStatus.GATEWAY_TIMEOUT,
    "expired": HTTPStatus.GATEWAY_TIMEOUT,
    "lost": HTTPStatus.INTERNAL_SERVER_ERROR,
}


def status_of(code: str, *, retryable: bool = False) -> HTTPStatus:
    """The status of an error code; for other codes 503 if the same call may succeed later, else 422."""
    # For known codes `CODES` decides: a reply of another implementation may lack `retryable`.
    known = CODES.get(code)
    if known is not None:
        retryable = known.is_retryable
    later = HTTPStatus.SERVICE_UNAVAILABLE if retryable else HTTPStatus.UNPROCESSABLE_ENTITY
    return _STATUSES.get(code, later)


@dataclass(frozen=True, slots=True)
class Problem:
    """A failed call, as an HTTP response.

    Attributes:
        status: of the response: 422, 503, …
        code: a stable kebab-case word to branch on.
        message: a text for people.
        retryable: the same call may succeed later.
        details: from the verb, or None.
    """

    status: HTTPStatus
    code: str
    message: str
    retryable: bool = False
    details: Any = None

    @property
    def body(self) -> dict[str, Any]:
        """`code`, `message`, `retryable`, and `details` where there are some: for a JSON response."""
        fields = {"code": self.code, "message": self.message, "retryable": self.retryable}
        return fields if self.details is None else {**fields, "details": self.details}


# docs/decisions/0058: helper functions for any framework, and none is wrapped.
def problem_of(error: NebulaError) -> Problem:
    """The HTTP status and body for a failed call, for a web application that made it:

        @web.exception_handler(NebulaError)  # FastAPI, Starlette
        async def tell(_: Request, error: NebulaError) -> JSONResponse:
            problem = problem_of(error)
            return JSONResponse(problem.body, problem.status)

    Codes and statuses are those of the broker's `POST /call`, except for a service that is not running: 404
    there, where its name is in the path, and 503 here. Errors from a service keep their text and details.
    Other errors get a general text without addresses: log the error itself.

    Args:
        error: raised by a call or by a job's handle.
    """
    match error:
        case RemoteError() | VerbError():
            status = status_of(error.code, retryable=error.retryable)
            return Problem(status, error.code, error.message, error.retryable, error.details)
        case JobEnded():
            status = status_of(error.code)
            return Problem(status, error.code, error.message, status is HTTPStatus.SERVICE_UNAVAILABLE)
        # The texts below have no addresses or names of queues: anyone on the web may read them.
        case NoResponder():
            later = HTTPStatus.SERVICE_UNAVAILABLE
            return Problem(later, "no-responder", "the service is not running", retryable=True)
        case CallTimeout():
            return Problem(HTTPStatus.GATEWAY_TIMEOUT, "timeout", "no answer came in time")
        case Rejected():
            return _rejected(error)
        case StreamBroken():
            message = "the instance that sent the stream is gone: try again"
            return Problem(HTTPStatus.BAD_GATEWAY, "stream-broken", message, retryable=True)
        case UnexpectedReply():
            message = "a service sent an unexpected reply"
            return Problem(HTTPStatus.BAD_GATEWAY, "unexpected-reply", message)
        case _:
            message = "the broker does not accept calls now"
            return Problem(HTTPStatus.SERVICE_UNAVAILABLE, "unavailable", message, retryable=True)


def _rejected(error: Rejected) -> Problem:
    if error.verdict == REJECTED_UNAUTHORISED:
        return Problem(HTTPStatus.FORBIDDEN, "not-allowed", "you may not call this service")
    if error.verdict == REJECTED_FULL:
        busy = HTTPStatus.SERVICE_UNAVAILABLE
        return Problem(busy, "busy", "the service's queue is full", retryable=True)
    message = f"the broker has refused the call: {error.verdict}"
    return Problem(HTTPStatus.BAD_REQUEST, "bad-request", message)
