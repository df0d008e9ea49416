"""Encoding of rows as bodies of messages: JSON, Avro, or Avro in an envelope."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
from pydantic_core import to_json

from nebula.avro import CONTENT_TYPE, Schema, encode_envelope, make_envelope
from nebula.errors import AvroError
from nebula.spark.source.options import AVRO, ENVELOPE, JSON

Encode: TypeAlias = Callable[[Mapping[str, Any]], bytes]

JSON_TYPE: Final = "application/json"


class RowInvalid(AvroError):
    """A row is no value of the schema.

    Attributes:
        row: its number, from 0.
    """

    def __init__(self, row: int, problem: str) -> None:
        super().__init__(f"row {row} cannot be written: {problem}")
        self.row = row


def content_type(kind: str) -> str:
    """What the messages say of their bodies."""
    return JSON_TYPE if kind == JSON else CONTENT_TYPE


def encoder(kind: str, schema: Schema | None, topic: str) -> Encode:
    """What makes a body of a row.

    Args:
        kind: `json`, `avro` or `envelope`.
        schema: of the bodies, where they are Avro.
        topic: where they go, for the envelope.
    """
    if kind == JSON:
        # NaN and the infinities have no form in JSON: texts, as Spark's to_json writes and from_json reads.
        # pydantic's writer also knows dates, decimals and times.
        return lambda row: to_json(_in_base64(row), inf_nan_mode="strings")
    assert schema is not None
    if kind == AVRO:
        return schema.encode
    assert kind == ENVELOPE
    fingerprint = schema.fingerprint

    def enveloped(row: Mapping[str, Any]) -> bytes:
        return encode_envelope(make_envelope(topic=topic, fingerprint=fingerprint, body=schema.encode(row)))

    return enveloped


def _in_base64(value: Any) -> Any:
    """Bytes as texts: JSON has none. Pydantic would take the letters of URLs, which from_json refuses."""
    match value:
        case bytes():
            return b64encode(value).decode()
        case dict():
            return {key: _in_base64(each) for key, each in value.items()}
        case list():
            return [_in_base64(each) for each in value]
        case _:
            return value


def rows_of(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """The rows as Python has them; maps as dicts."""
    return [
        dict(zip(batch.schema.names, values, strict=True))
        for values in zip(*(_values(column) for column in batch.columns), strict=True)
    ]


def _values(column: pa.Array) -> list[Any]:
    values: list[Any] = column.to_pylist()
    # Only columns with maps need a loop over their values.
    if not _holds_maps(column.type):
        return values
    return [_plain(value, column.type) for value in values]


def _holds_maps(kind: pa.DataType) -> bool:
    if pa.types.is_map(kind):
        return True
    # Maps may be nested in structs and lists.
    return any(_holds_maps(kind.field(index).type) for index in range(kind.num_fields))


def _plain(value: Any, kind: pa.DataType) -> Any:
    """Arrow gives a map out as pairs."""
    if value is None:
        return None
    if pa.types.is_map(kind):
        return {key: _plain(each, kind.item_type) for key, each in value}
    if pa.types.is_struct(kind):
        return {field.name: _plain(value[field.name], field.type) for field in kind}
    if pa.types.is_list(kind):
        return [_plain(each, kind.value_type) for each in value]
    return value
