"""What a broker is told of a body, and what a client makes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nebula.avro import (
    Envelope,
    Finding,
    Item,
    Registry,
    Schema,
    UnknownSchema,
    bare_check,
    decode,
    encode,
    encode_envelope,
    envelope_check,
    make_envelope,
    tombstone,
)
from nebula.errors import AvroError

NAME = "egm.Reading_v1"


def reading(*more: dict[str, Any], name: str = NAME) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": "meter", "type": "long"}, *more]}


NODE = {
    "type": "record",
    "name": "egm.Node_v1",
    "fields": [{"name": "next", "type": ["null", "egm.Node_v1"]}],
}


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    registry = Registry(tmp_path)
    registry.register(reading())
    registry.register(reading(name="egm.Other_v1"))
    registry.register(NODE)
    return registry


def test_a_body_of_the_bound_type_is_valid_in_every_version_also_a_new_one(registry: Registry) -> None:
    check = envelope_check(registry, NAME)
    newer = Schema(reading({"name": "unit", "type": "string", "default": "cent"}))
    bodies = [encode({"meter": 5}, Schema(reading())), encode({"meter": 5, "unit": "cent"}, newer)]

    assert [check(body) for body in bodies] == [Finding.VALID, Finding.INVALID]
    registry.register(newer.definition)
    assert [check(body) for body in bodies] == [Finding.VALID, Finding.VALID]


def test_what_is_not_of_the_bound_type_is_invalid(registry: Registry) -> None:
    schema = Schema(reading())
    check = envelope_check(registry, NAME)
    bodies = {
        "of another type": encode({"meter": 5}, Schema(reading(name="egm.Other_v1"))),
        "no envelope": b"\xff\xff",
        "nothing": b"",
        "bare": schema.encode({"meter": 5}),
        "empty": encode_envelope(make_envelope()),
        "no fingerprint": encode_envelope(make_envelope(body=b"\x0a")),
        "no body": encode_envelope(make_envelope(fingerprint=schema.fingerprint)),
        "short fingerprint": encode_envelope(
            Envelope(((Item.FINGERPRINT, b"1234567"), (Item.BODY, b"\x0a")))
        ),
        "longer": encode_envelope(make_envelope(fingerprint=schema.fingerprint, body=b"\x0a\x0a")),
        "cut": encode_envelope(make_envelope(fingerprint=schema.fingerprint, body=b"\x80")),
        "two bodies": encode_envelope(
            Envelope((*make_envelope(fingerprint=schema.fingerprint, body=b"\x0a").items, (Item.BODY, b"")))
        ),
    }

    assert {what: check(body) for what, body in bodies.items()} == dict.fromkeys(bodies, Finding.INVALID)


def test_a_tombstone_needs_nothing_and_what_it_has_is_judged(registry: Registry) -> None:
    check = envelope_check(registry, NAME)
    known = Schema(reading()).fingerprint

    def grave(**items: Any) -> Finding:
        return check(encode_envelope(make_envelope(is_tombstone=True, **items)))

    assert check(tombstone(topic="X/a")) is Finding.TOMBSTONE
    assert grave(fingerprint=known) is Finding.TOMBSTONE
    assert grave(fingerprint=known, body=b"\x0a") is Finding.TOMBSTONE
    # It is delivered as it was sent, and a subscriber's decoder is not to meet what ours refuses.
    assert grave(fingerprint=known, body=b"\x80") is Finding.INVALID
    assert grave(body=b"\x0a") is Finding.INVALID
    assert grave(fingerprint=known + 1) is Finding.INVALID


@given(octets=st.binary(max_size=60))
def test_checks_never_raise(tmp_path_factory: pytest.TempPathFactory, octets: bytes) -> None:
    registry = Registry(tmp_path_factory.getbasetemp() / "schemas")
    node = registry.register(NODE)
    enveloped = encode_envelope(make_envelope(fingerprint=node.fingerprint, body=octets))

    for body in (octets, enveloped):
        assert envelope_check(registry, "egm.Node_v1")(body) in Finding
        assert bare_check(node)(body) in Finding


def test_a_bare_body_is_a_datum_and_nothing_else() -> None:
    check = bare_check(Schema(reading()))

    assert check(b"\x0a") is Finding.VALID
    assert check(b"\x0a\x0a") is Finding.INVALID
    assert check(b"") is Finding.INVALID
    assert check(tombstone()) is Finding.INVALID


def test_a_client_reads_what_another_wrote_as_it_wants_it(registry: Registry) -> None:
    newer = Schema(reading({"name": "unit", "type": "string", "default": "cent"}))
    body = encode({"meter": 5}, Schema(reading()), topic="X/a", timestamp_ms=1)

    assert decode(body, registry) == {"meter": 5}
    assert decode(body, registry, newer) == {"meter": 5, "unit": "cent"}


def test_a_client_reads_deletions_as_nothing(registry: Registry) -> None:
    assert decode(b"", registry) is None
    assert decode(tombstone(), registry) is None


def test_a_client_learns_which_schema_it_lacks(registry: Registry) -> None:
    lacking = Schema(reading(name="egm.Lacking_v1"))

    with pytest.raises(UnknownSchema) as caught:
        decode(encode({"meter": 5}, lacking), registry)
    assert caught.value.fingerprint == lacking.fingerprint


def test_a_clients_decoder_meets_no_bomb_either(registry: Registry) -> None:
    node = Schema(NODE)
    bomb = encode_envelope(make_envelope(fingerprint=node.fingerprint, body=b"\x02" * 6000 + b"\0"))

    with pytest.raises(AvroError, match="deeper"):
        decode(bomb, registry)
    with pytest.raises(AvroError, match="no fingerprint"):
        decode(b"\0", registry)
