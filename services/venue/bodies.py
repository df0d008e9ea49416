"""The bodies of messages: records in envelopes."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from nebula import avro
from services.venue.controller import Update
from services.venue.records import Record
from services.venue.topics import SCHEMAS

SCHEMAS_FOLDER: Final = Path(__file__).with_name("schemas")

AVRO: Final = {"content-type": avro.CONTENT_TYPE}
"""The headers of each message."""


class Bodies:
    """Writes and reads bodies by the schemas of this folder. May be shared."""

    def __init__(self) -> None:
        self._registry = avro.Registry(SCHEMAS_FOLDER)
        schemas = {schema.name: schema for schema in self._registry}
        self._schemas = {topic: schemas[name] for topic, name in SCHEMAS.items()}

    def encode(self, update: Update, now: int) -> bytes:
        """What to publish; nothing at all deletes, whatever the destination carries.

        Args:
            update: what it is about.
            now: when, in ms since the epoch.

        Raises:
            AvroError: the record is not of the topic's schema.
        """
        if update.record is None:
            return b""
        schema = self._schemas[update.topic]
        return avro.encode(update.record, schema, topic=update.destination, timestamp_ms=now)

    def decode(self, body: bytes) -> Record | None:
        """The record of a body, as it was written; None for one that is deleted.

        Raises:
            AvroError: it is no envelope, or of a schema that is not known here.
        """
        record: Record | None = avro.decode(body, self._registry)
        return record


def tombstone(destination: str) -> bytes:
    """An envelope that deletes, for destinations that are bound to a schema (D.27).

    Readers get it as it was sent, so it may say more than that something is gone.
    """
    return avro.tombstone(topic=destination)
