"""Task counts from Spark's status store, and the one cancel that is safe: all untyped calls into the JVM.

They were the same from PySpark 4.0 to 4.3; a test goes red when one is not.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from contextlib import suppress
from typing import Any

from nebula.spark.host.progress import SparkJobSeen, Stages, StageSeen, Tasks, count_tasks

_STORE_PATIENCE_MS = 250

# A job's marks in Spark. A group that was cancelled refuses everything later, so each attempt has its own.


def group_of(job: str, attempt: int) -> str:
    """The job group, and the scheduler pool, of one attempt."""
    return f"{job}.{attempt}"


def tag_of(group: str, step: int) -> str:
    """The tag of the Spark jobs that one step of an attempt starts."""
    return f"{group}.{step}"


def cancel_group(context: Any, group: str) -> None:
    """Cancel what runs in this group and refuse whatever it starts later.

    The plain cancel calls miss a job that is between two actions: they cancel nothing, and its next
    action runs.

    Args:
        context: Spark's own SparkContext in the JVM.
        group: of the attempt.
    """
    context.cancelJobGroupAndFutureJobs(group)


def active_tasks(context: Any, group: str) -> int:
    """How many task slots this group holds now; a killed Python task holds its slot for seconds."""
    tracker = context.statusTracker()
    return count_tasks(_look(tracker, tracker.getJobIdsForGroup(group)).values()).active


def settle(context: Any) -> None:
    """Wait until the status store has processed all events, a quarter of a second at most.

    Spark gives an action's result to its caller first, and tells the store of the last tasks by a queue:
    without this, a count right after an action lacks their rows.

    Args:
        context: Spark's own SparkContext in the JVM.
    """
    # Imported late: Connect clients have no py4j.
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # it ships no types

    with suppress(Py4JJavaError):  # timeout: other jobs keep the queue busy
        context.listenerBus().waitUntilEmpty(_STORE_PATIENCE_MS)


class TaskCounter:
    """Counts the tasks of one step, by its tag. An ended Spark job is read once, however long the step is."""

    def __init__(self, tag: str) -> None:
        self._tag = tag
        self._ended: set[int] = set()
        self._done = 0
        self._stages: set[int] = set()
        self._newest = Stages()
        # By stage: several Spark jobs may list one and the same.
        self._rows: dict[int, tuple[int, int]] = {}

    def count(self, context: Any) -> Tasks:
        """What the step's Spark jobs have done by now: some milliseconds of asking."""
        tracker = context.statusTracker()
        # Jobs that have ended are not asked about again: the store forgets the oldest, and counts must not
        # fall.
        seen = _look(
            tracker, (number for number in tracker.getJobIdsForTag(self._tag) if number not in self._ended)
        )
        self._read_rows(context.statusStore(), seen.values())
        self._newest.see(seen.values())
        now = count_tasks(seen.values())
        total = Tasks(self._done + now.done, self._done + now.known, now.active)
        ended = {number: job for number, job in seen.items() if not job.is_running}
        self._ended |= ended.keys()
        self._done += count_tasks(ended.values()).done
        return total

    @property
    def stages(self) -> Set[int]:
        """The stages that had started by the last count."""
        return self._stages

    @property
    def newest(self) -> tuple[StageSeen, ...]:
        """The newest stages that had started by the last count, oldest first."""
        return self._newest.newest

    @property
    def rows(self) -> tuple[int, int]:
        """Records that were read from sources and written to outputs, as of the last count."""
        read, written = zip(*self._rows.values(), strict=True) if self._rows else ((), ())
        return sum(read), sum(written)

    def _read_rows(self, store: Any, jobs: Iterable[SparkJobSeen]) -> None:
        begun = {stage.id for job in jobs for stage in job.stages if stage.is_submitted}
        self._stages |= begun
        for stage in begun:
            # The store keeps a bounded number of stages, and raises for what it has dropped.
            with suppress(Exception):
                data = store.lastStageAttempt(stage)
                self._rows[stage] = (data.inputRecords(), data.outputRecords())


def _look(tracker: Any, numbers: Iterable[int]) -> dict[int, SparkJobSeen]:
    seen = {}
    for number in numbers:
        job = tracker.getJobInfo(number)
        # The store keeps a bounded number of ended jobs.
        if job.isDefined():
            stages = (tracker.getStageInfo(stage) for stage in job.get().stageIds())
            seen[number] = SparkJobSeen(
                is_running=str(job.get().status()) == "RUNNING",
                stages=tuple(_stage(stage.get()) for stage in stages if stage.isDefined()),
            )
    return seen


def _stage(stage: Any) -> StageSeen:
    return StageSeen(
        id=stage.stageId(),
        is_submitted=stage.submissionTime() > 0,
        tasks=stage.numTasks(),
        done=stage.numCompletedTasks(),
        active=stage.numActiveTasks(),
        name=_action(stage.name()),
    )


def _action(name: str) -> str:
    """The action in Spark's name of a stage, such as "count at NativeMethodAccessorImpl.java:0".

    The place behind it is a line of Spark's own where Python called, and a path of this machine where an RDD
    was made. What is no name of a method comes from a thread of Spark's own and says nothing.
    """
    action = name.partition(" at ")[0]
    return action if action.isidentifier() else ""
