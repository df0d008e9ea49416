"""Columns of the store's tables: names and types, from the row classes of `nebula.broker.core.tables`."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum, auto
from functools import cache
from types import NoneType
from typing import Any, Final, NamedTuple, get_args, get_type_hints

from nebula.broker.core.tables import Headers, Table


class ColumnType(StrEnum):
    """What a column holds. `PAIRS` are headers, `TEXTS` a list of names."""

    TEXT = auto()
    INTEGER = auto()
    BOOLEAN = auto()
    REAL = auto()
    BLOB = auto()
    PAIRS = auto()
    TEXTS = auto()


_COLUMN_TYPES: Final[Mapping[Any, ColumnType]] = {
    str: ColumnType.TEXT,
    int: ColumnType.INTEGER,
    bool: ColumnType.BOOLEAN,
    float: ColumnType.REAL,
    bytes: ColumnType.BLOB,
    Headers: ColumnType.PAIRS,
    tuple[str, ...]: ColumnType.TEXTS,
}


class Column(NamedTuple):
    """One column of a table."""

    name: str
    type: ColumnType
    is_optional: bool


@cache
def columns_of(table: Table) -> tuple[Column, ...]:
    """All columns in order, those of the key first."""
    # From the annotations of the row class, in their order: SQL, reads and exports cannot disagree about it.
    return tuple(_column(*each) for each in get_type_hints(table.row).items())


def key_of(table: Table) -> tuple[Column, ...]:
    """The columns of the key."""
    return columns_of(table)[: table.key_width]


def others_of(table: Table) -> tuple[Column, ...]:
    """The columns behind the key."""
    return columns_of(table)[table.key_width :]


def _column(name: str, hint: Any) -> Column:
    if hint not in _COLUMN_TYPES and NoneType in get_args(hint):
        (hint,) = (each for each in get_args(hint) if each is not NoneType)
        return Column(name, _COLUMN_TYPES[hint], is_optional=True)
    return Column(name, _COLUMN_TYPES[hint], is_optional=False)
