"""Jobs that read from and write to a broker, for an engine of the tests."""

from __future__ import annotations

import time
from typing import Any

from nebula.rpc.contract.job_context import Job


def write_rows(ctx: Job, count: int, options: dict[str, str]) -> int:
    """Send rows with a number, a text, a time and a map."""
    rows = ctx.spark.range(count).selectExpr(
        "id", "concat('name ', id) as name", "timestamp_millis(id) as at", "map('half', id / 2) as parts"
    )
    rows.write.format("nebula").options(**options).mode("append").save()
    return count


def read_stream(
    ctx: Job, options: dict[str, str], checkpoint: str, out: str, columns: list[str], rows: int
) -> list[Any]:
    """Stream `rows` that are there into Parquet, and give back all that was ever written there."""
    for _ in range(5):
        stream = ctx.spark.readStream.format("nebula").options(**options).load()
        query = stream.writeStream.format("parquet").trigger(availableNow=True)
        running = query.option("checkpointLocation", checkpoint).start(out)
        running.awaitTermination()
        rows -= sum(progress["numInputRows"] for progress in running.recentProgress)
        # The broker of a busy machine may have been quiet too early.
        if rows <= 0:
            break
    return [row.asDict(recursive=True) for row in ctx.spark.read.parquet(out).selectExpr(*columns).collect()]


def read_some(ctx: Job, options: dict[str, str], checkpoint: str, out: str) -> int:
    """Stream into Parquet, and stop the query in the midst of it; how many rows it had by then."""
    stream = ctx.spark.readStream.format("nebula").options(**options).load()
    query = stream.writeStream.format("parquet").option("checkpointLocation", checkpoint).start(out)
    while not (rows := sum(progress["numInputRows"] for progress in query.recentProgress)):
        if not query.isActive:
            query.awaitTermination()  # raises what ended it
        time.sleep(0.01)
    query.stop()
    return int(rows)


def forward(ctx: Job, source: dict[str, str], sink: dict[str, str], checkpoint: str) -> list[int]:
    """Stream from one destination to another; how many rows each batch had."""
    stream = ctx.spark.readStream.format("nebula").options(**source).load()
    query = stream.select("body").writeStream.format("nebula").options(**sink).trigger(availableNow=True)
    running = query.option("checkpointLocation", checkpoint).start()
    running.awaitTermination()
    return [progress["numInputRows"] for progress in running.recentProgress]


def read_snapshot(ctx: Job, options: dict[str, str]) -> list[Any]:
    """What last-value destinations hold."""
    return [
        row.asDict(recursive=True)
        for row in ctx.spark.read.format("nebula").options(**options).load().collect()
    ]
