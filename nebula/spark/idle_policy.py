"""When an engine that has nothing to do is stopped, or replaced by a fresh one."""

from __future__ import annotations

from dataclasses import dataclass

from nebula.spark.engine import Spark
from nebula.spark.sizes import heap_bytes

_GIB = 1024**3


@dataclass(frozen=True, slots=True)
class Idle:
    """An engine without any job: neither one that waits, nor one that runs or still holds resources.

    Attributes:
        seconds: since its last job ended, or since it was ready.
        age: seconds since it was started.
        jobs: how many it was given.
        rss_bytes: what its processes hold, Python's workers apart.
    """

    seconds: float
    age: float
    jobs: int
    rss_bytes: int


def why_stop(spark: Spark, idle: Idle) -> str | None:
    """Why this engine is stopped until the next job comes, or None."""
    if spark.idle_stop is not None and idle.seconds >= spark.idle_stop:
        return f"the engine was idle for {spark.idle_stop:g} s"
    return None


def why_recycle(spark: Spark, idle: Idle) -> str | None:
    """Why this engine is replaced now, or None."""
    # One that has run nothing has not grown, and its successor would be like it: for ever.
    if idle.jobs == 0:
        return None
    if idle.jobs >= spark.recycle_after_jobs:
        return f"the engine was replaced after {idle.jobs} jobs"
    if idle.age >= spark.recycle_after:
        return f"the engine was replaced at the age of {spark.recycle_after:g} s"
    bound = most_rss_bytes(spark)
    if bound is not None and idle.rss_bytes > bound:
        return f"the engine was replaced: it held {_mib(idle.rss_bytes)} MiB, more than {_mib(bound)}"
    return None


def most_rss_bytes(spark: Spark) -> int | None:
    """What the processes of an idle engine may hold; None where nobody can say."""
    if spark.recycle_above_bytes is not None:
        return spark.recycle_above_bytes
    heap = heap_bytes(spark.conf.get("spark.driver.memory", spark.memory))
    return None if heap is None else heap * 3 // 2 + _GIB


def _mib(size_bytes: int) -> int:
    return size_bytes // 1024**2
