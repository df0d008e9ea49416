"""A real engine for tests that are not async: a runner on a loop in a thread of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import psutil
from anyio.from_thread import start_blocking_portal

from nebula.rpc.contract.job_runner import JobTask
from nebula.spark import Spark, SparkRunner
from nebula.spark.class_archive import ClassArchive
from nebula.spark.processes import MARKER
from nebula.spark.settings import EngineSettings
from tests.spark.told import Told, task

# Two partitions: less waiting. Other options of Java than all tests have would want another archive.
CONF = {"spark.sql.shuffle.partitions": "2"}

PATIENCE_SECONDS = 110.0

# Host, JVM, the daemon that forks Python workers, one worker for each of two slots.
WITH_WORKERS = 5


class ToldInThread(Told):
    """Also wakes up threads that wait."""

    def __init__(self, patience: float) -> None:
        super().__init__()
        self.patience = patience
        self._condition = threading.Condition()

    def _tell(self, job: str, what: str, details: Any) -> None:
        with self._condition:
            super()._tell(job, what, details)
            self._condition.notify_all()

    def wait(self, job: str, *whats: str, seconds: float | None = None) -> Any:
        """Wait until one of these was told of the job; its details."""
        with self._condition:
            told = self._condition.wait_for(
                lambda: [d for w in whats for d in self.all(job, w)], seconds or self.patience
            )
        assert told, f"{job} was not told {whats} but {self.of.get(job)}"
        return told[-1]


class Engine:
    """A runner with what it told, driven from the test's thread."""

    def __init__(self, runner: SparkRunner, portal: Any, patience: float) -> None:
        self.runner, self._portal, self.told = runner, portal, ToldInThread(patience)

    def submit(self, sent: JobTask) -> None:
        self._portal.call(self.runner.submit, sent)

    def cancel(self, job: str, *, reason: Literal["cancelled", "timed-out"] = "cancelled") -> None:
        self._portal.call(lambda: self.runner.cancel(job, 1, reason=reason))

    def restart(self) -> None:
        self._portal.call(self.runner.restart)

    def status(self) -> dict[str, Any]:
        return dict(self._portal.call(self.runner.status))

    def start_job(self, job: str, function: str, **parameters: Any) -> None:
        """Submit a function of `tests.spark.jobs` and wait until its code runs."""
        self.submit(task(job, f"tests.spark.jobs:{function}", **parameters))
        self.told.wait(job, "started")

    def run_job(self, job: str, function: str, **parameters: Any) -> Any:
        """Run a function of `tests.spark.jobs`: its output, or its failure."""
        self.submit(task(job, f"tests.spark.jobs:{function}", **parameters))
        return self.told.wait(job, "done", "failed")

    def until_ready(self) -> None:
        until(lambda: self.status()["state"] == "ready", "the engine is ready", self.told.patience)


@contextmanager
def engine(
    folder: Path,
    *,
    archive: Callable[[EngineSettings, Callable[[], float]], ClassArchive] = ClassArchive,
    patience: float = PATIENCE_SECONDS,
    **declared: Any,
) -> Iterator[Engine]:
    """An engine that runs inside; nothing of it is left on leaving. Waits have this patience, in seconds."""
    spark = Spark(**{"master": "local[2]", "conf": CONF, "memory": "512m", **declared})
    runner = SparkRunner(spark, folder, "tests", archive=archive)
    with start_blocking_portal("asyncio", {"use_uvloop": True}) as portal:
        running = Engine(runner, portal, patience)
        future = portal.start_task_soon(runner.run, running.told)
        try:
            yield running
        finally:
            future.cancel()


def until(condition: Any, what: str, seconds: float = PATIENCE_SECONDS) -> None:
    """Wait until something outside this process is so."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not so after {seconds} s: {what}"
        time.sleep(0.02)


def living(incarnation: str | None) -> list[psutil.Process]:
    """Every process that bears the mark, found without the code under test."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARKER) == incarnation and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found
