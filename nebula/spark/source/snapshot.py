"""Batch read: the present values of last-value destinations, as a table."""

from __future__ import annotations

from collections.abc import Iterator
from time import time

import anyio
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
from pyspark.sql.datasource import DataSourceReader, InputPartition

from nebula.avro import Schema
from nebula.errors import SettingsError
from nebula.record.message import encode_message
from nebula.rpc.wire.brokers import brand_of, no_last_values
from nebula.spark.source.options import ReadOptions
from nebula.spark.source.rows import Bodies, MessageRows
from nebula.spark.source.schemas import Writers
from nebula.stomp.client import AckMode, StompClient

_BATCH_ROWS = 10_000


class SnapshotReader(DataSourceReader):
    """Reads a snapshot, in one task, whenever Spark asks: cache the table to have the same rows again.

    Args:
        options: of the read.
        schema: of the columns, where the bodies are Avro.
    """

    def __init__(self, options: ReadOptions, schema: Schema | None) -> None:
        self._options = options
        self._definition = None if schema is None else schema.definition

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002  # there is one
        """The rows: one for each destination that has a value."""
        options = self._options
        # The schema is parsed in the worker: parsed forms are not sent.
        schema = None if self._definition is None else Schema(self._definition)
        bodies = Bodies(
            options.content,
            schema,
            Writers(options.content, options.broker),
            skips=options.skips_corrupt,
        )
        rows, values = MessageRows(), list(anyio.run(take_snapshot, options).values())
        for start in range(0, len(values), _BATCH_ROWS):
            some = values[start : start + _BATCH_ROWS]
            yield from bodies.rows(rows.batch(b"".join(some), len(some)))


async def take_snapshot(options: ReadOptions) -> dict[str, bytes]:
    """The messages that are there now, by destination, as data of `nebula.RecordedMessage`.

    What changes while the snapshot comes is in its newest state.

    Raises:
        SettingsError: the broker keeps no last values, or did not say where they end in `timeout` seconds.
        Refused: the broker does not let us.
        ConnectionLost: it could not be reached, or the connection ended.
    """
    # By destination: a change during the snapshot replaces the value that came before.
    found: dict[str, bytes] = {}
    async with StompClient(options.broker.url, client_id=options.broker.client_id) as client:
        if not brand_of(client.server).has_last_values:
            raise no_last_values(options.destination, client.server)
        subscribing = client.subscribe(
            # `auto`: a snapshot that is interrupted is taken anew, so nothing has to be acknowledged.
            options.destination,
            ack=AckMode.AUTO,
            eager=True,
            timeout=options.broker.timeout,
        )
        async with subscribing as subscription:
            messages = subscription.snapshot()
            while True:
                # Of silence, not of the whole: a snapshot may be as large as it likes.
                with anyio.move_on_after(options.broker.timeout) as waited:
                    message = await anext(messages, None)
                if waited.cancelled_caught:
                    raise SettingsError(
                        f"the broker did not say where the snapshot of {options.destination} ends, for"
                        f" {options.broker.timeout:g} s"
                    )
                if message is None:
                    return found
                if message.is_deletion:
                    found.pop(message.destination, None)
                else:
                    found[message.destination] = encode_message(
                        message.id, message.destination, int(time() * 1000), message.headers, message.body
                    )
