"""Names and instruments of OpenTelemetry's semantic conventions, as spans and metrics of Nebula use them.

The names are written down here because the extra `otel` installs the API of OpenTelemetry alone. A test
compares them with the package `opentelemetry-semantic-conventions`.
"""

from __future__ import annotations

from math import inf
from time import perf_counter
from typing import Final, TypeAlias

from opentelemetry.context import Context
from opentelemetry.metrics import Counter, Histogram, MeterProvider, get_meter, get_meter_provider
from opentelemetry.trace import Tracer, TracerProvider, get_tracer, get_tracer_provider

from nebula.version import __version__

__all__ = [
    "BODY_SIZE", "CONSUMED", "DESTINATION", "ERROR_TYPE", "JOB", "JOB_ATTEMPT", "JOB_DURATION", "MESSAGE_ID",
    "METHOD", "METHOD_ORIGINAL", "OPERATION_DURATION", "OPERATION_NAME", "OPERATION_TYPE", "OTHER", "PORT",
    "PROCESS_DURATION", "RPC_CLIENT_DURATION", "RPC_SERVER_DURATION", "RPC_SYSTEM", "SCHEMA_URL", "SENT",
    "SERVER", "STATUS_CODE", "SYSTEM", "Attributes", "Meters", "Switch", "tracer_of",
]  # fmt: skip

SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.44.0"
"""The version of the conventions."""

_SCOPE: Final = "nebula"

# docs/decisions/0077: what a call, a message and a job are in the words of the conventions.
RPC_SYSTEM: Final = "rpc.system.name"
METHOD: Final = "rpc.method"
METHOD_ORIGINAL: Final = "rpc.method_original"
STATUS_CODE: Final = "rpc.response.status_code"
ERROR_TYPE: Final = "error.type"
SERVER: Final = "server.address"
PORT: Final = "server.port"
SYSTEM: Final = "messaging.system"
OPERATION_NAME: Final = "messaging.operation.name"
OPERATION_TYPE: Final = "messaging.operation.type"
DESTINATION: Final = "messaging.destination.name"
MESSAGE_ID: Final = "messaging.message.id"
BODY_SIZE: Final = "messaging.message.body.size"

# Jobs have no conventions, so their names are Nebula's own.
JOB: Final = "nebula.job.id"
JOB_ATTEMPT: Final = "nebula.job.attempt"

RPC_CLIENT_DURATION: Final = "rpc.client.call.duration"
RPC_SERVER_DURATION: Final = "rpc.server.call.duration"
OPERATION_DURATION: Final = "messaging.client.operation.duration"
PROCESS_DURATION: Final = "messaging.process.duration"
SENT: Final = "messaging.client.sent.messages"
CONSUMED: Final = "messaging.client.consumed.messages"
JOB_DURATION: Final = "nebula.job.run.duration"

_SECONDS_BETWEEN_LOOKS: Final = 0.2

_API: Final = ("opentelemetry.trace", "opentelemetry.metrics")

OTHER: Final = "_OTHER"
"""A method that the service does not know, or one too many."""

# Those that the conventions advise for all of their durations.
_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
# From jobs of a second to those of half a day.
_JOB_SECONDS: Final = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 1800.0, 3600.0, 7200.0, 14400.0, 43200.0)

# Each value of an attribute makes a series that is never forgotten. A verb, destination or code that is made
# up at run time must not make one for each.
_MOST_NAMES: Final = 500

Attributes: TypeAlias = dict[str, str | int]
"""Of a span or a metric."""


class Switch:
    """Whether there is an SDK, so that spans and metrics are worth their work.

    Args:
        provider: of spans; None: OpenTelemetry's global one, also if that is set later.
        meters: of metrics, likewise.
    """

    def __init__(self, provider: TracerProvider | None, meters: MeterProvider | None) -> None:
        given = (provider, meters)
        self._is_on = any(one is not None and not _is_idle(one) for one in given)
        self._asks_after = -inf

    @property
    def is_on(self) -> bool:
        """Whether there is an SDK by now."""
        # Asked again until there is one: most programs set theirs after their imports. Not with each call,
        # because without an SDK the API looks at the environment each time.
        if not self._is_on and (now := perf_counter()) > self._asks_after:
            self._asks_after = now + _SECONDS_BETWEEN_LOOKS
            self._is_on = not (_is_idle(get_tracer_provider()) and _is_idle(get_meter_provider()))
        return self._is_on


