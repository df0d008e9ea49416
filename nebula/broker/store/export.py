"""Rows of a store as lines of JSON, for export and import."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from typing import Any, Final, assert_never

from nebula.broker.core.tables import TABLES, Table
from nebula.broker.store.columns import Column, ColumnType, columns_of
from nebula.broker.store.sqlite_schema import SQL_TYPES, encode_json

__all__ = ["TABLES_BY_NAME", "line_of", "object_of", "row_of"]

TABLES_BY_NAME: Final = {table.name: table for table in TABLES}

_TABLE: Final = "table"
_BODY: Final = "body"
_BASE64: Final = "body_base64"

_PYTHON_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "TEXT": (str,),
    "INTEGER": (int,),
    "REAL": (float, int),
    "BLOB": (bytes,),
}


def object_of(table: Table, row: Sequence[Any]) -> dict[str, Any]:
    """A row as an object of JSON: headers and lists as such, a body as text if it is UTF-8, else in base 64.

    Raises:
        ValueError: a column has an invalid value. The text names the column and quotes nothing.
    """
    fields: dict[str, Any] = {_TABLE: table.name}
    for column, value in zip(columns_of(table), row, strict=True):
        # Checked here too, so that a bad value is not found only by the import.
        _check(column, value)
        match column.type:
            case ColumnType.PAIRS | ColumnType.TEXTS:
                fields[column.name] = _listed(column, _parsed(column, value))
            case ColumnType.BLOB:
                fields |= _body(value)
            case ColumnType.TEXT | ColumnType.INTEGER | ColumnType.BOOLEAN | ColumnType.REAL:
                fields[column.name] = value
            case kind:
                assert_never(kind)
    return fields


def row_of(fields: Mapping[str, Any]) -> tuple[Table, tuple[Any, ...]]:
    """The table and row of an object that `object_of` made.

    Raises:
        ValueError: the object is invalid. The text quotes no values.
    """
    table = TABLES_BY_NAME.get(str(fields.get(_TABLE)))
    if table is None:
        raise ValueError("it names none of our tables")
    given = {name: value for name, value in fields.items() if name != _TABLE}
    row = []
    for column in columns_of(table):
        if column.type is ColumnType.BLOB:
            value: Any = _bytes(given)
        elif column.name in given:
            value = given.pop(column.name)
        else:
            raise ValueError(f"it has no {column.name}")
        if column.type in (ColumnType.PAIRS, ColumnType.TEXTS):
            value = encode_json(_listed(column, value))
        _check(column, value)
        row.append(value)
    if given:
        raise ValueError("it has a field that its table has not")
    return table, tuple(row)


def line_of(fields: Mapping[str, Any]) -> str:
    """An object as a line."""
    return encode_json(fields) + "\n"


def _check(column: Column, value: Any) -> None:
    # SQLite takes values of any type in any column.
    sql_type = SQL_TYPES[column.type]
    if value is None:
        if not column.is_optional:
            raise ValueError(f"{column.name} is missing")
    # A bool is an int to Python, but `true` is not a valid number here.
    elif not isinstance(value, _PYTHON_TYPES[sql_type]) or isinstance(value, bool):
        raise ValueError(f"{column.name} is no {sql_type}")


def _parsed(column: Column, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise ValueError(f"{column.name} holds no JSON") from None


def _listed(column: Column, value: Any) -> Any:
    if column.type is ColumnType.TEXTS:
        is_right, what = _is_texts(value), "texts"
    else:
        is_right = isinstance(value, list) and all(_is_texts(pair) and len(pair) == 2 for pair in value)
        what = "pairs of texts"
    if not is_right:
        raise ValueError(f"{column.name} is no list of {what}")
    return value


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _body(body: bytes) -> dict[str, str]:
    try:
        return {_BODY: body.decode()}
    except UnicodeDecodeError:
        return {_BASE64: b64encode(body).decode()}


def _bytes(given: dict[str, Any]) -> bytes:
    """Take the body out of the fields."""
    text, packed = given.pop(_BODY, None), given.pop(_BASE64, None)
    if isinstance(text, str) and packed is None:
        return text.encode()
    if isinstance(packed, str) and text is None:
        # `validate` refuses a damaged line; by default characters outside the alphabet are skipped.
        return b64decode(packed, validate=True)
    raise ValueError(f"it has to have {_BODY} or {_BASE64}")
