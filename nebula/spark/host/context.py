"""Context of a Spark job's own code: its session, its steps, its log, its outputs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from pathlib import Path

from pyspark.sql import SparkSession

from nebula.rpc.contract.job_context import Job
from nebula.spark import lines
from nebula.spark.host.log_capture import hearer_of_thread
from nebula.spark.host.progress import Counted, Meter, Tasks
from nebula.spark.host.results import Results
from nebula.spark.host.session import Place
from nebula.spark.reading import Reader


class SparkJob(Job):
    """The context of one attempt. Made in the job's own thread, whose Spark jobs it marks as this attempt's.

    What the job's code starts from threads of its own is neither cancelled nor counted, unless those are
    `pyspark.InheritableThread`s.
    """

    def __init__(
        self,
        submit: lines.Submit,
        place: Place,
        results: Results,
        cancelled: threading.Event,
        say: Callable[[lines.Event], None],
    ) -> None:
        self._key, self._verb, self._trace = (submit.job, submit.attempt), submit.verb, submit.trace
        self._place, self._results, self._cancelled, self._say = place, results, cancelled, say
        # The job's thread moves the meter on, the host's reads it.
        self._meter, self._lock = Meter(), threading.Lock()
        self._told = lines.Progressed(*self._key, None, "", None, None)
        self._has_reported = False
        hearer = hearer_of_thread()
        assert hearer is not None  # that is how a job is run
        self._hearer = hearer
        place.open(submit.verb)

    @property
    def id(self) -> str:
        """The job's ULID."""
        return self._key[0]

    @property
    def attempt(self) -> int:
        """1 for the first run, more after a loss."""
        return self._key[1]

    @property
    def trace(self) -> Mapping[str, str]:
        """See `Job`."""
        return self._trace

    @property
    def verb(self) -> str:
        """The verb that was asked for."""
        return self._verb

    @property
    def spark(self) -> SparkSession:
        """A session of this attempt's own: its views, settings and functions are seen by no other job."""
        return self._place.spark

    @cached_property
    def read(self) -> Reader:
        """As `Job.read`, in this attempt's own session."""
        return Reader(self.spark, self.log)

    @property
    def is_cancelled(self) -> bool:
        """Whether the job has to end now. Spark refuses its actions already."""
        return self._cancelled.is_set()

    def step(self, number: int, total: int, name: str = "") -> AbstractContextManager[None]:
        """As `Job.step`. One Spark action a step makes a bar that moves evenly."""
        self.raise_if_cancelled()
        with self._lock:
            self._meter.begin_step(number, total, name)
            self._place.begin_step()
            # Each one is told as it begins: the next may begin before the host looks again.
            self._tell(Counted(Tasks(0, 0, 0), self._told.counters), at=time.time())
        return nullcontext()

    def progress(self, done: float, total: float, note: str = "") -> None:
        """As `Job.progress`: for work that Spark does not see. Its counts say no more about this step."""
        self.raise_if_cancelled()
        with self._lock:
            self._meter.report(done / total if total else None, note)

    def log(self, text: str) -> None:
        """As `Job.log`: a hundred lines a look are told at once, a thousand with the look.

        What was printed before comes before it.
        """
        self._hearer.log(text)

    def output(self, path: str | Path) -> Path:
        """As `Job.output`: for a folder that Spark writes as well as for a file.

        What was unfinished when the engine host itself was killed goes when that has ended, at the next start
        of the service, or within the hour.
        """
        return self._results.reserve(Path(path))

    def report(self) -> None:
        """Say how far the job is, if that changed. The host calls it a few times each second."""
        with self._lock:
            self._has_reported = True
            counted = self._place.count()
            self._meter.see(counted.tasks)
            self._tell(counted)

    def report_last(self) -> None:
        """Say what was counted last, where the host has said anything by now: most jobs are over sooner."""
        if self._has_reported:
            self._place.settle()
            self.report()

    def _tell(self, counted: Counted, *, at: float | None = None) -> None:
        meter = self._meter
        note = counted.waits_for or meter.note
        tasks = _counts(counted.tasks)
        stages = tuple(
            (stage.id, stage.name, stage.done, stage.tasks, stage.active) for stage in counted.stages
        )
        seen = lines.Progressed(
            *self._key, meter.fraction, note, meter.step, tasks, counted.counters, at, stages
        )
        if seen != self._told:
            self._told = seen
            self._say(seen)


def _counts(tasks: Tasks) -> tuple[int, int, int] | None:
    return (tasks.done, tasks.known, tasks.active) if tasks.known else None
