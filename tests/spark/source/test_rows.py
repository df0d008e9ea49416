"""Bodies become rows: of one schema or several, and what cannot be read is an error or is left out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from nebula import avro
from nebula.avro import Schema, tombstone
from nebula.errors import AvroError
from nebula.record.message import encode_message
from nebula.spark.source.options import AVRO, ENVELOPE, MESSAGE, TEXT, ContentOptions
from nebula.spark.source.rows import Bodies, MessageRows, Unreadable, columns_of


def record(*fields: Mapping[str, Any]) -> Schema:
    return Schema({"type": "record", "name": "venue.Reading", "fields": list(fields)})


FIRST = record({"name": "coins", "type": "int"})
SECOND = record({"name": "coins", "type": "long"}, {"name": "note", "type": "string", "default": ""})
NARROW = record({"name": "coins", "type": "long"})


def rows(kind: str, bodies: list[bytes], reader: Schema | None = None, *, skips: bool = False) -> list[Any]:
    data = [
        encode_message(f"m{number}", "/queue/a", number, {"content-type": "x/y", "shift": "late"}, body)
        for number, body in enumerate(bodies)
    ]
    content = ContentOptions(kind, None, None, None)
    known = {each.fingerprint: each for each in (FIRST, SECOND)}

    def writer_of(fingerprint: int) -> Schema:
        if fingerprint not in known:
            raise AvroError(f"the schema {fingerprint:016x} is not known")
        return known[fingerprint]

    decoder = Bodies(content, reader, writer_of, skips=skips)
    messages = MessageRows().batch(b"".join(data), len(data))
    assert columns_of(content, reader).fieldNames() == next(iter(decoder.rows(messages))).schema.names
    return [row for batch in decoder.rows(messages) for row in batch.to_pylist()]


def test_message_has_its_headers_and_its_octets() -> None:
    (row,) = rows(MESSAGE, [b"\xff"])

    assert (row["id"], row["destination"], row["content_type"]) == ("m0", "/queue/a", "x/y")
    assert (row["headers"], row["body"]) == ([("shift", "late")], b"\xff")
    assert row["time"].timestamp() == 0


def test_text_is_a_text() -> None:
    assert [row["body"] for row in rows(TEXT, ["größer".encode(), b""])] == ["größer", ""]


def test_text_that_is_none_is_an_error_that_names_its_message() -> None:
    with pytest.raises(Unreadable, match="message m1 of /queue/a cannot be read: its body is not UTF-8"):
        rows(TEXT, [b"good", b"\xff"])


def test_text_that_is_none_is_left_out_where_that_is_wanted() -> None:
    assert [row["body"] for row in rows(TEXT, [b"one", b"\xff", b"two"], skips=True)] == ["one", "two"]


def test_envelopes_of_several_schemas_keep_their_order_and_are_read_as_one() -> None:
    bodies = [
        avro.encode({"coins": 1}, FIRST),
        avro.encode({"coins": 2, "note": "x"}, SECOND),
        avro.encode({"coins": 3}, FIRST),
    ]

    assert rows(ENVELOPE, bodies, NARROW) == [{"coins": 1}, {"coins": 2}, {"coins": 3}]


def test_deletion_is_no_row() -> None:
    bodies = [avro.encode({"coins": 1}, FIRST), tombstone(), b"", avro.encode({"coins": 2}, FIRST)]

    assert [row["coins"] for row in rows(ENVELOPE, bodies, NARROW)] == [1, 2]


def test_data_without_envelopes_are_read_by_the_schema_that_was_given() -> None:
    bodies = [FIRST.encode({"coins": number}) for number in range(3)]

    assert rows(AVRO, bodies, FIRST) == [{"coins": number} for number in range(3)]


@pytest.mark.parametrize(
    "bad",
    [b"", FIRST.encode({"coins": 1}) * 2, b"\xff"],
    ids=["too short", "too long", "cut"],
)
def test_datum_that_is_none_is_found_among_others(bad: bytes) -> None:
    good = FIRST.encode({"coins": 7})

    with pytest.raises(Unreadable, match=r"message m1 .* its body does not fit the schema"):
        rows(AVRO, [good, bad, good], FIRST)
    assert rows(AVRO, [good, bad, good], FIRST, skips=True) == [{"coins": 7}] * 2


def test_envelope_of_a_schema_that_nobody_knows_is_an_error() -> None:
    with pytest.raises(Unreadable, match="is not known"):
        rows(ENVELOPE, [avro.encode({"coins": 1}, FIRST), avro.encode({"coins": 1}, NARROW)], FIRST)
