"""Failed calls as HTTP problems of a web application."""

from __future__ import annotations

import pytest

from nebula import (
    CallTimeout,
    CircuitOpen,
    ConnectionLost,
    JobEnded,
    NebulaError,
    NoResponder,
    Rejected,
    RemoteError,
    Responder,
    UnexpectedReply,
    VerbError,
    problem_of,
)
from nebula.testing import TestClient

app = Responder("prices")


class NotForSale(VerbError):
    """There is no price for that."""

    code = "not-for-sale"


@app.verb(errors=[NotForSale])
async def quote(item: str) -> int:
    raise NotForSale(f"nobody sells {item}", details={"item": item})


@pytest.mark.parametrize(
    ("error", "status", "code", "retryable"),
    [
        (NoResponder("rejected-no-consumer", "/queue/s"), 503, "no-responder", True),
        (CallTimeout("late"), 504, "timeout", False),
        (ConnectionLost("gone"), 503, "unavailable", True),
        (CircuitOpen("/queue/s", 3, 1.0), 503, "unavailable", True),
        (Rejected("rejected-unauthorised", "/queue/s"), 403, "not-allowed", False),
        (Rejected("rejected-full", "/queue/s"), 503, "busy", True),
        (Rejected("rejected-invalid", "/queue/s"), 400, "bad-request", False),
        (RemoteError("bad-parameters", "qty"), 422, "bad-parameters", False),
        (RemoteError("not-found", "no such job"), 404, "not-found", False),
        (RemoteError("sold-out", "none left"), 422, "sold-out", False),
        (RemoteError("come-back", "none left", retryable=True), 503, "come-back", True),
        (UnexpectedReply("a number"), 502, "unexpected-reply", False),
        (JobEnded("reports/1", "failed", code="data", message="a row is cut"), 422, "data", False),
        (JobEnded("reports/1", "cancelled", code="cancelled", message=""), 409, "cancelled", False),
        (JobEnded("reports/1", "timed_out", code="timed-out", message=""), 504, "timed-out", False),
        (JobEnded("reports/1", "lost", code="engine-lost", message=""), 503, "engine-lost", True),
    ],
    ids=repr,
)
def test_each_failure_has_its_status_and_code(
    error: NebulaError, status: int, code: str, retryable: bool
) -> None:
    problem = problem_of(error)

    assert (problem.status, problem.code, problem.retryable) == (status, code, retryable)


def test_address_that_cannot_be_reached_is_left_out_of_the_message() -> None:
    assert "10.1.1.7" not in str(problem_of(ConnectionLost("stomp://10.1.1.7:61613 is gone")).body)
    assert "queue" not in str(problem_of(CallTimeout("no answer from /queue/prices")).body)


def test_declared_error_goes_out_with_its_text_and_details() -> None:
    with TestClient(app) as client, pytest.raises(NotForSale) as caught:
        client.call(quote, "hat")

    assert problem_of(caught.value).body == {
        "code": "not-for-sale",
        "message": "nobody sells hat",
        "retryable": False,
        "details": {"item": "hat"},
    }
