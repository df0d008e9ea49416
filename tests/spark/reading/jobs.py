"""Jobs for the tests of the readers: imported by the engine host, by the address of each function."""

from __future__ import annotations

from typing import Any

from pyspark.sql import functions

from nebula.rpc.contract.job_context import Job


def sums(ctx: Job, path: str | list[str], options: dict[str, Any]) -> dict[str, Any]:
    """What a table of readings comes to, each column counted in."""
    table = ctx.read.avro(path, **options)
    row = table.agg(
        functions.count("*").alias("rows"),
        functions.sum("value").alias("value"),
        functions.sum("machine").alias("machine"),
        functions.sum(functions.unix_micros("at")).alias("at"),
        functions.sum("quality").alias("quality"),
        functions.count("note").alias("notes"),
        functions.sum(functions.hash("sensor", "note").cast("long")).alias("texts"),
    ).collect()[0]
    return {"schema": table.schema.simpleString(), **row.asDict()}


def rows(ctx: Job, path: str, options: dict[str, Any], where: str = "true") -> list[dict[str, Any]]:
    """A table as it is, what is no JSON as text."""
    table = ctx.read.avro(path, **options).where(where)
    return [{name: _plain(value) for name, value in row.asDict().items()} for row in table.collect()]


def skipped(ctx: Job, path: str, options: dict[str, Any]) -> dict[str, Any]:
    """How many rows are left, and which files are not among them."""
    count = ctx.read.avro(path, corrupt="skip", **options).count()
    return {"rows": count, "skipped": {each.path: each.problem for each in ctx.read.skipped}}


def misspelt(ctx: Job) -> int:
    """A query that Spark refuses."""
    return int(ctx.spark.range(3).select("ids").count())


def twice(ctx: Job, path: str) -> list[int]:
    """Two sessions in one job, as of two jobs whose threads Spark takes for one another."""
    from nebula.spark.reading import Reader

    other = Reader(ctx.spark.newSession(), ctx.log)
    return [other.avro(path).count(), ctx.read.avro(path, where="hour = 1").count(), other.avro(path).count()]


def others(ctx: Job, path: str) -> list[int]:
    """Spark's own formats, written and read."""
    table = ctx.spark.range(5)
    table.write.parquet(f"{path}/parquet")
    table.write.json(f"{path}/json")
    table.write.csv(f"{path}/csv", header=True)
    read = ctx.read
    return [
        read.parquet(f"{path}/parquet").count(),
        read.json([f"{path}/json"]).count(),
        read.csv(f"{path}/csv", header=True, schema="id int").agg({"id": "sum"}).collect()[0][0],
    ]


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def split(ctx: Job, path: str) -> dict[str, Any]:
    """A sum, and how many tasks read for it."""
    table = ctx.read.avro(path)
    return {"value": table.agg({"value": "sum"}).collect()[0][0], "tasks": table.rdd.getNumPartitions()}
