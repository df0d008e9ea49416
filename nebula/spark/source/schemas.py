"""Where schemas come from: an option, a folder, or the broker."""

from __future__ import annotations

from functools import cache
from typing import Any

import anyio

from nebula.avro import Registry, Schema
from nebula.errors import AvroError, NebulaError, RemoteError, SettingsError
from nebula.headers import BROKER_QUEUE
from nebula.rpc.client import Client
from nebula.spark.source.options import BrokerOptions, ContentOptions


def schema_of(content: ContentOptions, broker: BrokerOptions) -> Schema | None:
    """The schema of the columns; None: the bodies are not Avro.

    Raises:
        SettingsError: the options name none that there is.
        AvroError: `avroSchema` is no schema.
    """
    if not content.is_avro:
        return None
    if content.avro_schema is not None:
        return Schema.from_text(content.avro_schema)
    name = content.schema_name
    assert name is not None
    if content.schemas is not None:
        found = Registry(content.schemas).by_name(name)
        place = f"the folder {content.schemas}"
    else:
        found = [
            known_to_broker(broker, each["fingerprint"]) for each in _ask(broker, "schema.list", name=name)
        ]
        place = "the broker"
    if len(found) != 1:
        raise SettingsError(
            f"schemaName {name!r}: {place} has {len(found)} schemas of this name; give the one that the"
            " columns are to come of by avroSchema"
        )
    return found[0]


class Writers:
    """Finds the schemas that envelopes were written with. May be sent to another process.

    Args:
        content: names a folder, or none.
        broker: is asked for what is not in the folder.
    """

    def __init__(self, content: ContentOptions, broker: BrokerOptions) -> None:
        self._content, self._broker = content, broker

    def __call__(self, fingerprint: int) -> Schema:
        """The schema of a fingerprint. Raises AvroError: nobody knows it, or the broker is not there."""
        if self._content.schemas is not None:
            found = Registry(self._content.schemas).by_fingerprint(fingerprint)
            if found is not None:
                return found
        return known_to_broker(self._broker, f"{fingerprint:016x}")


@cache
def known_to_broker(broker: BrokerOptions, fingerprint: str) -> Schema:
    """What the broker's registry has under a fingerprint; asked once in each process. Raises AvroError."""
    try:
        return Schema(_ask(broker, "schema.get", fingerprint=fingerprint)["definition"])
    except (SettingsError, RemoteError) as error:
        raise AvroError(f"the schema {fingerprint} is not known: {error}") from error


def _ask(broker: BrokerOptions, verb: str, **parameters: Any) -> Any:
    """Raises SettingsError: the broker could not be asked."""

    async def ask() -> Any:
        async with Client(broker.url, timeout=broker.timeout) as client:
            return await client.call_queue(BROKER_QUEUE, verb, parameters)

    try:
        return anyio.run(ask)
    except RemoteError:
        raise
    except (NebulaError, OSError) as error:
        raise SettingsError(f"the broker could not be asked for a schema ({verb}): {error}") from error
