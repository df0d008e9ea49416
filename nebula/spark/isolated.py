"""Isolated runs: jobs with an engine process of their own, which ends with the job."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any

import anyio
from anyio.abc import TaskGroup

from nebula.logs import get_logger
from nebula.rpc.contract.job_runner import JobListener, JobTask
from nebula.spark import lines
from nebula.spark.engine_process import End
from nebula.spark.engine_slot import EnginePlan, EngineSlot
from nebula.spark.job_table import JobTable, Key

_log = get_logger(__name__)

# A host may fail to start for a reason that is gone a moment later; the job should not fail for that.
_TRIES = 2

# A host answers a cancel in a tenth of a second; one that does not is not asked again.
_CANCEL_SECONDS = 2.0


class IsolatedRuns:
    """The runs of one engine that have hosts of their own, at most `max_running` at a time.

    A cancel ends the host with all its processes, so even code that never checks whether it was cancelled
    ends. The listener hears the same as for any other run.

    Args:
        plan: of the engine.
        listener: hears of the jobs.
        back_off: seconds before a second start.
        on_ready: hears what each host says when it is ready, and whether the class archive is a
            possible reason of earlier failed starts.

    Attributes:
        is_broken: why no host can be started, as the last one said itself; for half a minute.
    """

    def __init__(
        self,
        plan: EnginePlan,
        listener: JobListener,
        back_off: Sequence[float],
        on_ready: Callable[[lines.Ready, bool], None],
    ) -> None:
        self._plan, self._listener, self._back_off, self._on_ready = plan, listener, back_off, on_ready
        self._runs: dict[Key, _Run] = {}
        self._waiting: deque[Key] = deque()
        self._broken, self._broken_until = "", 0.0
        self._failing: str | None = None
        self._idle_since = monotonic()

    @property
    def is_broken(self) -> str | None:
        """See above. After that time the next job finds out whether it is still so."""
        return (self._broken or None) if monotonic() < self._broken_until else None

    def try_again(self) -> None:
        """Something was mended: the next job finds out whether a host can be started."""
        self._broken = ""

    @property
    def failing(self) -> str | None:
        """Why no host could be started for the last job that needed one, or None."""
        return self._failing

    @property
    def idle_seconds(self) -> float:
        """How long there has been no run; 0 while there is one."""
        return 0.0 if self._runs else monotonic() - self._idle_since

    def begin(self, task: JobTask, group: TaskGroup) -> None:
        """Run this job as soon as there is a place for its host, in order. Returns at once."""
        key = (task.job, task.attempt)
        self._runs[key] = _Run(self._plan.of_run(key), task, self._listener, self._on_ready)
        self._waiting.append(key)
        self._start_next(group)

    def _start_next(self, group: TaskGroup) -> None:
        # A job is told as ended before its host has gone: the next one's waits for that.
        while self._waiting and len(self._runs) - len(self._waiting) < self._plan.settings.max_running:
            key = self._waiting.popleft()
            group.start_soon(self._live, key, group, name=f"isolated job {key[0]}")

    async def _live(self, key: Key, group: TaskGroup) -> None:
        run = self._runs[key]
        try:
            broken = await run.live(self._back_off)
        finally:
            del self._runs[key]
        # A run that was cancelled before its start says nothing about the next one.
        if run.has_tried:
            self._failing = run.refusal
        self._idle_since = monotonic()
        self._broken, self._broken_until = broken or "", self._idle_since + self._back_off[-1]
        self._start_next(group)

    def cancel(self, key: Key) -> bool:
        """A cancel came: whether the job is one of these."""
        run = self._runs.get(key)
        if run is not None:
            run.cancel()
        return run is not None

    def status(self) -> list[dict[str, Any]]:
        """For `engine.status`: one entry for each host."""
        return [run.status() for run in self._runs.values()]


# An isolated run is an `EngineSlot` with a table of one job: start, conversation and end are the same
# code as for the shared engine. What differs is `_why_end`: the process ends with its job.
class _Run:
    """One attempt, and its slot for an engine of its own."""

    def __init__(
        self,
        plan: EnginePlan,
        task: JobTask,
        listener: JobListener,
        on_ready: Callable[[lines.Ready, bool], None],
    ) -> None:
        self._plan, self._task, self._on_ready = plan, task, on_ready
        self._key = (task.job, task.attempt)
        self._table = JobTable(listener)
        self._table.add(task)
        self._slot = EngineSlot(plan, self._table, job=task.job)
        self._cancelled_at: float | None = None
        self._is_cancelled = anyio.Event()
        self._broken: str | None = None
        # Whether a host was started at all, and why none took the job.
        self.has_tried = False
        self.refusal: str | None = None

    def cancel(self) -> None:
        """End it."""
        self._slot.cancel(self._key)
        if self._cancelled_at is None:
            self._cancelled_at = monotonic()
        self._is_cancelled.set()
        self._slot.look()

    def status(self) -> dict[str, Any]:
        """Its entry in `engine.status`."""
        process = self._slot.process
        beat = process.beat if process else None
        ready = process.ready if process else None
        return {
            "job": self._task.job,
            "pid": process.pid if process else None,
            "jvm_pid": ready.jvm_pid if ready else None,
            "rss_bytes": beat.rss_bytes if beat else None,
            "seconds": round(monotonic() - process.began, 3) if process else None,
        }

    async def live(self, back_off: Sequence[float]) -> str | None:
        """Start a host, run the job, end the host: None, or why no host can be started."""
        for number in range(_TRIES):
            if not self._table.has_waiting or await self._run_one():
                return None
            if self._broken is not None or number + 1 == _TRIES:
                break
            # A cancel ends the pause, so that its job does not wait for a start that it does not need.
            with anyio.move_on_after(back_off[min(number, len(back_off) - 1)]):
                await self._is_cancelled.wait()
        if self._table.has_waiting:
            text = self._broken or f"Spark's engine for this job cannot start; see {self._plan.last_errors}"
            _log.error("isolated engine not started", service=self._plan.service, reason=text)
            self.refusal = text
            self._table.refuse_waiting(text)
        return self._broken

    async def _run_one(self) -> bool:
        """One host from start to end; whether it took the job."""
        self.has_tried = True
        process = await self._slot.run(self._hear, self._why_end)
        return process is not None and process.ready is not None

    def _hear(self, line: lines.Line) -> None:
        match line:
            case lines.Ready():
                self._on_ready(line, self._slot.suspects_archive)
                self._slot.hand_over()
            case lines.Broken():
                self._broken = line.reason
            case _:
                self._table.hear(line)
        # Not at the next tick: the next job may wait for this one's place.
        if not self._table.has_waiting and not self._table.has_open:
            self._slot.look()

    def _why_end(self, now: float) -> End | None:
        if self._table.has_waiting:
            return None
        if not self._table.has_open:
            # Cancelled before it began: there is nothing that its host could have to finish.
            is_useless = self._slot.process is not None and self._slot.process.ready is None
            return End("its job has ended", is_hung=is_useless)
        if self._cancelled_at is not None and now - self._cancelled_at > _CANCEL_SECONDS:
            return End("its job was cancelled and did not end", is_hung=True)
        return None
