"""Data become columns by polars and by fastavro alike, and what are no data is told."""

from __future__ import annotations

from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from nebula.errors import AvroError
from nebula.spark.reading.columns import arrow_type, spark_type, why_not_polars
from nebula.spark.reading.decoding import FastavroDecoder, PolarsDecoder, decoder
from nebula.spark.reading.envelopes import unpack
from nebula.spark.reading.errors import DataError, UnsupportedTypeError
from nebula.spark.reading.resolution import Resolution
from tests.spark.reading.samples import encode, everything, fields, read_as, readings, record

DECODERS = ("polars", "fastavro")


@pytest.mark.parametrize("name", DECODERS)
def test_each_type_comes_out_as_it_went_in(name: str) -> None:
    schema, rows = everything()

    batch = read_as(name, schema, rows)

    expected = [row | {"map": list(row["map"].items())} for row in rows]
    assert batch.to_pylist() == expected


def test_polars_decodes_each_type_itself() -> None:
    schema, _ = everything()

    assert isinstance(decoder("polars", record(schema), ("int",)), PolarsDecoder)


def test_types_are_those_that_pyspark_expects() -> None:
    schema, _ = everything()
    table = spark_type(record(schema))
    assert isinstance(table, StructType)

    ours = pa.schema(list(arrow_type(record(schema))))

    assert ours.equals(to_arrow_schema(table, timezone="UTC"))


@pytest.mark.parametrize("name", DECODERS)
def test_wanted_columns_alone_are_decoded(name: str) -> None:
    schema, rows = everything()
    writer = record(schema)

    decoded = decoder(name, writer, ("int", "string")).decode(encode(schema, rows), 2)

    assert {column: values.to_pylist() for column, values in decoded.items()} == {
        "int": [-5, -5],
        "string": ["äöü €", "äöü €"],
    }


@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.parametrize("harm", ["cut", "longer", "fewer", "more"])
def test_data_that_do_not_end_with_the_block_are_told(name: str, harm: str) -> None:
    schema = fields(a="int", b="string", c="double")
    data, count = encode(schema, [{"a": n, "b": "text", "c": 0.5} for n in range(9)]), 9
    match harm:
        case "cut":
            data = data[:-1]
        case "longer":
            data += b"\0"
        case "fewer":
            count = 8
        case "more":
            count = 10

    with pytest.raises(AvroError):
        decoder(name, record(schema), ("a", "b", "c")).decode(data, count)


@pytest.mark.parametrize("name", DECODERS)
def test_no_damage_ends_otherwise_than_in_an_avro_error(name: str) -> None:
    schema, rows = everything()
    data = encode(schema, rows)
    writer = record(schema)
    resolution = Resolution(writer, writer)
    decode = decoder(name, writer, resolution.needed).decode
    told = 0

    for at in range(len(data)):
        harmed = bytearray(data)
        harmed[at] ^= 0xA5
        try:
            resolution.batch(decode(bytes(harmed), 2), 2)
        except (AvroError, DataError):
            told += 1

    assert told > len(data) // 4


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (["null", "int", "long"], "a union that is not of null and one type"),
        (["int"], "a union that is not of null and one type"),
        ("null", "a field that is always null"),
        ({"type": "record", "name": "Nothing", "fields": []}, "a record without fields"),
    ],
)
def test_fastavro_decodes_what_polars_cannot(kind: Any, why: str) -> None:
    writer = record(fields(a=kind))

    assert why_not_polars(writer) == why
    assert isinstance(decoder("polars", writer, ("a",)), FastavroDecoder)


def test_union_of_numbers_is_the_widest_of_them() -> None:
    rows: list[dict[str, Any]] = [{"a": 1, "b": 0.5}, {"a": 1 << 40, "b": 1e300}, {"a": None, "b": 2.0}]

    batch = read_as("fastavro", fields(a=["null", "int", "long"], b=["float", "double"]), rows)

    assert batch.to_pylist() == rows
    assert batch.schema.types == [pa.int64(), pa.float64()]


def test_type_that_spark_cannot_hold_is_named_with_its_field() -> None:
    union = fields(a="int", b=["string", "int"])

    with pytest.raises(UnsupportedTypeError, match="b is a union of several types"):
        read_as("fastavro", union, [])
    with pytest.raises(UnsupportedTypeError, match=r"next: Node holds itself"):
        record({"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]})
    with pytest.raises(UnsupportedTypeError, match="39 digits"):
        record(fields(a={"type": "bytes", "logicalType": "decimal", "precision": 39}))


def test_column_of_such_a_type_may_be_left_out() -> None:
    batch = read_as("fastavro", fields(a="int", b=["string", "int"]), [{"a": 1, "b": "x"}], columns=["a"])

    assert batch.to_pylist() == [{"a": 1}]


@pytest.mark.parametrize("kind", ["plain", "array", "map", "maybe"])
def test_such_a_field_within_a_record_may_be_left_out(kind: str) -> None:
    union: Any = ["int", "string"]
    unheld: Any = {
        "plain": union,
        "array": {"type": "array", "items": union},
        "map": {"type": "map", "values": union},
        "maybe": ["null", "int", fields(deep=union) | {"name": "Deep"}],
    }[kind]
    values: Any = {"plain": [5, "t"], "array": [[5], ["t", 6]], "map": [{"k": 5}, {}], "maybe": [5, None]}[
        kind
    ]
    inner = fields(u=unheld, x="int") | {"name": "Inner"}
    rows = [{"a": {"u": value, "x": at}, "b": [{"u": value, "x": -at}]} for at, value in enumerate(values)]

    batch = read_as(
        "fastavro",
        fields(a=inner, b={"type": "array", "items": "Inner"}),
        rows,
        fields(a=fields(x="int") | {"name": "Inner"}, b={"type": "array", "items": "Inner"}),
    )

    assert batch.to_pylist() == [{"a": {"x": at}, "b": [{"x": -at}]} for at in range(2)]


def test_envelope_without_items_is_told() -> None:
    item = pa.struct([pa.field("key", pa.int32()), pa.field("value", pa.binary())])

    with pytest.raises(DataError, match="an envelope has no body"):
        list(unpack(pa.array([[]], pa.list_(item))))


def test_many_rows_are_decoded_in_portions() -> None:
    rows = [{"value": row["value"]} for row in readings(40_000)]

    assert read_as("fastavro", fields(value="double"), rows).num_rows == 40_000
