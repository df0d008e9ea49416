"""What `.option(…)` may say is checked as a query is declared, with a sentence."""

from __future__ import annotations

import re

import pytest

from nebula.errors import SettingsError
from nebula.spark.source.options import (
    ENVELOPE,
    MESSAGE,
    any_read_options,
    read_options,
    stream_options,
    write_options,
)

QUEUE = {"destination": "/queue/readings", "spool": "/tmp/spool"}
TOPIC = {"destination": "/topic/readings", "spool": "/tmp/spool"}
VALUES = {"destination": "X/EGM.*"}


def test_a_stream_of_a_queue_needs_no_more_than_a_spool() -> None:
    options = stream_options(QUEUE)

    assert (options.read.destination, str(options.spool)) == ("/queue/readings", "/tmp/spool")
    assert (options.read.content.kind, options.max_rows_per_batch, options.durable) == (MESSAGE, None, None)


def test_a_schema_makes_the_bodies_envelopes_of_it() -> None:
    assert stream_options({**QUEUE, "avroSchema": '"long"'}).read.content.kind == ENVELOPE


def test_a_passcode_is_never_shown() -> None:
    options = stream_options({**QUEUE, "broker": "stomp://me:secret@localhost"})

    assert "secret" not in repr(options)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"destination": "/queue/readings"}, 'needs .option("spool", FOLDER)'),
        ({**QUEUE, "spool": "here"}, "absolute path"),
        ({"spool": "/tmp/spool"}, 'give .option("destination", …)'),
        ({**VALUES, "spool": "/tmp/spool"}, "read it in batch"),
        (TOPIC, "give durable"),
        ({**TOPIC, "durable": "mine"}, "give clientId"),
        ({**QUEUE, "destination": "queue/readings"}, "did you mean"),
        ({**QUEUE, "maxRowsPerBatch": "0"}, "maxRowsPerBatch '0' is not a whole number above 0"),
        ({**QUEUE, "prefetch": "many"}, "prefetch 'many' is not a whole number"),
        ({**QUEUE, "quietSeconds": "nan"}, "quietSeconds 'nan' is not a number of seconds"),
        ({**QUEUE, "corrupt": "ignore"}, "not one of fail, skip"),
        ({**QUEUE, "content": "xml"}, "not one of message, text, avro, envelope"),
        ({**QUEUE, "schemas": "/nowhere"}, "schemas '/nowhere' is not a folder"),
        ({**QUEUE, "spol": "/tmp"}, "there is no option spol"),
        ({**QUEUE, "broker": "http://localhost"}, "http"),
    ],
)
def test_what_no_stream_can_be_read_with_is_refused(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(sentence)):
        stream_options(options)


def test_a_queue_is_not_read_in_batch() -> None:
    with pytest.raises(SettingsError, match="read by a stream"):
        read_options({"destination": "/queue/readings"})


def test_a_declared_read_is_a_batch_of_last_values_or_a_stream() -> None:
    assert any_read_options(VALUES).destination == "X/EGM.*"
    assert any_read_options(QUEUE).destination == "/queue/readings"
    with pytest.raises(SettingsError, match="needs"):
        any_read_options({"destination": "/queue/readings"})


@pytest.mark.parametrize(
    ("options", "asks"),
    [
        ({}, True),
        ({"content": "avro"}, True),
        ({"content": "text"}, False),
        ({"avroSchema": '"long"'}, False),
        ({"content": "envelope", "schemaName": "venue.Reading"}, False),
    ],
)
def test_binding_is_asked_for_where_nothing_else_says_what_the_bodies_are(
    options: dict[str, str], asks: bool
) -> None:
    assert stream_options({**QUEUE, **options}).read.content.asks is asks
    if options.get("content") != "text":
        assert write_options({"destination": "/queue/readings", **options}).content.asks is asks


def test_tasks_of_a_sink_have_no_session_in_common() -> None:
    with pytest.raises(SettingsError, match="there is no option clientId"):
        write_options({"destination": "/queue/readings", "clientId": "warehouse"})


def test_what_spark_says_to_every_sink_is_no_unknown_option() -> None:
    options = write_options({"destination": "/queue/readings", "checkpointlocation": "/tmp/checkpoint"})

    assert options.window == 1000
