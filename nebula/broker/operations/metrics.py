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

from nebula.broker.operations.administration import KindTotals
from nebula.broker.operations.status import BrokerStatus, StoreStatus
from nebula.broker.store.commits import BOUNDS, Commits

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

# Why messages are dropped. What comes newly counts as `other` until it stands here, so that a reason made of
# a name would not become a label.
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


# What happens to connections.
EVENTS: Final = (
    "connection failed",
    "connection refused",
    "login refused",
    "peer ended",
    "peer refused",
    "session closed",
    "session opened",
)

# Why the broker ends connections, as they are told.
ENDS: Final = (
    "an operator has ended the connection",
    "session taken over",
    "the broker has no room for what is on its way to and from you",
    "too slow",
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
        yield from _totals(self._status)
        yield from _kinds(self._status)
        yield from _shares(self._status)
        yield from _by_names(self._status)
        if self._commits is not None and self._status.store is not None:
            yield from _stored(self._commits, self._status.store)


def _of_all(status: BrokerStatus) -> Iterator[Metric]:
    yield InfoMetricFamily("nebula_build", "The version of the broker.", {"version": status.version})
    for name, about, value in (
        ("nebula_uptime_seconds", "Since the start.", status.uptime_seconds),
        ("nebula_ready", "1: as /readyz says.", float(status.not_ready is None)),
        ("nebula_connections", "Connections, with those who have not said who they are.", status.connections),
        ("nebula_connections_max", "The limit `max_connections`.", status.max_connections),
        ("nebula_durable_sessions", "Sessions with durable subscriptions.", status.sessions),
        ("nebula_memory_bytes", "Memory in use, as the broker counts it.", status.memory_bytes),
        ("nebula_memory_max_bytes", "The limit `max_memory_bytes`.", status.max_memory_bytes),
        ("nebula_outbox_bytes", "To be written to connections.", status.outbox_bytes),
        ("nebula_publishers_paused", "Connections that are not read until there is room.", status.held_back),
        ("nebula_delayed_messages", "Messages that wait for their time.", status.delayed),
        ("nebula_dead_letters", "Messages in the dead-letter queue.", status.dead_letters),
    ):
        yield GaugeMetricFamily(name, about, value)


def _totals(status: BrokerStatus) -> Iterator[Metric]:
    for name, about, value in (
        (
            "nebula_messages_received",
            "Messages sent to the broker, derived from their numbers: dead letters count too.",
            status.received,
        ),
        ("nebula_frames_sent", "Deliveries, and what the protocol itself has said.", status.sent_frames),
        ("nebula_read_bytes", "Read from all connections, within TLS.", status.read_bytes),
        ("nebula_written_bytes", "Written to all connections, within TLS.", status.written_bytes),
    ):
        yield CounterMetricFamily(name, about, value)


_OF_KINDS: Final = (
    ("nebula_destinations", "Destinations that hold or feed something.", "destinations"),
    ("nebula_messages", "Messages held, waiting and un-ACKed; last values.", "messages"),
    ("nebula_messages_unacked", "Of them those that were delivered and not settled.", "unacked"),
    ("nebula_messages_paged_out", "Of them those that lie on disk alone.", "paged_out"),
    ("nebula_stored_bytes", "What those in memory count for against limits.", "stored_bytes"),
    ("nebula_subscriptions", "Subscriptions; of last values not counted.", "subscriptions"),
)


def _kinds(status: BrokerStatus) -> Iterator[Metric]:
    for name, about, field in _OF_KINDS:
        family = GaugeMetricFamily(name, about, labels=["kind"])
        for kind, totals in status.kinds.items():
            assert isinstance(totals, KindTotals)
            family.add_metric([kind], getattr(totals, field))
        yield family


_OF_POOLS: Final = (
    ("nebula_resource_limit", "How much there is of each shared resource.", "limit"),
    ("nebula_resource_used", "How much of it all principals use together.", "used"),
    ("nebula_resource_largest_use", "How much of it the principal that uses most of it uses.", "largest"),
)


def _shares(status: BrokerStatus) -> Iterator[Metric]:
    yield GaugeMetricFamily("nebula_principals", "Principals that use something.", status.principals)
    for name, about, field in _OF_POOLS:
        gauge = GaugeMetricFamily(name, about, labels=["resource"])
        for resource, pool in status.pools.items():
            gauge.add_metric([resource], getattr(pool, field))
        yield gauge
    refusals = CounterMetricFamily(
        "nebula_share_refusals",
        "Requests that were refused because their principal had used up its share.",
        labels=["resource"],
    )
    for resource, pool in status.pools.items():
        refusals.add_metric([resource], pool.refusals)
    yield refusals


def _by_names(status: BrokerStatus) -> Iterator[Metric]:
    for name, about, label, known, counts in (
        ("nebula_messages_dropped", "Messages that were not delivered.", "reason", REASONS, status.dropped),
        ("nebula_events", "What happened to connections, as logged.", "event", EVENTS, status.events),
        ("nebula_connections_ended", "Connections that the broker ended.", "reason", ENDS, status.ended),
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
    yield CounterMetricFamily("nebula_store_rows", "Rows written to the store.", commits.rows)
    yield GaugeMetricFamily("nebula_store_backlog_rows", "Rows that wait for the next batch.", store.backlog)
    yield GaugeMetricFamily(
        "nebula_store_receipts_waiting", "Connections whose RECEIPTs wait for the store.", store.waiting
    )
    upper = [*(str(bound) for bound in BOUNDS), "+Inf"]
    buckets = list(zip(upper, accumulate(commits.by_bound), strict=True))
    yield HistogramMetricFamily(
        "nebula_store_commit_seconds",
        "From the hand-over of a batch until it is durable.",
        buckets=buckets,
        sum_value=commits.seconds,
    )
