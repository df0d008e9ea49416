"""Progress from Spark's own task counts: pure arithmetic, from what was seen to a fraction.

The plain formula, tasks done over tasks listed, falls back again and again and ends near 40 %. With
adaptive execution every shuffle becomes a Spark job of its own, and each new job lists the stages of
all its ancestors once more, as stages that will be skipped. So a finished job counts what it did, and
a running job its submitted stages and those that can still come: stages are submitted in the order of
their ids, hence an unsubmitted one below a submitted one is skipped.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

# A job is at 1 only when its result is there: after the last task comes the commit of what it wrote.
_CAP = 0.99

# Names and notes are one line for people.
_MAX_TEXT = 300

# A loop may run thousands of stages in one step. The newest are enough for people who watch it.
MAX_STAGES = 12


@dataclass(frozen=True, slots=True)
class StageSeen:
    """One stage as the status store shows it."""

    id: int
    is_submitted: bool
    tasks: int
    done: int
    active: int
    name: str = ""


@dataclass(frozen=True, slots=True)
class SparkJobSeen:
    """One Spark job (an action, or a part of one) with every stage that it lists."""

    is_running: bool
    stages: tuple[StageSeen, ...]


@dataclass(frozen=True, slots=True)
class Tasks:
    """Task counts of a set of Spark jobs. `known` still grows while Spark discovers stages."""

    done: int
    known: int
    active: int


@dataclass(frozen=True, slots=True)
class Counted:
    """Spark's counts for a job.

    Attributes:
        tasks: those of its present step.
        counters: of all its steps, by name.
        waits_for: what keeps its tasks from running, for people; empty where nothing does.
        stages: the newest that have begun in the present step, `MAX_STAGES` at most, oldest first.
    """

    tasks: Tasks
    counters: Mapping[str, int] = field(default_factory=dict)
    waits_for: str = ""
    stages: Sequence[StageSeen] = ()


class Stages:
    """The newest stages that have begun, as they were seen last: Spark's store forgets ended jobs."""

    def __init__(self) -> None:
        self._seen: dict[int, StageSeen] = {}

    def see(self, jobs: Iterable[SparkJobSeen]) -> None:
        """Note the stages that have begun; a later sight of a stage replaces the earlier one."""
        self._seen.update((stage.id, stage) for job in jobs for stage in job.stages if stage.is_submitted)
        for forgotten in sorted(self._seen)[:-MAX_STAGES]:
            del self._seen[forgotten]

    @property
    def newest(self) -> tuple[StageSeen, ...]:
        """`MAX_STAGES` at most, oldest first."""
        return tuple(self._seen[number] for number in sorted(self._seen))


def count_tasks(jobs: Iterable[SparkJobSeen]) -> Tasks:
    """Add up what these Spark jobs have done and still have to do, skipped stages left out."""
    done = known = active = 0
    for job in jobs:
        highest = max((stage.id for stage in job.stages if stage.is_submitted), default=-1)
        for stage in job.stages:
            done += stage.done
            active += stage.active
            if not job.is_running:
                known += stage.done
            elif stage.is_submitted or stage.id > highest:
                known += stage.tasks
    return Tasks(done, known, active)


class Meter:
    """One job's progress: steps that the job declares, a fraction inside each, never falling.

    Within a step of several actions the fraction is poor, since Spark cannot know what the job will
    do next: one action per step gives a bar that moves evenly.
    """

    def __init__(self) -> None:
        self._note = ""
        self._has_own_count = False
        self.step: tuple[int, int, str] | None = None
        self.fraction: float | None = None

    @property
    def note(self) -> str:
        """What the job does now, for people: its own words, else the name of the step."""
        return self._note or (self.step[2] if self.step else "")

    def begin_step(self, number: int, total: int, name: str) -> None:
        """The job declares what comes now; what came before counts as finished.

        Raises:
            ValueError: not a step from 1 to `total`.
        """
        if not 1 <= number <= total:
            raise ValueError(f"step {number} of {total}")
        self.step, self._note, self._has_own_count = (number, total, name[:_MAX_TEXT]), "", False
        if number > 1:
            self._advance(0.0)

    def report(self, fraction: float | None, note: str = "") -> None:
        """The job says how much of its step is done, from 0 to 1; Spark's counts say no more about it.

        NaN and infinity say nothing.
        """
        self._note = note[:_MAX_TEXT] or self._note
        if fraction is not None and math.isfinite(fraction):
            self._has_own_count = True
            self._advance(fraction)

    def see(self, tasks: Tasks) -> None:
        """Spark's counts for the present step."""
        if tasks.known and not self._has_own_count:
            self._advance(tasks.done / tasks.known)

    def _advance(self, inner: float) -> None:
        number, total, _ = self.step or (1, 1, "")
        reached = min((number - 1 + min(max(inner, 0.0), 1.0)) / total, _CAP)
        self.fraction = max(reached, self.fraction or 0.0)
