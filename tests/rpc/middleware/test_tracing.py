"""Spans of OpenTelemetry, from a client through the broker to handlers, further calls and jobs.

Rules: G.tracing.
"""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import anyio
import pytest
from opentelemetry.trace import SpanKind, StatusCode, get_current_span, get_tracer

from nebula.errors import JobEnded, RemoteError
from nebula.rpc.client.client import Client
from nebula.rpc.contract.context import Request
from nebula.rpc.contract.job_context import Job
from nebula.rpc.errors import VerbError
from nebula.rpc.middleware.tracing import trace_calls, trace_job, trace_requests
from nebula.rpc.service.responder import Responder
from nebula.testing import TestClient
from tests.rpc.middleware.telemetry import Telemetry, is_child

pytestmark = pytest.mark.anyio

STATE = "vendor=abc"


async def test_spans_are_joined_from_client_to_handler_to_the_calls_within() -> None:
    traces = Telemetry()
    names = [f"service-{uuid4().hex}" for _ in range(2)]
    front, back = (Responder(name, middleware=[trace_requests(traces.provider)]) for name in names)
    inner: list[Client] = []

    @front.verb
    async def outer() -> str:
        answer: str = await inner[0].call(back.name, "leaf")
        return answer

    @back.verb
    def leaf(request: Request) -> str:
        # In a thread, too, the span is the current one.
        assert get_current_span().get_span_context().is_valid
        return request.headers["traceparent"]

    tracing = [trace_calls(traces.provider)]
    async with TestClient(front, back, middleware=tracing) as client:
        inner.append(client)
        with anyio.fail_after(5):
            parent = await client.call(outer)

    first = traces.span(f"{front.name}/outer", SpanKind.CLIENT)
    served = traces.span(f"{front.name}/outer", SpanKind.SERVER)
    second = traces.span(f"{back.name}/leaf", SpanKind.CLIENT)
    last = traces.span(f"{back.name}/leaf", SpanKind.SERVER)
    assert first.parent is None
    assert is_child(served, first)
    assert is_child(second, served)
    assert is_child(last, second)
    assert second.context is not None
    assert f"{second.context.span_id:016x}" in parent
    assert dict(last.attributes or {}) == {
        "rpc.system.name": "nebula",
        "rpc.method": f"{back.name}/leaf",
    }


async def test_span_of_what_fails_has_the_code_and_not_the_text() -> None:
    traces = Telemetry()
    app = Responder(f"service-{uuid4().hex}", middleware=[trace_requests(traces.provider)])

    @app.verb
    async def failing() -> None:
        raise VerbError("sold-out", "secret")

    async with TestClient(app, middleware=[trace_calls(traces.provider)]) as client:
        with anyio.fail_after(5), pytest.raises(RemoteError):
            await client.call(failing)

    for kind in (SpanKind.CLIENT, SpanKind.SERVER):
        span = traces.span(f"{app.name}/failing", kind)
        assert span.status.status_code is StatusCode.ERROR
        assert (span.attributes or {})["error.type"] == "sold-out"
        assert (span.attributes or {})["rpc.response.status_code"] == "sold-out"
        assert "secret" not in span.to_json()


@pytest.mark.parametrize("kind", ["async", "plain"])
async def test_span_of_a_job_is_a_child_of_the_start(kind: str, tmp_path: Path) -> None:
    traces = Telemetry()
    app = Responder(f"service-{uuid4().hex}", state=tmp_path)

    async def report(ctx: Job) -> dict[str, str]:
        with trace_job(ctx, traces.provider):
            return dict(ctx.trace)

    def report_plainly(ctx: Job) -> dict[str, str]:
        with trace_job(ctx, traces.provider):
            return dict(ctx.trace)

    async def with_state(call: object, call_next: object) -> object:
        call.headers["tracestate"] = STATE  # type: ignore[attr-defined]
        return await call_next(call)  # type: ignore[operator]

    app.job(engine=None, name="report")(report if kind == "async" else report_plainly)
    tracing = [trace_calls(traces.provider), with_state]
    async with TestClient(app, middleware=tracing) as client:
        with anyio.fail_after(10):
            trace = await (await client.start(app.name, "report")).result()

    started = traces.span(f"{app.name}/report", SpanKind.CLIENT)
    assert is_child(traces.span("job report", SpanKind.CONSUMER), started)
    assert trace["tracestate"] == STATE


