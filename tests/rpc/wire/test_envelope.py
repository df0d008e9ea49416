"""Bodies as bytes: every row of rule C.5, with D.13 to D.15, D.38 and D.40 (C.2)."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nebula.rpc.wire.envelope import (
    Envelope,
    content_type_of,
    dump_json,
    encode,
    encode_free,
    load_json,
    media_of,
    parse,
)

JSON = "application/json"
TEXT = "text/plain"


def read(content_type: str | None, body: bytes) -> Envelope:
    return parse({} if content_type is None else {"content-type": content_type}, body)


@pytest.mark.parametrize(
    ("content_type", "is_json"),
    [
        ("application/json", True),
        ("text/json", True),
        ("JSON", True),
        ("application/hal+json", True),
        ("xjson", True),
        ("application/json;charset=utf-8", True),  # D.14: the gem takes it for text
        ("Application/JSON; charset=UTF-8", True),
        ("text/plain", False),
        ("text/plain; charset=utf-8", False),
        ("application/jsonx", False),
        ("avro/binary", False),
        (None, None),
        ("", None),
    ],
)
def test_content_type_decides_between_json_and_text(content_type: str | None, is_json: bool | None) -> None:
    assert media_of(content_type).is_json is is_json


@pytest.mark.parametrize(
    ("content_type", "reply_type"),
    [
        ("application/json", "application/json"),
        ("application/json;charset=utf-8", "application/json"),
        ("application/hal+json", "application/hal+json"),
        ("text/plain", "text/plain"),
        ("text/plain; charset=latin-1", "text/plain"),
        ("application/xml", "text/plain"),
        ("avro/binary", "avro/binary"),
        (None, "application/json"),
    ],
)
def test_reply_takes_the_content_type_of_its_request(content_type: str | None, reply_type: str) -> None:
    assert media_of(content_type).reply_type == reply_type


@pytest.mark.parametrize("name", ["content-type", "content_type", "contentType"])
def test_content_type_is_found_under_each_spelling_of_the_gem(name: str) -> None:
    assert content_type_of({name: "text/plain"}) == "text/plain"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ('{"verb":"ping"}', Envelope("ping")),
        ('{"verb":"ping","parameters":{"a":1}}', Envelope("ping", {"a": 1})),
        ('{"verb":"ping","params":[1],"desc":"d"}', Envelope("ping", [1], "d")),
        ('{"verb":"ping","parameters":1,"params":2}', Envelope("ping", 1)),
        ('{"verb":"ping","parameters":null,"params":2}', Envelope("ping", 2)),
        ('{"verb":"ping","parameters":false,"params":2}', Envelope("ping", 2)),
        ('{"verb":"ping","parameters":0,"params":2}', Envelope("ping", 0)),
        ('{"verb":"ping","parameters":false}', Envelope("ping", False)),
        ('{"verb":""}', Envelope("")),
        ('{"verb":7}', Envelope("7")),
        ('{"verb":null}', Envelope(body={"verb": None})),
        ('{"verb":false}', Envelope(body={"verb": False})),
        ('{"parameters":[1],"description":"x"}', Envelope(body={"parameters": [1], "description": "x"})),
        ('["verb"]', Envelope(body=["verb"])),
        ("12.5", Envelope(body=12.5)),
        ('"boo"', Envelope(body="boo")),
        ("null", Envelope()),
        ("false", Envelope()),
        ("", Envelope(body="")),
        ("  ", Envelope(body="  ")),
        ("{", Envelope(body="{")),
        ("verb: ping", Envelope(body="verb: ping")),
        ("[" * 100_000, Envelope(body="[" * 100_000)),
    ],
)
def test_json_body_is_read_as_the_table_says(body: str, expected: Envelope) -> None:
    assert read(JSON, body.encode()) == expected


@pytest.mark.parametrize(
    ("body", "verb", "parameters", "description"),
    [
        ("verb: ping\nparameters: a b\ndescription: hello: world\n\n", "ping", "a b", "hello: world"),
        ("verb:ping\nparams:x\ndesc:y", "ping", "x", "y"),
        ("verb: ping\r\nparams: x\r\n\r\n", "ping", "x", None),
        ("\n\nverb: ping\n\n  \nparams: x", "ping", "x", None),
        ("verb:\n", "", None, None),
        ("verb: ping\ndescription: two\nlines: here\n\n", "ping", None, "two"),
        ("verb: success\nparameters: []\ndescription: \n\n", "success", "[]", ""),
    ],
)
def test_text_body_with_a_verb_is_read_as_the_table_says(
    body: str, verb: str, parameters: str | None, description: str | None
) -> None:
    assert read(TEXT, body.encode()) == Envelope(verb, parameters, description, is_text=True)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("verb: ping\nhello\n", "verb: ping\nhello\n"),
        ("verb: ping\nverb: pong\n", "verb: ping\nverb: pong\n"),
        ("verb: ping\ndescription: two\nlines\n\n", "verb: ping\ndescription: two\nlines\n\n"),
        ("http://example.com/x", {"http": "//example.com/x"}),
        ("", {}),
        ("\n\n\n", {}),
        ("boo", "boo"),
    ],
)
def test_text_body_without_a_verb_is_a_map_or_a_string(body: str, expected: Any) -> None:
    assert read(TEXT, body.encode()) == Envelope(body=expected, is_text=True)


@pytest.mark.parametrize(
    ("body", "verb", "is_text"),
    [
        ('{"verb":"ping"}', "ping", False),
        (' \n\t{"verb":"ping"}', "ping", False),
        ("[1]", None, False),
        ("verb: ping\n\n", "ping", True),
        ("12", None, True),
    ],
)
def test_body_without_content_type_is_json_if_it_looks_so(body: str, verb: str | None, is_text: bool) -> None:
    envelope = read(None, body.encode())

    assert (envelope.verb, envelope.is_text) == (verb, is_text)


@pytest.mark.parametrize(
    ("content_type", "octets", "expected"),
    [
        ("text/plain", "verb: é".encode(), "é"),
        ("text/plain", "verb: é".encode("latin-1"), "é"),
        ("text/plain;charset=iso-8859-15", "verb: €".encode("iso-8859-15"), "€"),
        ('text/plain; charset="cp1252"', "verb: €".encode("cp1252"), "€"),
        ("text/plain;charset=none-such", "verb: é".encode("latin-1"), "é"),
        ("text/plain;charset=hex", "verb: é".encode("latin-1"), "é"),
        ("text/plain;charset=undefined", "verb: é".encode("latin-1"), "é"),
        ("application/json", '{"verb":"é"}'.encode(), "é"),
        ("application/json", b'{"verb":"\\u00e9"}', "é"),
        ("application/json", '{"verb":"é"}'.encode("latin-1"), "é"),
    ],
)
def test_octets_are_utf8_or_the_named_charset_or_latin_1(
    content_type: str, octets: bytes, expected: str
) -> None:
    assert read(content_type, octets).verb == expected


@given(st.sampled_from([JSON, TEXT, None]), st.binary(max_size=200))
def test_arbitrary_octets_are_read_without_an_error(content_type: str | None, body: bytes) -> None:
    assert isinstance(read(content_type, body), Envelope)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("ping",), '{"verb":"ping"}'),
        (("success", b"[]", ""), '{"verb":"success","parameters":[],"description":""}'),
        (("error", b'["a","b"]', "oops"), '{"verb":"error","parameters":["a","b"],"description":"oops"}'),
        (("ping", None, "why"), '{"verb":"ping","description":"why"}'),
        (("pingresponse", b"null"), '{"verb":"pingresponse","parameters":null}'),
        (('a"é\n',), '{"verb":"a\\"\\u00e9\\n"}'),
    ],
)
def test_json_is_written_compact_and_in_order(arguments: tuple[Any, ...], expected: str) -> None:
    assert encode(JSON, *arguments).decode() == expected


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("ping",), "verb: ping\n\n"),
        (("success", b"[]", ""), "verb: success\nparameters: []\ndescription: \n\n"),
        (("error", b'["a","b"]', "oops"), 'verb: error\nparameters: ["a","b"]\ndescription: oops\n\n'),
        (("x", b'"a b"'), "verb: x\nparameters: a b\n\n"),
        (("x", b'{"a":1}'), 'verb: x\nparameters: {"a":1}\n\n'),
        (("x", b"12"), "verb: x\nparameters: 12\n\n"),
        (("x", b'"\\u00e9"'), "verb: x\nparameters: é\n\n"),
        (("error", b'"a\\r\\nb"', "two\nlines"), "verb: error\nparameters: a  b\ndescription: two lines\n\n"),
    ],
)
def test_text_is_written_as_one_line_for_each_field(arguments: tuple[Any, ...], expected: str) -> None:
    assert encode(TEXT, *arguments).decode() == expected


def test_success_in_text_is_the_form_that_the_gem_accepts() -> None:
    assert len(encode(TEXT, "success", b"[]", "")) == 44  # E.59


@pytest.mark.parametrize(
    ("content_type", "body", "expected"),
    [
        (JSON, "text", b'"text"'),
        (JSON, None, b"null"),
        (JSON, {"a": [1]}, b'{"a":[1]}'),
        (TEXT, "text", b"text"),
        (TEXT, {"a": 1}, b'{"a":1}'),
        (JSON, b"\x00\x01", b"\x00\x01"),
    ],
)
def test_free_body_is_written_as_its_content_type_says(content_type: str, body: Any, expected: bytes) -> None:
    assert encode_free(content_type, body) == expected


def test_values_of_many_types_have_a_json_form() -> None:
    value = {"total": Decimal("1.50"), "at": datetime(2026, 1, 2, tzinfo=UTC), "seen": {1}}

    assert dump_json(value) == b'{"total":"1.50","at":"2026-01-02T00:00:00Z","seen":[1]}'


def test_value_without_a_json_form_is_refused() -> None:
    with pytest.raises(ValueError, match="Unable to serialize"):
        dump_json(object())


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner)))
def test_json_is_ascii_and_gives_the_value_back(value: Any) -> None:
    document = dump_json(value)

    assert document.isascii()
    assert json.loads(document) == value


@given(st.text(), st.text(), st.none() | st.text())
def test_json_message_is_read_as_it_was_written(verb: str, parameters: str, description: str | None) -> None:
    written = encode(JSON, verb, dump_json(parameters), description)

    assert read(JSON, written) == Envelope(verb, parameters, description)


def test_number_that_is_none_in_json_is_null_however_it_is_written() -> None:
    assert load_json(b"[NaN, -Infinity, 1e999, -1e999, 1e-999, 1.5, 10]") == [None] * 4 + [0.0, 1.5, 10]