def _is_idle(provider: object) -> bool:
    """Whether it is one of the API's own, which stand for one that is set later, or for none."""
    return type(provider).__module__.startswith(_API)


def tracer_of(provider: TracerProvider | None) -> Tracer:
    """Makes Nebula's spans.

    Args:
        provider: None: OpenTelemetry's global one, also if that is set later.
    """
    return get_tracer(_SCOPE, __version__, provider, SCHEMA_URL)


class Meters:
    """Nebula's instruments of one provider.

    Args:
        provider: None: OpenTelemetry's global one, also if that is set later.
    """

    def __init__(self, provider: MeterProvider | None) -> None:
        meter = get_meter(_SCOPE, __version__, provider, SCHEMA_URL)

        def histogram(name: str, description: str, buckets: tuple[float, ...] = _SECONDS) -> Histogram:
            return meter.create_histogram(
                name, "s", description, explicit_bucket_boundaries_advisory=list(buckets)
            )

        def counter(name: str, description: str) -> Counter:
            return meter.create_counter(name, "{message}", description)

        self.calls = histogram(
            RPC_CLIENT_DURATION, "Measures the duration of an outgoing Remote Procedure Call (RPC)."
        )
        self.requests = histogram(
            RPC_SERVER_DURATION, "Measures the duration of an incoming Remote Procedure Call (RPC)."
        )
        self.operations = histogram(
            OPERATION_DURATION, "Duration of messaging operation initiated by a producer or consumer client."
        )
        self.processing = histogram(PROCESS_DURATION, "Duration of processing operation.")
        self.sent = counter(SENT, "Number of messages producer attempted to send to the broker.")
        self.consumed = counter(CONSUMED, "Number of messages that were delivered to the application.")
        self.job_runs = histogram(
            JOB_DURATION, "Duration of a job's run, from when it is handed to its runner.", _JOB_SECONDS
        )
        self._names: set[tuple[str, str]] = set()

    def measure_call(
        self, histogram: Histogram, seconds: float, facts: Attributes, code: str | None, context: Context
    ) -> None:
        """Record how long a call, a request or the run of a job took.

        Args:
            histogram: one of this object.
            seconds: its duration.
            facts: the attributes of its span.
            code: its `error.type`, or None.
            context: with its span.
        """
        shown: Attributes = {RPC_SYSTEM: _SCOPE, METHOD: self._bounded(METHOD, str(facts[METHOD]))}
        self._record(histogram, seconds, facts, shown, code, context)

    def measure_message(
        self,
        histogram: Histogram,
        counter: Counter,
        seconds: float,
        facts: Attributes,
        code: str | None,
        context: Context,
    ) -> None:
        """Record one message that was sent or processed. Args as for `measure_call`."""
        shown: Attributes = {SYSTEM: _SCOPE, OPERATION_NAME: facts[OPERATION_NAME]}
        # Where there are very many destinations, theirs is left out: the conventions want few values.
        name = self._bounded(DESTINATION, str(facts[DESTINATION]))
        if name != OTHER:
            shown[DESTINATION] = name
        self._record(histogram, seconds, facts, shown, code, context)
        counter.add(1, shown, context)

    def _record(
        self,
        histogram: Histogram,
        seconds: float,
        facts: Attributes,
        shown: Attributes,
        code: str | None,
        context: Context,
    ) -> None:
        if SERVER in facts:
            shown[SERVER], shown[PORT] = facts[SERVER], facts[PORT]
        if code is not None:
            shown[ERROR_TYPE] = self._bounded(ERROR_TYPE, code)
        histogram.record(seconds, shown, context)

    def _bounded(self, kind: str, name: str) -> str:
        if (kind, name) not in self._names:
            if len(self._names) >= _MOST_NAMES:
                return OTHER
            self._names.add((kind, name))
        return name
