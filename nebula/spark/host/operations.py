"""Task counts of one job's session on a Connect server, by operation."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

from nebula.spark.host.progress import SparkJobSeen, Stages, StageSeen, Tasks, count_tasks


class OperationCounter:
    """A progress handler: counts the tasks of what ran since the last reset, and the bytes of all."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._operations: dict[str, _Operation] = {}
        self._bytes_before = 0
        self._stages = Stages()

    def __call__(self, stages: Any, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
        """Called by the client, in the thread that waits for the operation."""
        seen = list(stages or ())
        job = SparkJobSeen(is_running=not done, stages=tuple(_stage(stage) for stage in seen))
        with self._lock:
            self._stages.see([job])
            self._operations[operation_id or ""] = _Operation(
                job, 0 if done else inflight_tasks, sum(stage.num_bytes_read for stage in seen)
            )

    def reset(self) -> None:
        """Count tasks from nothing."""
        with self._lock:
            self._bytes_before += sum(operation.bytes_read for operation in self._operations.values())
            self._operations.clear()
            self._stages = Stages()

    @property
    def newest_stages(self) -> tuple[StageSeen, ...]:
        """The newest stages since the last reset that have done something, oldest first."""
        with self._lock:
            return self._stages.newest

    def count(self) -> tuple[Tasks, int]:
        """The tasks by now, and the bytes that were read from sources."""
        with self._lock:
            operations = list(self._operations.values())
            bytes_read = self._bytes_before + sum(operation.bytes_read for operation in operations)
        tasks = count_tasks(operation.job for operation in operations)
        active = sum(operation.active for operation in operations)
        return Tasks(tasks.done, tasks.known, active), bytes_read


@dataclass(frozen=True, slots=True)
class _Operation:
    """What was told last of one operation."""

    job: SparkJobSeen
    active: int
    bytes_read: int


def _stage(stage: Any) -> StageSeen:
    # It is unknown which stages were submitted. One that has done nothing, below another that has, is
    # skipped, or will be counted when it has done something.
    done = stage.num_completed_tasks
    return StageSeen(
        stage.stage_id, is_submitted=done > 0 or stage.done, tasks=stage.num_tasks, done=done, active=0
    )
