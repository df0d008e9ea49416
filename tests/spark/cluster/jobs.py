"""Jobs for clusters: their functions travel to workers, which import this module."""

from __future__ import annotations

import os
import time
from pathlib import Path

import psutil
from pyspark.sql import functions

from nebula.rpc.contract.job_context import Job


def steady(ctx: Job, tasks: int = 10, seconds: float = 0.5) -> int:
    """Tasks of equal length, in Python; the sum of their numbers."""

    def work(number: int) -> int:
        time.sleep(seconds)
        return number

    rows = ctx.spark.range(0, tasks, 1, tasks).select(functions.udf(work, "long")("id").alias("number"))
    total: int = rows.agg(functions.sum("number")).collect()[0][0]
    return total


def endless(ctx: Job, folder: str) -> None:
    """A task that tells its process in `folder`, and would end tomorrow."""

    def work(number: int) -> int:
        Path(folder, "pid.unfinished").write_text(str(os.getpid()))
        Path(folder, "pid.unfinished").rename(Path(folder, "pid"))
        time.sleep(86400)
        return number

    ctx.spark.range(0, 1, 1, 1).select(functions.udf(work, "long")("id")).collect()


def again(ctx: Job, folder: str) -> int:
    """Endless at first; after that the number of the attempt."""
    if ctx.attempt == 1:
        endless(ctx, folder)
    return ctx.attempt


def overlapping(ctx: Job, folder: str) -> bool:
    """Endless at first; after that whether the code of the first attempt still runs."""
    if ctx.attempt == 1:
        endless(ctx, folder)
    return psutil.pid_exists(int(Path(folder, "pid").read_text()))
