"""Sink: rows of a DataFrame or of a stream become messages, each with its receipt."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from nebula.avro import Schema
from nebula.errors import AvroError
from nebula.headers import DEDUP_ID, PERSISTENT
from nebula.spark.source.encoding import Encode, RowInvalid, content_type, encoder, rows_of
from nebula.spark.source.options import WriteOptions
from nebula.spark.source.sending import Outgoing, Sender

_DIGEST_BYTES: Final = 12

# Rows that are told apart from those like them: 50 MiB or so, and five times what a Nebula broker remembers.
_ROWS_OF_A_RUN: Final = 500_000


@dataclass
class Sent(WriterCommitMessage):
    """What a task has sent."""

    rows: int


class DedupIds:
    """Names each row of a task so that a second try of the task gives the same names to the same rows.

    By what a row holds and how many like it came before, not by its number: after a shuffle the rows of a
    second try may come in another order, and a number would then make the broker drop a row that it never
    had.

    Memory is bounded: rows are counted in bounded runs, and of a task that has more a row that comes in
    another run in its second try has another name there. No two rows of a task ever have the same.

    Args:
        start: names the task in all tries.
        run: rows of a run.
    """

    def __init__(self, start: str, run: int = _ROWS_OF_A_RUN) -> None:
        self._start, self._run = start, run
        self._runs = self._rows = 0
        self._met: Counter[bytes] = Counter()

    def of(self, body: bytes) -> str:
        """The id of the next row."""
        if self._rows == self._run:
            self._runs, self._rows = self._runs + 1, 0
            self._met.clear()
        self._rows += 1
        digest = blake2b(body, digest_size=_DIGEST_BYTES).digest()
        count = self._met[digest]
        self._met[digest] = count + 1
        # It begins with the task's name, so that no two tasks make the same id.
        return f"{self._start}/{self._runs}/{digest.hex()}/{count}"


class Writing:
    """What both writers do in a task. May be sent to another process.

    Args:
        options: where to and how.
        schema: of the bodies, where they are Avro.
    """

    def __init__(self, options: WriteOptions, schema: Schema | None) -> None:
        self._options = options
        self._definition = None if schema is None else schema.definition

    def send(self, batches: Iterator[pa.RecordBatch], task: str) -> Sent:
        """Send all rows of a task, and wait until the broker has them.

        Args:
            batches: the rows.
            task: names it, in all its tries.

        Raises:
            RowRejected, RowInvalid: one row was refused. Rows before and behind it may have arrived.
            ConnectionLost: the broker was away for too long.
        """
        destination, kind = self._options.destination, self._options.content.kind
        # Parsed in the worker; see `snapshot`.
        schema = None if self._definition is None else Schema(self._definition)
        encode, ids = encoder(kind, schema, destination), DedupIds(task)
        headers = {"content-type": content_type(kind), PERSISTENT: "true"}
        with Sender(self._options.broker, self._options.window) as sender:
            first = 0
            # Numbered over all batches, for errors that name a row.
            for batch in batches:
                bodies = _encoded(encode, rows_of(batch), first)
                sender.send(
                    Outgoing(destination, body, {**headers, DEDUP_ID: ids.of(body)}) for body in bodies
                )
                first += batch.num_rows
            return Sent(sender.finish())


def task_name(job: str) -> str:
    """The same for all tries of one task of a job, and for no other."""
    context = TaskContext.get()
    assert context is not None
    return f"{job}/{context.partitionId()}"


def _encoded(encode: Encode, rows: Iterable[Mapping[str, Any]], first: int) -> Iterator[bytes]:
    for number, row in enumerate(rows, first):
        try:
            yield encode(row)
        except (AvroError, ValueError) as error:
            raise RowInvalid(number, str(error)) from error


class BatchWriter(DataSourceArrowWriter):
    """Of `df.write`. Spark may try a task again: on our broker its messages arrive once all the same."""

    def __init__(self, options: WriteOptions, schema: Schema | None) -> None:
        self._writing = Writing(options, schema)
        # Made once for the job, and sent to all its tasks.
        self._job = uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Sent:
        """Send the rows of one task."""
        return self._writing.send(iterator, task_name(self._job))
