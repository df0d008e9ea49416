"""`Job`: the context of a job for its own code, and the notice that it must end."""

# The code of a job runs in a thread of the service or in another process, with Spark or without. It sees
# this interface only, so a job that needs no Spark can be tested in a thread.
#
# Cancellation is cooperative: no thread can be stopped from outside. Each report (`step`, `progress`) is a
# point where the job may end, by an exception that `except Exception` does not catch; loops without reports
# call `raise_if_cancelled`.
#
# Output is written to another name and renamed when the job is done. A reader of `path` finds the whole
# file or none, whether the job failed, was cancelled, or died with its process.

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from nebula.errors import JobError

__all__ = ["Job", "JobCancelled"]


class JobCancelled(BaseException):
    """Raised inside a job's code to end it because it was cancelled.

    It is not an `Exception`, for the same reason as in asyncio and trio: code that continues after any error
    must not continue after this one.
    """


class Job(ABC):
    """The context of one attempt at a job: a parameter of this type in a job's function gets it.

    It is not part of the verb's contract. Its methods may be called from any thread of the job, as often as
    needed: reports are sent at the service's pace, the latest first.
    """

    @property
    @abstractmethod
    def id(self) -> str:
        """The job's ULID: the same for each attempt, and in the names of files and destinations."""

    @property
    @abstractmethod
    def attempt(self) -> int:
        """1 for the first run, more after a loss."""

    @property
    @abstractmethod
    def verb(self) -> str:
        """The verb that was asked for."""

    @property
    def state(self) -> Any:
        """What the `lifespan` of the job's service yielded, None if it has none.

        Raises:
            JobError: the job runs in another process than its service.
        """
        raise JobError(
            f"job {self.verb!r} runs in another process than its service, and has none of the state of its "
            "lifespan; declare it with engine=None"
        )

    @property
    @abstractmethod
    def trace(self) -> Mapping[str, str]:
        """`traceparent` and `tracestate` of its request (W3C Trace Context), as far as it had them; or those
        of the span of this run, if middleware of the service makes one.
        """

    @property
    @abstractmethod
    def spark(self) -> Any:
        """The Spark session of this attempt: no other job sees its views and settings.

        Raises:
            JobError: the job does not run in a Spark engine.
        """

    @property
    def read(self) -> Any:
        """Tables from files: `read.avro(path)`, and `csv`, `json`, `parquet` (`nebula.spark.reading.Reader`).

        Raises:
            JobError: the job does not run in a Spark engine.
        """
        raise JobError(f"job {self.verb!r} does not run in a Spark engine, which alone reads tables")

    @property
    @abstractmethod
    def is_cancelled(self) -> bool:
        """Whether the job should end now."""

    @abstractmethod
    def step(self, number: int, total: int, name: str = "") -> AbstractContextManager[None]:
        """Begin step `number` (from 1) of `total` now; `with` is only for readability. Steps weigh the same.

        Raises:
            JobCancelled: the job was cancelled; not in an engine that ends it by itself.
        """

    @abstractmethod
    def progress(self, done: float, total: float, note: str = "") -> None:
        """Report how much of the step is done. It is shown only if it is more than before.

        Args:
            done: from 0 to `total`.
            total: in the same unit; 0 if unknown.
            note: a short text for people.

        Raises:
            JobCancelled: as for `step`.
        """

    @abstractmethod
    def log(self, text: str) -> None:
        """Write a line to the job's log, which its caller can read. Old lines go when there are too many."""

    @abstractmethod
    def output(self, path: str | Path) -> Path:
        """Where to write a file or folder that appears at `path`, all at once, when the job is done.

        It is renamed to `path` after the job's code has returned, and removed if the job failed, was
        cancelled or lost; if its process was killed, at the service's next start or within an hour.
        """

    def raise_if_cancelled(self) -> None:
        """Raise `JobCancelled` if the job should end now: for loops that report nothing."""
        if self.is_cancelled:
            raise JobCancelled
