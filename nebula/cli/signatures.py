"""Signatures of verbs from JSON Schema, and examples of calls.

Nothing here calls or shows. A description may have any form: callers read it under `reading`.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from nebula.rpc.contract.signature import PARAMETER_NAME
from nebula.rpc.wire.json_types import DEPRECATED_BECAUSE

__all__ = ["Parameter", "call_line", "curl_line", "parameters_of", "signature_of", "type_of"]

# For a terminal of 80 columns.
_WIDTH: Final = 78
# Types in types: what is deeper is left out, so that a signature stays one.
_MOST_DEPTH: Final = 4
# A limit, because a model may contain itself.
_MOST_EXAMPLE_DEPTH: Final = 12
# Values of an enumeration that are named.
_MOST_VALUES: Final = 4

_SCALARS: Final = {"integer": "int", "number": "float", "boolean": "bool", "null": "None", "string": "str"}
_FORMATS: Final = {
    "date-time": "datetime",
    "date": "date",
    "time": "time",
    "duration": "timedelta",
    "uuid": "UUID",
    "decimal": "Decimal",
    "base64": "bytes",
    "base64url": "bytes",
    "binary": "bytes",
}
# Values that services accept, so that the line can be tried at once.
_EXAMPLES: Final[Mapping[str, Any]] = {
    "date-time": "2030-01-31T06:00:00Z",
    "date": "2030-01-31",
    "time": "06:00:00",
    "duration": "PT1H",
    "uuid": "6f2c0d4e-8f3b-4c57-9a0e-1d2b3c4d5e6f",
    "decimal": "1.25",
    "base64": "AAEC",
    "base64url": "AAEC",
    "binary": "text",
}
_LIMITS: Final = (
    ("minimum", ">= {}"), ("exclusiveMinimum", "> {}"), ("maximum", "<= {}"), ("exclusiveMaximum", "< {}"),
    ("multipleOf", "a multiple of {}"), ("minLength", "at least {} long"), ("maxLength", "at most {} long"),
    ("pattern", "matches {}"), ("minItems", "at least {} items"), ("maxItems", "at most {} items"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a verb.

    Attributes:
        name: its own.
        type: in Python's notation.
        schema: JSON Schema.
        is_required: it has no default.
        note: limits, description, or why not to use it any more.
    """

    name: str
    type: str
    schema: Any
    is_required: bool
    note: str

    @property
    def default(self) -> str:
        """As Python writes it; empty if there is no default, or only the service knows it."""
        if self.is_required or not isinstance(self.schema, Mapping) or "default" not in self.schema:
            return ""
        return repr(self.schema["default"])

    @property
    def is_deprecated(self) -> bool:
        """It is there for old callers only."""
        return isinstance(self.schema, Mapping) and bool(self.schema.get("deprecated"))

    def __str__(self) -> str:
        if self.is_required:
            return f"{self.name}: {self.type}"
        return f"{self.name}: {self.type} = {self.default or '…'}"


def signature_of(verb: Mapping[str, Any]) -> str:
    """`quote(symbol: str, qty: int = 1) -> Decimal`; of several lines where it is long.

    Deprecated parameters are left out.
    """
    shown = [str(one) for one in parameters_of(verb) if not one.is_deprecated]
    name, result = str(verb["verb"]), _result_of(verb)
    line = f"{name}({', '.join(shown)}){result}"
    # Like formatters: a function that is too long has each parameter on its own line.
    if len(line) <= _WIDTH or not shown:
        return line
    return "\n".join([f"{name}(", *(f"    {one}," for one in shown), f"){result}"])


def parameters_of(verb: Mapping[str, Any]) -> list[Parameter]:
    """The parameters of a verb, in order; one that is taken whole has the name that the function gives it."""
    schema = verb["parameters"]
    # The body is the value of the one parameter, whose name callers may use.
    if whole := schema.get(PARAMETER_NAME):
        return [_parameter(str(whole), schema, is_required=True)]
    required = schema.get("required", ())
    return [
        _parameter(name, each, is_required=name in required)
        for name, each in schema.get("properties", {}).items()
    ]


def _parameter(name: str, schema: Any, *, is_required: bool) -> Parameter:
    return Parameter(name, type_of(schema), schema, is_required, "; ".join(_notes(schema)))


def _notes(schema: Any) -> Iterator[str]:
    if not isinstance(schema, Mapping):
        return
    for word, form in _LIMITS:
        if word in schema:
            yield form.format(schema[word])
    if schema.get("deprecated"):
        yield f"deprecated: {schema.get(DEPRECATED_BECAUSE) or 'do not use it any more'}"
    elif described := schema.get("description"):
        yield str(described).strip().split("\n")[0]


def _result_of(verb: Mapping[str, Any]) -> str:
    if verb.get("stream"):
        return f" -> stream of {type_of(verb.get('item'))}"
    kind = type_of(verb["result"])
    return "" if kind == "Any" else f" -> {kind}"


