"""What may reach a decoder: all that a writer can write, and nothing that could hurt."""

from __future__ import annotations

import re
import tracemalloc
from datetime import UTC, datetime
from typing import Any

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nebula.avro.prescan import MAX_DEPTH, MAX_VALUES, scan
from nebula.avro.programs import USUAL_DATES, compile_schema
from nebula.avro.schema import Schema
from nebula.avro.varints import write_long
from nebula.errors import AvroError
from tests.avro.strategies import Typed, typed_schemas

NODE: dict[str, Any] = {
    "type": "record",
    "name": "Node",
    "fields": [{"name": "next", "type": ["null", "Node"]}],
}
_BELOW = {"type": "array", "items": "Tree"}
TREE: dict[str, Any] = {
    "type": "record",
    "name": "Tree",
    "fields": [{"name": "name", "type": "string"}, {"name": "below", "type": _BELOW}],
}


def scanned(schema: Any, data: bytes, **limits: int) -> None:
    scan(compile_schema(fastavro.parse_schema(schema)), data, **limits)


def refused(schema: Any, data: bytes, **limits: int) -> str:
    with pytest.raises(AvroError) as caught:
        scanned(schema, data, **limits)
    return str(caught.value)


def can_be_decoded(schema: Schema, datum: bytes) -> bool:
    try:
        schema.decode(datum)
    except AvroError:
        return False
    return True


def chain(schemas: int, leaf: Any) -> dict[str, Any]:
    """A record that holds two of a record that holds two of … a leaf."""
    inner: dict[str, Any] = {"type": "record", "name": "T0", "fields": [{"name": "a", "type": leaf}]}
    for number in range(1, schemas):
        fields = [{"name": "a", "type": inner}, {"name": "b", "type": f"T{number - 1}"}]
        inner = {"type": "record", "name": f"T{number}", "fields": fields}
    return inner


# --- all that can be written passes, and what passes can be read ---


@given(typed_schemas(), st.data())
def test_whatever_a_writer_writes_passes(typed: Typed, data: st.DataObject) -> None:
    schema = Schema(typed[0])
    datum = schema.encode(data.draw(typed[1]))

    scan(schema._program, datum)


@given(typed_schemas(), st.data())
def test_nothing_but_a_whole_datum_passes(typed: Typed, data: st.DataObject) -> None:
    schema = Schema(typed[0])
    datum = schema.encode(data.draw(typed[1]))

    assert not schema.is_datum(datum + b"\0")
    assert not datum or not schema.is_datum(datum[: data.draw(st.integers(0, len(datum) - 1))])


@given(typed_schemas(), st.data())
@settings(max_examples=300)
def test_what_passes_can_be_decoded(typed: Typed, data: st.DataObject) -> None:
    schema = Schema(typed[0])
    datum = bytearray(schema.encode(data.draw(typed[1])))
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, len(datum)))
        datum[at : at + data.draw(st.integers(0, 1))] = data.draw(st.binary(max_size=3))

    if schema.is_datum(bytes(datum)):
        schema.decode(bytes(datum))


@given(typed_schemas(), st.binary(max_size=60))
def test_any_octets_are_refused_or_decoded(typed: Typed, octets: bytes) -> None:
    schema = Schema(typed[0])

    if schema.is_datum(octets):
        schema.decode(octets)


# --- what is refused, and why ---

LONG_ARRAY = {"type": "array", "items": "long"}
TEXT_ARRAY = {"type": "array", "items": "string"}


