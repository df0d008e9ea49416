"""Which schemas can read what others wrote, by Avro's rules; and that fastavro then does."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nebula.avro.compatibility import why_unreadable
from nebula.avro.schema import Schema
from nebula.errors import AvroError
from tests.avro.strategies import Typed, typed_schemas

# A loaded machine makes drawing slow, which says nothing of what is tested.
unhurried = settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)


def record(*fields: dict[str, Any] | tuple[str, Any], name: str = "R_v1", **more: Any) -> dict[str, Any]:
    named = [field if isinstance(field, dict) else {"name": field[0], "type": field[1]} for field in fields]
    return {"type": "record", "name": name, "fields": named, **more}


def enum(*symbols: str, name: str = "E", **more: Any) -> dict[str, Any]:
    return {"type": "enum", "name": name, "symbols": list(symbols), **more}


def difference(writer: Any, reader: Any) -> str | None:
    return why_unreadable(Schema(writer).parsed, Schema(reader).parsed)


WITH_DEFAULT = {"name": "b", "type": "string", "default": "none"}
LIST = record(("value", "int"), ("next", ["null", "R_v1"]))


@pytest.mark.parametrize(
    ("writer", "reader", "value", "read"),
    [
        ("int", "long", 5, 5),
        ("int", "double", 5, 5.0),
        ("long", "float", 5, 5.0),
        ("float", "double", 0.5, 0.5),
        ("string", "bytes", "ab", b"ab"),
        ("bytes", "string", b"ab", "ab"),
        ("int", ["null", "long"], 5, 5),
        (["int", "null"], ["null", "long"], 5, 5),
        (["int", "long"], "long", 5, 5),
        ({"type": "array", "items": "int"}, {"type": "array", "items": "long"}, [1], [1]),
        ({"type": "map", "values": "int"}, {"type": "map", "values": "double"}, {"a": 1}, {"a": 1.0}),
        (enum("A"), enum("B", "A"), "A", "A"),
        (enum("A", "C"), enum("B", "A", default="B"), "C", "B"),
        (record(("a", "int")), record(("a", "long"), WITH_DEFAULT), {"a": 1}, {"a": 1, "b": "none"}),
        (record(("a", "int"), ("c", "string")), record(("a", "int")), {"a": 1, "c": "x"}, {"a": 1}),
        (record(("a", "int")), record({"name": "z", "type": "int", "aliases": ["a"]}), {"a": 1}, {"z": 1}),
        (record(("a", "int")), record(("a", "int"), name="other.R_v1"), {"a": 1}, {"a": 1}),
        (
            LIST,
            record(("value", "long"), ("next", ["null", "R_v1"])),
            {"value": 1, "next": {"value": 2, "next": None}},
            {"value": 1, "next": {"value": 2, "next": None}},
        ),
    ],
)
def test_what_is_compatible_is_read_so(writer: Any, reader: Any, value: Any, read: Any) -> None:
    assert difference(writer, reader) is None
    assert Schema(writer).decode(Schema(writer).encode(value), Schema(reader)) == read


@pytest.mark.parametrize(
    ("writer", "reader", "why"),
    [
        ("long", "int", "long cannot be read as int"),
        ("double", "float", "double cannot be read as float"),
        ("string", "long", "string cannot be read as long"),
        (["null", "long"], "long", "null cannot be read as long"),
        ("string", ["null", "long"], "string is none of the reader's choices"),
        ({"type": "array", "items": "long"}, {"type": "array", "items": "int"}, "[]: long"),
        ({"type": "map", "values": "long"}, {"type": "map", "values": "int"}, "{}: long"),
        ({"type": "array", "items": "int"}, {"type": "map", "values": "int"}, "array cannot be read as map"),
        (enum("A", "C"), enum("A"), "no symbol C"),
        (enum("A"), enum("A", name="F"), "called E and F"),
        (
            {"type": "fixed", "name": "F", "size": 4},
            {"type": "fixed", "name": "F", "size": 8},
            "fixed of 4 and of 8 bytes",
        ),
        (record(("a", "int")), record(("a", "int"), ("b", "string")), "b: is not written"),
        (record(("a", "int")), record(("a", "int"), name="S_v1"), "called R_v1 and S_v1"),
        (
            record(("a", record(("b", "long"), name="I"))),
            record(("a", record(("b", "int"), name="I"))),
            "a.b: ",
        ),
        (LIST, record(("value", "string"), ("next", ["null", "R_v1"])), "value: int"),
        (LIST, record(("value", "int"), ("next", "R_v1")), "next: null"),
    ],
)
def test_what_is_not_compatible_says_where(writer: Any, reader: Any, why: str) -> None:
    found = difference(writer, reader)

    assert found is not None
    assert why in found


@unhurried
@given(typed_schemas(), st.data())
def test_each_schema_reads_what_it_wrote(typed: Typed, data: st.DataObject) -> None:
    schema = Schema(typed[0])
    value = data.draw(typed[1])

    assert difference(typed[0], typed[0]) is None
    assert schema.decode(schema.encode(value), Schema(typed[0])) == schema.decode(schema.encode(value))


@unhurried
@given(typed_schemas(), typed_schemas(), st.data())
def test_what_one_schema_reads_of_another_it_reads_of_all_its_data(
    written: Typed, wanted: Typed, data: st.DataObject
) -> None:
    writer, reader = Schema(written[0]), Schema(wanted[0])
    if why_unreadable(writer.parsed, reader.parsed) is not None:
        return
    datum = writer.encode(data.draw(written[1]))
    with contextlib.suppress(UnicodeDecodeError):
        decoded(writer, datum, reader)


def decoded(writer: Schema, datum: bytes, reader: Schema) -> Any:
    """What the reader makes of it. That octets are text is a promise that a writer of bytes does not make."""
    try:
        return writer.decode(datum, reader)
    except AvroError as error:
        if isinstance(error.__cause__, UnicodeDecodeError):
            raise error.__cause__ from None
        raise


def test_records_that_double_at_each_level_are_compared_once() -> None:
    def doubling(leaf: str) -> dict[str, Any]:
        inner = record(("a", leaf), name="T0")
        for number in range(1, 20):
            inner = record(("a", inner), ("b", f"T{number - 1}"), name=f"T{number}")
        return inner

    assert difference(doubling("int"), doubling("long")) is None
    assert difference(doubling("long"), doubling("int")) is not None


def test_a_pair_that_is_alike_only_by_assumption_is_not_remembered_as_alike() -> None:
    # B is compared within A while A counts as alike; A is not, so neither is B where it stands alone.
    def schema(leaf: str) -> dict[str, Any]:
        inner = record(("back", ["null", "A"]), name="B")
        return record(
            ("choice", ["null", record(("b", inner), ("leaf", leaf), name="A")]),
            ("b", ["null", "B"]),
            name="Top",
        )

    assert difference(schema("long"), schema("int")) is not None
    assert difference(schema("int"), schema("long")) is None
