"""A service for tests that kill its processes, one after the other."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from nebula.rpc.contract.job_context import Job
from nebula.rpc.service.responder import Responder
from nebula.spark import Spark
from tests.spark import jobs
from tests.spark.engine import CONF

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

app = Responder("killed", spark=Spark(master="local[2]", memory="512m", conf=CONF))

app.job(jobs.count)


@app.job
def numbers(ctx: Job, rows: int) -> DataFrame:
    """A table, kept as Parquet."""
    table: DataFrame = ctx.spark.range(rows)
    return table


@app.job
def hold(ctx: Job, folder: str) -> int:
    """Hold two Python workers for ever, once each has left a file in `folder` that is named by its pid."""
    from pyspark.sql import functions

    def wait(number: int) -> int:
        (Path(folder) / str(os.getpid())).touch()
        while True:
            time.sleep(number + 1)

    held = ctx.spark.range(0, 2, 1, 2).select(functions.udf(wait, "long")("id").alias("x"))
    return len(held.collect())