@pytest.mark.parametrize("kind", ["async", "plain"])
async def test_each_run_of_a_job_has_a_span_by_itself_and_what_it_calls_is_its_own(
    kind: str, tmp_path: Path
) -> None:
    traces = Telemetry()
    app = Responder(f"service-{uuid4().hex}", state=tmp_path, middleware=[trace_requests(traces.provider)])

    def note() -> None:
        with get_tracer("test", tracer_provider=traces.provider).start_as_current_span("within"):
            pass

    async def report(ctx: Job) -> dict[str, str]:
        await anyio.lowlevel.checkpoint()
        note()
        return dict(ctx.trace)

    def report_plainly(ctx: Job) -> dict[str, str]:
        note()
        return dict(ctx.trace)

    app.job(engine=None, name="report")(report if kind == "async" else report_plainly)
    async with TestClient(app, middleware=[trace_calls(traces.provider)]) as client:
        with anyio.fail_after(10):
            trace = await (await client.start(app.name, "report")).result()

    run = traces.span(f"job {app.name}/report", SpanKind.CONSUMER)
    assert run.context is not None
    started = traces.span(f"{app.name}/report", SpanKind.CLIENT)
    assert is_child(run, started)
    assert is_child(traces.span("within", SpanKind.INTERNAL), run)
    assert f"{run.context.span_id:016x}" in trace["traceparent"]
    assert run.status.status_code is StatusCode.UNSET
    assert started.attributes is not None
    assert dict(run.attributes or {}) == {
        "rpc.system.name": "nebula",
        "rpc.method": f"{app.name}/report",
        "nebula.job.id": started.attributes["nebula.job.id"],
        "nebula.job.attempt": 1,
    }


async def test_trace_is_handed_on_to_jobs_without_middleware_that_makes_spans(tmp_path: Path) -> None:
    traces = Telemetry()
    app = Responder(f"service-{uuid4().hex}", state=tmp_path, middleware=[trace_requests()])

    @app.job(engine=None)
    async def report(ctx: Job) -> dict[str, str]:
        return dict(ctx.trace)

    async with TestClient(app, middleware=[trace_calls(traces.provider)]) as client:
        with anyio.fail_after(10):
            trace = await (await client.start(report)).result()

    started = traces.span(f"{app.name}/report", SpanKind.CLIENT)
    assert started.context is not None
    assert f"{started.context.span_id:016x}" in trace["traceparent"]


@pytest.mark.parametrize("how", ["failed", "cancelled", "timed-out", "lost"])
async def test_span_of_a_run_says_how_it_ended(how: str, tmp_path: Path) -> None:
    traces = Telemetry()
    app = Responder(f"service-{uuid4().hex}", state=tmp_path, middleware=[trace_requests(traces.provider)])
    runs = anyio.Event()

    @app.job(engine=None, timeout=0.01 if how == "timed-out" else None)
    async def report() -> None:
        runs.set()
        if how == "failed":
            raise VerbError("sold-out", "secret")
        await anyio.sleep_forever()

    async with TestClient(app) as client:
        with anyio.fail_after(10):
            job = await client.start(report)
            await runs.wait()
            if how == "cancelled":
                await job.cancel()
            if how != "lost":
                with pytest.raises(JobEnded):
                    await job.result()

    run = traces.span(f"job {app.name}/report", SpanKind.CONSUMER)
    assert (run.attributes or {})["error.type"] == ("sold-out" if how == "failed" else how)
    assert "secret" not in run.to_json()


@pytest.mark.parametrize("header", ["", "nonsense", "00-" + "g" * 32 + "-" + "1" * 16 + "-01", "0" * 5000])
async def test_trace_that_cannot_be_read_is_left_aside(header: str, tmp_path: Path) -> None:
    traces = Telemetry()
    app = Responder(f"service-{uuid4().hex}", state=tmp_path, middleware=[trace_requests(traces.provider)])
    plain = Responder(f"plain-{uuid4().hex}", state=tmp_path)

    @app.job(engine=None)
    async def report(ctx: Job) -> dict[str, str]:
        return dict(ctx.trace)

    @plain.job(engine=None)
    async def report_plainly(ctx: Job) -> dict[str, str]:
        return dict(ctx.trace)

    async def odd(call: object, call_next: object) -> object:
        call.headers["traceparent"] = header  # type: ignore[attr-defined]
        return await call_next(call)  # type: ignore[operator]

    async with TestClient(app, plain, middleware=[odd]) as client:
        with anyio.fail_after(10):
            assert await (await client.start(report_plainly)).result() == {}
            assert await (await client.start(report)).result() != {}
    assert traces.span(f"job {app.name}/report", SpanKind.CONSUMER).parent is None
    assert traces.span(f"{app.name}/report", SpanKind.SERVER).parent is None
