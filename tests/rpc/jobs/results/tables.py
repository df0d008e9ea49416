"""Tables as Spark writes them, made without Spark."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
from pyarrow import parquet

EPOCH = datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC)

COLUMNS = pa.schema(
    [
        ("id", pa.int64()),
        ("price", pa.decimal128(20, 4)),
        ("ratio", pa.float64()),
        ("is_open", pa.bool_()),
        ("name", pa.string()),
        ("raw", pa.binary()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("tags", pa.list_(pa.string())),
        ("days", pa.list_(pa.date32())),
        ("props", pa.map_(pa.string(), pa.decimal128(5, 2))),
        ("counts", pa.map_(pa.int32(), pa.string())),
        ("nested", pa.struct([("at", pa.timestamp("us", "UTC")), ("raw", pa.binary())])),
    ]
)

_FLOATS = (0.1, float("nan"), float("inf"), float("-inf"), -0.0)


def row(number: int) -> dict[str, Any]:
    """A row, as Python has it; each seventh is nulls."""
    if number % 7 == 6:
        return dict.fromkeys(COLUMNS.names) | {"id": number}
    at = EPOCH + timedelta(days=number * 401, microseconds=number)
    return {
        "id": 2**62 + number,
        "price": Decimal(number) / Decimal(10_000),
        "ratio": _FLOATS[number % 5],
        "is_open": number % 2 == 0,
        "name": f'"{number}",\n é' if number % 3 else "",
        "raw": bytes([0, 255, number % 256]),
        "day": date(1, 1, 1) + timedelta(days=number * 700),
        "at": at,
        "local": at.replace(tzinfo=None),
        "tags": ["a", None, f"é{number}"],
        "days": [date(2024, 2, 29), None],
        "props": {"a": Decimal("1.50"), "b": None},
        "counts": {1: "one", number + 2: None},
        "nested": {"at": at, "raw": b"\xfb\xff"},
    }


def write(folder: Path, files: int, rows: int, group: int = 40) -> list[dict[str, Any]]:
    """A folder of files as Spark leaves it, with its marks and checksums. Its rows."""
    folder.mkdir(parents=True)
    whole = [row(number) for number in range(files * rows)]
    for number in range(files):
        some = whole[number * rows : (number + 1) * rows]
        columns = {name: [_pairs(one[name]) for one in some] for name in COLUMNS.names}
        table = pa.table(columns, schema=COLUMNS)
        parquet.write_table(table, folder / f"part-{number:05}-x.snappy.parquet", row_group_size=group)
    (folder / "_SUCCESS").touch()
    (folder / ".part-00000-x.snappy.parquet.crc").write_bytes(b"crc")
    return whole


def _pairs(value: Any) -> Any:
    is_map = isinstance(value, dict) and set(value) != {"at", "raw"}
    return list(value.items()) if is_map else value


def is_same(one: Any, other: Any) -> bool:
    """Whether two values are equal and of one type; NaN is NaN."""
    if isinstance(one, dict) and isinstance(other, dict):
        return list(one) == list(other) and all(is_same(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(is_same, one, other))
    if isinstance(one, float) and math.isnan(one):
        return isinstance(other, float) and math.isnan(other)
    return type(one) is type(other) and bool(one == other)
