"""Bodies in Avro, as a peer makes them that knows nothing of ours: by fastavro and MaXaM's pages alone."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

from fastavro import parse_schema, schemaless_writer
from fastavro.schema import fingerprint, to_parsing_canonical_form

SCHEMAS = Path(__file__).parent / "schemas"

# Item keys of B.9.
_FINGERPRINT, _BODY, _TOMBSTONE = 2, 3, 5

# As it is published, with items of another namespace than the envelope's: names are not on the wire (D.16).
_ENVELOPE = parse_schema(
    {
        "type": "record",
        "name": "com.tattsgroup.gaming.venueenvelope.GenericEnvelope",
        "fields": [
            {
                "name": "content",
                "type": {
                    "type": "array",
                    "items": {
                        "type": "record",
                        "name": "com.tattsgroup.genericenvelope.GenericItem",
                        "fields": [{"name": "key", "type": "int"}, {"name": "value", "type": "bytes"}],
                    },
                },
            }
        ],
    }
)


def envelope(text: str) -> bytes:
    """The bytes of `TYPE JSON`, or of `tombstone`."""
    kind, _, value = text.partition(" ")
    if kind == "tombstone":
        return _enveloped((_TOMBSTONE, b""))
    schema = json.loads((SCHEMAS / f"{kind}.avsc").read_text())
    # Of eight bytes, the lowest first.
    name = bytes.fromhex(fingerprint(to_parsing_canonical_form(schema), "CRC-64-AVRO"))
    return _enveloped((_FINGERPRINT, name), (_BODY, _written(parse_schema(schema), json.loads(value))))


def _enveloped(*items: tuple[int, bytes]) -> bytes:
    return _written(_ENVELOPE, {"content": [{"key": key, "value": value} for key, value in items]})


def _written(schema: Any, value: Any) -> bytes:
    buffer = io.BytesIO()
    schemaless_writer(buffer, schema, value)
    return buffer.getvalue()
