"""Record for a message whose body is not Avro, or must be kept as it came."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from nebula.avro.schema import Schema
from nebula.avro.varints import write_long

MESSAGE_SCHEMA: Final[dict[str, Any]] = {
    "type": "record",
    "name": "RecordedMessage",
    "namespace": "nebula",
    "fields": [
        {"name": "id", "type": "string", "doc": "the broker's name for it"},
        {"name": "destination", "type": "string", "doc": "where it was sent to"},
        {
            "name": "time",
            "type": {"type": "long", "logicalType": "timestamp-millis"},
            "doc": "when it was received",
        },
        {"name": "content_type", "type": "string", "doc": "empty: none was said"},
        {"name": "headers", "type": {"type": "map", "values": "string"}, "doc": "all others"},
        {"name": "body", "type": "bytes"},
    ],
}
"""`nebula.RecordedMessage`: any message, with its headers."""

MESSAGE: Final = Schema(MESSAGE_SCHEMA)
MESSAGE_TEXT: Final = json.dumps(MESSAGE_SCHEMA)

# They belong to the delivery, or have a field of their own.
_NOT_KEPT: Final = frozenset({
    "ack", "content-length", "content-type", "destination", "message-id", "redelivered", "subscription",
})  # fmt: skip

# Names of headers, destinations and most values come again and again.
_TEXTS: Final[dict[str, bytes]] = {}
_MOST_TEXTS: Final = 4096
_LONGEST_TEXT: Final = 200

# Lengths of one or two bytes, encoded once: each header of a message has two of them.
_SHORT: Final = tuple(write_long(number) for number in range(2048))


def encode_message(
    message_id: str, destination: str, time_ms: int, headers: Mapping[str, str], body: bytes
) -> bytes:
    """The datum of a message.

    Args:
        message_id: the broker's.
        destination: where it was sent to.
        time_ms: milliseconds since 1970.
        headers: of the MESSAGE; those that belong to its delivery are left out.
        body: its bytes.
    """
    parts = [
        _text(message_id),
        _known_text(destination),
        write_long(time_ms),
        _known_text(headers.get("content-type", "")),
        _map(headers),
        _length(len(body)),
        body,
    ]
    return b"".join(parts)


def _map(headers: Mapping[str, str]) -> bytes:
    kept = [_known_text(key) + _known_text(value) for key, value in headers.items() if key not in _NOT_KEPT]
    # Avro writes a map as blocks; one block and the empty one at the end are enough.
    return b"%b%b\0" % (_length(len(kept)), b"".join(kept)) if kept else b"\0"


def _known_text(text: str) -> bytes:
    found = _TEXTS.get(text)
    if found is None:
        found = _text(text)
        # When strangers have filled it with what never comes again, the rest costs what it costs.
        if len(_TEXTS) < _MOST_TEXTS and len(found) < _LONGEST_TEXT:
            _TEXTS[text] = found
    return found


def _text(text: str) -> bytes:
    data = text.encode()
    return _length(len(data)) + data


def _length(number: int) -> bytes:
    return _SHORT[number] if number < len(_SHORT) else write_long(number)
