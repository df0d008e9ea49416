"""Result formats: lines of JSON, CSV and Parquet.

A writer gets the pages in their order, `add` by `add`, and gives what can be written by then; `end` gives the
rest. It holds a page, and of Parquet some megabytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol, assert_never

from nebula.rpc.jobs.results.fetching import batches_of, require
from nebula.rpc.jobs.results.tables import Form
from nebula.rpc.jobs.results.types import ResultFormat
from nebula.rpc.wire.replies import reading

if TYPE_CHECKING:
    from pyarrow import parquet  # type: ignore[import-untyped]  # it ships no types

__all__ = ["CONTENT_TYPES", "NotRows", "RowWriter", "form_of", "writer_of"]


CONTENT_TYPES: Final[Mapping[ResultFormat, str]] = {
    ResultFormat.NDJSON: "application/x-ndjson",
    ResultFormat.CSV: "text/csv; charset=utf-8; header=present",
    ResultFormat.PARQUET: "application/vnd.apache.parquet",
}

# Approximate size of a row group in a Parquet file, before compression.
_GROUP_BYTES: Final = 8 * 1024 * 1024

_QUOTED: Final = frozenset(',"\r\n')


class NotRows(Exception):
    """The result cannot be written in this format; says why."""


class RowWriter(Protocol):
    """Writes the pages of one result."""

    def add(self, page: Mapping[str, Any]) -> bytes:
        """Add a page; return the bytes that are ready, which may be none.

        Raises:
            NotRows: a table as rows never, a list perhaps only by a later page.
            UnexpectedReply: it is no page.
        """
        ...

    def end(self) -> bytes:
        """Return the bytes that are left."""
        ...


def form_of(to: ResultFormat) -> Form:
    """The form in which to request the pages."""
    return "arrow" if to is ResultFormat.PARQUET else "json"


def writer_of(to: ResultFormat) -> RowWriter:
    """The writer for a format.

    Raises:
        SettingsError: it needs a package that is not installed.
    """
    match to:
        case ResultFormat.NDJSON:
            return _Lines()
        case ResultFormat.CSV:
            return _Csv()
        case ResultFormat.PARQUET:
            return _Parquet()
        case _:
            assert_never(to)


class _Lines:
    """One line of JSON per row, as in the reply of `job.result`."""

    def add(self, page: Mapping[str, Any]) -> bytes:
        with reading("a page of a result"):
            return b"".join(_json(row).encode() + b"\n" for row in page["data"])

    def end(self) -> bytes:
        return b""


# The header is written with the first page, so a column that only a later page has is an error (`NotRows`).
class _Csv:
    """CSV (RFC 4180) in UTF-8 with a header line. Null is an empty field, the empty string is `""`."""

    def __init__(self) -> None:
        self._names: list[str] | None = None

    def add(self, page: Mapping[str, Any]) -> bytes:
        with reading("a page of a result"):
            return self._lines_of(page)

    def _lines_of(self, page: Mapping[str, Any]) -> bytes:
        lines = []
        if self._names is None:
            self._names = _names_of(page)
            lines.append(_line(map(_quoted, self._names)))
        names = self._names
        for row in page["data"]:
            if not (isinstance(row, dict) and row.keys() <= set(names)):
                raise NotRows("the items of the list do not have the same fields: use NDJSON")
            lines.append(_line(_cell(row.get(name)) for name in names))
        return "".join(lines).encode()

    def end(self) -> bytes:
        return b""


def _names_of(page: Mapping[str, Any]) -> list[str]:
    if page["schema"] is not None:
        return [str(column["name"]) for column in page["schema"]]
    # A list has no schema.
    if not all(isinstance(row, dict) for row in page["data"]):
        raise NotRows("the items of the list are not objects: use NDJSON")
    return list(dict.fromkeys(name for row in page["data"] for name in row))


def _line(cells: Iterable[str]) -> str:
    # Most readers skip an empty line.
    return (",".join(cells) or '""') + "\r\n"


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, int | float):
        # `repr` is the shortest text that reads back as the same float.
        return repr(value)
    return _quoted(_json(value))


def _quoted(text: str) -> str:
    # Blanks at either end are quoted too, because many readers strip unquoted fields.
    if text and _QUOTED.isdisjoint(text) and text == text.strip():
        return text
    return '"' + text.replace('"', '""') + '"'


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


class _Parquet:
    """A Parquet file with row groups of a few megabytes."""

    def __init__(self) -> None:
        require("pyarrow", "Parquet")
        self._sink = _Sink()
        self._writer: parquet.ParquetWriter | None = None
        self._group: list[Any] = []
        self._size = 0

    def add(self, page: Mapping[str, Any]) -> bytes:
        from pyarrow import parquet

        table = batches_of(page)
        if self._writer is None:
            self._writer = parquet.ParquetWriter(self._sink, table.schema, compression="zstd")
        # Pages are collected, because a row group for each page of 512 KiB would make a file that is slow to
        # read.
        self._group.append(table)
        self._size += table.nbytes
        if self._size >= _GROUP_BYTES:
            self._write_group(self._writer)
        return self._sink.taken()

    def end(self) -> bytes:
        if self._writer is not None:
            if self._group:
                self._write_group(self._writer)
            self._writer.close()
        return self._sink.taken()

    def _write_group(self, writer: parquet.ParquetWriter) -> None:
        import pyarrow as pa

        whole = pa.concat_tables(self._group)
        self._group, self._size = [], 0
        if whole.num_rows:
            writer.write_table(whole, row_group_size=whole.num_rows)


# pyarrow writes to any file-like object. It never seeks, and asks `tell` for the offsets in the footer, so
# written bytes can be removed at once.
class _Sink:
    """A file in memory; `take` removes and returns what was written."""

    closed = False

    def __init__(self) -> None:
        self._data = bytearray()
        self._written = 0

    def write(self, data: Any) -> int:
        self._data += memoryview(data)
        self._written += len(data)
        return len(data)

    def taken(self) -> bytes:
        data = bytes(self._data)
        self._data.clear()
        return data

    def tell(self) -> int:
        return self._written

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False
