"""One operation in OpenTelemetry: its span, and what its end adds to the metrics."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Final

from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, Tracer, get_current_span
from opentelemetry.trace import set_span_in_context as in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from nebula.errors import RemoteError
from nebula.rpc.contract.context import Ending, Request
from nebula.rpc.errors import VerbError
from nebula.rpc.middleware.conventions import (
    DESTINATION,
    ERROR_TYPE,
    METHOD,
    METHOD_ORIGINAL,
    OPERATION_NAME,
    OPERATION_TYPE,
    OTHER,
    PORT,
    RPC_SYSTEM,
    SERVER,
    STATUS_CODE,
    SYSTEM,
    Attributes,
    Meters,
)
from nebula.rpc.wire.upstream import upstream_error

__all__ = [
    "CANCELLED", "W3C", "Operation", "begin_block", "begin_job_run", "begin_process", "begin_rpc",
    "begin_send", "code_of_call", "code_of_request",
]  # fmt: skip

W3C: Final = TraceContextTextMapPropagator()

CANCELLED: Final = "cancelled"

_UNKNOWN_VERB: Final = "unknown-verb"

_NEBULA: Final = "nebula"


class Operation:
    """A span that has begun. Its end is told once; later ones count for nothing.

    Args:
        span: of the operation.
        facts: its attributes that metrics know, too.
        measure: takes seconds, facts, the `error.type` or None, and a context with the span.

    Attributes:
        span: of the operation.
        context: the current one, with the span.
    """

    __slots__ = ("_began", "_facts", "_is_over", "_measure", "context", "span")

    def __init__(
        self,
        span: Span,
        facts: Attributes,
        measure: Callable[[float, Attributes, str | None, Context], None],
    ) -> None:
        self.span = span
        self.context = in_context(span)
        self._facts, self._measure = facts, measure
        self._is_over = False
        self._began = perf_counter()

    def end(self, code: str | None = None, *, is_reply: bool = False) -> None:
        """The operation is over.

        Args:
            code: its `error.type`; None: it has not failed.
            is_reply: a reply had this code.
        """
        if self._is_over:
            return
        self._is_over = True
        span, facts = self.span, self._facts
        if code is not None:
            # By the code alone: texts and tracebacks may hold parameters.
            span.set_attribute(ERROR_TYPE, code)
            span.set_status(Status(StatusCode.ERROR))
            if is_reply:
                span.set_attribute(STATUS_CODE, code)
            if code == _UNKNOWN_VERB and METHOD in facts:
                # So that names which no service knows make no series of their own.
                span.set_attribute(METHOD_ORIGINAL, facts[METHOD])
                span.set_attribute(METHOD, OTHER)
                facts = {**facts, METHOD: OTHER}
        span.end()
        self._measure(perf_counter() - self._began, facts, code, self.context)

    def end_call(self, error: BaseException | None) -> None:
        """A call is over, with the error that the caller gets, or None."""
        if error is None:
            self.end()
        else:
            self.end(code_of_call(error), is_reply=isinstance(error, (RemoteError, VerbError)))


def code_of_call(error: BaseException) -> str:
    """The `error.type` of a call: the reply's code, the name of the exception, or that it was cancelled."""
    if isinstance(error, (RemoteError, VerbError)):
        return error.code
    return type(error).__name__ if isinstance(error, Exception) else CANCELLED


def code_of_request(error: BaseException, request: Request) -> str:
    """The `error.type` of a request: the code that its caller gets, or why there is no reply."""
    if isinstance(error, VerbError):
        return error.code
    if isinstance(error, Exception):
        # As `error_reply` does it.
        told = upstream_error(error)
        return "internal" if told is None else told.code
    # A cancellation, too: no task waits for the end of this.
    return "deadline-exceeded" if request.ending is Ending.EXPIRED else CANCELLED


def begin_rpc(
    tracer: Tracer,
    meters: Meters,
    kind: SpanKind,
    method: str,
    *,
    parent: Context | None = None,
    broker: tuple[str, int] | None = None,
) -> Operation:
    """Begin a call or a request."""
    facts: Attributes = {RPC_SYSTEM: _NEBULA, METHOD: method}
    _locate(facts, broker)
    histogram = meters.calls if kind is SpanKind.CLIENT else meters.requests
    span = tracer.start_span(method, parent, kind, facts)
    return Operation(span, facts, partial(meters.measure_call, histogram))


def begin_job_run(
    tracer: Tracer, meters: Meters, method: str, parent: Context, more: Attributes
) -> Operation:
    """Begin a run of a job.

    Args:
        tracer: makes the span.
        meters: of the metrics.
        method: service and verb.
        parent: of the span.
        more: attributes of the span.
    """
    facts: Attributes = {RPC_SYSTEM: _NEBULA, METHOD: method}
    span = tracer.start_span(f"job {method}", parent, SpanKind.CONSUMER, facts | more)
    return Operation(span, facts, partial(meters.measure_call, meters.job_runs))


def begin_block(tracer: Tracer, verb: str, parent: Context, facts: Attributes) -> Operation:
    """Begin a block of a job, which no metric counts. Args as for `begin_job_run`."""
    span = tracer.start_span(f"job {verb}", parent, SpanKind.CONSUMER, facts)
    return Operation(span, facts, _measure_nothing)


def begin_send(
    tracer: Tracer,
    meters: Meters,
    name: str,
    destination: str,
    more: Attributes,
    *,
    broker: tuple[str, int] | None,
    carried: Context | None = None,
) -> Operation:
    """Begin to send a message.

    Args:
        tracer: makes the span.
        meters: of the metrics.
        name: of the operation.
        destination: of the message.
        more: attributes of the span.
        broker: where it is sent to.
        carried: the context that the user has put into the message already; None: it gets this span's.
    """
    facts = _message_facts(name, "send", destination)
    _locate(facts, broker)
    # By the conventions the span is a PRODUCER where its context is the message's.
    kind = SpanKind.PRODUCER if carried is None else SpanKind.CLIENT
    links = None if carried is None else _links(carried)
    span = tracer.start_span(f"{name} {destination}", None, kind, facts | more, links)
    return Operation(span, facts, partial(meters.measure_message, meters.operations, meters.sent))


def begin_process(
    tracer: Tracer, meters: Meters, destination: str, created: Context, more: Attributes
) -> Operation:
    """Begin to process a message: a child of the current span, or else of its sender's, and linked to that.

    Args:
        tracer: makes the span.
        meters: of the metrics.
        destination: of the message.
        created: the context in the message.
        more: attributes of the span.
    """
    facts = _message_facts("process", "process", destination)
    has_span = get_current_span().get_span_context().is_valid
    span = tracer.start_span(
        f"process {destination}",
        None if has_span else created,
        SpanKind.CONSUMER,
        facts | more,
        _links(created),
    )
    return Operation(span, facts, partial(meters.measure_message, meters.processing, meters.consumed))


def _message_facts(name: str, kind: str, destination: str) -> Attributes:
    return {SYSTEM: _NEBULA, OPERATION_NAME: name, OPERATION_TYPE: kind, DESTINATION: destination}


def _locate(facts: Attributes, broker: tuple[str, int] | None) -> None:
    if broker is not None:
        facts[SERVER], facts[PORT] = broker


def _links(context: Context) -> list[Link]:
    carried = get_current_span(context).get_span_context()
    return [Link(carried)] if carried.is_valid else []


def _measure_nothing(seconds: float, facts: Attributes, code: str | None, context: Context) -> None:
    """For a part of what is measured as a whole."""
