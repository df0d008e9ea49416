"""OpenTelemetry spans of jobs: one for each attempt, from its submission to its end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, Literal

from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from nebula.rpc.contract.job_runner import (
    ENGINE_LOST,
    JobFailure,
    JobListener,
    JobOutput,
    JobRunner,
    JobTask,
    Started,
)

__all__ = ["W3C", "TracedRunner", "fail", "job_facts"]

W3C: Final = TraceContextTextMapPropagator()


def job_facts(job: str, attempt: int, verb: str) -> dict[str, str | int]:
    """What a span says about a job."""
    return {"nebula.job": job, "nebula.attempt": attempt, "rpc.method": verb}


def fail(span: Span, code: str) -> None:
    """Let a span say that it failed, by the error's code alone."""
    span.set_attribute("error.type", code)
    span.set_status(Status(StatusCode.ERROR))


# A run begins with `submit` of its runner and ends with one of four events of its listener. Both are wrapped,
# which covers runs in any process.
class TracedRunner:
    """Has jobs run by another runner, each attempt in a span: a child of the request for the job.

    What the job knows as its trace is that span, in whatever process it runs.

    Args:
        runner: the other one.
        tracer: makes the spans.
    """

    def __init__(self, runner: JobRunner, tracer: Tracer) -> None:
        self._runner, self._tracer = runner, tracer
        # By attempt, as a job that is run again has the same id.
        self._spans: dict[tuple[str, int], Span] = {}
        self._reasons: dict[tuple[str, int], str] = {}

    @property
    def max_running(self) -> int:
        """See `JobRunner`."""
        return self._runner.max_running

    @property
    def is_broken(self) -> str | None:
        """See `JobRunner`."""
        return self._runner.is_broken

    @property
    def failing(self) -> str | None:
        """See `JobRunner`."""
        return self._runner.failing

    def submit(self, task: JobTask) -> None:
        """See `JobRunner`."""
        facts = job_facts(task.job, task.attempt, task.verb)
        # Not made current: the loop does other things until the runner tells the end.
        span = self._tracer.start_span(f"job {task.verb}", W3C.extract(task.trace), SpanKind.CONSUMER, facts)
        self._spans[task.job, task.attempt] = span
        trace: dict[str, str] = {}
        W3C.inject(trace, set_span_in_context(span))
        # So that the job's own spans, also those in an engine, become children of this span.
        self._runner.submit(replace(task, trace=trace))

    def cancel(self, job: str, attempt: int, *, reason: Literal["cancelled", "timed-out"]) -> None:
        """See `JobRunner`."""
        if (job, attempt) in self._spans:
            self._reasons[job, attempt] = reason
        self._runner.cancel(job, attempt, reason=reason)

    def status(self) -> Any:
        """See `JobRunner`."""
        return self._runner.status()

    def restart(self) -> None:
        """See `JobRunner`."""
        self._runner.restart()

    async def run(self, listener: JobListener, *, started: Started | None = None) -> None:
        """See `JobRunner`."""
        await self._runner.run(_EndsSpans(listener, self._end), started=started)

    def _end(self, job: str, attempt: int, code: str | None) -> None:
        # Removed at every end: a run may be done although it was cancelled.
        reason = self._reasons.pop((job, attempt), "cancelled")
        span = self._spans.pop((job, attempt), None)
        if span is not None:
            if code is not None:
                fail(span, reason if code == "cancelled" else code)
            span.end()


class _EndsSpans:
    """A `JobListener` that ends spans, and tells another one."""

    def __init__(self, inner: JobListener, end: Callable[[str, int, str | None], None]) -> None:
        self._inner, self._end = inner, end
        # Bound methods: what is only passed on needs no call of its own.
        self.on_starting, self.on_started = inner.on_starting, inner.on_started
        self.on_progress, self.on_log = inner.on_progress, inner.on_log
        self.on_slots_free = inner.on_slots_free

    def on_done(self, job: str, attempt: int, result: JobOutput) -> None:
        """See `JobListener`."""
        self._end(job, attempt, None)
        self._inner.on_done(job, attempt, result)

    def on_failed(self, job: str, attempt: int, failure: JobFailure) -> None:
        """See `JobListener`."""
        self._end(job, attempt, failure.code)
        self._inner.on_failed(job, attempt, failure)

    def on_cancelled(self, job: str, attempt: int, *, slots_free: bool) -> None:
        """See `JobListener`."""
        self._end(job, attempt, "cancelled")
        self._inner.on_cancelled(job, attempt, slots_free=slots_free)

    def on_lost(self, job: str, attempt: int, reason: str, *, code: str = ENGINE_LOST) -> None:
        """See `JobListener`."""
        self._end(job, attempt, "lost")
        self._inner.on_lost(job, attempt, reason, code=code)
