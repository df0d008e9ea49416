"""Counts, durations and errors of requests and calls, for Prometheus (extra `prometheus`).

`nebula run --http` shows what is in the usual registry, besides what a service counts without any of this.
"""

from __future__ import annotations

from typing import Any, Final

from nebula.optional import needing
from nebula.rpc.contract.context import Request
from nebula.rpc.middleware.chain import Call, CallNext, MakeCall
from nebula.rpc.middleware.outcomes import Outcome
from nebula.rpc.wire.reply_body import ReplyBody

with needing("prometheus", __name__):
    from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram

__all__ = ["MeasureCalls", "MeasureRequests"]

# Each makes series that are never forgotten. A code or a verb that is made up at run time must not
# make one for each.
_MOST_NAMES: Final = 500

_OTHER: Final = "other"


class _Measures:
    """Three metrics with labels of a bounded number."""

    def __init__(self, what: str, registry: CollectorRegistry) -> None:
        labels = ("service", "verb")
        self._total = Counter(f"nebula_{what}s", f"{what.title()}s that ended.", labels, registry=registry)
        self._errors = Counter(
            f"nebula_{what}_errors", "Of them those that failed.", (*labels, "code"), registry=registry
        )
        self._seconds = Histogram(
            f"nebula_{what}_seconds", "From their begin to their end.", labels, registry=registry
        )
        self._names: set[tuple[str, ...]] = set()

    def add(self, service: str, verb: str, outcome: Outcome) -> None:
        labels = self._bounded(service, verb)
        self._total.labels(*labels).inc()
        self._seconds.labels(*labels).observe(outcome.seconds)
        if outcome.code:
            self._errors.labels(*self._bounded(*labels, outcome.code)).inc()

    def _bounded(self, *names: str) -> tuple[str, ...]:
        # Verbs with an error code count too: this bounds all series of this object together.
        if names not in self._names:
            if len(self._names) >= _MOST_NAMES:
                return tuple(_OTHER for _ in names)
            self._names.add(names)
        return names


class MeasureRequests:
    """Measure the requests of services: `Responder(middleware=[MeasureRequests()])`.

    `nebula_requests_total`, `nebula_request_errors_total` (with `code`) and `nebula_request_seconds`, by
    `service` and `verb`. What was cancelled has the code `cancelled`.

    Args:
        registry: of Prometheus. There is one of these for each registry: services share it.
    """

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self._measures = _Measures("request", registry)

    async def __call__(self, request: Request, call_next: CallNext) -> ReplyBody:
        """See `Middleware`."""
        outcome = Outcome()
        try:
            return await outcome.of_request(request, call_next)
        finally:
            self._measures.add(request.service, request.verb, outcome)


class MeasureCalls:
    """Measure the calls of clients: `Client(middleware=[MeasureCalls()])`.

    `nebula_calls_total`, `nebula_call_errors_total` (with `code`) and `nebula_call_seconds`, by `service` and
    `verb`. Where there is no reply, the code is the name of the exception.

    Args:
        registry: as for `MeasureRequests`.
    """

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self._measures = _Measures("call", registry)

    async def __call__(self, call: Call, call_next: MakeCall) -> Any:
        """See `CallMiddleware`."""
        outcome = Outcome()
        try:
            return await outcome.of_call(call, call_next)
        finally:
            self._measures.add(call.service, call.verb, outcome)
