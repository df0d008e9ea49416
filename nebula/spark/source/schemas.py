"""Sources of schemas: an option, a folder, or the broker."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Final

import anyio

from nebula.avro import Registry, Schema
from nebula.errors import (
    AvroError,
    ConnectFailed,
    ConnectionLost,
    NebulaError,
    RemoteError,
    ServerError,
    SettingsError,
)
from nebula.headers import BROKER_QUEUE
from nebula.rpc.client.client import Client
from nebula.rpc.wire.brokers import brand_of
from nebula.spark.source.options import AVRO, ENVELOPE, BrokerOptions, ContentOptions

# It may be registered at any moment.
_FORGET_SECONDS: Final = 30.0

_PAUSE_SECONDS: Final = 0.2

_UNKNOWN_VERB: Final = "unknown-verb"


def settle(
    content: ContentOptions, broker: BrokerOptions, destination: str
) -> tuple[ContentOptions, Schema | None]:
    """What the bodies of a destination are, and the schema of the columns; None: they are not Avro.

    Where the options leave it open, a Nebula broker is asked what it has bound the destination to.

    Raises:
        SettingsError: the options name no schema that there is, or the broker could not be asked.
        AvroError: `avroSchema` is no schema.
    """
    if not content.asks:
        return content, schema_of(content, broker)
    bound = _binding(broker, destination)
    if bound is None:
        # `avro` was asked for by name, and there is nothing to make columns of.
        if content.is_avro:
            raise SettingsError(
                f"content {content.kind}: the broker has bound {destination} to no Avro type: give avroSchema"
                " (its JSON) or schemaName, as the columns come of it"
            )
        return replace(content, asks=False), None
    kind = AVRO if bound["content"] == "bare" else ENVELOPE
    settled = replace(content, kind=kind, schema_name=bound["name"], asks=False)
    return settled, schema_of(settled, broker)


def schema_of(content: ContentOptions, broker: BrokerOptions) -> Schema | None:
    """The schema that the options name. Raises as `settle`."""
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
        found = _by_name(broker, name)
        place = "the broker"
    # Several schemas may have one name: the columns would depend on which one was found first.
    if len(found) != 1:
        raise SettingsError(
            f"schema {name!r}: {place} has {len(found)} schemas of this name; give the one that the"
            " columns are to come of by avroSchema"
        )
    return found[0]


class Writers:
    """Finds the schemas that envelopes were written with. May be sent to another process.

    Each process remembers for half a minute what is unknown.

    Args:
        content: names a folder, or none.
        broker: is asked for what is not in the folder.
    """

    def __init__(self, content: ContentOptions, broker: BrokerOptions) -> None:
        self._folder, self._broker = content.schemas, broker

    def __call__(self, fingerprint: int) -> Schema:
        """The schema of a fingerprint.

        Raises:
            AvroError: it is unknown.
            SettingsError: the broker could not be asked, so it may be known.
        """
        now, key = monotonic(), (self._folder, self._broker, fingerprint)
        # The default passes a fingerprint that was never asked for.
        at, why = _unknown.get(key, (now - _FORGET_SECONDS, ""))
        if now - at < _FORGET_SECONDS:
            raise AvroError(why)
        found = None if self._folder is None else Registry(self._folder).by_fingerprint(fingerprint)
        if found is not None:
            return found
        try:
            return _asked(self._broker, f"{fingerprint:016x}")
        except RemoteError as error:
            why = f"the schema {fingerprint:016x} is not known: {error.message}"
            # Cleaned whenever something is added, so that invented fingerprints do not fill it.
            for old in [each for each, (told, _) in _unknown.items() if now - told >= _FORGET_SECONDS]:
                del _unknown[old]
            _unknown[key] = now, why
            raise AvroError(why) from error


_unknown: dict[tuple[Path | None, BrokerOptions, int], tuple[float, str]] = {}


# For ever: a schema never changes under its fingerprint.
@cache
def _asked(broker: BrokerOptions, fingerprint: str) -> Schema:
    """What the broker has under a fingerprint. Raises as `_ask`."""
    return Schema(_ask(broker, "schema.get", fingerprint=fingerprint)["definition"])


def _by_name(broker: BrokerOptions, name: str) -> list[Schema]:
    try:
        return [_asked(broker, each["fingerprint"]) for each in _ask(broker, "schema.list", name=name)]
    except RemoteError as error:
        raise SettingsError(f"schema {name!r}: {error.message}") from error


def _binding(broker: BrokerOptions, destination: str) -> Any:
    """The `name` and `content` that a destination is bound to; None: to nothing, as far as we may know."""
    try:
        return _ask(broker, "schema.bound", destination=destination)
    except RemoteError as error:
        # An older broker has no such verb, and this principal may lack the right to ask.
        if error.code in (_UNKNOWN_VERB, "not-allowed"):
            return None
        raise SettingsError(f"the broker did not tell what {destination} is bound to: {error}") from error


def _ask(broker: BrokerOptions, verb: str, **parameters: Any) -> Any:
    """Ask; a broker that is away, as in a restart, is waited for as long as `timeout` says.

    Raises RemoteError: it refused. Raises SettingsError: it could not be asked.
    """
    until = monotonic() + broker.timeout
    while True:
        try:
            # A loop of its own for each question: Spark's processes have none.
            return anyio.run(_ask_once, broker, verb, parameters)
        except RemoteError:
            raise
        except (NebulaError, OSError) as error:
            if not _is_away(error) or monotonic() + _PAUSE_SECONDS > until:
                raise SettingsError(
                    f"the broker could not be asked for a schema ({verb}): {error}"
                ) from error
        sleep(_PAUSE_SECONDS)


def _is_away(error: Exception) -> bool:
    # One that answers the login with an error is there, and will not change its mind.
    is_refused = isinstance(error, ConnectFailed) and isinstance(error.__cause__, ServerError)
    return isinstance(error, ConnectionLost | ServerError) and not is_refused


async def _ask_once(broker: BrokerOptions, verb: str, parameters: dict[str, Any]) -> Any:
    async with Client(broker.url, timeout=broker.timeout) as client:
        server = client.stomp.server
        if not brand_of(server).has_verbs:
            # The question would make a queue there, and wait in it for ever.
            raise RemoteError(
                _UNKNOWN_VERB, f"{server} knows no schemas: give schemas, a folder of .avsc files"
            )
        return await client.call_queue(BROKER_QUEUE, verb, parameters)
