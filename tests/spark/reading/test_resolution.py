"""Rows of one schema are read as another: the rules are Avro's, and fastavro's own reader is the judge."""

from __future__ import annotations

import io
import struct
from typing import Any

import fastavro
import pytest

from nebula.spark.reading.errors import DataError
from tests.spark.reading.samples import encode, fields, read_as

ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
INNER = {
    "type": "record",
    "name": "In",
    "fields": [{"name": "x", "type": "int"}, {"name": "y", "type": "string"}],
}


def _with(kind: Any, **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": "Row", "fields": [{"name": "a", "type": kind, **more}]}


def _wider(**changes: Any) -> dict[str, Any]:
    return {**ENUM, "symbols": ["B", "C"], **changes}


CASES: dict[str, tuple[Any, Any, list[Any]]] = {
    "int as long": (fields(a="int"), fields(a="long"), [1, -1]),
    "int as float": (fields(a="int"), fields(a="float"), [1, 7]),
    "int as double": (fields(a="int"), fields(a="double"), [1, 2]),
    "long as float": (fields(a="long"), fields(a="float"), [1, (1 << 53) + 1]),
    "long as double": (fields(a="long"), fields(a="double"), [1, (1 << 62) + 1]),
    "float as double": (fields(a="float"), fields(a="double"), [0.5]),
    "string as bytes": (fields(a="string"), fields(a="bytes"), ["ä"]),
    "bytes as string": (fields(a="bytes"), fields(a="string"), ["ä".encode()]),
    "plain as nullable": (fields(a="int"), fields(a=["null", "long"]), [1]),
    "nullable as plain": (fields(a=["null", "int"]), fields(a="long"), [1]),
    "nullable as nullable": (fields(a=["null", "int"]), fields(a=["double", "null"]), [1, None]),
    "enum with a default": (_with(ENUM), _with(_wider(default="C")), ["A", "B"]),
    "list of promoted": (
        fields(a={"type": "array", "items": ["null", "int"]}),
        fields(a=["null", {"type": "array", "items": ["null", "double"]}]),
        [[1, None], []],
    ),
    "record without, and with a field more": (
        fields(a=INNER),
        fields(
            a={
                "type": "record",
                "name": "In",
                "fields": [
                    {"name": "z", "type": ENUM, "default": "B"},
                    {"name": "x", "type": "long"},
                    {"name": "w", "type": ["null", "string"], "default": None},
                ],
            }
        ),
        [{"x": 1, "y": "gone"}],
    ),
    "null records": (fields(a=["null", INNER]), fields(a=["null", INNER]), [None, {"x": 1, "y": "k"}, None]),
}


@pytest.mark.parametrize("decoder", ["polars", "fastavro"])
@pytest.mark.parametrize("case", CASES)
def test_rows_are_read_as_avro_says(case: str, decoder: str) -> None:
    writer, reader, values = CASES[case]
    rows = [{"a": value} for value in values]

    assert read_as(decoder, writer, rows, reader).to_pylist() == _judge(writer, reader, rows)


def _judge(writer: Any, reader: Any, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    stream = io.BytesIO(encode(writer, rows))
    parsed = fastavro.parse_schema(writer), fastavro.parse_schema(reader)
    read: list[Any] = [fastavro.schemaless_reader(stream, *parsed) for _ in rows]
    # What Avro holds as a float has so many digits in Arrow, and more in Python.
    return [
        {"a": _float(row["a"]) if '"float"' in str(reader).replace("'", '"') else row["a"]} for row in read
    ]


def _float(value: Any) -> float:
    return float(struct.unpack("f", struct.pack("f", value))[0])


@pytest.mark.parametrize(
    ("kind", "default", "value"),
    [
        ("int", 7, 7),
        ("string", "text", "text"),
        ("bytes", "ÿ", b"\xff"),
        (["null", "int"], None, None),
        (ENUM, "B", "B"),
        ({"type": "array", "items": "int"}, [1, 2], [1, 2]),
        ({"type": "map", "values": "int"}, {"k": 1}, [("k", 1)]),
        (INNER, {"x": 1, "y": "z"}, {"x": 1, "y": "z"}),
    ],
)
def test_field_that_is_not_written_has_its_default(kind: Any, default: Any, value: Any) -> None:
    reader = _with(kind, default=default)

    assert read_as("polars", fields(b="int"), [{"b": 1}, {"b": 2}], reader).to_pylist() == [{"a": value}] * 2


def test_field_is_found_by_its_alias() -> None:
    reader = _with("long", aliases=["old"])

    assert read_as("polars", fields(old="int"), [{"old": 3}], reader).to_pylist() == [{"a": 3}]


@pytest.mark.parametrize("decoder", ["polars", "fastavro"])
def test_field_of_the_same_name_comes_before_one_of_an_alias(decoder: str) -> None:
    reader = _with("long", aliases=["older", "old"])

    own = read_as(decoder, fields(old="int", a="int", older="int"), [{"old": 1, "a": 2, "older": 3}], reader)
    alias = read_as(decoder, fields(old="int", older="int"), [{"old": 1, "older": 3}], reader)

    assert (own.to_pylist(), alias.to_pylist()) == ([{"a": 2}], [{"a": 3}])


def test_time_keeps_its_unit_whatever_the_readers_is() -> None:
    millis = {"type": "long", "logicalType": "timestamp-millis"}
    micros = {"type": "long", "logicalType": "timestamp-micros"}

    as_micros = read_as("polars", fields(a=millis), [{"a": 1_000}], fields(a=micros))
    from_plain = read_as("polars", fields(a="long"), [{"a": 1_000}], fields(a=millis))

    assert as_micros.to_pylist()[0]["a"].timestamp() == 1.0
    assert from_plain.to_pylist()[0]["a"].timestamp() == 1.0


@pytest.mark.parametrize(
    ("writer", "reader", "said"),
    [
        (fields(a="string"), fields(a="int"), "a: string cannot be read as int"),
        (fields(a="long"), fields(a="int"), "a: long cannot be read as int"),
        (fields(b="int"), fields(a="int"), "a is not written, and the reader's schema has no default"),
        (
            fields(a=INNER),
            fields(a={**INNER, "name": "Other"}),
            "a: record In cannot be read as record Other",
        ),
        (_with("int"), {**_with("int"), "name": "Other"}, "Row cannot be read as Other"),
    ],
)
def test_schema_that_cannot_be_read_is_told_with_its_field(writer: Any, reader: Any, said: str) -> None:
    with pytest.raises(DataError, match=said):
        read_as("fastavro", writer, [], reader)


def test_value_that_the_reader_has_no_place_for_is_told() -> None:
    with pytest.raises(DataError, match="a is null in a row"):
        read_as("polars", fields(a=["null", "int"]), [{"a": None}], fields(a="int"))
    with pytest.raises(DataError, match="lacks one of the symbols A"):
        read_as("polars", _with(ENUM), [{"a": "A"}], _with(_wider()))
    with pytest.raises(DataError, match="a: a value cannot be read as string"):
        read_as("polars", fields(a="bytes"), [{"a": b"\xff"}], fields(a="string"))
