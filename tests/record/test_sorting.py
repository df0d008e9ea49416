"""Which stream a message goes to; and that nothing spoils a file, and nothing is left out."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nebula.avro import Schema, encode, encode_envelope, make_envelope, tombstone
from nebula.avro.envelope import SCHEMA as ENVELOPE
from nebula.record.message import MESSAGE
from nebula.record.sorting import Sorter
from tests.record.messages import NEWER_READING, READING, SCHEMAS, message

ROW = {"machine": "EGM1", "turnover": 1250}
TIME_MS = 1_763_768_000_123


@pytest.fixture
def sorter() -> Sorter:
    return Sorter(SCHEMAS.get)


def test_datum_of_an_envelope_goes_under_its_writers_schema_as_it_is(sorter: Sorter) -> None:
    body = encode(ROW, READING, topic="X/EGM.1", timestamp_ms=5)

    kind, datum = sorter.sort(message("m1", body), TIME_MS)

    assert kind.name == "venue.Reading_v1"
    assert json.loads(kind.schema) == READING.definition
    assert datum == READING.encode(ROW)


def test_schemas_of_one_name_have_streams_of_their_own(sorter: Sorter) -> None:
    older, _ = sorter.sort(message("m1", encode(ROW, READING)), TIME_MS)
    newer, _ = sorter.sort(message("m2", encode({**ROW, "wins": 1}, NEWER_READING)), TIME_MS)
    again, _ = sorter.sort(message("m3", encode(ROW, READING)), TIME_MS)

    assert older is again
    assert older is not newer
    assert older.name == newer.name
    assert older.fingerprint != newer.fingerprint


def test_other_content_is_kept_with_headers_destination_and_time(sorter: Sorter) -> None:
    headers = {"content-type": "application/json", "x": "y", "content-length": "2"}

    kind, datum = sorter.sort(message("m1", b"{}", sent_to="/queue/readings", **headers), TIME_MS)

    assert kind.name == "message.queue.readings"
    assert MESSAGE.decode(datum) == {
        "id": "m1",
        "destination": "/queue/readings",
        "time": datetime.fromtimestamp(TIME_MS / 1000, UTC),
        "content_type": "application/json",
        "headers": {"x": "y"},
        "body": b"{}",
    }


def test_a_copy_is_recorded_as_of_where_it_was_sent_to(sorter: Sorter) -> None:
    copy = message("m1", b"5", "/queue/copies", **{"original-destination": "X/EGM.1"})

    kind, datum = sorter.sort(copy, TIME_MS)

    assert kind.name == "message.queue.copies"
    assert MESSAGE.decode(datum)["destination"] == "X/EGM.1"


def test_a_pattern_has_one_stream_with_a_name_for_folders(sorter: Sorter) -> None:
    one, _ = sorter.sort(message("m1", b"1", "X/EGM.*", sent_to="X/EGM.1"), TIME_MS)
    other, _ = sorter.sort(message("m2", b"2", "X/EGM.*", sent_to="X/EGM.2"), TIME_MS)

    assert one is other
    assert one.name == "message.X.EGM._"


@pytest.mark.parametrize("destination", ["/queue/../../etc", "/queue/a b\n", "/queue/.hidden", "//"])
def test_no_destination_leads_out_of_the_folder(sorter: Sorter, destination: str) -> None:
    kind, _ = sorter.sort(message("m1", b"", destination), TIME_MS)

    assert kind.name.startswith("message.")
    assert "/" not in kind.name
    assert kind.name.isprintable()


def test_an_envelope_of_an_unknown_schema_is_kept_whole() -> None:
    body = encode(ROW, READING)

    kind, datum = Sorter(lambda _: None).sort(message("m1", body), TIME_MS)

    assert json.loads(kind.schema) == ENVELOPE
    assert datum == body


def test_a_schema_that_is_registered_later_counts_from_then_on() -> None:
    known: dict[int, Schema] = {}
    sorter = Sorter(known.get)
    body = encode(ROW, READING)
    before, _ = sorter.sort(message("m1", body), TIME_MS)
    known[READING.fingerprint] = READING
    after, _ = sorter.sort(message("m2", body), TIME_MS)

    assert (before.name, after.name) == (
        "com.tattsgroup.gaming.venueenvelope.GenericEnvelope",
        "venue.Reading_v1",
    )


@pytest.mark.parametrize(
    "body",
    [
        tombstone(topic="X/EGM.1"),
        encode_envelope(make_envelope(fingerprint=READING.fingerprint, body=b"\x80")),
        encode_envelope(make_envelope(fingerprint=READING.fingerprint, body=READING.encode(ROW) + b"\0")),
        encode_envelope(make_envelope(body=READING.encode(ROW))),
        encode(ROW, READING)[:-1],
        b"",
    ],
)
def test_what_is_no_datum_is_kept_as_the_message_that_it_came_in(sorter: Sorter, body: bytes) -> None:
    kind, datum = sorter.sort(message("m1", body), TIME_MS)

    assert kind.name == "message.queue.readings"
    assert MESSAGE.decode(datum)["body"] == body


def test_bare_data_go_under_the_destinations_schema_if_they_are_of_it() -> None:
    sorter = Sorter(SCHEMAS.get, {"/queue/readings": READING})

    kind, datum = sorter.sort(message("m1", READING.encode(ROW)), TIME_MS)
    other, _ = sorter.sort(message("m2", b"\xff\xff"), TIME_MS)

    assert kind.name == "venue.Reading_v1"
    assert READING.decode(datum) == ROW
    assert other.name == "message.queue.readings"


@given(body=st.binary(max_size=200), headers=st.dictionaries(st.text(max_size=20), st.text(max_size=20)))
def test_whatever_comes_is_a_datum_of_its_streams_schema(body: bytes, headers: dict[str, str]) -> None:
    own = {"subscription", "message-id", "ack", "destination", "original-destination", "sent_to"}
    given_headers = {name: value for name, value in headers.items() if name not in own}
    one = message("m1")
    one.headers = {**given_headers, **one.headers}
    one.body = body

    kind, datum = Sorter(SCHEMAS.get).sort(one, TIME_MS)

    assert Schema.from_text(kind.schema).is_datum(datum)


def test_message_records_are_what_another_library_writes() -> None:
    value = {
        "id": "m1", "destination": "é" * 100, "time": datetime.fromtimestamp(TIME_MS / 1000, UTC),
        "content_type": "", "headers": {"a": "b"}, "body": b"x" * 5000,
    }  # fmt: skip
    one = message("m1", b"x" * 5000, a="b", sent_to="é" * 100)

    _, datum = Sorter(SCHEMAS.get).sort(one, TIME_MS)

    assert datum == MESSAGE.encode(value)
    assert fastavro.parse_schema(MESSAGE.definition)
