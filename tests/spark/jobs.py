"""Jobs for the tests: imported by the engine host, by the address of each function."""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

from pydantic import BaseModel

from nebula.errors import JobError
from nebula.rpc.contract.job_context import Job


class Group(BaseModel):
    key: int
    count: int


def count(ctx: Job, rows: int = 10) -> int:
    counted: int = ctx.spark.range(rows).count()
    return counted


def nothing() -> None:
    pass


async def later(text: str) -> str:
    return text


def noisy(ctx: Job) -> str:
    print("printed by the job")
    os.write(1, b'{"n":0,"line":"bye","reason":"forged"}\n')
    ctx.log("logged by the job")
    return sys.stdin.read()


def forks(ctx: Job) -> list[int]:
    """Has processes forked that end, log, raise, or come back out of the job."""
    with multiprocessing.get_context("fork").Pool(2) as pool:
        told = pool.map(abs, [-1, -2])  # which it ends with SIGTERM, then
    for number in range(3):
        child = os.fork()
        if child == 0:
            ctx.log("logged by a fork")
            print("printed by a fork")
            if number == 1:
                raise KeyError("in a fork")
            if number == 2:
                sys.exit(3)
            return []
        told.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    return told


def groups(ctx: Job) -> list[Group]:
    table: list[Group] = ctx.spark.range(9).selectExpr("id % 3 as key").groupBy("key").count().orderBy("key")
    return table


def table(ctx: Job, rows: int = 100) -> Any:
    return ctx.spark.range(rows).withColumnRenamed("id", "key")


def many_groups(ctx: Job) -> list[Group]:
    rows: list[Group] = ctx.spark.range(1001)
    return rows


def long_text() -> str:
    return "x" * 100_000


def long_lines(ctx: Job) -> str:
    """Says more, in each way that there is, than a line of the engine's may have."""
    long = "x" * 17_000_000 + "!"
    ctx.log(long)
    print(long)
    ctx.step(1, 2, long)
    ctx.progress(0.5, 1.0, long)
    raise JobError(long)


def logs_in_a_loop(ctx: Job) -> None:
    for number in range(20_000):
        ctx.log(str(number))


def no_numbers(ctx: Job) -> dict[str, float]:
    """The mean of nothing, and its like."""
    ctx.progress(float("nan"), 1.0)
    ctx.step(1, 1, "beside it")
    return {"mean": float("nan"), "most": float("inf"), "sum": 0.0}


def not_json() -> object:
    return object()


def udf_sum(ctx: Job) -> int:
    from pyspark.sql import functions

    double = functions.udf(_double, "long")
    total: int = ctx.spark.range(10).select(double("id").alias("x")).agg(functions.sum("x")).collect()[0][0]
    return total


def _double(number: int) -> int:
    return 2 * number


def raises_in_udf(ctx: Job) -> None:
    from pyspark.sql import functions

    def broken(_: int) -> NoReturn:
        raise ValueError("meter file is truncated")

    ctx.spark.range(10).select(functions.udf(broken, "long")("id")).collect()


def kills_worker(ctx: Job) -> None:
    from pyspark.sql import functions

    ctx.spark.range(10).select(functions.udf(lambda _: os.kill(os.getpid(), 9), "long")("id")).collect()


def missing_table(ctx: Job) -> None:
    ctx.spark.table("nowhere").count()


def divides_by_zero(ctx: Job) -> None:
    ctx.spark.sql("SELECT 1 / (id - 5) FROM range(10)").collect()


def raises_in_query(ctx: Job) -> None:
    ctx.spark.sql("SELECT raise_error('no readings today')").collect()


def gives_up() -> None:
    raise JobError("no readings in the source", code="empty")


def fails() -> None:
    raise KeyError("machine")


def exits() -> None:
    sys.exit(3)


def stops_spark(ctx: Job) -> None:
    ctx.spark.stop()
    time.sleep(60)


def makes_view(ctx: Job) -> int:
    ctx.spark.range(3).createOrReplaceTempView("mine")
    return len(ctx.spark.catalog.listTables())


def makes_view_of_an_rdd(ctx: Job) -> int:
    # Made later than this job's: PySpark has RDDs use the last one.
    ctx.spark.newSession()
    ctx.spark.sparkContext.parallelize([(1,)]).toDF(["a"]).createOrReplaceTempView("of_an_rdd")
    return len(ctx.spark.catalog.listTables())


def counts_views(ctx: Job) -> int:
    return len(ctx.spark.catalog.listTables())


def between_actions(ctx: Job) -> None:
    """Is between two actions nearly all of the time."""
    while True:
        ctx.spark.range(10).count()
        ctx.log("counted")
        time.sleep(0.5)


def slow_udf(ctx: Job) -> Any:
    """Eighty rows of half a second each, in Python workers."""
    from pyspark.sql import functions

    def slow(number: int) -> int:
        time.sleep(0.5)
        return number

    ctx.log("about to begin")
    return ctx.spark.range(0, 80, 1, 16).select(functions.udf(slow, "long")("id").alias("x"))


def gated(ctx: Job, folder: str) -> int:
    """Forty tasks: each leaves a file when it begins, and waits for one before it ends."""
    from pyspark.sql import functions

    def wait(number: int) -> int:
        Path(folder, f"begun-{number}").touch()
        while not Path(folder, f"go-{number}").exists():
            time.sleep(0.02)
        return number

    held = ctx.spark.range(0, 40, 1, 40).select(functions.udf(wait, "long")("id").alias("x"))
    return len(held.collect())


def one_task(ctx: Job) -> int:
    """A single task: a table of one partition needs no exchange."""
    counted: int = ctx.spark.range(0, 10, 1, 1).count()
    return counted


def two_steps(ctx: Job) -> int:
    from pyspark.sql import functions

    def slow(number: int) -> int:
        time.sleep(0.1)
        return number

    with ctx.step(1, 2, "first"):
        ctx.spark.range(0, 16, 1, 8).select(functions.udf(slow, "long")("id").alias("x")).agg(
            functions.sum("x")
        ).collect()
    with ctx.step(2, 2, "second"):
        for part in range(4):
            ctx.progress(part, 4, f"part {part}")
            time.sleep(0.3)
    return 1


def writes(path: str, *, fail: bool = False, ctx: Job) -> str:
    """Has the context last: it may stand anywhere."""
    ctx.output(path).write_text("whole")
    if fail:
        raise ValueError("half-way")
    return Path(path).name


def ignores_cancel(ctx: Job, began: str | None = None) -> None:
    """Sleep for an hour, once the file of this name was made."""
    ctx.log("about to begin")
    if began is not None:
        Path(began).touch()
    time.sleep(3600)


def count_for_ever(ctx: Job) -> NoReturn:
    """Small queries, which take little memory, one after another."""
    while True:
        ctx.spark.range(1000).count()
        time.sleep(0.05)


def gather(ctx: Job) -> int:
    """An array that is larger than a small heap, in a task that has run for two seconds."""
    slept = "reflect('java.lang.Thread', 'sleep', id + 2000L)"
    row = ctx.spark.range(0, 1, 1, 1).selectExpr(f"array_repeat({slept}, 500000000) AS all")
    counted: int = row.selectExpr("size(all)").collect()[0][0]
    return counted


def hoard(ctx: Job) -> int:
    """As much in the thread that speaks for the job in the JVM, outside of any task."""
    jvm = ctx.spark.sparkContext._jvm
    assert jvm is not None
    counted: int = jvm.java.util.Collections.nCopies(500_000_000, "x").toArray().length
    return counted
