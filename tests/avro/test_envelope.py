"""GenericEnvelope, with the check values of B.9."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nebula.avro import Envelope, Item, Schema, decode_envelope, encode_envelope, make_envelope
from nebula.avro.envelope import SCHEMA
from nebula.errors import AvroError

TWO_ITEMS = bytes.fromhex("04 02 02 41 04 04 00 ff 00")


def test_corrected_schema_has_the_fingerprint_of_the_protocol() -> None:
    assert Schema(SCHEMA).fingerprint == 0x34373EECB766B528


def test_the_protocols_examples_are_written_and_read_so() -> None:
    assert encode_envelope(Envelope(())) == b"\0"
    assert decode_envelope(b"\0") == Envelope(())
    assert encode_envelope(Envelope(((1, b"A"), (2, b"\x00\xff")))) == TWO_ITEMS
    assert decode_envelope(TWO_ITEMS).items == ((1, b"A"), (2, b"\x00\xff"))


def test_an_envelope_says_what_is_needed_to_read_its_body_before_it() -> None:
    envelope = make_envelope(topic="X/é", fingerprint=0x0102030405060708, body=b"body", timestamp_ms=-1)

    assert envelope.items == (
        (Item.TOPIC, b"X/\xc3\xa9"),
        (Item.FINGERPRINT, bytes.fromhex("0807060504030201")),
        (Item.TIMESTAMP, b"\x01"),
        (Item.BODY, b"body"),
    )


@given(
    st.builds(
        make_envelope,
        topic=st.none() | st.text(),
        fingerprint=st.none() | st.integers(0, 2**64 - 1),
        body=st.none() | st.binary(),
        timestamp_ms=st.none() | st.integers(-(2**63), 2**63 - 1),
        is_tombstone=st.booleans(),
    )
)
def test_what_is_put_in_comes_out_whoever_decodes_it(envelope: Envelope) -> None:
    data = encode_envelope(envelope)

    assert decode_envelope(data) == envelope
    read = Schema(SCHEMA).decode(data)["content"]
    assert [(item["key"], item["value"]) for item in read] == list(envelope.items)


def test_unknown_keys_are_kept_and_any_order_is_read() -> None:
    items = ((99, b"x"), (Item.BODY, b"b"), (99, b"y"), (-5, b""), (Item.TOPIC, b"X/a"))
    envelope = decode_envelope(encode_envelope(Envelope(items)))

    assert envelope.items == items
    assert (envelope.topic, envelope.body) == ("X/a", b"b")
    assert (envelope.fingerprint, envelope.timestamp_ms, envelope.is_tombstone) == (None, None, False)


def test_items_may_come_in_several_blocks() -> None:
    data = bytes.fromhex(
        "02 02 02 41  01 08 0c 04 01 02  00".replace("01 08 0c 04 01 02", "01 08 0c 04 78 79")
    )

    assert decode_envelope(data).items == ((1, b"A"), (6, b"xy"))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        TWO_ITEMS[:1],
        TWO_ITEMS[:4],
        TWO_ITEMS[:5],
        TWO_ITEMS[:-1],
        TWO_ITEMS + b"\0",
        bytes.fromhex("02 02 03 00"),  # a length of -2
        bytes.fromhex("02 02 06 41 00"),  # longer than the data
        bytes.fromhex("01 06 02 02 41 41 00"),  # a block that ends elsewhere
        bytes.fromhex("82 00 02 02 41 00"),  # a number in more octets than it needs
        bytes.fromhex("02 fe ff ff ff 1f 00 00"),  # a key of 33 bits
        bytes.fromhex("fe ff ff ff ff ff ff ff ff 01"),  # items without end
        bytes.fromhex("04 02 00 02 00 00"),  # two topics
    ],
)
def test_what_is_no_envelope_is_refused(data: bytes) -> None:
    with pytest.raises(AvroError):
        decode_envelope(data)


def test_items_are_bounded_in_number() -> None:
    many = Envelope(tuple((99, b"") for _ in range(1001)))

    with pytest.raises(AvroError, match="1000 items"):
        decode_envelope(encode_envelope(many))


@given(st.binary(max_size=40))
def test_any_octets_are_an_envelope_or_refused(data: bytes) -> None:
    try:
        envelope = decode_envelope(data)
    except AvroError:
        return
    for name in ("topic", "fingerprint", "timestamp_ms"):
        try:
            getattr(envelope, name)
        except AvroError:
            continue


@pytest.mark.parametrize(
    ("key", "value", "name"),
    [
        (Item.FINGERPRINT, b"1234567", "fingerprint"),
        (Item.TOPIC, b"\xff", "topic"),
        (Item.TIMESTAMP, b"", "timestamp_ms"),
        (Item.TIMESTAMP, b"\x02\x02", "timestamp_ms"),
    ],
)
def test_an_item_that_is_not_what_its_key_says_is_refused_when_it_is_read(
    key: int, value: bytes, name: str
) -> None:
    envelope = decode_envelope(encode_envelope(Envelope(((key, value),))))

    with pytest.raises(AvroError):
        getattr(envelope, name)
