"""Avro files and data for the tests of the readers."""

from __future__ import annotations

import datetime as dt
import io
from collections.abc import Iterable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types

from nebula.avro import Schema
from nebula.spark.reading.avro_types import Record, parse_record
from nebula.spark.reading.decoding import decoder
from nebula.spark.reading.resolution import Resolution

READING: dict[str, Any] = {
    "type": "record",
    "name": "venue.Reading",
    "fields": [
        {"name": "machine", "type": "int"},
        {"name": "sensor", "type": "string"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "value", "type": "double"},
        {"name": "quality", "type": "int"},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}

_START = dt.datetime(2026, 11, 22, tzinfo=dt.UTC)


def readings(count: int, first: int = 0) -> list[dict[str, Any]]:
    """Values are quarters, so that their sum is exact in any order."""
    return [
        {
            "machine": number % 50,
            "sensor": f"s{number % 7}",
            "at": _START + dt.timedelta(milliseconds=number * 137),
            "value": number * 0.25,
            "quality": number % 4,
            "note": None if number % 10 else f"note {number % 3}",
        }
        for number in range(first, first + count)
    ]


def everything() -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A schema with a field of each type that Spark can hold, and two rows of it."""
    choice = {"type": "enum", "name": "Choice", "symbols": ["A", "B", "C"]}
    part = {"type": "record", "name": "Part", "fields": [_field("x", "int"), _field("y", ["null", "string"])]}
    types: dict[str, Any] = {
        "boolean": "boolean",
        "int": "int",
        "long": "long",
        "float": "float",
        "double": "double",
        "bytes": "bytes",
        "string": "string",
        "maybe": ["long", "null"],
        "choice": choice,
        "again": ["null", "Choice"],
        "fixed": {"type": "fixed", "name": "Four", "size": 4},
        "list": {"type": "array", "items": ["null", "string"]},
        "lists": {"type": "array", "items": {"type": "array", "items": "int"}},
        "map": {"type": "map", "values": ["null", "double"]},
        "part": part,
        "no_part": ["null", "Part"],
        "parts": {"type": "array", "items": "Part"},
        "date": {"type": "int", "logicalType": "date"},
        "millis": {"type": "long", "logicalType": "timestamp-millis"},
        "micros": ["null", {"type": "long", "logicalType": "timestamp-micros"}],
        "local_millis": {"type": "long", "logicalType": "local-timestamp-millis"},
        "local_micros": {"type": "long", "logicalType": "local-timestamp-micros"},
        "decimal": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 3},
        "fixed_decimal": {
            "type": "fixed", "name": "Money", "size": 6, "logicalType": "decimal", "precision": 9, "scale": 2,
        },
    }  # fmt: skip
    schema = {"type": "record", "name": "Everything", "fields": [_field(*each) for each in types.items()]}
    full = {
        "boolean": True, "int": -5, "long": 1 << 62, "float": 1.5, "double": -2.25, "bytes": b"\xff\0",
        "string": "äöü €", "maybe": 7, "choice": "B", "again": "C", "fixed": b"abcd", "list": ["x", None],
        "lists": [[1, 2], [], [3]], "map": {"one": 1.0, "none": None}, "part": {"x": 1, "y": "z"},
        "no_part": {"x": 2, "y": None}, "parts": [{"x": 3, "y": "w"}], "date": dt.date(1969, 7, 20),
        "millis": _START + dt.timedelta(milliseconds=1), "micros": _START + dt.timedelta(microseconds=1),
        "local_millis": _local(2026, 6000), "local_micros": _local(1950, 6),
        "decimal": Decimal("-12345.678"), "fixed_decimal": Decimal("99.99"),
    }  # fmt: skip
    empty = full | {
        "maybe": None, "again": None, "list": [], "lists": [], "map": {}, "no_part": None, "parts": [],
        "micros": None, "part": {"x": 0, "y": None}, "boolean": False,
    }  # fmt: skip
    return schema, [full, empty]


def _local(year: int, micros: int) -> dt.datetime:
    """A time of the wall clock, of no zone."""
    return dt.datetime(year, 1, 2, 3, 4, 5, micros, tzinfo=dt.UTC).replace(tzinfo=None)


def write(path: Path, schema: Any, rows: Iterable[Mapping[str, Any]], **options: Any) -> Path:
    """A file by fastavro; `options` are its writer's."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        fastavro.writer(file, fastavro.parse_schema(schema), rows, **{"codec": "deflate", **options})
    return path


def record(schema: Any) -> Record:
    """The tree of a schema."""
    return parse_record(Schema(schema).parsed)


def encode(schema: Any, rows: Iterable[Mapping[str, Any]]) -> bytes:
    """Rows as data, one after another."""
    out, parsed = io.BytesIO(), fastavro.parse_schema(schema)
    for row in rows:
        fastavro.schemaless_writer(out, parsed, row)
    return out.getvalue()


def read_as(
    name: str, schema: Any, rows: list[dict[str, Any]], reader: Any = None, columns: list[str] | None = None
) -> pa.RecordBatch:
    """Rows of one schema as another, by the decoder of that name."""
    writer = record(schema)
    resolution = Resolution(writer, writer if reader is None else record(reader), columns)
    if not resolution.needed:
        return resolution.batch({}, len(rows))
    decoded = decoder(name, writer, resolution.needed).decode(encode(schema, rows), len(rows))
    return resolution.batch(decoded, len(rows))


def fields(**types: Any) -> dict[str, Any]:
    """A record of these fields."""
    return {"type": "record", "name": "Row", "fields": [_field(*each) for each in types.items()]}


def _field(name: str, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": kind}
