"""Options of the source and the sink (`.option(…)`): parsed, checked, refused with a sentence.

Spark hands over texts, under names in lower case. Everything is checked where the query is declared or
started, not in its first batch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from nebula.destinations import destination_named
from nebula.errors import SettingsError
from nebula.rpc.wire.brokers import is_last_value
from nebula.stomp.client.addresses import parse_address

MESSAGE: Final = "message"
TEXT: Final = "text"
AVRO: Final = "avro"
ENVELOPE: Final = "envelope"
JSON: Final = "json"

READ_CONTENTS: Final = (MESSAGE, TEXT, AVRO, ENVELOPE)
WRITE_CONTENTS: Final = (JSON, AVRO, ENVELOPE)

_SUBSCRIBED: Final = ("/queue/", "/topic/")

# Spark's own, which it hands to the sink as well.
_SPARKS: Final = frozenset({"checkpointlocation", "queryname", "path"})

_BROKER: Final = ("broker", "destination", "timeout")
_SCHEMA: Final = ("content", "avroSchema", "schemaName", "schemas")
_READ: Final = (*_BROKER, *_SCHEMA, "clientId", "corrupt")
_STREAM: Final = (
    *_READ, "spool", "durable", "prefetch", "maxRowsPerBatch", "maxSpoolRows", "maxSpoolBytes", "partitions",
    "quietSeconds",
    "quietLimitSeconds",
)  # fmt: skip
_WRITE: Final = (*_BROKER, *_SCHEMA, "window")


@dataclass(frozen=True, slots=True)
class BrokerOptions:
    """Where the broker is, and who we are there.

    Attributes:
        url: with login and passcode; None is the environment's `NEBULA_BROKER`, in the process that connects.
        client_id: names the session. Not of a sink: each task has a session, and one would end the other.
        timeout: seconds to wait for the broker where a caller waits.
    """

    url: str | None = field(repr=False)
    client_id: str | None
    timeout: float


@dataclass(frozen=True, slots=True)
class ContentOptions:
    """What the bodies are.

    Attributes:
        kind: one of `READ_CONTENTS` or `WRITE_CONTENTS`.
        avro_schema: the schema of the columns, as JSON; None: see `schema_name`.
        schema_name: its full name, to be found in `schemas` or asked of the broker.
        schemas: a folder of `.avsc` files.
        asks: what the broker has bound the destination to decides; `kind` is what the bodies are where it
            is bound to nothing.
    """

    kind: str
    avro_schema: str | None
    schema_name: str | None
    schemas: Path | None
    asks: bool = False

    @property
    def is_avro(self) -> bool:
        """The columns are those of an Avro schema."""
        return self.kind in (AVRO, ENVELOPE)


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Of a batch read, and of a streaming read.

    Attributes:
        destination: what is read; a glob where the broker knows them.
        skips_corrupt: a body that cannot be read is left out; else it is an error.
    """

    broker: BrokerOptions
    destination: str
    content: ContentOptions
    skips_corrupt: bool


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """Of a streaming read, in addition to `ReadOptions`.

    Attributes:
        spool: the folder that what was received waits in.
        durable: the name of the durable subscription; None for a queue.
        prefetch: messages that the broker may send ahead of our ACKs.
        max_rows_per_batch: None: all that is there.
        max_spool_rows, max_spool_bytes: beyond either no more is received until Spark has committed.
        partitions: tasks that read one batch at most; None: one for each core of this machine.
        quiet_seconds: with the trigger `availableNow`, the end is after this time without a message.
        quiet_limit_seconds: and at the latest after this time: on a destination that is never quiet.
    """

    read: ReadOptions
    spool: Path
    durable: str | None
    prefetch: int
    max_rows_per_batch: int | None
    max_spool_rows: int
    max_spool_bytes: int
    partitions: int | None
    quiet_seconds: float
    quiet_limit_seconds: float


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Of a write.

    Attributes:
        destination: where every row goes.
        window: messages that may be under way without their receipts, for each task.
    """

    broker: BrokerOptions
    destination: str
    content: ContentOptions
    window: int


def any_read_options(options: Mapping[str, str]) -> ReadOptions:
    """Of a read of which Spark does not say yet whether it is a batch or a stream. Raises SettingsError.

    Only last values are read in batch, and they are never streamed.
    """
    # Without `spool` a last-value destination can only be meant as a batch.
    if "spool" not in options and is_last_value(_destination(options)):
        return read_options(options)
    return stream_options(options).read


def read_options(options: Mapping[str, str]) -> ReadOptions:
    """Of a batch read. Raises SettingsError: one is missing, unknown, or wrong."""
    _check_names(options, _READ)
    read = _read(options)
    if not is_last_value(read.destination):
        raise SettingsError(
            f"destination {read.destination!r}: a batch read is the snapshot of last values, such as X/EGM.*;"
            " a queue or topic is read by a stream, once with .trigger(availableNow=True)"
        )
    return read


def stream_options(options: Mapping[str, str]) -> StreamOptions:
    """Of a streaming read. Raises SettingsError: one is missing, unknown, or wrong."""
    _check_names(options, _STREAM)
    read = _read(options)
    durable = options.get("durable") or None
    _check_streamed(read, durable)
    return StreamOptions(
        read=read,
        spool=_spool(options),
        durable=durable,
        # `or`: the numbers are above 0, so None is the only false value.
        prefetch=_whole(options, "prefetch") or 10_000,
        max_rows_per_batch=_whole(options, "maxRowsPerBatch"),
        max_spool_rows=_whole(options, "maxSpoolRows") or 10_000_000,
        max_spool_bytes=_whole(options, "maxSpoolBytes") or 4 * 1024**3,
        partitions=_whole(options, "partitions"),
        quiet_seconds=_seconds(options, "quietSeconds") or 1.0,
        quiet_limit_seconds=_seconds(options, "quietLimitSeconds") or 60.0,
    )


def write_options(options: Mapping[str, str]) -> WriteOptions:
    """Of a write. Raises SettingsError: one is missing, unknown, or wrong."""
    _check_names(options, _WRITE)
    return WriteOptions(
        broker=_broker(options),
        destination=_destination(options),
        content=_content(options, WRITE_CONTENTS, JSON),
        window=_whole(options, "window") or 1000,
    )


def _read(options: Mapping[str, str]) -> ReadOptions:
    content = _content(options, READ_CONTENTS, ENVELOPE if _has_schema(options) else MESSAGE)
    corrupt = options.get("corrupt", "fail")
    if corrupt not in ("fail", "skip"):
        raise SettingsError(f"corrupt {corrupt!r} is not one of fail, skip")
    return ReadOptions(_broker(options), _destination(options), content, corrupt == "skip")


def _has_schema(options: Mapping[str, str]) -> bool:
    return bool(options.get("avroSchema") or options.get("schemaName"))


def _check_streamed(read: ReadOptions, durable: str | None) -> None:
    destination = read.destination
    if is_last_value(destination):
        raise SettingsError(
            f"destination {destination!r} keeps latest values only, and a stream would miss some: read it in"
            " batch (spark.read), or stream a queue that gets a copy of each (copy_to)"
        )
    if not destination.startswith(_SUBSCRIBED):
        raise SettingsError(f"destination {destination!r} is not a queue (/queue/…) or a topic (/topic/…)")
    # A topic keeps nothing for a subscription that is away, unless it is durable.
    if destination.startswith("/topic/") and durable is None:
        raise SettingsError(
            f"destination {destination!r}: what comes to a topic without a listener is gone: give durable"
            " (a name for the subscription) and clientId"
        )
    if durable is not None and read.broker.client_id is None:
        raise SettingsError(
            f"durable {durable!r}: a durable subscription belongs to a session: give clientId"
        )


def _broker(options: Mapping[str, str]) -> BrokerOptions:
    url = options.get("broker") or None
    # Parsed only to report a wrong address at the start of the query.
    if url is not None:
        parse_address(url)
    return BrokerOptions(
        url=url,
        client_id=options.get("clientId") or None,
        timeout=_seconds(options, "timeout") or 60.0,
    )


def _content(options: Mapping[str, str], kinds: tuple[str, ...], default: str) -> ContentOptions:
    kind = options.get("content", default)
    if kind not in kinds:
        raise SettingsError(f"content {kind!r} is not one of {', '.join(kinds)}")
    folder = options.get("schemas")
    if folder and not Path(folder).is_dir():
        raise SettingsError(f"schemas {folder!r} is not a folder")
    # The broker's binding decides, unless the user has chosen `message`, `text` or `json`.
    is_open = "content" not in options or kind in (AVRO, ENVELOPE)
    return ContentOptions(
        kind=kind,
        avro_schema=options.get("avroSchema") or None,
        schema_name=options.get("schemaName") or None,
        schemas=Path(folder) if folder else None,
        asks=is_open and not _has_schema(options),
    )


def _destination(options: Mapping[str, str]) -> str:
    # `path` is what `.load(…)` and `.save(…)` give.
    destination = options.get("destination") or options.get("path") or ""
    if not destination:
        raise SettingsError(
            'give .option("destination", …): a queue, a topic, or last values such as X/EGM.*'
        )
    try:
        return destination_named(destination, takes_globs=True)
    except ValueError as error:
        raise SettingsError(str(error)) from None


def _spool(options: Mapping[str, str]) -> Path:
    folder = options.get("spool")
    if not folder:
        raise SettingsError(
            f"{_destination(options)} is read by a stream (spark.readStream), and that needs"
            ' .option("spool", FOLDER): what was received waits there until Spark has committed it; no other'
            " query may use it, and on a cluster all workers have to see it"
        )
    # Workers and the planner are other processes, with other working directories.
    if not Path(folder).is_absolute():
        raise SettingsError(f"spool {folder!r} has to be an absolute path: workers run in other folders")
    return Path(folder)


def _whole(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and int(text)):
        raise SettingsError(f"{name} {text!r} is not a whole number above 0")
    return int(text)


def _seconds(options: Mapping[str, str], name: str) -> float | None:
    text = options.get(name)
    if text is None:
        return None
    with suppress(ValueError):
        if 0 < float(text) < math.inf:
            return float(text)
    raise SettingsError(f"{name} {text!r} is not a number of seconds above 0")


def _check_names(options: Mapping[str, str], names: tuple[str, ...]) -> None:
    # Spark ignores the case of options' names.
    known = _SPARKS.union(name.lower() for name in names)
    if unknown := sorted(name for name in options if name.lower() not in known):
        raise SettingsError(f"there is no option {', '.join(unknown)}: there are {', '.join(sorted(names))}")
