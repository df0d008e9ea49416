"""Column types in JSON, and conversion of their values to and from JSON.

A type is a word, or an object for what has parts:

    "boolean" "integer" "float" "string" "bytes" "date" "time" "timestamp" "timestamp_ntz" "null"
    {"decimal": [precision, scale]}   {"list": TYPE}   {"map": [TYPE, TYPE]}
    {"struct": [{"name": NAME, "type": TYPE}, …]}

Decimals, dates, times and timestamps travel as text (ISO 8601; a `timestamp` in UTC, with Z), bytes as base64
of the standard alphabet, floats that JSON has no number for as "NaN", "Infinity" and "-Infinity". A map whose
keys are strings is an object, any other a list of pairs.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal
from enum import StrEnum
from functools import partial
from typing import Any, Final, TypeAlias

__all__ = ["Convert", "ResultFormat", "Schema", "from_wire", "row_converter", "to_wire"]


class ResultFormat(StrEnum):
    """A file format for rows."""

    NDJSON = "ndjson"
    CSV = "csv"
    PARQUET = "parquet"


Schema: TypeAlias = list[dict[str, Any]]
"""Columns in order, each with `name` and `type`."""

Convert: TypeAlias = Callable[[Any], Any]
"""Converts a value from one form to the other; never called with null."""


# Converters are looked up once, and only for columns that need one: JSON has numbers and texts.
def row_converter(schema: Schema, by_type: Callable[[Any], Convert | None]) -> Convert:
    """A function that converts whole rows in place, by `from_wire` or `to_wire`.

    Raises:
        ValueError, LookupError, TypeError: that is no schema.
    """
    converts = [(str(column["name"]), by_type(column["type"])) for column in schema]
    needed = [(name, convert) for name, convert in converts if convert is not None]
    return partial(_convert_fields, needed)


def from_wire(kind: Any) -> Convert | None:
    """The conversion from JSON to a Python value; None: they are the same.

    Raises:
        ValueError, LookupError, TypeError: that is no type.
    """
    return _READERS[kind] if isinstance(kind, str) else _of_parts(kind, from_wire, is_reading=True)


def to_wire(kind: Any) -> Convert | None:
    """The conversion from a Python value to JSON; None: they are the same. Raises as `from_wire`."""
    return _WRITERS[kind] if isinstance(kind, str) else _of_parts(kind, to_wire, is_reading=False)


def _of_parts(kind: Mapping[str, Any], by_type: Callable[[Any], Convert | None], *, is_reading: bool) -> Any:
    ((word, parts),) = kind.items()
    if word == "decimal":
        return Decimal if is_reading else str
    if word == "list":
        item = by_type(parts)
        return None if item is None else partial(_convert_items, item)
    if word == "struct":
        return row_converter(parts, by_type)
    if word == "map":
        key, value = parts
        convert = _read_map if is_reading else _write_map
        return partial(convert, key == "string", by_type(key), by_type(value))
    raise ValueError(f"{word!r} is no type of a column")


def _convert_fields(needed: Iterable[tuple[str, Convert]], row: dict[str, Any]) -> dict[str, Any]:
    for name, convert in needed:
        if (value := row[name]) is not None:
            row[name] = convert(value)
    return row


def _convert_items(convert: Convert, items: Iterable[Any]) -> list[Any]:
    return [None if item is None else convert(item) for item in items]


def _converted(convert: Convert | None, value: Any) -> Any:
    return value if convert is None or value is None else convert(value)


def _write_map(is_object: bool, key: Convert | None, value: Convert | None, pairs: Any) -> Any:
    converted = [(_converted(key, one), _converted(value, other)) for one, other in pairs]
    return dict(converted) if is_object else [list(pair) for pair in converted]


def _read_map(is_object: bool, key: Convert | None, value: Convert | None, told: Any) -> Any:
    pairs = told.items() if is_object else told
    converted = [(_converted(key, one), _converted(value, other)) for one, other in pairs]
    try:
        return dict(converted)
    except TypeError:  # a list or a dict cannot be a key
        return converted


def _write_float(number: float) -> float | str:
    if math.isfinite(number):
        return number
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"


def _write_bytes(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _write_timestamp(at: datetime) -> str:
    return at.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"


def _isoformat(moment: date | time) -> str:
    return moment.isoformat()


_READERS: Final[Mapping[str, Convert | None]] = {
    "boolean": None,
    "integer": None,
    "string": None,
    "null": None,
    "float": float,
    "bytes": base64.b64decode,
    "date": date.fromisoformat,
    "time": time.fromisoformat,
    "timestamp": datetime.fromisoformat,
    "timestamp_ntz": datetime.fromisoformat,
}

_WRITERS: Final[Mapping[str, Convert | None]] = {
    "boolean": None,
    "integer": None,
    "string": None,
    "null": None,
    "float": _write_float,
    "bytes": _write_bytes,
    "date": _isoformat,
    "time": _isoformat,
    "timestamp": _write_timestamp,
    "timestamp_ntz": _isoformat,
}
