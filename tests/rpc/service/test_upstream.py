"""Failing calls of handlers: what the caller gets, over STOMP and from jobs, and what the log says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import pytest
from prometheus_client import CollectorRegistry

from nebula.errors import (
    CallTimeout,
    CircuitOpen,
    ConnectFailed,
    ConnectionLost,
    JobEnded,
    NoResponder,
    Refused,
    Rejected,
    RemoteError,
    ServerError,
    SettingsError,
)
from nebula.rpc.client.client import Client
from nebula.rpc.errors import StreamBroken, UnexpectedReply, VerbError
from nebula.rpc.middleware.metrics import MeasureRequests
from nebula.rpc.service.responder import Responder
from nebula.rpc.wire.upstream import upstream_error
from nebula.testing import TestClient, fake
from tests.own_logs import own_logs
from tests.rpc.conftest import Serving

FULL = Rejected("rejected-full", "/queue/stock")
NOT_PERMITTED = Rejected("rejected-unauthorised", "/queue/stock")


@pytest.mark.parametrize(
    ("error", "code", "retryable", "details"),
    [
        (CallTimeout("/queue/stock"), "upstream-timeout", True, None),
        (ConnectionLost("gone"), "upstream-unavailable", True, None),
        (ConnectFailed("nobody"), "upstream-unavailable", True, None),
        (ServerError("memory"), "upstream-unavailable", True, None),
        (NoResponder("rejected-no-consumer", "/queue/stock"), "upstream-unavailable", True, None),
        (CircuitOpen("/queue/stock", 5, 1.0), "upstream-unavailable", True, None),
        (StreamBroken("gap"), "upstream-unavailable", True, None),
        (FULL, "upstream-unavailable", True, None),
        (NOT_PERMITTED, "upstream-error", False, {"code": "rejected-unauthorised"}),
        (RemoteError("sold-out", "a secret"), "upstream-error", False, {"code": "sold-out"}),
        (RemoteError("busy", "later", retryable=True), "upstream-error", True, {"code": "busy"}),
        (UnexpectedReply("a secret"), "upstream-error", False, {"code": "unexpected-reply"}),
        (JobEnded("a/b", "failed", code="data", message=""), "upstream-error", False, {"code": "data"}),
    ],
)
def test_failure_of_a_call_keeps_its_kind(error: Exception, code: str, retryable: bool, details: Any) -> None:
    told = upstream_error(error)

    assert told is not None
    assert (told.code, told.retryable, told.details) == (code, retryable, details)
    assert "stock" not in told.message
    assert "secret" not in told.message


@pytest.mark.parametrize(
    "error",
    [ValueError("x"), VerbError("sold-out", "x"), SettingsError("x"), Refused("no", "x"), SystemExit()],
)
def test_fault_of_the_handler_is_no_failure_of_a_call(error: BaseException) -> None:
    assert upstream_error(error) is None


def test_group_of_failed_calls_is_reported_by_the_first_and_no_other_group() -> None:
    failed = ExceptionGroup("", [ExceptionGroup("", [CallTimeout("x")]), ConnectionLost("y")])

    told = upstream_error(failed)

    assert told is not None
    assert told.code == "upstream-timeout"
    assert upstream_error(ExceptionGroup("", [CallTimeout("x"), ValueError("y")])) is None


def calling(work: Callable[[], Any], **options: Any) -> Responder:
    """A service whose verb fails like this call."""
    app = Responder(f"shop-{uuid4().hex}", **options)

    @app.verb
    async def place() -> None:
        work()

    return app


def out_of_time() -> None:
    raise CallTimeout("/queue/stock did not answer in time")


@pytest.mark.anyio
async def test_caller_gets_the_code_and_the_log_names_the_call(client: Client, serving: Serving) -> None:
    app = calling(out_of_time)
    with own_logs() as lines, anyio.fail_after(5):
        async with serving(app):
            with pytest.raises(RemoteError, match="upstream-timeout") as caught:
                await client.call(app.name, "place")

    assert caught.value.retryable
    (line,) = [one for one in lines if one["event"] == "dependency failed"]
    assert line["log_level"] == "warning"
    assert line["error"] == "CallTimeout: /queue/stock did not answer in time"
    assert line["principal"] == "anonymous"
    assert line["request_id"]
    assert "verb failed" not in {one["event"] for one in lines}


@pytest.mark.anyio
async def test_debug_mode_shows_the_failure_to_the_caller(client: Client, serving: Serving) -> None:
    app = calling(out_of_time, debug=True)
    with anyio.fail_after(5):
        async with serving(app):
            with pytest.raises(RemoteError, match="CallTimeout: /queue/stock did not answer in time"):
                await client.call(app.name, "place")


@pytest.mark.anyio
async def test_metrics_count_it_by_its_code() -> None:
    registry = CollectorRegistry()
    app = calling(out_of_time, middleware=[MeasureRequests(registry)])
    async with TestClient(app) as client:
        with anyio.fail_after(5), pytest.raises(RemoteError):
            await client.call(app.name, "place")

    labels = {"service": app.name, "verb": "place", "code": "upstream-timeout"}
    assert registry.get_sample_value("nebula_request_errors_total", labels) == 1


@pytest.mark.anyio
async def test_job_in_the_service_fails_with_the_code(tmp_path: Path) -> None:
    app = Responder("nightly", state=tmp_path)

    @app.job(engine=None)
    async def total() -> int:
        async with Client(client.url) as inner:
            amount: int = await inner.call("stock", "count")
            return amount

    async with TestClient(app, fake("stock", "count", raises=VerbError("sold-out", "none"))) as client:
        with anyio.fail_after(10), pytest.raises(JobEnded) as caught:
            await (await client.start(total)).result()

    assert caught.value.code == "upstream-error"
    assert "sold-out" in caught.value.message
