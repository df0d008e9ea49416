"""Avro from strangers: envelopes, data of known schemas, and schemas themselves."""

from __future__ import annotations

import json
from typing import Any, Final

from nebula.avro import Registry
from nebula.avro.checks import Finding, envelope_check
from nebula.avro.compatibility import why_unreadable
from nebula.avro.envelope import Item, decode_envelope, encode_envelope
from nebula.avro.prescan import scan
from nebula.avro.schema import Schema
from nebula.errors import AvroError
from tests.conformance.envelopes import SCHEMAS

_NAMES = ("Reading_v1", "Status_v1")


def _record(type_name: str, /, **fields: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": type_name,
        "fields": [{"name": field, "type": type_} for field, type_ in fields.items()],
    }


def _logical(plain: str, logical: str, **more: Any) -> dict[str, Any]:
    return {"type": plain, "logicalType": logical, **more}


_SUITS = {"type": "enum", "name": "Suit", "symbols": ["A", "B", "C"]}
_WIDE = {"type": "enum", "name": "Wide", "symbols": [f"S{number}" for number in range(200)]}
_FIXED = {"type": "fixed", "name": "Four", "size": 4}

# Each kind of type, alone and within others; the ones that have hurt decoders first.
DEFINITIONS: Final[list[Any]] = [
    _record("Node", next=["null", "Node"]),
    _record("Tree", name="string", below={"type": "array", "items": "Tree"}),
    {"type": "array", "items": "null"},
    {"type": "map", "values": ["null", "long", "string"]},
    {"type": "array", "items": _record("Pair", a="int", b="boolean")},
    _record("All", a="int", b="long", c="bytes", d="string", e="boolean", f="double", g="float"),
    _record("Named", a=_SUITS, b=_WIDE, c=_FIXED, d=["null", "Suit", "Four"]),
    {"type": "array", "items": {"type": "map", "values": {"type": "array", "items": "string"}}},
    _record("Empty"),
    {"type": "array", "items": _record("Hollow")},
    # With logical types: only who makes one of it knows whether it is one.
    _record("Times", a=_logical("int", "date"), b=_logical("long", "timestamp-millis")),
    _record("Money", a=_logical("bytes", "decimal", precision=30, scale=2)),
    _record("Ids", a=_logical("string", "uuid"), b=["null", _logical("long", "time-micros")]),
]
_FIRST_LOGICAL = 10
_SCHEMAS: Final = [Schema(definition) for definition in DEFINITIONS]
_CHECKS: Final = [envelope_check(Registry(SCHEMAS), name) for name in _NAMES]


def read_envelope(data: bytes) -> None:
    """Octets as an envelope, and as what a broker is to judge."""
    findings = {check(data) for check in _CHECKS}
    try:
        envelope = decode_envelope(data)
    except AvroError:
        assert findings == {Finding.INVALID}
        return
    assert decode_envelope(encode_envelope(envelope)) == envelope
    keys = [key for key, _ in envelope.items]
    assert all(keys.count(key) <= 1 for key in Item)
    assert Finding.TOMBSTONE not in findings or envelope.is_tombstone
    assert Finding.VALID not in findings or not envelope.is_tombstone
    for name in ("topic", "timestamp_ms", "fingerprint"):
        try:
            getattr(envelope, name)
        except AvroError:
            continue


def read_datum(data: bytes) -> None:
    """The first octet chooses a schema, the rest is a datum of it, or none."""
    if not data:
        return
    number, datum = data[0] % len(_SCHEMAS), data[1:]
    schema = _SCHEMAS[number]
    try:
        scan(schema._program, datum)
    except AvroError:
        assert not schema.is_datum(datum)
        return
    try:
        value = schema.decode(datum)
    except AvroError:
        assert number >= _FIRST_LOGICAL, "what passes the scan is a value of the schema"
        assert not schema.is_datum(datum)
        return
    assert schema.is_datum(datum)
    if number < _FIRST_LOGICAL:
        again = schema.encode(value)
        # Blocks and keys may come in many forms; what we write has one.
        assert schema.encode(schema.decode(again)) == again


def read_schema(data: bytes) -> None:
    """A schema as text, and what data of it might be; then another one that is to read it."""
    text, _, rest = data.partition(b"\0")
    other_text, _, datum = rest.partition(b"\0")
    try:
        schema = Schema.from_text(text)
    except AvroError:
        return
    assert Schema(json.loads(json.dumps(schema.definition))).fingerprint == schema.fingerprint
    schema.is_datum(datum)
    assert why_unreadable(schema.parsed, schema.parsed) is None
    try:
        other = Schema.from_text(other_text)
    except AvroError:
        return
    why_unreadable(schema.parsed, other.parsed)
    try:
        schema.decode(datum, other)
    except AvroError:
        return
