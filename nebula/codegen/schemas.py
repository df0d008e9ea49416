"""JSON Schema as stubs read it: limits, references, identity."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

Schema = Mapping[str, Any]

REFERENCE: Final = "#/$defs/"

# A limit of JSON Schema, and what pydantic's `Field` calls it.
_LIMITS: Final = {
    "exclusiveMinimum": "gt",
    "minimum": "ge",
    "exclusiveMaximum": "lt",
    "maximum": "le",
    "multipleOf": "multiple_of",
    "minLength": "min_length",
    "maxLength": "max_length",
    "minItems": "min_length",
    "maxItems": "max_length",
    "pattern": "pattern",
}


def limits_of(schema: Schema) -> dict[str, Any]:
    """What a value must keep to, as arguments of `Field`."""
    # A decimal's pattern is for its text, a tuple's length in its type.
    if schema.get("format") == "decimal" or "prefixItems" in schema:
        return {}
    return {_LIMITS[name]: value for name, value in schema.items() if name in _LIMITS}


def referred(reference: str) -> str:
    """The name among `$defs` that a `$ref` means."""
    # RFC 6901: `~1` is decoded before `~0`, or `~01` would become a slash.
    return reference.removeprefix(REFERENCE).replace("~1", "/").replace("~0", "~")


def is_model(schema: Schema) -> bool:
    """Whether its values are objects with fields of their own, not a mapping."""
    # A mapping has no properties, and one schema for all values.
    return schema.get("type") == "object" and (
        "properties" in schema or not isinstance(schema.get("additionalProperties"), Mapping)
    )


def is_named_enum(schema: Schema) -> bool:
    """Whether it is an enumeration with a name of its own."""
    return bool(values_of(schema)) and "title" in schema


def values_of(schema: Schema) -> list[Any]:
    """The only values that a schema lets through; empty where it lists none."""
    # An enumeration of a single member is a `const`.
    return schema.get("enum") or ([schema["const"]] if "const" in schema else [])


class Definitions:
    """The `$defs` of a schema, each of which is walked once, however many others refer to it.

    Args:
        definitions: by name.
        is_exact: two that differ at all have two digests; else those that `identity_of` takes for one type
            have the same.
    """

    def __init__(self, definitions: Mapping[str, Schema], *, is_exact: bool) -> None:
        self._definitions = definitions
        self._is_exact = is_exact
        # Each definition is walked once, even in a ring of references.
        self._walked: dict[str, tuple[str, frozenset[str]]] = {}

    def reached(self, names: Iterable[str]) -> dict[str, str]:
        """Digests of these and of all that they refer to, by name."""
        found: dict[str, str] = {}
        # Without recursion, because a chain of definitions may have any length.
        to_do = list(names)
        while to_do:
            one = to_do.pop()
            if one not in found and one in self._definitions:
                found[one], referred_to = self._walk(one)
                to_do += referred_to
        return found

    def _walk(self, name: str) -> tuple[str, frozenset[str]]:
        if name not in self._walked:
            one = self._definitions[name]
            meant = one if self._is_exact else _normal(one)
            self._walked[name] = digest(meant), frozenset(references(one))
        return self._walked[name]


def identity_of(schema: Schema, reached: Mapping[str, str], name: str = "") -> str:
    """The same text for schemas that mean the same type, whether of what is sent or of what comes back.

    With all that they refer to: two models may differ in no more than the model of a field. What is required
    is left out, as a reply has a field also where a request needs none. The title counts, and without one the
    name of the definition: a result that is a model as a whole has that in place of a reference to it.

    Args:
        schema: without the definitions.
        reached: what it refers to, as `Definitions.reached` gives it.
        name: of the definition, where it is one.
    """
    return digest([schema.get("title", name), _normal(schema), reached])


def digest(value: Any) -> str:
    """A short text that is the same for the same value of JSON."""
    # The value itself may be as large as the whole description, and is kept for each definition in it.
    # Sorted, so that the order of keys does not matter.
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def references(node: Any) -> Iterator[str]:
    """The names of all definitions that it refers to itself."""
    if isinstance(node, Mapping):
        # A property may be called `$ref`; its value is a schema, not a text.
        if isinstance(reference := node.get("$ref"), str):
            yield referred(reference)
        for one in node.values():
            yield from references(one)
    elif isinstance(node, list):
        for one in node:
            yield from references(one)


def _normal(node: Any) -> Any:
    if isinstance(node, list):
        return [_normal(one) for one in node]
    if not isinstance(node, Mapping):
        return node
    if node.get("format") == "decimal":
        # Any number may be sent for one, and a text comes back.
        return {"format": "decimal", "default": node.get("default")}
    # Without the keyword `required`, which is a list; a property may have that name too.
    fields = {name: _normal(one) for name, one in node.items() if not (name == "required" and _is_list(one))}
    if isinstance(properties := node.get("properties"), Mapping):
        # Those are names, also where they read as keywords.
        fields["properties"] = {name: _normal(one) for name, one in properties.items()}
    return fields


def _is_list(value: Any) -> bool:
    return isinstance(value, list)
