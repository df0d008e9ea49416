"""OpenTelemetry spans of jobs: one for each attempt, from its submission to its end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

from opentelemetry.trace import Tracer

from nebula.rpc.contract.job_runner import (
    ENGINE_LOST,
    JobFailure,
    JobListener,
    JobOutput,
    JobRunner,
    JobTask,
    Started,
)
from nebula.rpc.middleware.conventions import JOB, JOB_ATTEMPT, Attributes, Meters
from nebula.rpc.middleware.operations import CANCELLED, W3C, Operation, begin_job_run

__all__ = ["TracedRunner", "job_facts"]


def job_facts(job: str, attempt: int) -> Attributes:
    """What a span says about a job: its ULID, and which attempt it is."""
    return {JOB: job, JOB_ATTEMPT: attempt}


# A run begins with `submit` of its runner and ends with one of four events of its listener. Both are wrapped,
# which covers runs in any process.
class TracedRunner:
    """Has jobs run by another runner, each attempt in a span: a child of the request for the job.

    What the job knows as its trace is that span, in whatever process it runs.

    Args:
        runner: the other one.
        tracer: makes the spans.
        meters: of the metrics.
        service: whose jobs they are.
    """

    def __init__(self, runner: JobRunner, tracer: Tracer, meters: Meters, service: str) -> None:
        self._runner, self._tracer, self._meters = runner, tracer, meters
        self._service = service
        # By attempt, as a job that is run again has the same id.
        self._runs: dict[tuple[str, int], Operation] = {}
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
        facts = job_facts(task.job, task.attempt)
        method = f"{self._service}/{task.verb}"
        # Not made current: the loop does other things until the runner tells the end.
        run = begin_job_run(self._tracer, self._meters, method, W3C.extract(task.trace), facts)
        self._runs[task.job, task.attempt] = run
        trace: dict[str, str] = {}
        W3C.inject(trace, run.context)
        # So that the job's own spans, also those in an engine, become children of this span.
        self._runner.submit(replace(task, trace=trace))

    def cancel(self, job: str, attempt: int, *, reason: Literal["cancelled", "timed-out"]) -> None:
        """See `JobRunner`."""
        if (job, attempt) in self._runs:
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
        reason = self._reasons.pop((job, attempt), CANCELLED)
        run = self._runs.pop((job, attempt), None)
        if run is not None:
            run.end(reason if code == CANCELLED else code)


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
        self._end(job, attempt, CANCELLED)
        self._inner.on_cancelled(job, attempt, slots_free=slots_free)

    def on_lost(self, job: str, attempt: int, reason: str, *, code: str = ENGINE_LOST) -> None:
        """See `JobListener`."""
        self._end(job, attempt, "lost")
        self._inner.on_lost(job, attempt, reason, code=code)
