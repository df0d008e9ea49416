"""`JobRunner`: the interface between the job service and what runs the code of jobs, threads or engines."""

# The service decides when a job runs, the runner how. Everything that crosses this line is a plain value or
# a report with the job's id and the number of its attempt: an engine that was given up as lost may still
# report, and by the number such a report is recognized as one of an attempt that no longer counts.

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol, runtime_checkable

from nebula.rpc.contract.job_context import Job

__all__ = [
    "ENGINE_LOST",
    "OUT_OF_MEMORY",
    "JobFailure",
    "JobListener",
    "JobMiddleware",
    "JobOutput",
    "JobRunner",
    "JobTask",
    "Progress",
    "StageCounts",
    "Started",
    "TaskCounts",
]  # fmt: skip


ENGINE_LOST: Final = "engine-lost"
"""Code of a job whose engine died."""

OUT_OF_MEMORY: Final = "out-of-memory"
"""Code of a job that ran out of memory, whether or not its engine died."""


@dataclass(frozen=True, slots=True)
class JobTask:
    """One attempt at one job, as a runner gets it.

    Attributes:
        job: the ULID alone; the service's name is added at the edge.
        attempt: from 1 on. A job that is run again keeps its id: what an earlier attempt still says is
            told apart by this number.
        function: `module:qualname`, importable in another process.
        parameters: validated JSON, as `Signature.bind` takes it: mostly an object, the keyword arguments.
        timeout: seconds that the run may take, or None. The service watches it; a runner need not.
        trace: see `Job.trace`.
        isolation: see `JobVerb`.
        priority: 0 to 9: of jobs that share an engine, higher ones get more of it.
        owner: see `JobRecord`.
    """

    job: str
    attempt: int
    verb: str
    function: str
    parameters: Any
    timeout: float | None
    trace: Mapping[str, str] = field(default_factory=dict)
    isolation: Literal["shared", "process"] = "shared"
    priority: int = 4
    owner: str = ""


@dataclass(frozen=True, slots=True)
class StageCounts:
    """A part of a step whose tasks run together, such as a stage of Spark.

    Attributes:
        id: rises in the order in which the stages of a job begin.
        name: what Spark calls it, such as `count`; empty where it has no name.
        done: tasks that have finished.
        known: its tasks.
        active: tasks that run now, as far as it is known.
    """

    id: int
    name: str
    done: int
    known: int
    active: int


@dataclass(frozen=True, slots=True)
class TaskCounts:
    """Small units of work inside a job, such as Spark's tasks: finished, known so far, running now.

    Attributes:
        stages: the newest stages that have begun, oldest first.
    """

    done: int
    known: int
    active: int
    stages: tuple[StageCounts, ...] = ()


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a job says it is.

    Attributes:
        fraction: 0 to 1, or None where unknown. It may jump: the service makes it monotonous.
        note: a short text for people.
        step: number from 1, how many there are, and its name. Each one that is begun is told, in order.
        counters: what is counted of the job, by name, such as `rows_read`; as far as it is known.
        at: when it was so, seconds since the epoch; None: now.
    """

    fraction: float | None = None
    note: str = ""
    step: tuple[int, int, str] | None = None
    tasks: TaskCounts | None = None
    counters: Mapping[str, int] = field(default_factory=dict)
    at: float | None = None


@dataclass(frozen=True, slots=True)
class JobOutput:
    """What a job returned: a small JSON value, or the place of a large one with what is known of it.

    Attributes:
        value: JSON.
        path: of the file or folder.
        rows: the number of rows in it.
        bytes: its size.
        schema: of the rows, as JSON.
        preview: the first rows as JSON, for people to look at.
    """

    value: Any | None = None
    path: str | None = None
    rows: int | None = None
    bytes: int | None = None
    schema: Any | None = None
    preview: Any | None = None


@dataclass(frozen=True, slots=True)
class JobFailure:
    """Why a job failed: a stable kebab-case code, one line for its caller, and the full trace for its log."""

    code: str
    message: str
    sqlstate: str | None = None
    trace: str = ""


# Never from within `submit` or `cancel`, because the scheduler is in the middle of a decision then, and would
# be entered a second time.
class JobListener(Protocol):
    """What a runner tells.

    Called on the event loop's thread, for one job in order, never from within `submit` or `cancel`. Each
    attempt that was submitted ends with exactly one of `on_done`, `on_failed`, `on_cancelled`, `on_lost`.
    """

    def on_starting(self, job: str, attempt: int, incarnation: str) -> None:
        """The job was handed to the engine whose start has this name."""

    def on_started(self, job: str, attempt: int) -> None:
        """Its code runs."""

    def on_progress(self, job: str, attempt: int, progress: Progress) -> None:
        """It is so far; as often as the runner likes."""

    def on_done(self, job: str, attempt: int, result: JobOutput) -> None:
        """Its code returned."""

    def on_failed(self, job: str, attempt: int, failure: JobFailure) -> None:
        """Its code raised, or could not be started."""

    # `slots_free`, because a job may end before its resources are free: code in a thread that ignores its
    # cancel has ended for its caller, but holds its slot until `on_slots_free`.
    def on_cancelled(self, job: str, attempt: int, *, slots_free: bool) -> None:
        """It was ended by `cancel`. `slots_free` False: something of it still holds resources."""

    def on_slots_free(self, job: str, attempt: int) -> None:
        """What a cancelled job still held is free now."""

    def on_lost(self, job: str, attempt: int, reason: str, *, code: str = ENGINE_LOST) -> None:
        """The engine of an attempt is gone; `OUT_OF_MEMORY` means that this job exhausted the memory."""

    def on_log(self, job: str, attempt: int, text: str) -> None:
        """A line for the job's log."""


class Started(Protocol):
    """An `anyio.Event`."""

    def set(self) -> object:
        """Say that jobs are taken."""


class JobRunner(Protocol):
    """Runs jobs' code somewhere."""

    @property
    def max_running(self) -> int:
        """How many jobs it wants at a time; the service keeps the others queued."""
        ...

    @property
    def is_broken(self) -> str | None:
        """Why no job can run now, as a sentence, or None."""
        ...

    @property
    def failing(self) -> str | None:
        """Why the last attempt to start an engine failed, as a sentence, or None; it keeps trying.

        Jobs are taken nevertheless, until `is_broken`: probes are told, so that others take the new ones.
        """
        ...

    # It is called after the commit that says that the job begins, so it must not raise: the listener reports
    # what fails.
    def submit(self, task: JobTask) -> None:
        """Run this as soon as possible. Never blocks, never raises; also before `run` is ready."""

    def cancel(self, job: str, attempt: int, *, reason: Literal["cancelled", "timed-out"]) -> None:
        """End this attempt. Never blocks; nothing happens where it has ended already."""

    def status(self) -> Mapping[str, Any]:
        """What `engine.status` answers: JSON-able facts."""

    def restart(self) -> None:
        """Replace what runs the jobs; the open ones are told as lost."""

    async def run(self, listener: JobListener, *, started: Started | None = None) -> None:
        """Run jobs until cancelled; returns only when nothing that it started is alive.

        Args:
            started: set when jobs are taken.
        """


@runtime_checkable
class JobMiddleware(Protocol):
    """Middleware of a responder that stands around its jobs as well: what `trace_requests` makes is some."""

    def around_runner(self, runner: JobRunner, service: str) -> JobRunner:
        """What runs the jobs of a service in place of this runner, mostly by having it run them."""
        ...

    def around_run(self, job: Job) -> AbstractContextManager[object]:
        """Entered around the code of each job that runs in the service, in its thread or task."""
        ...
