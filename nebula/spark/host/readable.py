"""Readable forms of values whose Parquet type differs from Spark's."""

from __future__ import annotations

import datetime as dt
from base64 import b64encode
from typing import Any

from pyspark.sql import types
from pyspark.sql.types import DataType

__all__ = ["holds_variants", "readable"]

_MONTHS = 12


def readable(value: Any, kind: DataType) -> Any:
    """The readable form of a value of a Spark type without variants.

    Intervals are as in ISO 8601 (`P1Y2M`), bytes are base64 of the standard alphabet, as in a table's pages.
    """
    if value is None:
        return None
    match kind:
        case types.YearMonthIntervalType():
            return _years_and_months(value)
        case types.DayTimeIntervalType():
            return dt.timedelta(microseconds=value) if isinstance(value, int) else value
        case types.BinaryType():
            return b64encode(value).decode()
        case types.ArrayType():
            return [readable(each, kind.elementType) for each in value]
        case types.MapType():
            return [(readable(key, kind.keyType), readable(each, kind.valueType)) for key, each in value]
        case types.StructType():
            inner = {field.name: field.dataType for field in kind.fields}
            return {name: readable(each, inner[name]) for name, each in value.items()}
    return value


def holds_variants(kind: DataType) -> bool:
    """Whether values of this type are or contain variants."""
    match kind:
        case types.VariantType():
            return True
        case types.ArrayType():
            return holds_variants(kind.elementType)
        case types.MapType():
            return holds_variants(kind.keyType) or holds_variants(kind.valueType)
        case types.StructType():
            return any(holds_variants(field.dataType) for field in kind.fields)
    return False


def _years_and_months(months: int) -> str:
    years, rest = divmod(abs(months), _MONTHS)
    told = (f"{years}Y" if years else "") + (f"{rest}M" if rest or not years else "")
    return f"{'-' if months < 0 else ''}P{told}"
