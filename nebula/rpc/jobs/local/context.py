"""Context of a job that runs in the service's own process."""

from __future__ import annotations

import shutil
import threading
import time
from collections import deque
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from enum import Enum, auto
from pathlib import Path
from typing import Any, NoReturn

from nebula.errors import JobError
from nebula.rpc.contract.context import Surroundings
from nebula.rpc.contract.job_context import Job
from nebula.rpc.contract.job_runner import JobTask, Progress
from nebula.rpc.jobs.model.record import MAX_LOG_LINES, MOST_STEPS
from nebula.rpc.jobs.registry.unfinished import UNFINISHED, AttemptNote

__all__ = ["LocalJob", "Told"]


class Told(Enum):
    """Why a job has to end before its time."""

    CANCELLED = auto()
    """A client has cancelled it: what it still returns is dropped."""

    STOPPED = auto()
    """What runs it goes away: what it still returns counts."""


# The code runs in a thread and the runner on the loop, so reports are left here and collected every tenth of
# a second (`LocalRunner`). Nothing in here waits for the loop: a job that reports in a tight loop must not be
# slowed down, nor slow down the service. The deques need no lock (append and popleft are atomic); values that
# belong together have one.
class LocalJob(Job):
    """See `Job`. What is reported here waits until the runner collects it."""

    def __init__(self, task: JobTask, around: Surroundings, notes: Path | None = None) -> None:
        self._task = task
        self._around = around
        self._lock = threading.Lock()
        self._step: tuple[int, int, str] | None = None
        self._fraction: float | None = None
        self._begun: deque[Progress] = deque(maxlen=MOST_STEPS)
        self._note = ""
        self._lines: deque[str] = deque(maxlen=MAX_LOG_LINES)
        self._outputs: dict[Path, Path] = {}
        self._noted = None if notes is None else AttemptNote(notes, f"{task.job}.{task.attempt}")
        self.told: Told | None = None

    @property
    def id(self) -> str:
        """See `Job`."""
        return self._task.job

    @property
    def attempt(self) -> int:
        """See `Job`."""
        return self._task.attempt

    @property
    def verb(self) -> str:
        """See `Job`."""
        return self._task.verb

    @property
    def state(self) -> Any:
        """See `Job`."""
        return self._around.state

    @property
    def trace(self) -> Mapping[str, str]:
        """See `Job`."""
        return self._task.trace

    @property
    def spark(self) -> NoReturn:
        """A local job has no Spark session.

        Raises:
            JobError: always.
        """
        raise JobError(
            f"job {self.verb!r} is declared with engine=None and runs without Spark; "
            "give the Responder spark=Spark() and leave engine out"
        )

    @property
    def is_cancelled(self) -> bool:
        """See `Job`."""
        return self.told is not None

    def step(self, number: int, total: int, name: str = "") -> AbstractContextManager[None]:
        """See `Job`."""
        self.raise_if_cancelled()
        with self._lock:
            self._step, self._note = (number, total, name), name
            self._fraction = _within(number - 1, total)
            # Each step is reported, however short: it may begin and end between two looks of the runner.
            self._begun.append(Progress(self._fraction, name, self._step, at=time.time()))
        return nullcontext()

    def progress(self, done: float, total: float, note: str = "") -> None:
        """See `Job`."""
        self.raise_if_cancelled()
        with self._lock:
            self._note = note
            part = _within(done, total)
            # All steps have the same weight: half of step 2 of 4 is three eighths of the job.
            if part is not None and self._step is not None:
                number, steps, _name = self._step
                part = _within(number - 1 + part, steps)
            self._fraction = part if part is not None else self._fraction

    def log(self, text: str) -> None:
        """See `Job`."""
        self._lines.append(text)

    def output(self, path: str | Path) -> Path:
        """See `Job`."""
        final = Path(path).absolute()
        # Two attempts never write to one place: a thread of the first may still be at it.
        name = self.id if self.attempt == 1 else f"{self.id}.{self.attempt}"
        unfinished = final.with_name(f"{final.name}{UNFINISHED}{name}")
        with self._lock:
            # Noted before the job gets the path, see `registry.unfinished`. Asked for twice, a path is noted
            # once.
            if self._noted is not None and final not in self._outputs:
                self._noted.add(final, unfinished)
            self._outputs[final] = unfinished
        return unfinished

    def seen(self) -> Progress:
        """How far it says it is."""
        with self._lock:
            return Progress(self._fraction, self._note, self._step)

    def take_begun(self) -> list[Progress]:
        """The steps that it began since the last time, in order."""
        # Up to the present length: a job that adds without pause would keep the loop here.
        return [self._begun.popleft() for _ in range(len(self._begun))]

    def take_lines(self) -> list[str]:
        """What it logged since the last time."""
        return [self._lines.popleft() for _ in range(len(self._lines))]

    def close(self) -> None:
        """Its code has ended: what it noted of its outputs goes, unless something of them is left."""
        if self._noted is not None:
            with self._lock:
                self._noted.close()

    def publish_outputs(self) -> None:
        """Let what was written appear under its name, each in one step."""
        for final, unfinished in self._outputs.items():
            # A job may ask for a path and then have nothing to write.
            if unfinished.exists():
                # A folder cannot replace one that has files in it.
                if final.is_dir() and not final.is_symlink():
                    shutil.rmtree(final)
                unfinished.replace(final)

    def discard_outputs(self) -> None:
        """Remove what is unfinished."""
        for unfinished in self._outputs.values():
            if unfinished.is_dir():
                shutil.rmtree(unfinished, ignore_errors=True)
            else:
                unfinished.unlink(missing_ok=True)


def _within(done: float, total: float) -> float | None:
    return min(1.0, max(0.0, done / total)) if total > 0 else None
