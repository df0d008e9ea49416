"""A listener that keeps what a runner tells, and lets a test wait for it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import anyio

from nebula.rpc.contract.job_runner import ENGINE_LOST, JobFailure, JobOutput, JobRunner, JobTask, Progress


class Told:
    """What was told of each job, in order: `(what, details)`."""

    def __init__(self) -> None:
        self.of: dict[str, list[tuple[str, Any]]] = {}
        self.codes: dict[str, str] = {}  # of jobs that were lost
        self._changed = anyio.Event()

    def on_starting(self, job: str, attempt: int, incarnation: str) -> None:
        self._tell(job, "starting", incarnation)

    def on_started(self, job: str, attempt: int) -> None:
        self._tell(job, "started", attempt)

    def on_progress(self, job: str, attempt: int, progress: Progress) -> None:
        self._tell(job, "progress", progress)

    def on_done(self, job: str, attempt: int, result: JobOutput) -> None:
        self._tell(job, "done", result)

    def on_failed(self, job: str, attempt: int, failure: JobFailure) -> None:
        self._tell(job, "failed", failure)

    def on_cancelled(self, job: str, attempt: int, *, slots_free: bool) -> None:
        self._tell(job, "cancelled", slots_free)

    def on_slots_free(self, job: str, attempt: int) -> None:
        self._tell(job, "slots_free", attempt)

    def on_lost(self, job: str, attempt: int, reason: str, *, code: str = ENGINE_LOST) -> None:
        self.codes[job] = code
        self._tell(job, "lost", reason)

    def on_log(self, job: str, attempt: int, text: str) -> None:
        self._tell(job, "log", text)

    def _tell(self, job: str, what: str, details: Any) -> None:
        self.of.setdefault(job, []).append((what, details))
        self._changed.set()

    def names(self, job: str) -> list[str]:
        """What was told of this job, without details and progress."""
        return [what for what, _ in self.of.get(job, []) if what != "progress"]

    def all(self, job: str, what: str) -> list[Any]:
        """The details of each telling of this kind."""
        return [details for told, details in self.of.get(job, []) if told == what]

    async def until(self, job: str, what: str) -> Any:
        """Wait until this was told of the job; its details."""
        while not self.all(job, what):
            self._changed = anyio.Event()
            await self._changed.wait()
        return self.all(job, what)[-1]


def task(job: str, function: str, *, attempt: int = 1, **parameters: Any) -> JobTask:
    """One attempt at a job named after its function."""
    return JobTask(job, attempt, function.rpartition(":")[2], function, parameters, None)


def isolated(job: str, function: str, *, attempt: int = 1, **parameters: Any) -> JobTask:
    """The same, with an engine host of its own."""
    return replace(task(job, function, attempt=attempt, **parameters), isolation="process")


@asynccontextmanager
async def running(runner: JobRunner, told: Told, *, seconds: float = 20.0) -> AsyncIterator[None]:
    """The runner runs inside; it has stopped, its children included, on leaving."""
    with anyio.fail_after(seconds):
        async with anyio.create_task_group() as group:
            started = anyio.Event()
            group.start_soon(lambda: runner.run(told, started=started))
            await started.wait()
            yield
            group.cancel_scope.cancel()
