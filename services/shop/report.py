"""The nightly report: a Spark job over the recorded orders."""

from __future__ import annotations

import os
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from pydantic import BaseModel

from nebula import Job, Responder, Spark

_ORDER = "item string, count int, cents long"

app = Responder("report", spark=Spark(master="local[2]", memory="512m"))


class Sold(BaseModel):
    """Sales of one item."""

    item: str
    orders: int
    pieces: int
    cents: int


@app.job(on_lost="rerun")
def takings(ctx: Job, day: date | None = None) -> list[Sold]:
    """Takings of a day (UTC), by default yesterday, by item, the highest first."""
    from pyspark.sql import functions

    day = day or datetime.now(UTC).date() - timedelta(days=1)
    recorded = Path(os.environ.get("SHOP_RECORDED", "recorded"), "message.queue.shop.orders")
    with ctx.step(1, 2, "read"):
        if not recorded.exists():
            ctx.log(f"no orders were ever recorded in {recorded}")
            return []
        messages = ctx.read.avro(recorded, columns=["body"], where=f"date = '{day}'")
        order = functions.from_json(functions.col("body").cast("string"), _ORDER)
        orders = messages.select(order.alias("order"))
    with ctx.step(2, 2, "add up"):
        by_item = orders.groupBy("order.item").agg(
            functions.count("*").alias("orders"),
            functions.sum("order.count").alias("pieces"),
            functions.sum("order.cents").alias("cents"),
        )
        return [Sold(**row.asDict()) for row in by_item.orderBy(functions.desc("cents"), "item").collect()]
