"""Checks of a body before a broker stores it."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TypeAlias

from nebula.avro.envelope import decode_envelope
from nebula.avro.registry import Registry
from nebula.avro.schema import Schema
from nebula.errors import AvroError


class Finding(Enum):
    """What a body is."""

    VALID = "valid"
    TOMBSTONE = "tombstone"
    INVALID = "invalid"


Check: TypeAlias = Callable[[bytes], Finding]
"""Judges a body. Never raises; bounded in time and memory, whatever the body is."""


def envelope_check(registry: Registry, name: str) -> Check:
    """A body has to be a GenericEnvelope of a type that is called `name`.

    Its fingerprint must be of a registered schema, and its datum must decode under that. An
    envelope with the tombstone item may do without both; what it has is judged all the same, as it
    is delivered as it was sent (D.27).
    """

    def judge(body: bytes) -> Finding:
        envelope = decode_envelope(body)
        fingerprint, datum = envelope.fingerprint, envelope.body
        found = Finding.TOMBSTONE if envelope.is_tombstone else Finding.VALID
        if fingerprint is None:
            # Only a deletion needs no schema.
            return found if envelope.is_tombstone and datum is None else Finding.INVALID
        schema = registry.by_fingerprint(fingerprint)
        # Registered is not enough: a schema of another type would pass data that readers of this
        # destination reject.
        if schema is None or schema.name != name:
            return Finding.INVALID
        if datum is None:
            return found if envelope.is_tombstone else Finding.INVALID
        return found if schema.is_datum(datum) else Finding.INVALID

    def check(body: bytes) -> Finding:
        try:
            return judge(body)
        except AvroError:
            return Finding.INVALID

    return check


def bare_check(schema: Schema) -> Check:
    """A body has to be one datum of `schema`, and nothing else."""
    return lambda body: Finding.VALID if schema.is_datum(body) else Finding.INVALID
