"""Reading Spark tables from any row on, in bounded memory. Needs pyarrow.

Nothing here may run on an event loop: it reads files. Parquet is read page by page, not column by column,
so that what is held is some rows and not a whole row group.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

from pydantic_core import to_json

from nebula.rpc.jobs.results.types import Schema, row_converter, to_wire

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
    from pyarrow import parquet

__all__ = ["Form", "Place", "TableError", "TableReader", "Taken", "files_of"]

Form: TypeAlias = Literal["json", "arrow"]

# Approximate size of a batch of rows.
_BATCH_BYTES: Final = 1024 * 1024
_MOST_ROWS: Final = 2048

# The number of rows that are measured at a time.
_STEP: Final = 512

_BUFFER_BYTES: Final = 64 * 1024

_PLACE: Final = re.compile(r"([0-9]{1,9})\.([0-9]{1,18})")


class TableError(Exception):
    """The table cannot be read, or not from this row; says why."""


class Place(NamedTuple):
    """A position in a table: before this row of this file, both counted from 0."""

    file: int = 0
    row: int = 0

    def __str__(self) -> str:
        return f"{self.file}.{self.row}"

    @classmethod
    def read(cls, text: str) -> Place:
        """Parse a position.

        Raises:
            TableError: that is none.
        """
        found = _PLACE.fullmatch(text)
        if found is None:
            raise TableError(f"{text[:40]!r} is no page: give the `next` of the page before it")
        return cls(int(found[1]), int(found[2]))


class Taken(NamedTuple):
    """Some rows.

    Attributes:
        data: a list of objects; or, as Arrow, a stream of its IPC format in base64.
        rows: their number.
    """

    data: Any
    rows: int


def files_of(place: Path) -> list[Path]:
    """The Parquet files of a result, always in the same order.

    Raises:
        FileNotFoundError: no such files exist (any more).
    """
    # Sorted, because a page names its file by number: the order has to be the same after a restart.
    files = [place] if place.is_file() else sorted(_visible(place))
    if not files:
        raise FileNotFoundError(f"there is nothing at {place}")
    return files


def _visible(folder: Path) -> Iterator[Path]:
    for file in folder.rglob("*.parquet"):
        if not file.name.startswith(("_", ".")) and file.is_file():
            yield file


# A page of rows begins at a `Place`, which names a file and a row, not a handle that is open somewhere:
# so a caller can go on after a restart of the service, and with another instance that sees the files. The
# price is that rows before the place in its file are skipped again, unless the reader is still open
# (`pages.ResultPages` keeps some).
class TableReader:
    """Reads the rows of a table in order, from a given position.

    Not for two threads at once. Close it.

    Args:
        files: the files of the table, in order.
        begin: the position of the first row.
        on_wait: called repeatedly while rows are skipped; an exception stops that.

    Attributes:
        place: the position of the next row.
        schema: the columns.

    Raises:
        TableError: there is no such place.
        OSError, pyarrow.ArrowException: the files cannot be read.
    """

    def __init__(
        self, files: Sequence[Path], begin: Place, on_wait: Callable[[], None] = lambda: None
    ) -> None:
        self._files, self.place = files, begin
        if begin.file >= len(files):
            raise TableError(f"there is no page {begin}")
        self._file = _open(files[begin.file])
        try:
            if begin.row > self._file.metadata.num_rows:
                raise TableError(f"there is no page {begin}")
            self._arrow_schema = _shown_schema(self._file)
            self.schema = _told_schema(self._arrow_schema)
            # Arrow converts whole columns to text many times as fast as Python.
            self._written = [
                number for number, one in enumerate(self.schema) if _is_written_by_arrow(one["type"])
            ]
            others = [one for number, one in enumerate(self.schema) if number not in self._written]
            self._encode = row_converter(others, to_wire)
            self._batches = self._batches_of(self._file)
            self._rest: pa.RecordBatch | None = None
            self._pass_over(begin.row, on_wait)
        except BaseException:
            self._file.close()
            raise

    def close(self) -> None:
        """Close the file that is open."""
        self._file.close()

    @property
    def is_over(self) -> bool:
        """Whether no row is left; reads further if necessary."""
        return self._peek() is None

    def take(self, form: Form, most_rows: int, most_bytes: int) -> Taken:
        """The next row, and as many more as fit.

        Raises:
            TableError: a value has no form in Python, such as a date after the year 9999.
            OSError, pyarrow.ArrowException: the files cannot be read.
        """
        try:
            return (
                self._take_json(most_rows, most_bytes)
                if form == "json"
                else self._take_arrow(most_rows, most_bytes)
            )
        except (ValueError, OverflowError) as error:
            raise TableError(f"a value of the rows from {self.place} on cannot be told: {error}") from error

    def _take_json(self, most_rows: int, most_bytes: int) -> Taken:
        rows: list[Any] = []
        size, step = 0, _STEP
        # The size of rows as JSON is known only when they are written. If they do not fit, half as many are
        # tried.
        while len(rows) < most_rows and (batch := self._peek()) is not None:
            some = batch.slice(0, min(step, most_rows - len(rows)))
            encoded = [self._encode(row) for row in self._with_texts(some).to_pylist()]
            size_of_some = len(to_json(encoded))
            # The first row is sent whatever its size: a caller that got an empty page would ask for it for
            # ever.
            if size + size_of_some > most_bytes and not (len(encoded) == 1 and not rows):
                if len(encoded) == 1:
                    break
                step = max(1, len(encoded) // 2)
                continue
            rows += encoded
            size += size_of_some
            self._drop(len(encoded))
        return Taken(rows, len(rows))

    def _with_texts(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        import pyarrow as pa

        columns = batch.columns
        for number in self._written:
            columns[number] = _as_text(columns[number])
        return pa.RecordBatch.from_arrays(columns, batch.schema.names)

    def _take_arrow(self, most_rows: int, most_bytes: int) -> Taken:
        import pyarrow as pa

        taken: list[pa.RecordBatch] = []
        count = size = 0
        while count < most_rows and (batch := self._peek()) is not None:
            some = batch.slice(0, most_rows - count)
            while some.num_rows > 1 and size + some.nbytes > most_bytes:
                some = some.slice(0, some.num_rows // 2)
            if taken and size + some.nbytes > most_bytes:
                break
            taken.append(some)
            count, size = count + some.num_rows, size + some.nbytes
            self._drop(some.num_rows)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self._arrow_schema) as stream:
            for some in taken:
                stream.write_batch(some)
        return Taken(base64.b64encode(sink.getvalue()).decode(), count)

    def _peek(self) -> pa.RecordBatch | None:
        """The next rows that are in memory; None if there are no more."""
        while self._rest is None:
            batch = next(self._batches, None)
            if batch is None:
                if self.place.file + 1 >= len(self._files):
                    return None
                self._next_file()
            elif batch.num_rows:
                self._rest = self._shown(batch)
        return self._rest

    def _drop(self, count: int) -> None:
        assert self._rest is not None
        left = self._rest.num_rows - count
        self._rest = self._rest.slice(count) if left else None
        self.place = self.place._replace(row=self.place.row + count)

    def _next_file(self) -> None:
        # Opened before the last one is closed: if this fails, the reader is still usable, and its owner
        # closes it.
        following = _open(self._files[self.place.file + 1])
        self._file.close()
        self._file = following
        self._batches, self.place = self._batches_of(following), Place(self.place.file + 1)

    def _pass_over(self, count: int, on_wait: Callable[[], None]) -> None:
        metadata, first = self._file.metadata, 0
        # Whole row groups are skipped by the footer alone; only the rest of the last one is decoded.
        while first < metadata.num_row_groups and metadata.row_group(first).num_rows <= count:
            count -= metadata.row_group(first).num_rows
            first += 1
        self._batches = self._batches_of(self._file, first)
        while count:
            # Raises for a cancelled request, which need not decode a million rows.
            on_wait()
            batch = next(self._batches)
            if batch.num_rows > count:
                self._rest = self._shown(batch.slice(count))
            count -= min(count, batch.num_rows)

    def _batches_of(self, file: parquet.ParquetFile, first: int = 0) -> Iterator[pa.RecordBatch]:
        metadata = file.metadata
        groups = range(first, metadata.num_row_groups)
        size = sum(metadata.row_group(group).total_byte_size for group in groups)
        rows = sum(metadata.row_group(group).num_rows for group in groups)
        # Assume that all rows are of the same size.
        at_once = max(1, min(_MOST_ROWS, _BATCH_BYTES * rows // size if size else _MOST_ROWS))
        batches: Iterator[pa.RecordBatch] = file.iter_batches(
            batch_size=at_once, row_groups=list(groups), use_threads=False
        )
        return batches

    def _shown(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        import pyarrow as pa

        if batch.schema.equals(self._arrow_schema):
            return batch
        # `safe=False`: nanoseconds are cut to microseconds, which Python and JSON have; by default that is an
        # error.
        cast = pa.Table.from_batches([batch]).cast(self._arrow_schema, safe=False)
        return cast.combine_chunks().to_batches()[0]


def _open(file: Path) -> parquet.ParquetFile:
    from pyarrow import parquet

    # Older Spark timestamps (INT96) count days and nanoseconds: read as nanoseconds they would end in 2262.
    return parquet.ParquetFile(
        file, coerce_int96_timestamp_unit="us", pre_buffer=False, buffer_size=_BUFFER_BYTES
    )


def _shown_schema(file: parquet.ParquetFile) -> pa.Schema:
    """The columns as they are returned: instants in UTC, all timestamps in microseconds."""
    import pyarrow as pa

    leaves = iter([file.schema.column(number).physical_type for number in range(len(file.schema))])
    return pa.schema([field.with_type(_shown_type(field.type, leaves)) for field in file.schema_arrow])


def _shown_type(kind: pa.DataType, leaves: Iterator[str]) -> pa.DataType:
    import pyarrow as pa

    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_shown_type(field.type, leaves)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_shown_type(kind.key_type, leaves), _shown_field(kind.item_field, leaves))
    if pa.types.is_list(kind):
        return pa.list_(_shown_field(kind.value_field, leaves))
    physical = next(leaves)
    if not pa.types.is_timestamp(kind):
        return kind
    # Spark writes instants like this, without a mark.
    is_instant = kind.tz is not None or physical == "INT96"
    return pa.timestamp("us", "UTC" if is_instant else None)


def _shown_field(field: pa.Field, leaves: Iterator[str]) -> pa.Field:
    return field.with_type(_shown_type(field.type, leaves))


# Widths of ISO 8601 texts, for the years that Python supports.
_WIDTHS: Final = {"date": 10, "timestamp": 26, "timestamp_ntz": 26}


def _is_written_by_arrow(kind: Any) -> bool:
    return kind in _WIDTHS if isinstance(kind, str) else "decimal" in kind


def _as_text(column: pa.Array) -> pa.Array:
    """A column of dates, timestamps or decimals as text.

    Raises:
        ValueError: Python has no such year.
    """
    import pyarrow as pa
    from pyarrow import compute

    kind = column.type
    if pa.types.is_decimal(kind):
        return column.cast(pa.string())
    if pa.types.is_date(kind):
        return _of_width(column.cast(pa.string()), _WIDTHS["date"])
    # As an instant is counted, so is its time in UTC.
    told = _of_width(column.cast(pa.timestamp("us")).cast(pa.string()), _WIDTHS["timestamp"])
    told = compute.replace_substring(told, " ", "T", max_replacements=1)
    return told if kind.tz is None else compute.binary_join_element_wise(told, "Z", "")


def _of_width(texts: pa.Array, width: int) -> pa.Array:
    from pyarrow import compute

    bounds = compute.min_max(compute.binary_length(texts)).as_py()
    if texts.null_count < len(texts) and set(bounds.values()) != {width}:
        raise ValueError("its year is not one of 1 to 9999")
    return texts


def _told_schema(schema: pa.Schema) -> Schema:
    return [{"name": field.name, "type": _told_type(field.type)} for field in schema]


def _told_type(kind: pa.DataType) -> Any:
    from pyarrow import types

    if types.is_decimal(kind):
        return {"decimal": [kind.precision, kind.scale]}
    if types.is_struct(kind):
        return {"struct": [{"name": field.name, "type": _told_type(field.type)} for field in kind]}
    if types.is_map(kind):
        return {"map": [_told_type(kind.key_type), _told_type(kind.item_type)]}
    if types.is_list(kind):
        return {"list": _told_type(kind.value_type)}
    if types.is_timestamp(kind):
        return "timestamp_ntz" if kind.tz is None else "timestamp"
    for word, is_such in (
        ("boolean", types.is_boolean),
        ("integer", types.is_integer),
        ("float", types.is_floating),
        ("string", types.is_string),
        ("bytes", lambda one: types.is_binary(one) or types.is_fixed_size_binary(one)),
        ("date", types.is_date),
        ("time", types.is_time),
        ("null", types.is_null),
    ):
        if is_such(kind):
            return word
    raise TableError(f"columns of the type {kind} cannot be told")
