"""Prometheus metrics of a service's jobs and engines.

Labels are verbs, states and engines, all of them declared, so callers cannot add series.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from nebula.rpc.jobs.service.job_statistics import Durations, EngineFacts, JobStatistics

__all__ = ["JOB_BOUNDS", "job_metrics"]

# Upper bounds of the histogram of job durations in seconds: from a tenth of a second to a day.
JOB_BOUNDS: Final = (0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 86400.0)


def job_metrics(service: str, jobs: JobStatistics) -> Iterator[Metric]:
    """All families, in the order of the page in docs/reference."""
    labels = ["service", "verb", "state"]
    there = GaugeMetricFamily("nebula_service_jobs_open", "Jobs that have not ended.", labels=labels)
    for (verb, state), count in jobs.open.items():
        there.add_metric([service, verb, state], count)
    ended = CounterMetricFamily("nebula_service_jobs_ended", "Jobs that have ended.", labels=labels)
    for (verb, state), count in jobs.ended.items():
        ended.add_metric([service, verb, state], count)
    yield from (there, ended)
    yield _durations(
        "nebula_service_job_wait_seconds", "From acceptance to the start of the run.", service, jobs.waited
    )
    yield _durations("nebula_service_job_run_seconds", "From start to end of the run.", service, jobs.ran)
    yield from _of_engines(service, jobs.engines)


def _durations(name: str, about: str, service: str, durations: Mapping[str, Durations]) -> Metric:
    family = HistogramMetricFamily(name, about, labels=["service", "verb"])
    for verb, one in durations.items():
        # Only the declared bounds: the histogram is finer, and Prometheus would store each bucket.
        counts = [*one.histogram.at_most(JOB_BOUNDS), one.histogram.total]
        buckets = list(zip([*map(str, JOB_BOUNDS), "+Inf"], map(float, counts), strict=True))
        family.add_metric([service, verb], buckets, sum_value=one.seconds)
    return family


def _of_engines(service: str, engines: Mapping[str, EngineFacts]) -> Iterator[Metric]:
    labels = ["service", "engine"]
    ready = GaugeMetricFamily(
        "nebula_service_engine_ready", "1 if jobs can run at once, otherwise 0.", labels=labels
    )
    restarts = CounterMetricFamily(
        "nebula_service_engine_restarts", "Starts after the first one, for any reason.", labels=labels
    )
    memory = GaugeMetricFamily(
        "nebula_service_engine_memory_bytes",
        "Memory of its processes, without Python workers.",
        labels=labels,
    )
    for name, facts in engines.items():
        ready.add_metric([service, name], float(facts.is_ready))
        restarts.add_metric([service, name], facts.restarts)
        memory.add_metric([service, name], facts.rss_bytes)
    yield from (ready, restarts, memory)
