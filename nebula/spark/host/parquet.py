"""Parquet files that a job has written: its name in them, and a preview of their rows."""

from __future__ import annotations

import datetime as dt
import json
from base64 import b64encode
from collections.abc import Sequence, Set
from pathlib import Path
from typing import Any

from pydantic_core import to_jsonable_python
from pyspark.sql import DataFrame, types
from pyspark.sql.types import DataType, StructType

from nebula.spark.host.footer import FooterError, add_metadata
from nebula.spark.paths import spark_glob

# Under this key of a file's metadata stands the id of the job that wrote it.
JOB_KEY = "nebula.job"

_PREVIEW_ROWS = 10
_PREVIEW_BYTES = 8 * 1024

_MONTHS = 12


def data_files(place: Path) -> list[Path]:
    """The files with data at this place, a file or a folder, in their order; Spark's own marks left out."""
    if place.is_file():
        return [place]
    files = (file for file in place.rglob("*") if file.is_file())
    return sorted(file for file in files if not file.name.startswith(("_", ".")))


def sign(file: Path, job: str) -> int:
    """Write the job's id into a Parquet file; how many rows are in it.

    One that cannot be read as Parquet is left alone, and has no rows for us.
    """
    from pyarrow import ArrowException, parquet  # type: ignore[import-untyped]  # it ships no types

    try:
        rows: int = parquet.read_metadata(file).num_rows
        add_metadata(file, {JOB_KEY: job})
    except (ArrowException, FooterError):
        return 0
    # Hadoop keeps a checksum next to the file, of what was in it before.
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    return rows


def first_rows(files: Sequence[Path], table: DataFrame) -> list[dict[str, Any]] | None:
    """The first rows as JSON, a few kilobytes at most; None if the first row is larger.

    Args:
        files: of the table.
        table: what was written to them: Parquet has no types for some of Spark's.
    """
    rows: list[dict[str, Any]] = []
    for file in files:
        rows += _head(file, table, _PREVIEW_ROWS - len(rows))
        if len(rows) == _PREVIEW_ROWS:
            break
    return _bounded(rows)


def _head(file: Path, table: DataFrame, most: int) -> list[dict[str, Any]]:
    from pyarrow import parquet

    with parquet.ParquetFile(file) as opened:
        batch = next(opened.iter_batches(batch_size=most), None)
    rows = [] if batch is None else batch.to_pylist()
    variants = {field.name for field in table.schema.fields if holds_variants(field.dataType)}
    plain = StructType([field for field in table.schema.fields if field.name not in variants])
    read = [readable({name: row[name] for name in plain.names}, plain) for row in rows]
    if not (rows and variants):
        return read
    told = _variants(file, table, variants, len(rows))
    return [
        {name: (values if name in variants else row).get(name) for name in table.columns}
        for row, values in zip(read, told, strict=True)
    ]


def _variants(file: Path, table: DataFrame, columns: Set[str], count: int) -> list[dict[str, Any]]:
    """The first values of these columns, read by Spark because it writes variants in pieces."""
    from pyspark.sql import functions

    read = table.sparkSession.read.schema(table.schema).parquet(spark_glob(file)).limit(count)
    texts = read.select(functions.to_json(functions.struct(*(read[f"`{name}`"] for name in columns))))
    return [json.loads(row[0]) for row in texts.collect()]


def _bounded(rows: list[dict[str, Any]]) -> list[dict[str, Any]] | None:
    preview: list[dict[str, Any]] = to_jsonable_python(
        rows, bytes_mode="base64", inf_nan_mode="null", fallback=str
    )
    while preview and len(json.dumps(preview)) > _PREVIEW_BYTES:
        preview.pop()
    return preview if preview or not rows else None


def readable(value: Any, kind: DataType) -> Any:
    """The readable form of a value of a Spark type without variants.

    Intervals are as in ISO 8601 (`P1Y2M`), bytes are base64 of the standard alphabet, as in a table's pages.
    """
    if value is None:
        return None
    match kind:
        case types.YearMonthIntervalType():
            return _years_and_months(value)
        case types.DayTimeIntervalType():
            return dt.timedelta(microseconds=value) if isinstance(value, int) else value
        case types.BinaryType():
            return b64encode(value).decode()
        case types.ArrayType():
            return [readable(each, kind.elementType) for each in value]
        case types.MapType():
            return [(readable(key, kind.keyType), readable(each, kind.valueType)) for key, each in value]
        case types.StructType():
            inner = {field.name: field.dataType for field in kind.fields}
            return {name: readable(each, inner[name]) for name, each in value.items()}
    return value


def holds_variants(kind: DataType) -> bool:
    """Whether values of this type are or contain variants."""
    match kind:
        case types.VariantType():
            return True
        case types.ArrayType():
            return holds_variants(kind.elementType)
        case types.MapType():
            return holds_variants(kind.keyType) or holds_variants(kind.valueType)
        case types.StructType():
            return any(holds_variants(field.dataType) for field in kind.fields)
    return False


def _years_and_months(months: int) -> str:
    years, rest = divmod(abs(months), _MONTHS)
    told = (f"{years}Y" if years else "") + (f"{rest}M" if rest or not years else "")
    return f"{'-' if months < 0 else ''}P{told}"
