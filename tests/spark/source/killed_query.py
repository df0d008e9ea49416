"""A query to be killed: `python -m tests.spark.source.killed_query URL FOLDER`.

It keeps what comes as Parquet; with `--forward` it sends it on. With `--to-the-end` it ends when the queue
is empty; else it goes on, or fails as its query does.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

QUEUE, FORWARDED = "/queue/readings", "/queue/forwarded"


def main(url: str, folder: Path, *, forwards: bool, to_the_end: bool) -> None:
    """Run the query."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.memory", "512m")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .getOrCreate()
    )
    source = spark.readStream.format("nebula").options(
        broker=url,
        destination=QUEUE,
        spool=str(folder / "spool"),
        content="text",
        maxRowsPerBatch="50",
        prefetch="5",
        quietSeconds="3",  # a broker that is busy with the dead one's messages is not at its end
    )
    sink = source.load().select("body").writeStream.option("checkpointLocation", str(folder / "checkpoint"))
    if forwards:
        # One at a time: there is time for a kill amid a batch.
        sink = sink.format("nebula").options(broker=url, destination=FORWARDED, window="1")
    else:
        sink = sink.format("parquet").option("path", str(folder / "out"))
    if to_the_end:
        sink = sink.trigger(availableNow=True)
    sink.start().awaitTermination()


if __name__ == "__main__":
    main(
        sys.argv[1],
        Path(sys.argv[2]),
        forwards="--forward" in sys.argv,
        to_the_end="--to-the-end" in sys.argv,
    )
