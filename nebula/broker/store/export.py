"""Rows of a store as lines of JSON: what an export is made of."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from nebula.broker.store.sqlite_tables import TABLES, Table, encode_json

__all__ = ["TABLES_BY_NAME", "line_of", "object_of", "row_of"]

TABLES_BY_NAME: Final = {table.name: table for table in TABLES}

_TABLE: Final = "table"
_BODY: Final = "body"
_BASE64: Final = "body_base64"

# Columns that hold JSON: of pairs of texts, and of texts.
_PAIRS: Final = "headers"
_TEXTS: Final = "destinations"

_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "TEXT": (str,),
    "INTEGER": (int,),
    "REAL": (float, int),
    "BLOB": (bytes,),
}


def object_of(table: Table, row: Sequence[Any]) -> dict[str, Any]:
    """A row as an object of JSON: headers and lists as such, a body as text if it is UTF-8, else in base 64.

    Raises:
        ValueError: a column holds what cannot be there. The text names the column and quotes nothing.
    """
    fields: dict[str, Any] = {_TABLE: table.name}
    for column, value in zip(_columns(table), row, strict=True):
        name = column.name
        column.check(value)
        if name in (_PAIRS, _TEXTS):
            fields[name] = _listed(name, _parsed(name, value))
        elif name == _BODY:
            fields |= _body(value)
        else:
            fields[name] = value
    return fields


def row_of(fields: Mapping[str, Any]) -> tuple[Table, tuple[Any, ...]]:
    """What `object_of` was made of.

    Raises:
        ValueError: it is no such object. The text quotes no values.
    """
    table = TABLES_BY_NAME.get(str(fields.get(_TABLE)))
    if table is None:
        raise ValueError("it names none of our tables")
    given = {name: value for name, value in fields.items() if name != _TABLE}
    row = []
    for column in _columns(table):
        name = column.name
        if name == _BODY:
            value: Any = _octets(given)
        elif name in given:
            value = given.pop(name)
        else:
            raise ValueError(f"it has no {name}")
        if name in (_PAIRS, _TEXTS):
            value = encode_json(_listed(name, value))
        column.check(value)
        row.append(value)
    if given:
        raise ValueError("it has a field that its table has not")
    return table, tuple(row)


def line_of(fields: Mapping[str, Any]) -> str:
    """An object as a line."""
    return encode_json(fields) + "\n"


@dataclass(frozen=True, slots=True)
class _Column:
    name: str
    kind: str
    types: tuple[type, ...]
    may_miss: bool

    def check(self, value: Any) -> None:
        # SQLite takes values of any type in any column.
        if value is None:
            if not self.may_miss:
                raise ValueError(f"{self.name} is missing")
        elif not isinstance(value, self.types) or isinstance(value, bool):
            raise ValueError(f"{self.name} is no {self.kind}")


@cache
def _columns(table: Table) -> tuple[_Column, ...]:
    declared = [declaration.split() for declaration in (*table.key, *table.others)]
    return tuple(_Column(name, kind, _TYPES[kind], not words) for name, kind, *words in declared)


def _parsed(name: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise ValueError(f"{name} holds no JSON") from None


def _listed(name: str, value: Any) -> Any:
    is_right = isinstance(value, list) and (
        all(isinstance(each, str) for each in value)
        if name == _TEXTS
        else all(isinstance(each, list) and list(map(type, each)) == [str, str] for each in value)
    )
    if not is_right:
        raise ValueError(f"{name} is no list of {'texts' if name == _TEXTS else 'pairs of texts'}")
    return value


def _body(octets: bytes) -> dict[str, str]:
    try:
        return {_BODY: octets.decode()}
    except UnicodeDecodeError:
        return {_BASE64: b64encode(octets).decode()}


def _octets(given: dict[str, Any]) -> bytes:
    """Take the body out of the fields."""
    text, packed = given.pop(_BODY, None), given.pop(_BASE64, None)
    if isinstance(text, str) and packed is None:
        return text.encode()
    if isinstance(packed, str) and text is None:
        return b64decode(packed, validate=True)
    raise ValueError(f"it has to have {_BODY} or {_BASE64}")
