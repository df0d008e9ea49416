"""Bodies in Avro: the protocol's three fields, with parameters in a schema that the verb declares.

A body is one `nebula.Message`. Its parameters are bytes in Avro's single-object encoding, which names their
schema by its fingerprint, or a text that is JSON: errors, and values of verbs that declare no schema.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from pydantic import BaseModel, TypeAdapter
from pydantic_core import from_json

from nebula.errors import AvroError

if TYPE_CHECKING:
    from nebula.avro.schema import Schema

__all__ = [
    "CONTENT_TYPE",
    "MESSAGE",
    "AvroBody",
    "AvroSchemas",
    "AvroValue",
    "in_avro",
    "read_message",
    "read_value",
    "schemas_of",
    "write_message",
    "write_value",
]

CONTENT_TYPE: Final = "avro/binary"

_F = TypeVar("_F", bound=Callable[..., Any])

MESSAGE: Final[Mapping[str, Any]] = {
    "type": "record",
    "name": "nebula.Message",
    "fields": [
        {"name": "verb", "type": "string"},
        {"name": "parameters", "type": ["null", "bytes", "string"], "default": None},
        {"name": "description", "type": ["null", "string"], "default": None},
    ],
}
"""The schema of a whole body."""

# Avro's specification, "Single-object encoding".
_MARKER: Final = b"\xc3\x01"
_HEAD: Final = len(_MARKER) + 8

# Until it is put into a body a value is ASCII, as one of JSON is, which cannot begin so.
_IN_BASE64: Final = b"="

_SCHEMAS: Final = "__nebula_avro__"


class AvroBody(bytes):
    """A body that has to go out as `avro/binary`."""

    __slots__ = ()


class AvroValue(NamedTuple):
    """Parameters of a message in Avro: bytes and the fingerprint of their schema, or what JSON gave."""

    fingerprint: int | None
    datum: bytes = b""
    plain: Any = None


class AvroSchemas(NamedTuple):
    """What a verb's bodies are written with; None: as JSON."""

    parameters: Schema | None = None
    result: Schema | None = None

    def describe(self) -> dict[str, Any]:
        """The definitions, as `describe` shows them."""
        return {
            name: None
            if schema is None
            else {"fingerprint": schema.fingerprint_hex, "schema": schema.definition}
            for name, schema in self._asdict().items()
        }


def in_avro(*, parameters: Schema | None = None, result: Schema | None = None) -> Callable[[_F], _F]:
    """Declare the Avro schemas of a verb. Put this decorator below `@verb`.

    A request in `avro/binary` is read, and its reply written, with these schemas; JSON and text work as
    before. Callers of the function send Avro.

    Args:
        parameters: the schema of a record with the verb's parameters as fields, or of the one parameter that
            takes the whole value.
        result: the schema of what it returns.
    """

    def mark(function: _F) -> _F:
        setattr(function, _SCHEMAS, AvroSchemas(parameters, result))
        return function

    return mark


def schemas_of(function: Callable[..., Any]) -> AvroSchemas | None:
    """What `in_avro` said about a function, or None."""
    return getattr(function, _SCHEMAS, None)


def read_message(body: bytes) -> tuple[str, AvroValue, str | None]:
    """Verb, parameters and description of a body.

    Raises:
        AvroError: it is no such message.
    """
    fields = _message_schema().decode(body)
    return fields["verb"], _value_of(fields["parameters"]), fields["description"]


def _value_of(parameters: bytes | str | None) -> AvroValue:
    if parameters is None:
        return AvroValue(None)
    if isinstance(parameters, str):
        try:
            return AvroValue(None, plain=from_json(parameters))
        except ValueError as error:
            raise AvroError(f"parameters: a text that is no JSON: {error}") from None
    if len(parameters) < _HEAD or not parameters.startswith(_MARKER):
        raise AvroError("parameters: no single-object encoding, which begins with C3 01 and a fingerprint")
    return AvroValue(int.from_bytes(parameters[len(_MARKER) : _HEAD], "little"), parameters[_HEAD:])


def write_message(verb: str, parameters: bytes | None, description: str | None) -> AvroBody:
    """A body from its fields.

    Args:
        verb: the verb.
        parameters: from `write_value`, or JSON.
        description: a text for people.
    """
    shown: bytes | str | None = None
    if parameters is not None:
        is_avro = parameters.startswith(_IN_BASE64)
        shown = base64.b64decode(parameters[len(_IN_BASE64) :]) if is_avro else parameters.decode()
    return AvroBody(_message_schema().encode({"verb": verb, "parameters": shown, "description": description}))


def write_value(schema: Schema, value: Any) -> bytes:
    """A value for `write_message`. A record's fields may be left out where the schema has a default.

    Raises:
        AvroError: it is not a value of the schema.
    """
    plain = _plain(_ANYTHING.dump_python(value, by_alias=True, warnings=False))
    if isinstance(plain, dict) and isinstance(schema.parsed, Mapping) and schema.parsed["type"] == "record":
        missing = {one["name"]: one["default"] for one in schema.parsed["fields"] if "default" in one}
        plain = missing | plain
    encoded = _MARKER + schema.fingerprint.to_bytes(8, "little") + schema.encode(plain)
    return _IN_BASE64 + base64.b64encode(encoded)


def read_value(schema: Schema | None, value: AvroValue) -> Any:
    """The value that was sent, as Python has it: dicts, lists, bytes, dates, …

    Raises:
        AvroError: it was written with another schema, or is none of it.
    """
    if value.fingerprint is None:
        return value.plain
    if schema is None:
        raise AvroError("no schema is declared; send JSON")
    if value.fingerprint != schema.fingerprint:
        raise AvroError(f"written with the schema {value.fingerprint:016x}, not {schema.fingerprint_hex}")
    return schema.decode(value.datum)


_ANYTHING: Final[TypeAdapter[Any]] = TypeAdapter(Any)


def _plain(value: Any) -> Any:
    """What Avro knows no word for, as what it means."""
    if isinstance(value, Enum):
        return _plain(value.value)
    if isinstance(value, BaseModel):
        return _plain(value.model_dump(by_alias=True))
    if isinstance(value, Mapping):
        return {_plain(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(one) for one in value]
    return value


@cache
def _message_schema() -> Schema:
    from nebula.avro.schema import Schema

    return Schema(MESSAGE)
