"""The verbs: one quick lookup, and two Spark jobs over all flights."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, Field

from nebula import Job, Responder, Spark, VerbError
from services.flights.data import MISSING, SCHEMA, carriers, flights_csv

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Month = Annotated[int, Field(ge=1, le=12)]

# Parts of two megabytes: the file is small, and a job of two tasks has no progress to show.
_PART_BYTES = str(2 * 1024 * 1024)

app = Responder("flights", spark=Spark(conf={"spark.sql.files.maxPartitionBytes": _PART_BYTES}))


class CarrierDelay(BaseModel):
    """How one carrier did. Delays are in minutes, negative when early, None if no flight was flown."""

    carrier: str
    name: str
    flights: int
    mean_departure_delay: float | None
    mean_arrival_delay: float | None


class BusyHour(BaseModel):
    """One hour of the week, over the whole year."""

    weekday: str
    hour: int
    flights: int
    mean_departure_delay: float | None


@app.verb
def airline(code: str) -> str:
    """The name of the carrier with this two-letter code, such as UA."""
    name = carriers().get(code.upper())
    if name is None:
        raise VerbError("not-found", f"no carrier has the code {code!r}; there are {', '.join(carriers())}")
    return name


@app.job
def delays(ctx: Job, month: Month | None = None) -> list[CarrierDelay]:
    """Flights and mean delays by carrier, the busiest carrier first; optionally of one month."""
    from pyspark.sql import functions

    ctx.step(1, 1, "aggregate")
    flights = _flights(ctx)
    if month is not None:
        flights = flights.where(functions.col("month") == month)
    by_carrier = flights.groupBy("carrier").agg(
        functions.count("*").alias("flights"),
        functions.avg("dep_delay").alias("mean_departure_delay"),
        functions.avg("arr_delay").alias("mean_arrival_delay"),
    )
    rows = by_carrier.orderBy(functions.desc("flights"), "carrier").collect()
    return [CarrierDelay(name=carriers()[row.carrier], **row.asDict()) for row in rows]


@app.job
def busiest_hours(
    ctx: Job,
    origin: Literal["EWR", "JFK", "LGA"] | None = None,
    top: Annotated[int, Field(ge=1, le=168)] = 10,
) -> list[BusyHour]:
    """The hours of the week with the most departures, optionally from one airport.

    The weekday is found by a Python function, row by row, in Spark's Python workers.
    """
    from pyspark.sql import functions

    weekday = functions.udf(_weekday, "string")
    ctx.step(1, 1, "count by weekday and hour")
    flights = _flights(ctx)
    if origin is not None:
        flights = flights.where(functions.col("origin") == origin)
    by_hour = flights.groupBy(weekday("year", "month", "day").alias("weekday"), "hour").agg(
        functions.count("*").alias("flights"), functions.avg("dep_delay").alias("mean_departure_delay")
    )
    rows = by_hour.orderBy(functions.desc("flights"), "weekday", "hour").limit(top).collect()
    return [BusyHour(**row.asDict()) for row in rows]


def _flights(ctx: Job) -> DataFrame:
    flights: DataFrame = ctx.spark.read.csv(str(flights_csv()), schema=SCHEMA, header=True, nullValue=MISSING)
    return flights


def _weekday(year: int, month: int, day: int) -> str:
    return f"{date(year, month, day):%A}"
