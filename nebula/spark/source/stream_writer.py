"""Sink of a stream. A module of its own, because PySpark has its base class from 4.1 on only."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter

from nebula.avro import Schema
from nebula.spark.source.options import WriteOptions
from nebula.spark.source.writer import Sent, Writing, task_name

# What Spark tells the tasks of a stream: which query, over all its restarts, and which batch of it.
_QUERY = "sql.streaming.queryId"
_BATCH = "streaming.sql.batchId"


class StreamWriter(DataSourceStreamArrowWriter):
    """Of `df.writeStream`: each row at least once; on our broker, within its window for doubles, once."""

    def __init__(self, options: WriteOptions, schema: Schema | None) -> None:
        self._writing = Writing(options, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Sent:
        """Send the rows of one task of a batch."""
        context = TaskContext.get()
        assert context is not None
        query, batch = context.getLocalProperty(_QUERY), context.getLocalProperty(_BATCH)
        return self._writing.send(iterator, task_name(f"{query}/{batch}"))
