"""OpenTelemetry: spans and metrics of calls, requests, messages and jobs (extra `otel`).

    Client(middleware=[trace_calls()])
    Responder("prices", middleware=[trace_requests()])  # and its jobs

    @app.on("/topic/news", middleware=[trace_messages()])
    async def hear(text: str) -> None: ...

Spans are joined over the wire by W3C's `traceparent` and `tracestate` (G.tracing). Names and attributes are
those of the semantic conventions, see `conventions`. Without a provider of the SDK, OpenTelemetry makes no
spans and counts nothing, and the headers are handed on as they came. Spans and metrics have service, verb,
destination and the error's code: parameters, results, bodies and texts of errors never are in one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final
from uuid import uuid4

from nebula.headers import NO_REPLY, TRACEPARENT
from nebula.optional import needing
from nebula.rpc.contract.context import Request
from nebula.rpc.contract.job_context import Job
from nebula.rpc.contract.job_runner import JobRunner
from nebula.rpc.middleware.chain import (
    Call,
    CallMiddleware,
    CallNext,
    MakeCall,
    Middleware,
    Publication,
    PublishNext,
)
from nebula.rpc.wire.reply_body import ReplyBody
from nebula.stomp.client.messages import Message

with needing("otel", __name__):
    from opentelemetry.context import attach, detach
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Span, SpanKind, TracerProvider

    from nebula.rpc.middleware.conventions import (
        BODY_SIZE,
        JOB,
        MESSAGE_ID,
        METHOD,
        RPC_SYSTEM,
        Attributes,
        Meters,
        Switch,
        tracer_of,
    )
    from nebula.rpc.middleware.job_spans import TracedRunner, job_facts
    from nebula.rpc.middleware.operations import (
        W3C,
        Operation,
        begin_block,
        begin_process,
        begin_rpc,
        begin_send,
        code_of_request,
    )

__all__ = [
    "resource_attributes", "trace_calls", "trace_job", "trace_message", "trace_messages", "trace_requests",
]  # fmt: skip

_MESSAGE_ID: Final = "message-id"
_LENGTH: Final = "content-length"


def trace_calls(
    provider: TracerProvider | None = None, meters: MeterProvider | None = None
) -> CallMiddleware:
    """Make a span for each call of a client and for each message that it publishes, and measure them.

    `call`, `start` and `stream` make spans of kind CLIENT, and the service's span becomes their child; that
    of a stream ends with the stream. `send`, `publish`, `send_avro` and the setting of last values make spans
    of kind PRODUCER.

    Metrics: `rpc.client.call.duration`; of messages `messaging.client.operation.duration` and
    `messaging.client.sent.messages`.

    Args:
        provider: of spans, by default OpenTelemetry's global one.
        meters: of metrics, likewise.
    """
    return _TraceCalls(provider, meters)


def trace_requests(provider: TracerProvider | None = None, meters: MeterProvider | None = None) -> Middleware:
    """Make a span of kind SERVER for each request, a child of its caller's, and measure it.

    A request that wants no reply (`Client.send`) is a message: its span is of kind CONSUMER. Calls of
    `Responder.client` have spans by themselves; other clients need `trace_calls`.

    It also makes a span of kind CONSUMER for each run of a job, a child of the call that asked for it, from
    when the job is handed to its runner until it has ended, in whatever way. It is the job's `trace`. In the
    service it is the current span of the job's code; in an engine `trace_job` makes children of it.

    Metrics: `rpc.server.call.duration`, `nebula.job.run.duration`; of messages those of `trace_messages`.

    Args:
        provider: as for `trace_calls`.
        meters: as for `trace_calls`.
    """
    return _TraceRequests(provider, meters)


def trace_messages(provider: TracerProvider | None = None, meters: MeterProvider | None = None) -> Middleware:
    """Make a span of kind CONSUMER for each message that a function listens to, and measure it:

        @app.on("/queue/orders", middleware=[trace_messages()])
        async def take(order: str) -> None: ...

    It is a child of the span that sent the message, and linked to that.

    Metrics: `messaging.process.duration`, `messaging.client.consumed.messages`.

    Args:
        provider: as for `trace_calls`.
        meters: as for `trace_calls`.
    """
    tracer, instruments, switch = tracer_of(provider), Meters(meters), Switch(provider, meters)

    async def trace(request: Request, call_next: CallNext) -> ReplyBody:
        if not switch.is_on:
            return await _hand_on(request, call_next)
        headers = request.headers
        more: Attributes = {}
        if _MESSAGE_ID in headers:
            more[MESSAGE_ID] = headers[_MESSAGE_ID]
        if (length := headers.get(_LENGTH, "")).isdecimal():
            more[BODY_SIZE] = int(length)
        operation = begin_process(tracer, instruments, request.destination, W3C.extract(headers), more)
        return await _handle(operation, request, call_next)

    return trace


@contextmanager
def trace_message(
    message: Message, provider: TracerProvider | None = None, meters: MeterProvider | None = None
) -> Iterator[Span]:
    """Make a span of kind CONSUMER for the block that processes a message of a subscription:

        async with client.subscribe("/topic/news") as news:
            async for message in news:
                with trace_message(message):
                    ...

    It is linked to the span that sent the message, and its child where no other span is the current one. It
    has the metrics of `trace_messages`.

    Args:
        message: of the subscription.
        provider: as for `trace_calls`.
        meters: as for `trace_calls`.
    """
    more: Attributes = {MESSAGE_ID: message.headers.get(_MESSAGE_ID, ""), BODY_SIZE: len(message.body)}
    created = W3C.extract(message.headers)
    operation = begin_process(tracer_of(provider), Meters(meters), message.destination, created, more)
    with _told_of(operation):
        yield operation.span


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
    operation = begin_block(
        tracer_of(provider), job.verb, W3C.extract(job.trace), job_facts(job.id, job.attempt)
    )
    with _told_of(operation):
        yield operation.span


def resource_attributes(service: str, version: str = "") -> dict[str, str]:
    """What telemetry says about its origin: `service.name`, `service.version`, and a `service.instance.id`.

        Resource.create(resource_attributes(app.name, app.version))

    The id is a new random one with each call, for one process. These override what the environment says in
    `OTEL_RESOURCE_ATTRIBUTES`.

    Args:
        service: its name.
        version: of the service; empty: it is left out.
    """
    found = {"service.name": service, "service.instance.id": str(uuid4())}
    return {**found, "service.version": version} if version else found


class _TraceCalls:
    """See `trace_calls`: middleware of calls, also of what is published (`PublishingMiddleware`)."""

    def __init__(self, provider: TracerProvider | None, meters: MeterProvider | None) -> None:
        self._tracer, self._meters = tracer_of(provider), Meters(meters)
        self._switch = Switch(provider, meters)

    async def __call__(self, call: Call, call_next: MakeCall) -> Any:
        if not self._switch.is_on:
            W3C.inject(call.headers)
            return await call_next(call)
        method = f"{call.service}/{call.verb}"
        if call.kind == "send":
            more: Attributes = {RPC_SYSTEM: "nebula", METHOD: method}
            operation = begin_send(
                self._tracer, self._meters, "send", call.destination, more, broker=call.broker
            )
        else:
            operation = begin_rpc(self._tracer, self._meters, SpanKind.CLIENT, method, broker=call.broker)
        # Inside the span, so that the service's span becomes its child.
        W3C.inject(call.headers, operation.context)
        is_stream = call.kind == "stream"
        if is_stream:
            call.on_end = _both(operation, call)
        token = attach(operation.context)
        try:
            result = await call_next(call)
        except BaseException as error:
            operation.end_call(error)
            raise
        finally:
            detach(token)
        if call.kind == "start":
            operation.span.set_attribute(JOB, str(getattr(result, "job", "")).rpartition("/")[2])
        if not is_stream:
            operation.end()
        return result

    async def around_publish(self, publication: Publication, publish_next: PublishNext) -> None:
        headers = publication.headers
        if not self._switch.is_on:
            if TRACEPARENT not in headers:
                W3C.inject(headers)
            await publish_next(publication)
            return
        # A context that the user has put there stays: it is the one in which the message was made.
        carried = W3C.extract(headers) if TRACEPARENT in headers else None
        operation = begin_send(
            self._tracer,
            self._meters,
            "publish",
            publication.destination,
            {BODY_SIZE: len(publication.body)},
            broker=publication.broker,
            carried=carried,
        )
        if carried is None:
            W3C.inject(headers, operation.context)
        with _told_of(operation):
            await publish_next(publication)


class _TraceRequests:
    """See `trace_requests`: middleware, also of jobs (`JobMiddleware`) and calls (`CallingMiddleware`)."""

    def __init__(self, provider: TracerProvider | None, meters: MeterProvider | None) -> None:
        self._tracer, self._meters = tracer_of(provider), Meters(meters)
        self._switch = Switch(provider, meters)
        self.around_call = trace_calls(provider, meters)

    async def __call__(self, request: Request, call_next: CallNext) -> ReplyBody:
        if not self._switch.is_on:
            return await _hand_on(request, call_next)
        headers = request.headers
        method = f"{request.service}/{request.verb}"
        # G.tracing: the caller's span, from the headers of the request.
        caller = W3C.extract(headers)
        if headers.get(NO_REPLY) == "true":
            more: Attributes = {RPC_SYSTEM: "nebula", METHOD: method}
            operation = begin_process(self._tracer, self._meters, request.destination, caller, more)
        else:
            operation = begin_rpc(self._tracer, self._meters, SpanKind.SERVER, method, parent=caller)
        return await _handle(operation, request, call_next)

    def around_runner(self, runner: JobRunner, service: str) -> JobRunner:
        return TracedRunner(runner, self._tracer, self._meters, service)

    @contextmanager
    def around_run(self, job: Job) -> Iterator[None]:
        # `TracedRunner` opened the span on the loop. Its headers make it current here, in the job's thread,
        # which has no context of the loop.
        token = attach(W3C.extract(job.trace))
        try:
            yield
        finally:
            detach(token)


async def _hand_on(request: Request, call_next: CallNext) -> ReplyBody:
    """Have a request handled where no SDK is: what it calls belongs to its trace all the same."""
    if TRACEPARENT not in request.headers:
        return await call_next(request)
    token = attach(W3C.extract(request.headers))
    try:
        return await call_next(request)
    finally:
        detach(token)


async def _handle(operation: Operation, request: Request, call_next: CallNext) -> ReplyBody:
    """Have a request or a message handled, and end its operation as that ends."""
    token = attach(operation.context)
    try:
        reply = await call_next(request)
    except BaseException as error:
        operation.end(code_of_request(error, request), is_reply=isinstance(error, Exception))
        raise
    finally:
        detach(token)
    # A middleware further inside may reply with an error instead of raising one.
    operation.end(reply.code, is_reply=True)
    return reply


@contextmanager
def _told_of(operation: Operation) -> Iterator[None]:
    token = attach(operation.context)
    try:
        yield
    except BaseException as error:
        operation.end_call(error)
        raise
    finally:
        detach(token)
    operation.end()


def _both(operation: Operation, call: Call) -> Any:
    """What is called at the end of a stream: also what the call had before."""
    before = call.on_end

    def end(error: BaseException | None) -> None:
        operation.end_call(error)
        if before is not None:
            before(error)

    return end
