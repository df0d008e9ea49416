"""Row batches from the parts of files: the work of one task."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types

from nebula.avro import Schema
from nebula.avro.envelope import SCHEMA as ENVELOPE
from nebula.errors import AvroError
from nebula.spark.reading.avro_types import Record, parse_record
from nebula.spark.reading.blocks import read_blocks, read_header
from nebula.spark.reading.decoding import Decoder, decoder
from nebula.spark.reading.envelopes import Unpacked, unpack
from nebula.spark.reading.errors import CorruptFileError, DataError
from nebula.spark.reading.files import typed
from nebula.spark.reading.plan import Plan
from nebula.spark.reading.resolution import Resolution
from nebula.spark.reading.splits import Part

_ENVELOPE = parse_record(Schema(ENVELOPE).parsed)
_FOLDER_ARROW = {"int": pa.int32(), "bigint": pa.int64(), "date": pa.date32(), "string": pa.string()}


class RowReader:
    """Reads parts of files as the rows of a plan."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._columns = plan.data_columns
        # By the schema's text: files of one folder mostly share it.
        self._kinds: dict[str, _Kind] = {}
        self._contents: dict[int, _Kind] = {}

    def read(self, part: Part) -> Iterator[pa.RecordBatch]:
        """The rows of a part.

        Raises:
            DataError: it cannot be read; names the file.
        """
        path = part.file.path
        # Before the blocks: its schema decides how they are decoded.
        text = read_header(path).schema
        try:
            kind = self._kind_of(text)
            for data, count in read_blocks(part):
                yield from (self._with_folders(rows, part) for rows in self._rows(kind, data, count))
        # Raised as it is: it names the file and the place in it.
        except CorruptFileError:
            raise
        except DataError as error:
            raise DataError(f"{path}: {error.message}") from error
        except AvroError as error:
            raise CorruptFileError(path, str(error)) from error

    def _kind_of(self, text: str) -> _Kind:
        if text not in self._kinds:
            writer = _record(text)
            # An envelope is read as it is, and what it holds as the plan says.
            reader, columns = (writer, None) if self._unpacks(writer) else (self._plan.record, self._columns)
            self._kinds[text] = _Kind(writer, reader, columns, self._plan.decoder)
        return self._kinds[text]

    def _unpacks(self, writer: Record) -> bool:
        return self._plan.contents is not None and is_envelope(writer)

    def _rows(self, kind: _Kind, data: bytes, count: int) -> Iterator[pa.RecordBatch]:
        if not self._unpacks(kind.writer):
            yield kind.rows(data, count)
            return
        # Envelopes first, as columns of keys and values; then what they hold, by schema.
        for unpacked in unpack(kind.decode(data, count)["content"]):
            yield self._content(unpacked).rows(unpacked.data, unpacked.count)

    def _content(self, unpacked: Unpacked) -> _Kind:
        known = self._plan.contents or {}
        key = unpacked.fingerprint
        if key not in self._contents:
            if key not in known:
                raise DataError(
                    f"an envelope holds a value of the schema {key:016x}, which is not among those given: "
                    "put it into the folder of schemas="
                )
            self._contents[key] = _Kind(
                _record(known[key]), self._plan.record, self._columns, self._plan.decoder
            )
        return self._contents[key]

    def _with_folders(self, rows: pa.RecordBatch, part: Part) -> pa.RecordBatch:
        types = self._plan.folder_types
        if not any(name in types for name in self._plan.columns):
            # Without a copy: `select` only chooses columns.
            return rows.select(self._columns)
        values = typed(part.file, types)
        # Each of these columns has one value in all rows of a file.
        count = rows.num_rows
        arrays = [
            pa.repeat(pa.scalar(values[name], _FOLDER_ARROW[types[name]]), count)
            if name in types
            else rows.column(name)
            for name in self._plan.columns
        ]
        return pa.RecordBatch.from_arrays(arrays, names=list(self._plan.columns))


class _Kind:
    """What is known of data of one schema."""

    def __init__(self, writer: Record, reader: Record, columns: Sequence[str] | None, name: str) -> None:
        self.writer = writer
        self._resolution = Resolution(writer, reader, columns)
        # Where no column of the data is wanted their number is, and that stands before the block.
        self._decoder: Decoder | None = None
        if self._resolution.needed:
            self._decoder = decoder(name, writer, self._resolution.needed)

    def decode(self, data: bytes, count: int) -> dict[str, pa.Array]:
        return {} if self._decoder is None else dict(self._decoder.decode(data, count))

    def rows(self, data: bytes, count: int) -> pa.RecordBatch:
        return self._resolution.batch(self.decode(data, count), count)


def is_envelope(record: Record) -> bool:
    """Whether rows of this type hold other rows."""
    return record == _ENVELOPE


@cache
def _record(text: str) -> Record:
    return parse_record(Schema.from_text(text).parsed)
