"""A service that does not say where its Spark is: `NEBULA_SPARK` does, and nothing else changes.

$ NEBULA_SPARK=spark://host:7077 nebula run services.cluster.app:app
"""

from __future__ import annotations

import time
from datetime import UTC, datetime

from pydantic import BaseModel

from nebula import Job, Responder, Spark
from services.cluster.readings import SCHEMA
from services.flights.app import BusyHour, CarrierDelay, busiest_hours, delays


class HourlyTurnover(BaseModel):
    """What all machines of the venue took in one hour, in cents."""

    hour: datetime
    readings: int
    turnover: int


app = Responder("cluster", spark=Spark())


@app.job
def carrier_delays(ctx: Job) -> list[CarrierDelay]:
    """As `delays` of the flights."""
    return delays(ctx)


@app.job
def busy_hours(ctx: Job) -> list[BusyHour]:
    """As `busiest_hours` of the flights, with its Python function for each row."""
    return busiest_hours(ctx)


@app.job
def hourly_turnover(ctx: Job, path: str) -> list[HourlyTurnover]:
    """Turnover and readings by hour, of the readings in this folder."""
    from pyspark.sql import functions

    rows = (
        ctx.spark.read.csv(f"file://{path}", schema=SCHEMA, header=True)
        .groupBy(functions.unix_timestamp(functions.date_trunc("hour", "at")).alias("hour"))
        .agg(functions.count("*").alias("readings"), functions.sum("turnover").alias("turnover"))
        .orderBy("hour")
        .collect()
    )
    # Python's side of Spark gives timestamps in the zone of its machine, without saying so.
    return [
        HourlyTurnover(
            hour=datetime.fromtimestamp(row.hour, UTC), readings=row.readings, turnover=row.turnover
        )
        for row in rows
    ]


@app.job
def slow_sum(ctx: Job, tasks: int = 16, seconds: float = 0.5) -> int:
    """Add up the numbers of `tasks` tasks, each of which sleeps `seconds` in Python."""
    from pyspark.sql import functions

    def work(number: int) -> int:
        time.sleep(seconds)
        return number

    rows = ctx.spark.range(0, tasks, 1, tasks).select(functions.udf(work, "long")("id").alias("number"))
    total: int = rows.agg(functions.sum("number")).collect()[0][0]
    return total
