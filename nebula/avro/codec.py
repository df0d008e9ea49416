"""Codec for clients: values into enveloped bodies, and back."""

from __future__ import annotations

from typing import Any

from nebula.avro.envelope import decode_envelope, encode_envelope, make_envelope
from nebula.avro.registry import SchemaSource
from nebula.avro.schema import Schema
from nebula.errors import AvroError

CONTENT_TYPE = "avro/binary"
"""Content type that our client gives such a body (D.41). No code bases a decision on it."""


class UnknownSchema(AvroError):
    """A body was written with a schema that is not at hand: get it by its fingerprint, then try again.

    Attributes:
        fingerprint: of the schema.
    """

    def __init__(self, fingerprint: int) -> None:
        super().__init__(f"the schema {fingerprint:016x} is not known: ask the broker's schema.get")
        self.fingerprint = fingerprint


def encode(value: Any, schema: Schema, *, topic: str | None = None, timestamp_ms: int | None = None) -> bytes:
    """A value in an envelope that says what it was written with.

    Raises:
        AvroError: it is not a value of `schema`.
    """
    return encode_envelope(
        make_envelope(
            topic=topic,
            fingerprint=schema.fingerprint,
            body=schema.encode(value),
            timestamp_ms=timestamp_ms,
        )
    )


def tombstone(*, topic: str | None = None) -> bytes:
    """An envelope that stands for a deletion."""
    return encode_envelope(make_envelope(topic=topic, is_tombstone=True))


def decode(body: bytes, schemas: SchemaSource, reader: Schema | None = None) -> Any | None:
    """The value in an envelope; None for a deletion: a tombstone or an empty body.

    Args:
        reader: the reader's schema; None: as it was written.

    Raises:
        UnknownSchema: `schemas` does not know what the datum was written with.
        AvroError: no envelope, or a datum that cannot be read so.
    """
    if not body:
        return None
    envelope = decode_envelope(body)
    # Checked first, since a tombstone may lack a fingerprint (D.27).
    if envelope.is_tombstone:
        return None
    fingerprint, datum = envelope.fingerprint, envelope.body
    if fingerprint is None or datum is None:
        raise AvroError("the envelope has no fingerprint or no body")
    writer = schemas.by_fingerprint(fingerprint)
    if writer is None:
        raise UnknownSchema(fingerprint)
    return writer.decode(datum, reader)
