"""Spans of OpenTelemetry (extra `otel`), joined over the wire by W3C's `traceparent` and `tracestate`.

    Client(middleware=[trace_calls()])
    Responder("prices", middleware=[trace_requests()])

Without a provider of the SDK, OpenTelemetry makes no spans, and the headers are handed on as they came. Spans
have service, verb and the error's code: parameters, results and texts of errors never are in one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from opentelemetry.trace import Span, SpanKind, Status, StatusCode, TracerProvider, get_tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from nebula.errors import RemoteError
from nebula.rpc.answers import Answer
from nebula.rpc.chain import Call, CallMiddleware, CallNext, MakeCall, Middleware
from nebula.rpc.context import Request
from nebula.rpc.errors import VerbError
from nebula.rpc.jobs.context import Job

__all__ = ["trace_calls", "trace_job", "trace_requests"]

_NAME: Final = "nebula"
_W3C: Final = TraceContextTextMapPropagator()


def trace_calls(provider: TracerProvider | None = None) -> CallMiddleware:
    """Make a span for each call of a client, and have the service's span be its child.

    A call and a stream (its opening) are of kind CLIENT; `send` and `start`, which wait for no end, PRODUCER.

    Args:
        provider: of spans, by default OpenTelemetry's global one.
    """
    tracer = get_tracer(_NAME, tracer_provider=provider)

    async def trace(call: Call, call_next: MakeCall) -> Any:
        kind = SpanKind.PRODUCER if call.kind in ("send", "start") else SpanKind.CLIENT
        name, facts = _named(call.service, call.verb)
        with tracer.start_as_current_span(
            name, kind=kind, attributes=facts, record_exception=False, set_status_on_exception=False
        ) as span:
            _W3C.inject(call.headers)
            with _telling(span):
                return await call_next(call)

    return trace


def trace_requests(provider: TracerProvider | None = None) -> Middleware:
    """Make a span of kind SERVER for each request, a child of its caller's; calls from within are its own.

    Args:
        provider: as for `trace_calls`.
    """
    tracer = get_tracer(_NAME, tracer_provider=provider)

    async def trace(request: Request, call_next: CallNext) -> Answer:
        name, facts = _named(request.service, request.verb)
        with tracer.start_as_current_span(
            name,
            _W3C.extract(request.headers),
            SpanKind.SERVER,
            facts,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            with _telling(span):
                answer = await call_next(request)
            if answer.code is not None:
                _fail(span, answer.code)
            return answer

    return trace


@contextmanager
def trace_job(job: Job, provider: TracerProvider | None = None) -> Iterator[Span]:
    """Make a span of kind CONSUMER for a block of a job, as a child of the request for it:

        @app.job(engine=None)
        def report(ctx: Job, month: int) -> int:
            with trace_job(ctx):
                ...

    It works in an engine as well, where that process has OpenTelemetry and sets up a provider. Each attempt
    is a span of its own.

    Args:
        job: the context of the job.
        provider: as for `trace_calls`.
    """
    tracer = get_tracer(_NAME, tracer_provider=provider)
    facts: dict[str, str | int] = {
        "nebula.job": job.id,
        "nebula.attempt": job.attempt,
        "rpc.method": job.verb,
    }
    with (
        tracer.start_as_current_span(
            f"job {job.verb}",
            _W3C.extract(job.trace),
            SpanKind.CONSUMER,
            facts,
            record_exception=False,
            set_status_on_exception=False,
        ) as span,
        _telling(span),
    ):
        yield span


def _named(service: str, verb: str) -> tuple[str, Mapping[str, str]]:
    return f"{service}/{verb}", {"rpc.system": "nebula", "rpc.service": service, "rpc.method": verb}


@contextmanager
def _telling(span: Span) -> Iterator[None]:
    try:
        yield
    except (RemoteError, VerbError) as error:
        _fail(span, error.code)
        raise
    # A cancellation, too: nobody waits for the end of this.
    except BaseException as error:
        _fail(span, type(error).__name__)
        raise


def _fail(span: Span, code: str) -> None:
    span.set_attribute("error.type", code)
    span.set_status(Status(StatusCode.ERROR))
