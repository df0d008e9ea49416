"""Avro as MaXaM uses it: envelopes, fingerprints, a registry of schemas, and checks of bodies.

fastavro does the Avro; what is here keeps hostile data away from it and names what it does.
"""

from nebula.avro.checks import Check, Finding, bare_check, envelope_check
from nebula.avro.codec import CONTENT_TYPE, UnknownSchema, decode, encode, tombstone
from nebula.avro.envelope import Envelope, Item, decode_envelope, encode_envelope, make_envelope
from nebula.avro.registry import Registry, SchemaSource
from nebula.avro.schema import Schema

__all__ = [
    "CONTENT_TYPE",
    "Check",
    "Envelope",
    "Finding",
    "Item",
    "Registry",
    "Schema",
    "SchemaSource",
    "UnknownSchema",
    "bare_check",
    "decode",
    "decode_envelope",
    "encode",
    "encode_envelope",
    "envelope_check",
    "make_envelope",
    "tombstone",
]
