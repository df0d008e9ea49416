"""OpenTelemetry spans (extra `otel`), joined over the wire by W3C's `traceparent`, `tracestate` (G.tracing).

    Client(middleware=[trace_calls()])
    Responder("prices", middleware=[trace_requests()])  # and its jobs

Without a provider of the SDK, OpenTelemetry makes no spans, and the headers are handed on as they came. Spans
have service, verb and the error's code: parameters, results and texts of errors never are in one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from nebula.errors import RemoteError
from nebula.optional import needing
from nebula.rpc.contract.context import Request
from nebula.rpc.contract.job_context import Job
from nebula.rpc.contract.job_runner import JobRunner
from nebula.rpc.errors import VerbError
from nebula.rpc.middleware.chain import Call, CallMiddleware, CallNext, MakeCall, Middleware
from nebula.rpc.wire.reply_body import ReplyBody

with needing("otel", __name__):
    from opentelemetry.context import attach, detach
    from opentelemetry.trace import Span, SpanKind, TracerProvider, get_tracer

    from nebula.rpc.middleware.job_spans import W3C, TracedRunner, fail, job_facts

__all__ = ["trace_calls", "trace_job", "trace_requests"]

_NAME: Final = "nebula"


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
            # Inside the span, so that the service's span becomes its child.
            W3C.inject(call.headers)
            with _telling(span):
                return await call_next(call)

    return trace


def trace_requests(provider: TracerProvider | None = None) -> Middleware:
    """Make a span of kind SERVER for each request, a child of its caller's; calls from within are its own.

    Calls of `Responder.client` have spans by themselves; other clients need `trace_calls`.

    And one of kind CONSUMER for each run of a job, a child of the call that asked for it: from when it is
    handed to what runs it until it has ended, however that is. It is the job's `trace`. In the service it is
    the current span of the job's code; in an engine `trace_job` makes children of it.

    Args:
        provider: as for `trace_calls`.
    """
    return _TraceRequests(provider)


class _TraceRequests:
    """See `trace_requests`: middleware, also of jobs (`JobMiddleware`) and calls (`CallingMiddleware`)."""

    def __init__(self, provider: TracerProvider | None) -> None:
        self._tracer = get_tracer(_NAME, tracer_provider=provider)
        self.around_call = trace_calls(provider)

    async def __call__(self, request: Request, call_next: CallNext) -> ReplyBody:
        name, facts = _named(request.service, request.verb)
        with self._tracer.start_as_current_span(
            name,
            # G.tracing: the caller's span, from the headers of the request.
            W3C.extract(request.headers),
            SpanKind.SERVER,
            facts,
            # OpenTelemetry would record the text and the traceback by default: either may hold parameters.
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            with _telling(span):
                # A middleware further inside may reply with an error instead of raising one: then the
                # code says so.
                reply = await call_next(request)
            if reply.code is not None:
                fail(span, reply.code)
            return reply

    def around_runner(self, runner: JobRunner) -> JobRunner:
        return TracedRunner(runner, self._tracer)

    @contextmanager
    def around_run(self, job: Job) -> Iterator[None]:
        # `TracedRunner` opened the span on the loop. Its headers make it current here, in the job's thread,
        # which has no context of the loop.
        token = attach(W3C.extract(job.trace))
        try:
            yield
        finally:
            detach(token)


@contextmanager
def trace_job(job: Job, provider: TracerProvider | None = None) -> Iterator[Span]:
    """Make a span of kind CONSUMER for a block of a job, a child of its run, or else of the request for it:

        @app.job(engine=None)
        def report(ctx: Job, month: int) -> None:
            with trace_job(ctx):
                ...

    For services without `trace_requests`, which makes a span for each run; or for a part of a job. It works
    in an engine as well, where that process has OpenTelemetry and sets up a provider.

    Args:
        job: the context of the job.
        provider: as for `trace_calls`.
    """
    tracer = get_tracer(_NAME, tracer_provider=provider)
    with (
        tracer.start_as_current_span(
            f"job {job.verb}",
            W3C.extract(job.trace),
            SpanKind.CONSUMER,
            job_facts(job.id, job.attempt, job.verb),
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
        fail(span, error.code)
        raise
    # A cancellation, too: no task waits for the end of this.
    except BaseException as error:
        fail(span, type(error).__name__)
        raise