@pytest.mark.parametrize(
    ("schema", "data", "why"),
    [
        ("long", b"", "no such value"),
        ("long", b"\x80", "no such value"),
        ("long", b"\x80\x00", "no such value"),  # 0 in two octets
        ("long", b"\xff" * 9 + b"\x02", "no such value"),  # 65 bits
        ("int", b"\xff\xff\xff\xff\x10", "no such value"),  # 33 bits
        ("boolean", b"\x02", "no such value"),
        ("double", b"1234567", "no such value"),
        ("null", b"\0", "left over"),
        ("string", b"\x01", "beyond the end"),  # a length of -1
        ("string", b"\x06ab", "beyond the end"),
        ("string", b"\x04\xc3\x28", "no UTF-8"),
        ("string", b"\x82\x00a", "longer than it need be"),
        ("bytes", b"\x01", "beyond the end"),
        ("bytes", b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01", "beyond the end"),
        ({"type": "fixed", "name": "F", "size": 4}, b"abc", "no such value"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, b"\x04", "no such value"),
        ({"type": "enum", "name": "E", "symbols": [f"A{n}" for n in range(99)]}, b"\xc6\x01", "symbol: 99"),
        (["null", "long"], b"\x04", "no such value"),
        (["null", "long"], b"\x01", "no such value"),
        (["null", "string"], b"\x04", "no such branch"),
        (["null", "string"], b"\x01", "no such branch"),
        (LONG_ARRAY, b"\x04\x02", "no such item"),
        (LONG_ARRAY, b"\x04\x02\x02", "ends within"),
        (LONG_ARRAY, b"\x01\x04\x02\x00", "block"),  # one item, two octets, of which it has one
        (TEXT_ARRAY, b"\x01\x06\x02a\x00", "block"),
        (TEXT_ARRAY, b"\x01\x7e\x02a\x00", "beyond the end"),
        ({"type": "map", "values": "long"}, b"\x02\x02", "beyond the end"),
        ({"type": "map", "values": "long"}, b"\x02\x02\xff\x02\x00", "no UTF-8"),
    ],
)
def test_what_is_no_datum_is_refused(schema: Any, data: bytes, why: str) -> None:
    assert re.search(why, refused(schema, data))


def test_blocks_that_say_their_size_are_read() -> None:
    scanned(LONG_ARRAY, b"\x03\x04\x02\x04\x02\x06\x00")
    scanned(TEXT_ARRAY, b"\x03\x08\x02a\x02b\x01\x04\x02c\x00")


# --- bombs ---


def test_nulls_without_end_are_refused_without_being_made() -> None:
    bomb = write_long(2**30) + b"\0"
    assert len(bomb) <= 6

    tracemalloc.start()
    assert "values" in refused({"type": "array", "items": "null"}, bomb)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000


@pytest.mark.parametrize(
    "items",
    [
        {"type": "record", "name": "Empty", "fields": []},
        {"type": "fixed", "name": "Nothing", "size": 0},
        {"type": "record", "name": "Nulls", "fields": [{"name": f"n{n}", "type": "null"} for n in range(9)]},
    ],
)
def test_items_without_octets_count(items: Any) -> None:
    array = {"type": "array", "items": items}

    scanned(array, write_long(1000) + b"\0")
    assert "values" in refused(array, write_long(MAX_VALUES + 1) + b"\0")
    # Block by block it is no other.
    assert "values" in refused(array, write_long(MAX_VALUES // 2) * 3 + b"\0")
    assert "values" in refused(array, write_long(-(2**63)) + b"\0\0")


def test_values_are_counted_wherever_they_are() -> None:
    inner = {"type": "array", "items": LONG_ARRAY}
    data = b"\x06" + b"\x06\x02\x02\x02\x00" * 3 + b"\x00"

    scanned(inner, data, max_values=13)
    assert "more than 12 values" in refused(inner, data, max_values=12)


def test_a_datum_of_a_recursive_schema_may_be_so_deep_and_no_deeper() -> None:
    deep = MAX_DEPTH // 2 - 1  # each node is a record in a union

    scanned(NODE, b"\x02" * deep + b"\0")
    assert "deeper" in refused(NODE, b"\x02" * (deep + 1) + b"\0")
    assert "deeper" in refused(NODE, b"\x02" * 6000 + b"\0")
    assert "deeper" in refused(TREE, b"\x02a\x02" * 6000)


def test_a_record_that_holds_itself_has_no_datum() -> None:
    endless = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "a", "type": "R"}, {"name": "b", "type": "R"}],
    }

    assert "deeper" in refused(endless, b"")


def test_records_that_double_at_each_level_are_compiled_small_and_refused_when_they_are_many() -> None:
    assert "values" in refused(chain(20, "null"), b"")
    assert "values" in refused(chain(20, {"type": "array", "items": "null"}), b"\0" * 2**20)
    scanned(chain(10, "long"), b"\x02" * 2**9)
    scanned(chain(10, "string"), b"\x02a" * 2**9)


def test_decimals_have_no_more_digits_than_can_be_written_quickly() -> None:
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}

    scanned(decimal, write_long(5) + b"\0\0\0\0\1")
    assert "a number of" in refused(decimal, write_long(100_000) + bytes(100_000))


def test_a_value_that_its_logical_type_cannot_have_is_no_datum() -> None:
    date = Schema({"type": "int", "logicalType": "date"})
    uuid = Schema({"type": "array", "items": {"type": "string", "logicalType": "uuid"}})

    assert date.is_datum(write_long(20_000))
    assert not date.is_datum(write_long(2**31 - 1))
    assert not uuid.is_datum(b"\x02\x04ab\x00")


@pytest.mark.parametrize("dates", USUAL_DATES)
def test_a_number_is_a_date_when_a_decoder_makes_one_of_it_and_usual_ones_need_none(dates: str) -> None:
    kind, _, logical = dates.partition("-")
    schema = Schema({"type": kind, "logicalType": logical})
    greatest = 2**31 if kind == "int" else 2**63
    # Where numbers get an octet more, or another last one.
    steps = [last << bits for last in range(1, 128) for bits in range(6, 63, 7)]
    numbers = [each for step in steps for each in (step, step - 1, -step, -step - 1) if abs(each) < greatest]

    for number in numbers:
        assert schema.is_datum(write_long(number)) == can_be_decoded(schema, write_long(number)), number
    for year in (1831, 1970, 2109):
        when = datetime(year, 1, 1, tzinfo=UTC)
        datum = schema.encode(when.date() if kind == "int" else when)
        scan(compile_schema(schema.parsed, USUAL_DATES), datum)


# --- schemas that fastavro lets through and Avro does not ---


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "fixed", "name": "F", "size": -1},
        {"type": "fixed", "name": "F", "size": 1 << 40},
        {"type": "record", "name": "two words", "fields": []},
        {"type": "record", "name": "R", "fields": [{"name": 'a"', "type": "int"}]},
        {
            "type": "record",
            "name": "R",
            "fields": [{"name": "a", "type": "int"}, {"name": "a", "type": "int"}],
        },
        ["int", "int"],
        ["null", ["int", "string"]],
        [],
    ],
)
def test_schemas_that_break_avros_rules_are_refused(schema: Any) -> None:
    with pytest.raises(AvroError):
        Schema(schema)
