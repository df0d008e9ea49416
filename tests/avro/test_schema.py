"""Schemas: what identifies them, what is none, and the values they read and write."""

from __future__ import annotations

import json
from typing import Any

import pytest

from nebula.avro import Schema
from nebula.errors import AvroError

READING = {
    "type": "record",
    "name": "egm.Reading_v1",
    "doc": "Not part of the fingerprint.",
    "fields": [{"name": "gmid", "type": "string"}, {"name": "meter", "type": ["null", "long"]}],
}


@pytest.mark.parametrize(
    ("schema", "fingerprint"),
    [
        ("null", 0x63DD24E7CC258F8A),
        ("int", 0x7275D51A3F395C8F),
        ("string", 0x8F014872634503C7),
        ("bytes", 0x4FC016DAC3201965),
    ],
)
def test_fingerprints_are_those_of_avros_specification(schema: str, fingerprint: int) -> None:
    assert Schema(schema).fingerprint == fingerprint


def test_what_a_fingerprint_leaves_out_does_not_change_it() -> None:
    plain = {key: value for key, value in READING.items() if key != "doc"}

    assert Schema(plain).fingerprint == Schema(READING).fingerprint
    assert (
        Schema(plain | {"name": "Reading_v1", "namespace": "egm"}).fingerprint == Schema(READING).fingerprint
    )
    assert Schema(plain | {"name": "egm.Reading_v2"}).fingerprint != Schema(READING).fingerprint


def test_people_write_a_fingerprint_highest_digit_first() -> None:
    assert Schema("null").fingerprint_hex == "63dd24e7cc258f8a"


def test_names_are_full_ones() -> None:
    assert Schema(READING).name == "egm.Reading_v1"
    assert Schema({"type": "array", "items": "int"}).name == "array"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no JSON"),
        ("{", "no JSON"),
        ("5", "no Avro schema"),
        ('{"type": "record"}', "no Avro schema"),
        ('{"type": "map"}', "no Avro schema"),
        ('{"type": "wrong"}', "not defined"),
        ('{"type": "array", "items": "egm.Other_v1"}', "'egm.Other_v1' is not defined: write it where"),
        ('{"type": "enum", "name": "E", "symbols": ["A", "A"]}', "unique"),
        ("[" * 100_000, "no JSON"),
        ('{"type": "array", "items": ' * 100 + '"int"' + "}" * 100, "deeper than"),
        (" " * 300_000 + '"int"', "more than"),
    ],
)
def test_what_is_no_schema_is_refused_with_why(text: str, why: str) -> None:
    with pytest.raises(AvroError, match=why):
        Schema.from_text(text)


def test_values_come_back_as_they_were() -> None:
    schema = Schema(READING)
    value = {"gmid": "GM000123", "meter": None}

    assert schema.decode(schema.encode(value)) == value


@pytest.mark.parametrize(
    "value",
    [None, 5, {}, {"gmid": 5, "meter": 1}, {"gmid": "a", "meter": "b"}, {"gmid": "a", "meter": 2**63}],
)
def test_what_is_no_value_of_the_type_is_not_written(value: Any) -> None:
    with pytest.raises(AvroError):
        Schema(READING).encode(value)


def test_a_datum_is_read_as_the_reader_wants_it() -> None:
    newer = json.loads(json.dumps(READING))
    newer["fields"].append({"name": "denomination", "type": "int", "default": 1})
    datum = Schema(READING).encode({"gmid": "a", "meter": 7})

    assert Schema(READING).decode(datum, Schema(newer)) == {"gmid": "a", "meter": 7, "denomination": 1}


def test_a_datum_that_the_reader_cannot_read_is_refused() -> None:
    datum = Schema("string").encode("a")

    with pytest.raises(AvroError, match="no datum of string"):
        Schema("string").decode(datum, Schema("int"))


def test_a_schema_of_many_fields_is_compiled_and_one_of_too_many_copies_is_not() -> None:
    def record(name: str, fields: list[Any]) -> dict[str, Any]:
        named = [{"name": f"f{number}", "type": field} for number, field in enumerate(fields)]
        return {"type": "record", "name": name, "fields": named}

    wide = Schema(record("Wide_v1", [["null", "long"]] * 4000))
    assert wide.is_datum(wide.encode({f"f{number}": number for number in range(4000)}))

    copied = record("Inner_v1", ["long"] * 10)
    with pytest.raises(AvroError, match="too large"):
        Schema(record("Outer_v1", [copied, *["Inner_v1"] * 9000]))
