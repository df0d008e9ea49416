"""Sorting of messages: to which stream of files each belongs, and as what datum."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from nebula.avro import envelope
from nebula.avro.envelope import Item, decode_envelope
from nebula.avro.schema import Schema
from nebula.errors import AvroError
from nebula.headers import ORIGINAL_DESTINATION
from nebula.record.message import MESSAGE, MESSAGE_TEXT, encode_message
from nebula.stomp.client.messages import Message

__all__ = ["Kind", "Lookup", "Sorter"]

Lookup: TypeAlias = Callable[[int], Schema | None]
"""The schema of a fingerprint; None if it is unknown now."""

_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST_NAME: Final = 150  # a file system takes 255 bytes, and a fingerprint may follow


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """What one stream of files holds. Each is made once, and compared by identity.

    Attributes:
        name: of its folder, unless another schema has that.
        schema: of the data, as JSON.
        fingerprint: of the schema.
    """

    name: str
    schema: str
    fingerprint: int


class Sorter:
    """Sorts messages: Avro data under their writer's schema, all else as `nebula.RecordedMessage`.

    A datum that its schema cannot read would spoil the file that it is in. So each is checked, and what is
    not as it should be is kept as the message that it came in: nothing is lost. An envelope whose schema
    is unknown is kept whole, and can be unpacked once it is known.

    Args:
        lookup: finds schemas; it may take its time.
        bare: the schemas of destinations whose bodies are data without an envelope.
    """

    def __init__(self, lookup: Lookup, bare: Mapping[str, Schema] | None = None) -> None:
        self._lookup = lookup
        self._bare = {name: (_kind(schema), schema) for name, schema in (bare or {}).items()}
        self._by_fingerprint: dict[bytes, tuple[Kind, Schema]] = {}
        self._messages: dict[str, Kind] = {}
        # Envelopes of an unknown schema are recorded whole, by the envelope's own schema.
        self._envelopes = _kind(Schema(envelope.SCHEMA))

    def sort(self, message: Message, time_ms: int) -> tuple[Kind, bytes]:
        """The stream of a message, and its datum there. Never raises."""
        subscribed = message.subscription.destination
        body = message.body
        # `bare` is declared for what was subscribed to, which may be a glob of destinations.
        if (bare := self._bare.get(subscribed)) is not None:
            if bare[1].is_datum(body):
                return bare[0], body
        elif (unpacked := self._unpack(body)) is not None:
            return unpacked
        return self._whole(subscribed, message, time_ms)

    def _unpack(self, body: bytes) -> tuple[Kind, bytes] | None:
        """The datum of an envelope; itself, if its schema is not known; None: it is to stay as it is."""
        try:
            items = dict(decode_envelope(body).items)
        except AvroError:
            return None
        fingerprint, datum = items.get(Item.FINGERPRINT), items.get(Item.BODY)
        # What a tombstone deletes is told by the message's destination.
        # A fingerprint has eight bytes (B.9).
        if fingerprint is None or datum is None or Item.TOMBSTONE in items or len(fingerprint) != 8:
            return None
        known = self._by_fingerprint.get(fingerprint) or self._find(fingerprint)
        if known is None:
            return self._envelopes, body
        kind, schema = known
        # A datum that does not fit its schema is kept as the whole message.
        return (kind, datum) if schema.is_datum(datum) else None

    def _find(self, fingerprint: bytes) -> tuple[Kind, Schema] | None:
        # Little-endian, as in Avro's single-object encoding.
        schema = self._lookup(int.from_bytes(fingerprint, "little"))
        if schema is None:
            return None
        found = self._by_fingerprint[fingerprint] = _kind(schema), schema
        return found

    def _whole(self, subscribed: str, message: Message, time_ms: int) -> tuple[Kind, bytes]:
        kind = self._messages.get(subscribed)
        if kind is None:
            name = "message." + _safe(subscribed.strip("/").replace("/", "."))
            kind = self._messages[subscribed] = Kind(name, MESSAGE_TEXT, MESSAGE.fingerprint)
        headers = message.headers
        # A message that was copied (`copy_to`) says where it was sent to (G.copies).
        sent_to = headers.get(ORIGINAL_DESTINATION, message.destination)
        return kind, encode_message(message.id, sent_to, time_ms, headers, message.body)


def _kind(schema: Schema) -> Kind:
    return Kind(_safe(schema.name), json.dumps(schema.definition), schema.fingerprint)


def _safe(name: str) -> str:
    # Readers leave out what begins with a dot or an underscore.
    return _NOT_IN_NAMES.sub("_", name).lstrip("._")[:_LONGEST_NAME] or "unnamed"