def type_of(schema: Any, depth: int = 0) -> str:
    """The type that a schema means, in Python's notation; models and enumerations by their names."""
    if not isinstance(schema, Mapping) or depth > _MOST_DEPTH:
        return "Any"
    if "$ref" in schema:
        # By the name of the model; `nebula describe SERVICE VERB` shows its schema.
        return str(schema["$ref"]).rpartition("/")[2]
    # First, because the schema of a Decimal is a union of number and text.
    if schema.get("format") == "decimal":
        return "Decimal"
    if values := _values_of(schema):
        shown = [repr(value) for value in values[:_MOST_VALUES]]
        return " | ".join([*shown, "…"] if len(values) > _MOST_VALUES else shown)
    if branches := schema.get("anyOf") or schema.get("oneOf"):
        return _union([type_of(one, depth + 1) for one in branches])
    kind = schema.get("type")
    if isinstance(kind, list):
        return _union([type_of({**schema, "type": one}, depth + 1) for one in kind])
    if kind == "array":
        return _array(schema, depth)
    if kind == "object":
        return _object(schema, depth)
    return _FORMATS.get(str(schema.get("format"))) or _SCALARS.get(str(kind), "Any")


def _array(schema: Mapping[str, Any], depth: int) -> str:
    if prefix := schema.get("prefixItems"):
        return f"tuple[{', '.join(type_of(one, depth + 1) for one in prefix)}]"
    kind = "set" if schema.get("uniqueItems") else "list"
    return f"{kind}[{type_of(schema.get('items'), depth + 1)}]"


def _object(schema: Mapping[str, Any], depth: int) -> str:
    if "properties" in schema:
        return str(schema.get("title") or "dict")
    return f"dict[str, {type_of(schema.get('additionalProperties'), depth + 1)}]"


def _union(types: Sequence[str]) -> str:
    # None stands last, as people write it.
    return " | ".join(sorted(dict.fromkeys(types), key="None".__eq__))


def _values_of(schema: Mapping[str, Any]) -> list[Any]:
    return [schema["const"]] if "const" in schema else list(schema.get("enum", ()))


# --- examples ---


def call_line(service: str, verb: Mapping[str, Any]) -> str:
    """A command that asks for a verb, with an example of each parameter that it needs."""
    words = [_word(name, value) for name, value in _example_parameters(verb).items()]
    command = "stream" if verb.get("stream") else "call"
    return shlex.join(["nebula", command, service, str(verb["verb"]), *words])


def curl_line(service: str, verb: Mapping[str, Any], url: str) -> str:
    """The same over HTTP.

    Args:
        url: of the broker's HTTP listener.
    """
    # Unbuffered, to show each item as it arrives.
    stream = ["-N", "-H", "Accept: application/x-ndjson"] if verb.get("stream") else []
    parameters = _example_parameters(verb)
    body = ["--json", json.dumps(parameters) if parameters else ""]
    return shlex.join(["curl", *stream, *body, f"{url}/call/{service}/{verb['verb']}"])


def _word(name: str, value: Any) -> str:
    # The reverse of `parse_parameters`.
    return f"{name}={value}" if isinstance(value, str) else f"{name}:={json.dumps(value)}"


def _example_parameters(verb: Mapping[str, Any]) -> dict[str, Any]:
    schema = verb["parameters"]
    definitions = schema.get("$defs", {})
    example = _example(schema, definitions)
    if isinstance(example, dict):
        return example
    # A list that is taken whole can be given by its name as well.
    return {str(schema[PARAMETER_NAME]): example} if PARAMETER_NAME in schema else {}


def _example(schema: Any, definitions: Mapping[str, Any], depth: int = 0) -> Any:
    if not isinstance(schema, Mapping) or depth > _MOST_EXAMPLE_DEPTH:
        return None
    if examples := schema.get("examples"):
        return examples[0]
    if "$ref" in schema:
        return _example(definitions.get(str(schema["$ref"]).rpartition("/")[2]), definitions, depth + 1)
    if schema.get("format") in _EXAMPLES:
        return _EXAMPLES[schema["format"]]
    if values := _values_of(schema):
        return values[0]
    if branches := schema.get("anyOf") or schema.get("oneOf"):
        return _example(branches[0], definitions, depth + 1)
    return _example_of_kind(schema, definitions, depth)


def _example_of_kind(schema: Mapping[str, Any], definitions: Mapping[str, Any], depth: int) -> Any:
    kind = schema.get("type")
    match kind[0] if isinstance(kind, list) and kind else kind:
        case "object":
            fields = schema.get("properties", {})
            # Only required fields, so that the line stays short.
            return {name: _example(fields.get(name), definitions, depth + 1) for name in _needed(schema)}
        case "array":
            return [_example(schema.get("items"), definitions, depth + 1)]
        case "integer":
            return int(_least(schema, 1))
        case "number":
            return float(_least(schema, 1.5))
        case "boolean":
            return True
        case "string":
            return "text"
        case _:
            return None


def _needed(schema: Mapping[str, Any]) -> Sequence[str]:
    return [str(name) for name in schema.get("required", ())]


def _least(schema: Mapping[str, Any], usual: float) -> float:
    """A number that is allowed."""
    # Within the limits of the schema, so that the service accepts the example.
    least = max(usual, schema.get("minimum", usual), schema.get("exclusiveMinimum", usual - 1) + 1)
    return float(min(least, schema.get("maximum", least)))
