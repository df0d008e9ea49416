"""Rows from messages: with the generic columns, or those of an Avro schema."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Final, TypeAlias

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
from pyspark.sql import types as spark

from nebula.avro import Schema, decode_envelope
from nebula.errors import AvroError
from nebula.logs import get_logger
from nebula.record.container import ContainerError, ContainerReader
from nebula.record.message import MESSAGE
from nebula.record.spool import Slice
from nebula.spark.reading.avro_types import Record, parse_record
from nebula.spark.reading.columns import spark_type
from nebula.spark.reading.decoding import Decoder, decoder
from nebula.spark.reading.resolution import Resolution
from nebula.spark.source.options import ENVELOPE, TEXT, ContentOptions

_log = get_logger(__name__)

WriterOf: TypeAlias = Callable[[int], Schema]
"""Finds the schema of a fingerprint. Raises AvroError if it is unknown."""

# At most, in a batch; a single block may have more.
_ROWS: Final = 16_384

_MESSAGE_RECORD: Final = parse_record(MESSAGE.parsed)


class Unreadable(AvroError):
    """A body is not what the options say it is. Names its message, and how to go on."""

    def __init__(self, message_id: str, destination: str, problem: str) -> None:
        super().__init__(
            f"message {message_id} of {destination} cannot be read: {problem};"
            ' .option("corrupt", "skip") leaves such messages out'
        )


def columns_of(content: ContentOptions, reader: Schema | None) -> spark.StructType:
    """The table's columns.

    Args:
        content: what the bodies are.
        reader: the Avro schema of the columns, where they are Avro.

    Raises:
        UnsupportedTypeError: Spark has no such type.
    """
    record = _MESSAGE_RECORD if reader is None else parse_record(reader.parsed)
    made = spark_type(record)
    assert isinstance(made, spark.StructType)
    if content.kind == TEXT:
        # The only column that differs: a body as text in place of bytes.
        made["body"].dataType = spark.StringType()
    return made


class MessageRows:
    """Decodes data of `nebula.RecordedMessage` into batches of the generic columns."""

    def __init__(self) -> None:
        self._resolution = Resolution(_MESSAGE_RECORD, _MESSAGE_RECORD)
        self._decoder = _decoder(_MESSAGE_RECORD, self._resolution.needed)

    def batch(self, data: bytes, count: int) -> pa.RecordBatch:
        """The rows of this number of data, one after another in `data`. Raises AvroError: they are none."""
        return self._resolution.batch(self._decoder.decode(data, count), count)

    def of_slice(self, part: Slice) -> Iterator[pa.RecordBatch]:
        """The rows of a slice of a spool, in order, in any process that sees the file.

        Raises:
            ContainerError: the file is not what was written. Names it.
            OSError: it cannot be read.
        """
        skip, left = part.skip, part.count
        data: list[bytes] = []
        count = 0
        with ContainerReader(Path(part.path)) as reader:
            for block in reader.blocks():
                # Whole blocks before the slice are skipped by their counts alone.
                if not count and skip >= block.count:
                    skip -= block.count
                    continue
                # A block is one group of messages that came together, often of a few only.
                data.append(reader.read(block))
                count += block.count
                if count - skip >= left or count >= _ROWS:
                    rows = min(left, count - skip)
                    # The rows of the first block that come before the slice are cut off after decoding, as
                    # a block is decoded whole.
                    yield self.batch(b"".join(data), count).slice(skip, rows)
                    data, count, skip, left = [], 0, 0, left - rows
                if not left:
                    return
        raise ContainerError(Path(part.path), 0, f"it lacks the last {left} of {part.skip + part.count} data")


class Bodies:
    """Makes the table's rows of batches of messages.

    Args:
        content: what the bodies are.
        reader: the Avro schema of the columns, where they are Avro.
        writer_of: finds what an envelope's datum was written with.
        skips: leaves out what cannot be read, and logs how many; else it is an error.
    """

    def __init__(
        self, content: ContentOptions, reader: Schema | None, writer_of: WriterOf, *, skips: bool
    ) -> None:
        self._content, self._reader, self._writer_of, self._skips = content, reader, writer_of, skips
        self._record = None if reader is None else parse_record(reader.parsed)
        self._writers: dict[int, tuple[Schema, Decoder, Resolution]] = {}

    def rows(self, messages: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The rows of a batch of generic messages, in their order.

        Raises:
            Unreadable: a body is not what it should be.
        """
        if self._reader is not None:
            yield from self._avro(messages)
        elif self._content.kind == TEXT:
            yield self._text(messages)
        else:
            yield messages

    def _text(self, messages: pa.RecordBatch) -> pa.RecordBatch:
        place = messages.schema.get_field_index("body")
        field = pa.field("body", pa.string())
        try:
            return messages.set_column(place, field, messages.column(place).cast(pa.string()))
        except pa.ArrowInvalid:
            # Row by row only if a body of the batch is not UTF-8, to find which one.
            readable = [row for row in range(len(messages)) if self._is_readable(messages, row, _why_no_text)]
            return self._text(messages.take(pa.array(readable, pa.int64())))

    def _avro(self, messages: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        # Runs of one writer's schema, so that the order stays; there is rarely more than one.
        for fingerprint, group in groupby(self._data(messages), key=itemgetter(0)):
            data = [datum for _, datum in group]
            _, decode, resolution = self._writers[fingerprint]
            yield resolution.batch(decode.decode(b"".join(data), len(data)), len(data))

    def _data(self, messages: pa.RecordBatch) -> list[tuple[int, bytes]]:
        """The data that can be read, each with its schema's fingerprint."""
        found: list[tuple[int, bytes]] = []

        def look(body: bytes) -> str | None:
            try:
                fingerprint, datum = self._unpack(body)
                if datum is None:
                    return None
                # One by one: the end of each one of joined data would be unknown.
                if not self._writer(fingerprint)[0].is_datum(datum):
                    return f"its body does not fit the schema {fingerprint:016x}"
            except AvroError as error:
                return str(error)
            found.append((fingerprint, datum))
            return None

        for row, body in enumerate(messages.column("body").to_pylist()):
            self._check(messages, row, look(body))
        return found

    def _unpack(self, body: bytes) -> tuple[int, bytes | None]:
        """A body's fingerprint and datum; no datum for a deletion."""
        assert self._reader is not None
        if self._content.kind != ENVELOPE:
            return self._reader.fingerprint, body
        if not body:
            # An empty body stands for a deletion, for which a table has no row.
            return 0, None
        envelope = decode_envelope(body)
        if envelope.is_tombstone:
            return 0, None
        fingerprint, datum = envelope.fingerprint, envelope.body
        if fingerprint is None or datum is None:
            raise AvroError("the envelope has no fingerprint or no body")
        return fingerprint, datum

    def _writer(self, fingerprint: int) -> tuple[Schema, Decoder, Resolution]:
        known = self._writers.get(fingerprint)
        if known is None:
            assert self._reader is not None
            assert self._record is not None
            # The reader's own schema is at hand: the usual case asks no broker.
            is_readers = fingerprint == self._reader.fingerprint
            schema = self._reader if is_readers else self._writer_of(fingerprint)
            record = parse_record(schema.parsed)
            resolution = Resolution(record, self._record)
            known = self._writers[fingerprint] = schema, _decoder(record, resolution.needed), resolution
        return known

    def _is_readable(
        self, messages: pa.RecordBatch, row: int, why_not: Callable[[bytes], str | None]
    ) -> bool:
        return self._check(messages, row, why_not(messages.column("body")[row].as_py()))

    def _check(self, messages: pa.RecordBatch, row: int, problem: str | None) -> bool:
        if problem is None:
            return True
        message_id, destination = (messages.column(name)[row].as_py() for name in ("id", "destination"))
        if not self._skips:
            raise Unreadable(message_id, destination, problem)
        _log.warning("unreadable message skipped", message=message_id, destination=destination, why=problem)
        return False


def _why_no_text(body: bytes) -> str | None:
    try:
        body.decode()
    except UnicodeDecodeError:
        return "its body is not UTF-8"
    return None


def _decoder(record: Record, needed: tuple[str, ...]) -> Decoder:
    has_polars = importlib.util.find_spec("polars") is not None
    return decoder("polars" if has_polars else "fastavro", record, needed)
