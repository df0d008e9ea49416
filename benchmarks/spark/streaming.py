"""Spark as a peer on the broker. `python -m benchmarks.spark.streaming sink|source|latency URL COUNT`.

Prints what a measurement needs as a line of JSON: seconds for a number of rows, or the latencies of a number
of messages. Everything is warm: each is done before, on a small scale, and that does not count.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

from benchmarks.spark.work import CONF, MASTER, MEMORY
from nebula import sync

_WARM_UP_ROWS = 2000
_BODY_BYTES = 200
_LOOK_SECONDS = 0.01
_PER_SECOND = 50
_DEADLINE_SECONDS = 300.0


@contextmanager
def _session() -> Iterator[Any]:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    # Workers import the source wherever this was started from.
    os.environ["PYTHONPATH"] = str(Path(__file__).parents[2])
    # Every batch is looked at.
    conf = {**CONF, "spark.sql.streaming.numRecentProgressUpdates": "1000000"}
    builder = SparkSession.builder.master(MASTER).config("spark.driver.memory", MEMORY)
    for key, value in conf.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    yield spark
    spark.stop()


def _queue() -> str:
    return f"/queue/bench-{uuid4().hex[:12]}"


def _write(spark: Any, url: str, queue: str, rows: int) -> float:
    """Send rows that are about 200 bytes of JSON; the seconds until all have their receipts."""
    filling = "x" * (_BODY_BYTES - 40)
    table = spark.range(rows).selectExpr("id", f"concat('{filling}', id) as text")
    begun = time.monotonic()
    table.write.format("nebula").options(broker=url, destination=queue).mode("append").save()
    return time.monotonic() - begun


@contextmanager
def _query(spark: Any, url: str, queue: str, folder: Path, take: Any = None) -> Iterator[Any]:
    options = {"broker": url, "destination": queue, "spool": str(folder / "spool"), "content": "text"}
    stream = spark.readStream.format("nebula").options(**options).load()
    writer = stream.writeStream.option("checkpointLocation", str(folder / "checkpoint"))
    query = (writer.format("noop") if take is None else writer.foreachBatch(take)).start()
    try:
        yield query
    finally:
        query.stop()


def _read(spark: Any, url: str, queue: str, rows: int) -> float:
    """Stream what is in a queue; the seconds from the start of the query to its last commit."""
    with TemporaryDirectory(prefix="nebula-stream-") as folder:
        begun = time.monotonic()
        with _query(spark, url, queue, Path(folder)) as query:
            while sum(each["numInputRows"] for each in query.recentProgress) < rows:
                _check(query, begun)
                time.sleep(_LOOK_SECONDS)
            return time.monotonic() - begun


def _latencies(spark: Any, url: str, count: int) -> list[float]:
    """From before a message is sent until its row is in the driver's hands, in seconds."""
    queue = _queue()
    found: list[float] = []

    def take(batch: Any, _number: int) -> None:
        sent = [float(row.body) for row in batch.select("body").collect()]
        now = time.monotonic()
        found.extend(now - each for each in sent)

    def send() -> None:
        with sync.Client(url) as client:
            for _ in range(count):
                client.publish(queue, str(time.monotonic()), content_type="text/plain")
                time.sleep(1 / _PER_SECOND)

    with TemporaryDirectory(prefix="nebula-stream-") as folder:
        begun = time.monotonic()
        with _query(spark, url, queue, Path(folder), take) as query:
            threading.Thread(target=send, daemon=True).start()
            while len(found) < count:
                _check(query, begun)
                time.sleep(_LOOK_SECONDS)
    return found


def _check(query: Any, begun: float) -> None:
    if query.exception() is not None:
        raise query.exception()
    if time.monotonic() - begun > _DEADLINE_SECONDS:
        raise TimeoutError(f"no end after {_DEADLINE_SECONDS:g} s")


def main(kind: str, url: str, count: int) -> None:
    """Warm up, measure, print."""
    with _session() as spark:
        queue = _queue()
        _write(spark, url, queue, _WARM_UP_ROWS)
        if kind == "latency":
            _latencies(spark, url, 50)
            print(json.dumps(_latencies(spark, url, count)))
        elif kind == "sink":
            print(json.dumps(_write(spark, url, queue, count)))
        else:
            _read(spark, url, queue, _WARM_UP_ROWS)
            queue = _queue()
            _write(spark, url, queue, count)
            print(json.dumps(_read(spark, url, queue, count)))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
