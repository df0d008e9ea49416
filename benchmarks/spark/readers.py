"""One reader over one data set, again and again. `python -m benchmarks.spark.readers NAME FOLDER SECONDS`.

Prints the seconds of each pass, warm, and what all processes worked in it, as a line of JSON. NAME is one
of `ctx.read.avro`'s readers, or `parquet`, or `polars-alone`, which is polars without Spark.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil

_WARM_UP_PASSES = 3


@contextmanager
def _session() -> Iterator[Any]:
    from pyspark.sql import SparkSession

    from benchmarks.spark.work import CONF, MASTER, MEMORY

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    # Workers import the readers wherever this was started from.
    os.environ["PYTHONPATH"] = str(Path(__file__).parents[2])
    with TemporaryDirectory(prefix="nebula-") as folder:
        conf = {**CONF, "spark.sql.warehouse.dir": folder, "spark.sql.session.timeZone": "UTC"}
        builder = SparkSession.builder.master(MASTER).config("spark.driver.memory", MEMORY)
        for key, value in conf.items():
            builder = builder.config(key, value)
        spark = builder.getOrCreate()
        yield spark
        spark.stop()


def _in_spark(spark: Any, name: str, folder: Path) -> Callable[[], Any]:
    from pyspark.sql import functions

    from nebula.spark.reading import Reader

    reader = Reader(spark, lambda text: print(text, file=sys.stderr))

    def run() -> Any:
        if name == "parquet":
            table = reader.parquet(folder / "parquet")
        else:
            table = reader.avro(folder / "avro", reader=name)  # type: ignore[arg-type]  # from the command line
        return table.agg(
            functions.count("*"),
            functions.sum("value"),
            functions.max("at"),
            functions.count_distinct("machine"),
            # Not the greatest text: for that Spark sorts all rows, which would be most of the time.
            functions.sum(functions.length("sensor")),
            functions.sum("quality"),
            functions.count("note"),
        ).collect()

    return run


def _by_polars_alone(folder: Path) -> Callable[[], Any]:
    import polars as pl

    files = sorted((folder / "avro").glob("*.avro"))

    def run() -> Any:
        table = pl.concat([pl.read_avro(file) for file in files])
        return table.select(
            pl.len(),
            pl.sum("value"),
            pl.max("at"),
            pl.n_unique("machine").alias("machines"),
            pl.col("sensor").str.len_chars().sum(),
            pl.sum("quality"),
            pl.count("note"),
        ).rows()

    return run


def _timed(run: Callable[[], Any], seconds: float) -> list[tuple[float, float]]:
    for _ in range(_WARM_UP_PASSES):
        run()
    passes: list[tuple[float, float]] = []
    while not passes or sum(took for took, _ in passes) < seconds:
        began, before = time.perf_counter(), _worked()
        run()
        passes.append((time.perf_counter() - began, _worked() - before))
    return passes


def _worked() -> float:
    """CPU seconds of this process, the JVM and the workers, which stay from pass to pass."""
    this = psutil.Process()
    times = [each.cpu_times() for each in (this, *this.children(recursive=True))]
    return float(sum(each.user + each.system for each in times))


def main(name: str, folder: Path, seconds: float) -> None:
    """Measure, and say so."""
    if name == "polars-alone":
        print(json.dumps(_timed(_by_polars_alone(folder), seconds)), flush=True)
        return
    with _session() as spark:
        print(json.dumps(_timed(_in_spark(spark, name, folder), seconds)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), float(sys.argv[3]))
