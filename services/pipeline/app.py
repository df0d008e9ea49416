"""The verbs: Spark jobs over what was recorded, and over what arrives.

$ nebula run services.pipeline.app:app
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pydantic import BaseModel

from nebula import Job, Responder, Spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

READINGS = "/queue/readings"
"""Where readings arrive."""

# Two or so tasks for each core: the data are small.
app = Responder("pipeline", spark=Spark(conf={"spark.sql.shuffle.partitions": "8"}))


class CarrierRow(BaseModel):
    """How one carrier did. Delays are in minutes, None if no flight was flown."""

    carrier: str
    flights: int
    departure: float | None
    arrival: float | None


class Carriers(BaseModel):
    """The table by carrier, and what it took.

    Attributes:
        flights: how many rows were read.
        seconds: of reading and adding up.
    """

    rows: list[CarrierRow]
    flights: int
    seconds: float


class Written(BaseModel):
    """What was made of readings.

    Attributes:
        readings: how many were read.
        cents: the sum of what they tell as turnover.
        seconds: from the first to the last.
    """

    readings: int
    cents: int
    seconds: float


class HourOfAll(BaseModel):
    """What was bet on all machines in one hour, in cents."""

    hour: datetime
    turnover: int


class Turnover(BaseModel):
    """The end of the pipeline.

    Attributes:
        rows: of the table: one for each machine and hour.
        hours: of all machines together, in order.
    """

    rows: int
    hours: list[HourOfAll]


@app.job
def carriers(ctx: Job, recorded: str) -> Carriers:
    """Flights and mean delays by carrier, of the files in a folder of the recorder's."""
    from pyspark.sql import functions

    began = time.perf_counter()
    with ctx.step(1, 1, "read and add up"):
        by_carrier = (
            ctx.read.avro(recorded)
            .groupBy("carrier")
            .agg(
                functions.count("*").alias("flights"),
                functions.avg("dep_delay").alias("departure"),
                functions.avg("arr_delay").alias("arrival"),
            )
        )
        rows = [CarrierRow(**row.asDict()) for row in by_carrier.orderBy("carrier").collect()]
    return Carriers(rows=rows, flights=sum(row.flights for row in rows), seconds=time.perf_counter() - began)


@app.job
def hourly(ctx: Job, recorded: str, target: str) -> Written:
    """The last reading of each machine in each hour, of recorded files, as Parquet at `target`."""
    began = time.perf_counter()
    place = str(ctx.output(target))
    with ctx.step(1, 2, "read and write"):
        _last_of_hours(ctx.read.avro(recorded)).write.parquet(place)
    with ctx.step(2, 2, "count"):
        return _written(ctx.spark.read.parquet(place), began)


@app.job
def hourly_stream(ctx: Job, target: str, work: str, quiet: float = 3.0) -> Written:
    """The same of readings as they arrive, until none came for `quiet` seconds.

    Each batch writes what it has changed into a folder of its own: it is the same folder if Spark has to do
    the batch again, so that nothing counts twice.

    Args:
        target: a folder of Parquet.
        work: a folder for Spark's checkpoint and the spool of what was received; the next run goes on there.
        quiet: seconds.
    """
    began = time.perf_counter()

    def write(batch: DataFrame, number: int) -> None:
        batch.write.mode("overwrite").parquet(f"{target}/batch={number}")

    arriving = (
        ctx.spark.readStream.format("nebula")
        .option("destination", READINGS)
        .option("schemaName", "venue.MeterReading_v1")
        .option("spool", f"{work}/spool")
        .option("quietSeconds", quiet)
        .load()
    )
    query = (
        _last_of_hours(arriving)
        .writeStream.outputMode("update")
        .option("checkpointLocation", f"{work}/checkpoint")
        .foreachBatch(write)
        .trigger(availableNow=True)
        .start()
    )
    try:
        with ctx.step(1, 2, "read and write as they arrive"):
            while not query.awaitTermination(1):
                ctx.raise_if_cancelled()
    finally:
        query.stop()
    with ctx.step(2, 2, "count"):
        return _written(_of_batches(ctx, target), began)


@app.job
def turnover(ctx: Job, batch: str, stream: str, target: str) -> Turnover:
    """What was bet on each machine in each hour, of both halves, as Parquet at `target`.

    A meter only rises: an hour's turnover is its last reading less the last one before. The first reading of
    a machine tells what it had before, and that is no turnover.
    """
    from pyspark.sql import Window, functions

    first = Window.partitionBy("machine").orderBy("hour")
    halves = ctx.spark.read.parquet(batch).unionByName(_of_batches(ctx, stream))
    last = _latest(halves).withColumn(
        "before", functions.coalesce(functions.lag("turnover").over(first), functions.col("first"))
    )
    place = str(ctx.output(target))
    with ctx.step(1, 2, "join both and write"):
        last.select(
            "machine", "hour", (functions.col("turnover") - functions.col("before")).alias("turnover")
        ).orderBy("hour", "machine").write.parquet(place)
    with ctx.step(2, 2, "add up by hour"):
        table = ctx.spark.read.parquet(place)
        # As a number: a timestamp that is collected is of this machine's time zone, and does not say so.
        by_hour = table.groupBy(functions.unix_seconds("hour").alias("hour"))
        found = by_hour.agg(functions.sum("turnover").alias("turnover")).orderBy("hour").collect()
        hours = [
            HourOfAll(hour=datetime.fromtimestamp(row.hour, UTC), turnover=row.turnover) for row in found
        ]
        return Turnover(rows=table.count(), hours=hours)


def _last_of_hours(readings: DataFrame) -> DataFrame:
    from pyspark.sql import functions

    return readings.groupBy("machine", functions.date_trunc("hour", "at").alias("hour")).agg(
        functions.count("*").alias("readings"),
        functions.sum("turnover").alias("cents"),
        functions.min("turnover").alias("first"),
        functions.max("turnover").alias("turnover"),
        functions.max("wins").alias("wins"),
    )


def _of_batches(ctx: Job, folder: str) -> DataFrame:
    # A later batch of a machine and hour knows all that an earlier one knew.
    from pyspark.sql import functions

    found = ctx.spark.read.parquet(folder).groupBy("machine", "hour")
    latest: DataFrame = found.agg(
        functions.max("readings").alias("readings"),
        functions.max("cents").alias("cents"),
        functions.min("first").alias("first"),
        functions.max("turnover").alias("turnover"),
        functions.max("wins").alias("wins"),
    )
    return latest


def _latest(halves: DataFrame) -> DataFrame:
    from pyspark.sql import functions

    return halves.groupBy("machine", "hour").agg(
        functions.min("first").alias("first"), functions.max("turnover").alias("turnover")
    )


def _written(table: DataFrame, began: float) -> Written:
    from pyspark.sql import functions

    sums = table.agg(functions.sum("readings"), functions.sum("cents")).first()
    assert sums is not None
    readings, cents = (value or 0 for value in sums)
    return Written(readings=readings, cents=cents, seconds=time.perf_counter() - began)
