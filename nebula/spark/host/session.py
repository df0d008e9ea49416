"""Interface of an engine host to Spark, with two implementations: a JVM of its own, and a Connect server.

`classic` and `connect` are the two ways. Everything that differs between them is behind these classes.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Protocol

from nebula.spark.host.progress import Counted
from nebula.spark.lines import ArchiveState

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# What another Spark around us may have left in the environment, and would make ours join it.
FOREIGN = (
    "PYSPARK_GATEWAY_PORT",
    "PYSPARK_GATEWAY_SECRET",
    "PYSPARK_SUBMIT_ARGS",
    "SPARK_REMOTE",
    "SPARK_CONNECT_MODE_ENABLED",
)


class CannotStart(Exception):
    """No session can be had until a person changes something; `str()` says what."""


class Place(Protocol):
    """One attempt's place in Spark: its session, its marks, its counts and its cancel.

    `open` and `begin_step` are called in the job's thread, the others in any.
    """

    @property
    def spark(self) -> SparkSession:
        """The attempt's own session: its views, settings and functions are seen by no other job."""

    def open(self, verb: str) -> None:
        """Make the session, and mark what this thread starts in Spark as this attempt's."""

    def begin_step(self) -> None:
        """The tasks that Spark runs from now on are counted from nothing."""

    def settle(self) -> None:
        """Wait briefly for pending status events of a job's ended actions: the next count includes them."""

    def count(self) -> Counted:
        """What the attempt has done by now. May raise what a dead Spark raises."""

    def active(self) -> int:
        """How many task slots the attempt holds now; 0 where that is unknown."""

    def cancel(self) -> None:
        """End what runs, and have Spark refuse whatever comes later. Soon back; safe to repeat."""

    def close(self) -> None:
        """The attempt is over: nothing of it has to be kept in Spark."""


# docs/decisions/0033: one interface, so that jobs see no difference between a driver and a Connect server.
class Session(Protocol):
    """A Spark that is ready for jobs.

    Attributes:
        version: Spark's.
        java: what runs it, for people; empty if it is not ours to know.
        jvm_pid: of the JVM, if it is our child.
        ui: the address of Spark's own pages, if they are switched on.
        archive: of Java's classes, where it is or where it is missed; see `nebula.spark.cds`.
        archive_state: what became of the archive.
    """

    version: str
    java: str
    jvm_pid: int | None
    ui: str | None
    archive: str | None
    archive_state: ArchiveState

    @property
    def is_alive(self) -> bool:
        """Whether it takes jobs. Asks it, and may hang where Spark does."""

    def await_death(self, seconds: float | None = None) -> str | None:
        """Wait until Spark has died, and say why; None if it has not within this time."""

    def starved(self, groups: Collection[str]) -> str | None:
        """After the JVM died: the attempt that exhausted its memory.

        None: it has died of something else, or it cannot be known which of them it was.

        Args:
            groups: the attempts that it had.
        """

    def prepare(self) -> None:
        """Make in this thread, in advance, what an attempt in it will need. It does not raise."""

    def place(self, group: str, priority: int) -> Place:
        """The place of an attempt: cheap, without a call."""

    def stop(self) -> None:
        """End it cleanly. May hang; the caller has a deadline."""

    def kill(self) -> None:
        """End it at once, as far as that is in our hands."""


def change_environment(changes: Mapping[str, str | None]) -> None:
    """Set these variables for this process and its children; None: unset it."""
    for name, value in changes.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def check_packages(extra: str, *names: str) -> None:
    """Check that these can be imported. Found is enough: importing them takes the better part of a second.

    Python UDFs need pyarrow as well: that is said now, not when the first job uses one.

    Raises:
        CannotStart: with what to install.
    """
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing:
        raise CannotStart(
            f"Spark's part is not installed ({', '.join(missing)} missing): pip install 'nebula-rpc[{extra}]'"
        )
