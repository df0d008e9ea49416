"""An SDK of OpenTelemetry in memory, for tests: the spans and metrics that it was given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import anyio
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader, NumberDataPoint
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

__all__ = ["Point", "Telemetry", "is_child", "is_linked"]


@dataclass(frozen=True)
class Point:
    """One series of a metric."""

    unit: str | None
    attributes: dict[str, Any]
    count: int
    bounds: tuple[float, ...] = ()
    total: float = 0.0


class Telemetry:
    """Two providers, and what they were given."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self._reader = InMemoryMetricReader()
        self.meters = MeterProvider([self._reader])

    @property
    def both(self) -> tuple[TracerProvider, MeterProvider]:
        return self.provider, self.meters

    def spans(self, name: str, kind: SpanKind) -> list[ReadableSpan]:
        return [one for one in self._exporter.get_finished_spans() if one.name == name and one.kind is kind]

    def span(self, name: str, kind: SpanKind) -> ReadableSpan:
        (found,) = self.spans(name, kind)
        return found

    async def ended(self, name: str, kind: SpanKind) -> ReadableSpan:
        """The span, once it has ended: that of a service may do so after its caller's."""
        with anyio.fail_after(5):
            while not self.spans(name, kind):
                await anyio.sleep(0.005)
        return self.span(name, kind)

    def points(self, metric: str) -> list[Point]:
        data = self._reader.get_metrics_data()
        if data is None:
            return []
        return [
            _point(one.unit, point)
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for one in scope.metrics
            if one.name == metric
            for point in one.data.data_points
        ]

    def point(self, metric: str) -> Point:
        (found,) = self.points(metric)
        return found


def _point(unit: str | None, point: object) -> Point:
    if isinstance(point, HistogramDataPoint):
        bounds = tuple(point.explicit_bounds)
        return Point(unit, dict(point.attributes or {}), point.count, bounds, point.sum)
    assert isinstance(point, NumberDataPoint)
    return Point(unit, dict(point.attributes or {}), int(point.value))


def is_child(child: ReadableSpan, parent: ReadableSpan) -> bool:
    assert child.context is not None
    assert parent.context is not None
    is_same = child.context.trace_id == parent.context.trace_id
    return is_same and child.parent is not None and child.parent.span_id == parent.context.span_id


def is_linked(span: ReadableSpan, to: ReadableSpan) -> bool:
    assert to.context is not None
    return [one.context.span_id for one in span.links] == [to.context.span_id]
