"""Python expressions for defaults: values of JSON, by their schema."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final, NamedTuple, TypeAlias
from uuid import UUID

from pydantic import TypeAdapter

from nebula.codegen.layout import bytes_literal, plain

_SECONDS: Final = TypeAdapter(timedelta)


class Expression(NamedTuple):
    """Code for a value. What is not constant has to be made anew for each use."""

    code: str
    is_constant: bool = True


OfReference: TypeAlias = Callable[[str, Any], Expression | None]
"""Code for a value of a type that the schema itself defines, by its `$ref`: an enumeration or a model."""


def expression_of(schema: Mapping[str, Any], value: Any, of_reference: OfReference) -> Expression | None:
    """Code that makes a value; None where the schema and the value do not go together."""
    # First, because optional values of any type may be null.
    if value is None:
        return Expression("None")
    if "$ref" in schema:
        return of_reference(schema["$ref"], value)
    if schema.get("format") == "decimal":
        return _by_format(schema, value)
    if branches := schema.get("anyOf") or schema.get("oneOf"):
        found = (expression_of(branch, value, of_reference) for branch in branches)
        return next((one for one in found if one is not None), None)
    if "const" in schema or "enum" in schema:
        return Expression(plain(value))
    kind = schema.get("type")
    if kind is None:
        return _of_anything(value)
    if kind == "array" and isinstance(value, list):
        return _array(schema, value, of_reference)
    if kind == "object" and isinstance(value, dict):
        return _object(schema, value, of_reference)
    if kind == "string" and isinstance(value, str):
        return _by_format(schema, value)
    # A bool is an int to Python, but `true` is no number in JSON.
    is_bool = isinstance(value, bool)
    fits = {"boolean": is_bool, "integer": isinstance(value, int) and not is_bool}
    fits["number"] = isinstance(value, int | float) and not is_bool
    return Expression(plain(value)) if fits.get(kind) else None


def _of_anything(value: Any) -> Expression:
    return Expression(plain(value), not isinstance(value, dict | list))


def _array(schema: Mapping[str, Any], values: Sequence[Any], of_reference: OfReference) -> Expression | None:
    prefix = schema.get("prefixItems")
    schemas = prefix or [schema.get("items", {})] * len(values)
    # `strict=False`: the next line refuses values that are longer than the prefix.
    parts = [expression_of(*pair, of_reference) for pair in zip(schemas, values, strict=False)]
    # A default that is shorter than the tuple would be another type's.
    if len(parts) != len(values) or (prefix and len(parts) != len(prefix)) or None in parts:
        return None
    codes = [part.code for part in parts if part is not None]
    if prefix:
        is_constant = all(part is not None and part.is_constant for part in parts)
        # A tuple of one element needs its comma.
        return Expression(f"({', '.join(codes)}{',' * (len(codes) == 1)})", is_constant)
    if schema.get("uniqueItems"):
        # `{}` would be a dictionary.
        return Expression(f"{{{', '.join(codes)}}}" if codes else "set()", is_constant=False)
    return Expression(f"[{', '.join(codes)}]", is_constant=False)


def _object(
    schema: Mapping[str, Any], values: Mapping[str, Any], of_reference: OfReference
) -> Expression | None:
    inner = schema.get("additionalProperties")
    inner = inner if isinstance(inner, dict) else {}
    pairs = {key: expression_of(inner, value, of_reference) for key, value in values.items()}
    if None in pairs.values():
        return None
    items = [f"{plain(key)}: {one.code}" for key, one in pairs.items() if one is not None]
    return Expression(f"{{{', '.join(items)}}}", is_constant=False)


def _by_format(schema: Mapping[str, Any], value: Any) -> Expression | None:
    text = str(value)
    try:
        match schema.get("format"):
            case "decimal":
                return Expression(f'Decimal("{Decimal(text)}")')
            case "date-time":
                return _moment(datetime.fromisoformat(text))
            case "date":
                return _moment(date.fromisoformat(text))
            case "time":
                return _moment(time.fromisoformat(text))
            case "duration":
                # Python has no parser for ISO 8601 durations.
                seconds = _SECONDS.validate_python(text).total_seconds()
                return Expression(f"dt.timedelta(seconds={seconds!r})")
            case "uuid":
                return Expression(f'UUID("{UUID(text)}")')
            case "base64" | "base64url":
                return Expression(bytes_literal(base64.urlsafe_b64decode(text)))
            case "binary":
                return Expression(bytes_literal(text.encode()))
            case _:
                return Expression(plain(text))
    except (ValueError, ArithmeticError):
        return None


def _moment(value: date | time) -> Expression:
    # The stub imports `datetime` as `dt`, a name that no field can hide.
    return Expression(re.sub(r"\bdatetime\.", "dt.", repr(value)))
