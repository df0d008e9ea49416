"""Prometheus metrics of a service.

Values are read when they are scraped. The labels are the service, its verbs and its engines, which its owner
names, so callers cannot add series. Metrics of the program's own are included.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from prometheus_client import REGISTRY, CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from nebula.host.job_metrics import job_metrics
from nebula.rpc.service.responder import Responder
from nebula.rpc.service.statistics import Tally

# Upper bounds of latencies, in seconds: from an answer at once to one that people no longer wait for.
BOUNDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

# Metrics that Prometheus's library registers itself. Those of the process are here anyway.
_BUILT_IN: Final = ("process_", "python_")


def service_metrics(app: Responder) -> bytes:
    """All metrics of a service that runs or will, and of its program, in Prometheus's text format."""
    # A registry for each scrape, so that services of one process are not mixed.
    registry = CollectorRegistry(auto_describe=False)
    registry.register(ServiceCollector(app))
    registry.register(_ProgramCollector())
    ProcessCollector(registry=registry)
    return generate_latest(registry)


class ServiceCollector(Collector):
    """Makes the families of one service."""

    def __init__(self, app: Responder) -> None:
        self._app = app

    def collect(self) -> Iterator[Metric]:
        """All families, in the order of the page in docs/reference."""
        # None: the service has not begun to run.
        stats = self._app.statistics()
        if stats is None:
            return
        service = self._app.name
        for name, about, value in (
            ("nebula_service_uptime_seconds", "Seconds since the start.", stats.uptime_seconds),
            (
                "nebula_service_ready",
                "1 if the service takes requests, otherwise 0.",
                float(self._app.is_serving),
            ),
            ("nebula_service_busy", "Requests that are being handled.", stats.busy),
            ("nebula_service_waiting", "Requests received but not started.", stats.waiting),
        ):
            gauge = GaugeMetricFamily(name, about, labels=["service"])
            gauge.add_metric([service], value)
            yield gauge
        unanswered = CounterMetricFamily(
            "nebula_service_unanswered", "Messages for which no verb ran.", labels=["service", "reason"]
        )
        for reason, count in stats.unhandled.items():
            unanswered.add_metric([service, reason], count)
        yield unanswered
        yield from _of_verbs(service, stats.tallies)
        jobs = self._app.job_statistics()
        if jobs is not None:
            yield from job_metrics(service, jobs)


class _ProgramCollector(Collector):
    """Hands on what middleware and the program itself count in Prometheus's usual registry."""

    def collect(self) -> Iterator[Metric]:
        return (family for family in REGISTRY.collect() if not family.name.startswith(_BUILT_IN))


def _of_verbs(service: str, tallies: Mapping[str, Tally]) -> Iterator[Metric]:
    labels = ["service", "verb"]
    requests = CounterMetricFamily("nebula_service_requests", "Requests for which a verb ran.", labels=labels)
    errors = CounterMetricFamily(
        "nebula_service_errors", "Of these, requests with an `error` reply.", labels=labels
    )
    bad = CounterMetricFamily(
        "nebula_service_bad_results",
        "Of these, requests whose handler returned an undeclared type.",
        labels=labels,
    )
    seconds = HistogramMetricFamily(
        "nebula_service_request_seconds", "From the start of a request to its reply.", labels=labels
    )
    for verb, tally in tallies.items():
        requests.add_metric([service, verb], tally.requests)
        errors.add_metric([service, verb], tally.errors)
        bad.add_metric([service, verb], tally.bad_results)
        # Prometheus's buckets are cumulative.
        counts = [*tally.latency.at_most(BOUNDS), tally.latency.total]
        buckets = list(zip([*map(str, BOUNDS), "+Inf"], map(float, counts), strict=True))
        seconds.add_metric([service, verb], buckets, sum_value=tally.seconds)
    yield from (requests, errors, bad, seconds)
