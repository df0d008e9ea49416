"""Prometheus metrics of the broker.

All values are read on request; nothing is counted for them on a message's way. Names of destinations,
sessions and principals are not labels, so peers cannot change the number of series.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from nebula.broker.operations.events import COUNTED, ENDINGS
from nebula.broker.operations.views import BrokerStatus, KindTotals, PoolStatus, StoreStatus
from nebula.broker.store.commits import BOUNDS, Commits
from nebula.compiled import build_name
from nebula.shown import shown_field

# The format that `generate_latest` writes.
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

# Why messages are dropped. A reason that is not listed here counts as `other`, so that a reason that
# contains a name never becomes a label.
# Each has a series from the start: one that appears with its first event would have no rate.
REASONS: Final = (
    "dead-letter-full",
    "deleted",
    "duplicate",
    "exhausted",
    "expired",
    "full",
    "purged",
    "rejected",
    "rejected-full",
    "rejected-invalid",
    "rejected-no-consumer",
    "rejected-unauthorised",
    "share",
    "unauthorised",
)


def metrics_text(status: BrokerStatus, commits: Commits | None) -> bytes:
    """All metrics in Prometheus's text format."""
    # A registry for each answer: the default one would mix the brokers of one process.
    registry = CollectorRegistry(auto_describe=False)
    registry.register(BrokerCollector(status, commits))
    # Memory, files and time of the process: what it reads of itself under /proc.
    ProcessCollector(registry=registry)
    return generate_latest(registry)


class BrokerCollector(Collector):
    """Makes the families of one status."""

    def __init__(self, status: BrokerStatus, commits: Commits | None) -> None:
        self._status = status
        self._commits = commits

    def collect(self) -> Iterator[Metric]:
        """All families, in the order of the page in docs/reference."""
        yield from _of_all(self._status)
        yield from _kinds(self._status)
        yield from _shares(self._status)
        yield from _by_names(self._status)
        if self._commits is not None and self._status.store is not None:
            yield from _stored(self._commits, self._status.store)


# Metrics that are a field of the status: its meaning is their help.
_GAUGES: Final = {
    "nebula_uptime_seconds": "uptime_seconds",
    "nebula_connections": "connections",
    "nebula_connections_max": "max_connections",
    "nebula_durable_sessions": "sessions",
    "nebula_memory_bytes": "memory_bytes",
    "nebula_memory_max_bytes": "max_memory_bytes",
    "nebula_outbox_bytes": "outbox_bytes",
    "nebula_publishers_paused": "held_back",
    "nebula_delayed_messages": "delayed",
    "nebula_dead_letters": "dead_letters",
    "nebula_principals": "principals",
}
_COUNTERS: Final = {
    "nebula_messages_received": "received",
    "nebula_frames_sent": "sent_frames",
    "nebula_read_bytes": "read_bytes",
    "nebula_written_bytes": "written_bytes",
}
_OF_KINDS: Final = {
    "nebula_destinations": "destinations",
    "nebula_messages": "messages",
    "nebula_messages_unacked": "unacked",
    "nebula_messages_paged_out": "paged_out",
    "nebula_stored_bytes": "stored_bytes",
    "nebula_subscriptions": "subscriptions",
}
_OF_POOLS: Final = {
    "nebula_resource_limit": "limit",
    "nebula_resource_used": "used",
    "nebula_resource_largest_use": "largest",
}


def _of_all(status: BrokerStatus) -> Iterator[Metric]:
    labels = {"version": status.version, "build": build_name()}
    yield InfoMetricFamily("nebula_build", _about(BrokerStatus, "version"), labels)
    # A number, because texts cannot be graphed; `broker.status` has the reason.
    yield GaugeMetricFamily("nebula_ready", "1: as /readyz says.", float(status.not_ready is None))
    for name, field in _GAUGES.items():
        yield GaugeMetricFamily(name, _about(BrokerStatus, field), getattr(status, field))
    for name, field in _COUNTERS.items():
        # `CounterMetricFamily` adds `_total` to the name.
        yield CounterMetricFamily(name, _about(BrokerStatus, field), getattr(status, field))


def _kinds(status: BrokerStatus) -> Iterator[Metric]:
    for name, field in _OF_KINDS.items():
        yield _with_each(
            GaugeMetricFamily(name, _about(KindTotals, field), labels=["kind"]), status.kinds, field
        )


def _shares(status: BrokerStatus) -> Iterator[Metric]:
    labels = ["resource"]
    for name, field in _OF_POOLS.items():
        yield _with_each(
            GaugeMetricFamily(name, _about(PoolStatus, field), labels=labels), status.pools, field
        )
    refusals = CounterMetricFamily("nebula_share_refusals", _about(PoolStatus, "refusals"), labels=labels)
    yield _with_each(refusals, status.pools, "refusals")


def _with_each(
    family: GaugeMetricFamily | CounterMetricFamily, views: Mapping[str, object], field: str
) -> Metric:
    """A family with one field of each view, by the view's name."""
    # Kinds and resources are closed sets, so the number of series is fixed.
    for name, view in views.items():
        family.add_metric([name], getattr(view, field))
    return family


def _about(view: type, field: str) -> str:
    return shown_field(view, field).about


def _by_names(status: BrokerStatus) -> Iterator[Metric]:
    for name, about, label, known, counts in (
        ("nebula_messages_dropped", "Messages that were not delivered.", "reason", REASONS, status.dropped),
        ("nebula_events", "What happened to connections, as logged.", "event", COUNTED, status.events),
        (
            "nebula_connections_ended",
            "Connections that the broker ended.",
            "reason",
            tuple(ENDINGS),
            status.ended,
        ),
    ):
        yield _by_name(name, about, label, known, counts)


def _by_name(name: str, about: str, label: str, known: Sequence[str], counts: Mapping[str, int]) -> Metric:
    """A counter with a series for each name that is known, and one for all others."""
    family = CounterMetricFamily(name, about, labels=[label])
    for each in known:
        family.add_metric([each], counts.get(each, 0))
    family.add_metric(["other"], sum(count for each, count in counts.items() if each not in known))
    return family


def _stored(commits: Commits, store: StoreStatus) -> Iterator[Metric]:
    yield CounterMetricFamily("nebula_store_rows", _about(StoreStatus, "rows"), commits.rows)
    yield GaugeMetricFamily("nebula_store_backlog_rows", _about(StoreStatus, "backlog"), store.backlog)
    yield GaugeMetricFamily("nebula_store_receipts_waiting", _about(StoreStatus, "waiting"), store.waiting)
    # Prometheus's buckets are cumulative; `Commits` counts each batch in one bucket.
    upper = [*(str(bound) for bound in BOUNDS), "+Inf"]
    buckets = list(zip(upper, accumulate(commits.by_bound), strict=True))
    yield HistogramMetricFamily(
        "nebula_store_commit_seconds",
        "From the hand-over of a batch until it is durable.",
        buckets=buckets,
        sum_value=commits.seconds,
    )
