"""Decoders from the bytes of data to columns: polars where it can, else fastavro.

Both get the raw schema (`columns.raw_schema`) and the bare data of some blocks, one after another. They
know nothing of compression, or of the columns' use.
"""

from __future__ import annotations

import gc
import io
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from typing import Any, Final, Protocol

import fastavro
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types

from nebula.avro.varints import write_long
from nebula.errors import AvroError
from nebula.spark.reading.avro_types import Record
from nebula.spark.reading.columns import raw_schema, raw_type, why_not_polars

_SYNC: Final = b"nebula made this"

# Rows of Python objects at a time: more of them leave the processor's cache, fewer cost calls.
_FASTAVRO_ROWS: Final = 16_384


_MORE_OR_LESS: Final = "a block holds more or less than the data that it says it has: it is damaged"


class Decoder(Protocol):
    """Decodes data of one writer's schema."""

    def decode(self, data: bytes, count: int) -> Mapping[str, pa.Array]:
        """The columns of `count` data that take up all of `data`.

        Raises:
            AvroError: they do not.
        """
        ...


# By name, as a plan travels as text.
def decoder(name: str, writer: Record, needed: tuple[str, ...]) -> Decoder:
    """The decoder of that name; fastavro's where polars cannot decode the schema.

    Args:
        name: `polars` or `fastavro`.
        writer: the schema.
        needed: the columns to decode.
    """
    if name == "polars" and why_not_polars(writer) is None:
        return PolarsDecoder(writer, needed)
    return FastavroDecoder(writer, needed)


# The trade (docs/decisions/0030): polars decodes large groups some ten times as fast as fastavro, and checks
# less. It reads whole files only, knows few logical types, and does not notice where the data end. So the
# schema is reduced to raw physical types first (`columns.raw_schema`), the columns get their types
# afterwards, and a known datum behind the others proves that they ended where they should. A schema that
# polars cannot decode goes to fastavro.
class PolarsDecoder:
    """Decodes with polars, which reads whole files only: the data become one, in memory."""

    def __init__(self, writer: Record, needed: tuple[str, ...]) -> None:
        schema = raw_schema(writer)
        text = json.dumps(schema).encode()
        parts = (b"avro.schema", text, b"avro.codec", b"null")
        entries = b"".join(write_long(len(part)) + part for part in parts)
        # The header of a container file, which is the same for each group of data.
        self._head = b"Obj\x01" + write_long(2) + entries + b"\0" + _SYNC
        self._needed = list(needed)
        # polars reads as many rows as it is told to, and does not see where they end. So one more is put
        # behind them: if it comes out as it went in, they ended where they should.
        out = io.BytesIO()
        fastavro.schemaless_writer(out, fastavro.parse_schema(schema), _sample(schema))
        self._last = out.getvalue()
        # Decoded by polars too, so that `decode` compares two results of one decoder.
        self._expected = self._read(b"", 1)

    def decode(self, data: bytes, count: int) -> Mapping[str, pa.Array]:
        """See `Decoder`."""
        table = self._read(data, count + 1)
        if not table.slice(count, 1).equals(self._expected):
            raise AvroError(_MORE_OR_LESS)
        # One piece for each column: Arrow's kernels are called once, and not for each chunk.
        rows = table.slice(0, count).combine_chunks()
        return {name: _one(rows.column(name)) for name in self._needed}

    def _read(self, data: bytes, count: int) -> pa.Table:
        """This number of rows, the last of which is ours."""
        import polars as pl

        size_bytes = len(data) + len(self._last)
        # A block as the specification has it: the count, the size, the data, the marker.
        block = (write_long(count), write_long(size_bytes), data, self._last, _SYNC)
        file = b"".join((self._head, *block))
        try:
            frame = pl.read_avro(io.BytesIO(file), columns=self._needed)
        # Its panics are no `Exception`s.
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit):
                raise
            raise _undecodable(error) from error
        return frame.to_arrow(compat_level=pl.CompatLevel.oldest())


class FastavroDecoder:
    """Decodes with fastavro, into Python's objects and on into Arrow's."""

    def __init__(self, writer: Record, needed: tuple[str, ...]) -> None:
        schema = raw_schema(writer)
        held = raw_schema(writer, only_held=True)
        wanted = {**held, "fields": [field for field in held["fields"] if field["name"] in needed]}
        self._writer = fastavro.parse_schema(schema)
        # What is not wanted is skipped, which is quicker than to make objects of it.
        self._reader = None if wanted == schema else fastavro.parse_schema(wanted)
        fields = [pa.field(f.name, raw_type(f.type)) for f in writer.fields if f.name in needed]
        self._type = pa.struct(fields)

    def decode(self, data: bytes, count: int) -> Mapping[str, pa.Array]:
        """See `Decoder`."""
        stream = io.BytesIO(data)
        chunks = []
        # In runs, since Python's objects of all rows at once would take too much memory.
        for start in range(0, count, _FASTAVRO_ROWS):
            rows = min(_FASTAVRO_ROWS, count - start)
            with _no_collection():
                chunks.append(self._rows(stream, rows))
        # fastavro reads as many rows as it is told to, so the end has to be where the block ends.
        if stream.tell() != len(data):
            raise AvroError(_MORE_OR_LESS)
        records = pa.concat_arrays(chunks) if chunks else pa.array([], self._type)
        return dict(zip([field.name for field in self._type], records.flatten(), strict=True))

    def _rows(self, stream: io.BytesIO, count: int) -> pa.Array:
        read, writer, reader = fastavro.schemaless_reader, self._writer, self._reader
        try:
            return pa.array([read(stream, writer, reader) for _ in range(count)], self._type)
        # It raises what it comes upon: an index, a key, a struct that is too short.
        except Exception as error:
            raise _undecodable(error) from error


@contextmanager
def _no_collection() -> Iterator[None]:
    # A collector that looks through all new rows again and again finds nothing: rows hold no rings.
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _sample(schema: Any) -> Any:
    """A value of a raw schema that no bytes left over would be taken for."""
    if isinstance(schema, list):
        # The last branch, or the first where the last is null: a value with bytes of its own.
        return _sample(schema[-1] if schema[-1] != "null" else schema[0])
    kind = schema["type"] if isinstance(schema, dict) else schema
    match kind:
        case "record":
            return {field["name"]: _sample(field["type"]) for field in schema["fields"]}
        case "array":
            return [_sample(schema["items"])]
        case "fixed" | "bytes" if "logicalType" in schema:
            return Decimal(1)
        case "fixed":
            return b"\xa5" * int(schema["size"])
    return _SAMPLES[kind]


_SAMPLES: Final = {
    "null": None,
    "boolean": True,
    "int": 0x5EEDF00D,
    "long": 0x5EED_F00D_0DDB_A115,
    "float": 1.5,
    "double": 1.2345678901234567e-200,
    "bytes": b"\xa5nebula's last\x5a",
    "string": "nebula's last",
}


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _undecodable(error: BaseException) -> AvroError:
    said = (str(error) or type(error).__name__).partition("\n")[0][:120]
    return AvroError(f"a block cannot be decoded by the file's schema: it is damaged ({said})")
