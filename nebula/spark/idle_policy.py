"""Idle policy: when an engine without jobs is stopped, or replaced by a fresh one."""

from __future__ import annotations

from dataclasses import dataclass

from nebula.spark.settings import EngineSettings, heap_bytes

_GIB = 1024**3


@dataclass(frozen=True, slots=True)
class Idle:
    """An engine without any job: neither one that waits, nor one that runs or still holds resources.

    Attributes:
        seconds: since its last job ended, or since it was ready.
        age: seconds since it was started.
        jobs: how many it was given.
        rss_bytes: memory of its processes, without Python's workers.
    """

    seconds: float
    age: float
    jobs: int
    rss_bytes: int


def why_stop(settings: EngineSettings, idle: Idle) -> str | None:
    """Why this engine is stopped until the next job comes, or None."""
    if settings.idle_stop is not None and idle.seconds >= settings.idle_stop:
        return f"the engine was idle for {settings.idle_stop:g} s"
    return None


def why_recycle(settings: EngineSettings, idle: Idle) -> str | None:
    """Why this engine is replaced now, or None."""
    # An engine that has run nothing has not grown, and its successor would be recycled in turn, for ever.
    if idle.jobs == 0:
        return None
    if idle.jobs >= settings.recycle_after_jobs:
        return f"the engine was replaced after {idle.jobs} jobs"
    if idle.age >= settings.recycle_after:
        return f"the engine was replaced at the age of {settings.recycle_after:g} s"
    bound = most_rss_bytes(settings)
    if bound is not None and idle.rss_bytes > bound:
        return f"the engine was replaced: it held {_mib(idle.rss_bytes)} MiB, more than {_mib(bound)}"
    return None


def most_rss_bytes(settings: EngineSettings) -> int | None:
    """What the processes of an idle engine may hold; None where that is unknown."""
    if settings.recycle_above_bytes is not None:
        return settings.recycle_above_bytes
    # The user's own setting wins over ours, so it is what the JVM was started with.
    heap = heap_bytes(settings.conf.get("spark.driver.memory", settings.memory))
    # Half of the heap for what Java needs besides, and a gigabyte for the host with its Python code.
    return None if heap is None else heap * 3 // 2 + _GIB


def _mib(size_bytes: int) -> int:
    return size_bytes // 1024**2
