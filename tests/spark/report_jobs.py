"""Jobs whose steps, rows and files are looked at."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from pyspark.sql import DataFrame, Row

from nebula.rpc.contract.job_context import Job


def quick_steps(ctx: Job) -> None:
    for number in (1, 2, 3):
        ctx.step(number, 3, f"step {number}")


def hadoop_setting(ctx: Job, name: str) -> str:
    found: str = ctx.spark.sparkContext._jsc.hadoopConfiguration().get(name)
    return found


def copies(ctx: Job, folder: str) -> None:
    """Writes a thousand rows, reads them, writes two thousand, in two steps."""
    ctx.step(1, 2)
    ctx.spark.range(1000).write.parquet(f"file://{folder}/a")
    ctx.step(2, 2)
    rows = ctx.spark.read.parquet(f"file://{folder}/a")
    rows.union(rows).write.parquet(f"file://{folder}/b")


def counts_file(ctx: Job, path: str) -> int:
    counted: int = ctx.spark.read.parquet(f"file://{path}").count()
    return counted


def odd_values(ctx: Job) -> Any:
    return ctx.spark.sql(
        "SELECT timestamp'2026-01-02 03:04:05' AS at, cast(1.2 AS decimal(5, 2)) AS price, X'fbff' AS bytes,"
        " cast(null AS int) AS nothing, cast('NaN' AS double) AS nan"
    )


def intervals_and_variants(ctx: Job) -> Any:
    return ctx.spark.sql(
        "SELECT make_ym_interval(1, 2) AS months, -make_ym_interval(0, 3) AS ago,"
        ' make_dt_interval(1, 2, 3, 4.5) AS time, parse_json(\'{"a": [1, "b"]}\') AS value,'
        " array(make_ym_interval(2, 0)) AS several, named_struct('v', parse_json('7')) AS inside,"
        " map('k', make_dt_interval(0, 1)) AS by_name"
    )


def huge_rows(ctx: Job) -> Any:
    return ctx.spark.sql("SELECT repeat('x', 100000) AS text FROM range(3)")


def writes_table(ctx: Job, path: str) -> None:
    ctx.spark.range(0, 50, 1, 1).write.parquet(Path(ctx.output(path)).as_uri())


def pool(ctx: Job) -> dict[str, Any]:
    """The scheduler pool that this job runs in, as Spark knows it."""
    context = ctx.spark.sparkContext
    name = context.getLocalProperty("spark.scheduler.pool")
    known = context._jsc.sc().getPoolForName(name).get()
    return {"level": name.partition("-")[0], "weight": known.weight(), "mode": str(known.schedulingMode())}


def makes_table(ctx: Job, where: str) -> DataFrame:
    what = f"CREATE TABLE made USING parquet LOCATION 'file://{where}' AS SELECT id FROM range(5)"
    return cast(DataFrame, ctx.spark.sql(what))


def inserts_into_it(ctx: Job) -> list[Row]:
    # Type checkers know that it is a table; a service collects it.
    return cast(list[Row], ctx.spark.sql("INSERT INTO made SELECT id FROM range(5, 12)"))


def drops_it(ctx: Job) -> Any:
    return ctx.spark.sql("DROP TABLE made")
