"""The service that the rows of jobs ask, and the Spark code that all contestants of them run.

`nebula run benchmarks.spark.work:app`
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import anyio

from nebula import Job, Responder, Spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MASTER = "local[2]"
MEMORY = "1g"
# Kept by each contestant: the code that is measured shuffles a little.
CONF = {"spark.sql.shuffle.partitions": "4", "spark.ui.enabled": "false"}

_TICK_SECONDS = 0.01

# Room for one that fills Spark, and for those that wait meanwhile.
app = Responder("work", spark=Spark(master=MASTER, memory=MEMORY, conf=CONF, max_running=8))


def small(spark: SparkSession) -> int:
    """A small aggregation, some tenth of a second when all is warm."""
    rows = spark.range(1000).selectExpr("id % 7 AS key", "id").groupBy("key").sum("id").collect()
    return sum(int(row[1]) for row in rows)


def timed(spark: SparkSession, seconds: float) -> list[float]:
    """Run the small code over and over for this time, in one session; the seconds that each took."""
    taken: list[float] = []
    end = time.perf_counter() + seconds
    while not taken or time.perf_counter() < end:
        taken.append(_once(spark))
    return taken


def _once(spark: SparkSession) -> float:
    began = time.perf_counter()
    small(spark)
    return time.perf_counter() - began


@app.job
def quick(ctx: Job) -> int:
    """The small code once: what the row asks for."""
    return small(ctx.spark)


@app.job
def nothing(ctx: Job) -> int:  # noqa: ARG001 # a job has one
    """What a job costs that does no work."""
    return 0


@app.job
def direct(ctx: Job, times: int) -> list[float]:
    """The small code without the way here, this many times in a session that has run it before."""
    small(ctx.spark)
    return [_once(ctx.spark) for _ in range(times)]


@app.job
def busy(ctx: Job, tasks: int = 2_000) -> int:
    """Fill all of Spark, for minutes if it is let, with work of the JVM in tasks of a tenth of a second."""
    return int(ctx.spark.range(0, tasks * 100_000_000, 1, tasks).selectExpr("sum(hash(id))").collect()[0][0])


@app.job
def busy_python(ctx: Job, rows: int = 100_000) -> int:
    """The same with Python code, row by row."""
    from pyspark.sql import functions

    @functions.udf("long")
    def slowly(number: int) -> int:
        time.sleep(0.1)
        return number

    numbers = ctx.spark.range(0, rows, 1, 2).select(slowly("id").alias("number"))
    return int(numbers.groupBy().sum("number").collect()[0][0])


@app.verb
async def delays(seconds: float) -> list[float]:
    """By how many seconds the service's event loop was late, each hundredth of a second for this time."""
    late: list[float] = []
    end = anyio.current_time() + seconds
    while (due := anyio.current_time() + _TICK_SECONDS) < end:
        await anyio.sleep_until(due)
        late.append(anyio.current_time() - due)
    return late
