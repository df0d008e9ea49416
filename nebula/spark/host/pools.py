"""Scheduler pools: one for each running job, with the weight of its priority."""

from __future__ import annotations

import threading

POOLS_FILE = "pools.xml"

# Spark reads weights from a file at its start and nowhere else, so pools are made in advance and lent to
# jobs. More jobs than that at a time share by a pool of Spark's own making, with weight 1.
_POOLS_EACH = 32

# A job of high priority gets four times the slots of a normal one, while both have tasks waiting.
_WEIGHTS = {"low": 1, "normal": 4, "high": 16}


def level_of(priority: int) -> str:
    """The name for a priority from 0 to 9."""
    if priority <= 3:
        return "low"
    return "normal" if priority <= 6 else "high"


class Pools:
    """Which pools are free. For any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Taken from the end: the same few pools serve an engine that is not crowded.
        self._free = {level: _names(level)[::-1] for level in _WEIGHTS}

    def take(self, priority: int) -> str | None:
        """A pool for one job alone, or None if all are taken."""
        with self._lock:
            free = self._free[level_of(priority)]
            return free.pop() if free else None

    def give_back(self, pool: str) -> None:
        """Free it again; nothing happens for a pool that is not ours, or is free."""
        with self._lock:
            free = self._free.get(pool.partition("-")[0])
            if free is not None and pool not in free:
                free.append(pool)

    def as_xml(self) -> str:
        """Spark's allocation file."""
        # Spark's default inside a pool is FIFO: the queries of one job's threads would wait for another.
        pools = [
            f'  <pool name="{name}"><schedulingMode>FAIR</schedulingMode>'
            f"<weight>{weight}</weight><minShare>0</minShare></pool>"
            for level, weight in _WEIGHTS.items()
            for name in _names(level)
        ]
        return "\n".join(['<?xml version="1.0"?>', "<allocations>", *pools, "</allocations>", ""])


def _names(level: str) -> list[str]:
    return [f"{level}-{number}" for number in range(_POOLS_EACH)]
