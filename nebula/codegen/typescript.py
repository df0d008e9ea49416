"""TypeScript client of a service's verbs, from its reply to `describe`."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from nebula.codegen.names import Names, callers_name, class_name, identifier, unique
from nebula.codegen.schemas import (
    Definitions,
    Schema,
    digest,
    is_named_enum,
    references,
    referred,
    values_of,
)
from nebula.destinations import queue_named
from nebula.rpc.contract.signature import PARAMETER_NAME
from nebula.rpc.contract.verbs import is_reserved
from nebula.rpc.wire.json_types import DEPRECATED_BECAUSE, ENUM_NAMES

__all__ = ["write_typescript"]


_WIDTH: Final = 100
_SCALARS: Final = {
    "integer": "number",
    "number": "number",
    "boolean": "boolean",
    "null": "null",
    "string": "string",
}
# What the generated code uses: no type of the service may hide it.
_TAKEN: Final = frozenset(
    {
        *("AsyncGenerator", "CallOptions", "ErrorCode", "Job", "Nebula"),
        *("Partial", "Pick", "Promise", "Record", "StreamOptions"),
    }
)
# The description is a stranger's. Each definition counts for each schema that reaches it.
_MOST_STEPS: Final = 1_000_000


def write_typescript(description: Mapping[str, Any], package: str) -> str:
    """A module of TypeScript with a class that has a method for each verb of a service.

    Args:
        description: the service's reply to `describe`.
        package: where the module imports `Nebula` from.

    Returns:
        the text: the same for the same description.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: that is no description of a service.
    """
    try:
        return _Module(description, package).text()
    except RecursionError:
        raise ValueError("its schemas are nested too deeply") from None


# Types of TypeScript are compared by structure, so most of JSON Schema has a direct counterpart, and a type
# may refer to itself. Two things are decided here. Names: one for each definition that differs at all,
# because a reply has fields that a request may leave out. Trust: all texts come from the service, so none of
# them may end a comment or a literal, and every name is an identifier or quoted.
class _Module:
    def __init__(self, description: Mapping[str, Any], package: str) -> None:
        self._service = str(description["service"])
        self._package = package
        verbs = sorted(description["verbs"], key=lambda verb: str(verb["verb"]))
        self._verbs = [verb for verb in verbs if not is_reserved(verb["verb"])]
        self._queue = description["queues"][0]
        self._names = Names(_TAKEN)
        self._class = self._names.give(class_name(self._service), f"{class_name(self._service)}Service")
        self._known: dict[str, str] = {}
        self._declared: list[list[str]] = []
        self._imports = {"Nebula"}
        self._used: set[str] = set()
        self._ambiguous = _ambiguous_titles(self._verbs)
        self._steps = 0

    def text(self) -> str:
        address = callers_name(self._service, self._queue)
        named = unique((identifier(str(verb["verb"])) for verb in self._verbs), ("constructor",))
        methods = [self._method(name, verb) for name, verb in zip(named, self._verbs, strict=True)]
        head = [
            f"// The verbs of the service {quoted(self._service)}, for web pages and Node.",
            f"// Written by `nebula stubs {_in_line(address)} --typescript` from its own description.",
            "// Do not edit it: write it anew.",
            "",
            f"import type {{ {', '.join(sorted(self._imports))} }} from {quoted(self._package)};",
        ]
        parts = [head, *self._declared, *self._error_codes(), self._whole_class(methods)]
        return "\n\n".join("\n".join(lines) for lines in parts) + "\n"

    def _whole_class(self, methods: Sequence[list[str]]) -> list[str]:
        # Anything with these methods will do, such as a wrapper that signs in again, or a test's fake.
        used = " | ".join(map(quoted, sorted(self._used)))
        needed = f"Pick<Nebula, {used}>" if used else "Nebula"
        lines = [
            *comment([f"Calls to the service {quoted(self._service)}."]),
            f"export class {self._class} {{",
            f"  readonly #nebula: {needed};",
            "",
            f"  constructor(nebula: {needed}) {{",
            "    this.#nebula = nebula;",
            "  }",
        ]
        for method in methods:
            lines += ["", *(f"  {line}" if line else "" for line in method)]
        return [*lines, "}"]

    def _error_codes(self) -> Iterator[list[str]]:
        told = {error["code"]: error for verb in self._verbs for error in verb.get("errors", ())}
        if not told:
            return
        lines = [
            *comment(["Codes of the errors that the verbs declare, as in `error.code`."]),
            "export const ErrorCode = {",
        ]
        for name, (code, error) in zip(unique(map(class_name, told)), told.items(), strict=True):
            about = comment([str(error.get("description") or "")])
            lines += (f"  {line}" for line in [*about, f"{_key(name)}: {quoted(code)},"])
        yield [*lines, "} as const;"]

    # --- verbs ---

    def _method(self, name: str, verb: Mapping[str, Any]) -> list[str]:
        # The request first: where a model differs in the two, the request's keeps the name.
        parameter, is_optional = self._parameter(verb)
        kind, options, result = self._kind(verb)
        self._imports.add(options)
        self._used.add(kind)
        arguments = [f"options?: {options}"]
        if parameter is not None:
            arguments.insert(0, f"parameters{'?' if is_optional else ''}: {parameter}")
        given = "undefined" if parameter is None else "parameters"
        queue = verb.get("queue", self._queue)
        to = self._service if queue == queue_named(self._service) else queue
        call = f"{quoted(to)}, {quoted(str(verb['verb']))}, {given}, options"
        returned = {"call": f"Promise<{result}>", "start": f"Promise<Job<{result}>>"}.get(
            kind, f"AsyncGenerator<{result}, void, void>"
        )
        body = f"  return this.#nebula.{kind}({call});"
        return [*comment(self._about(verb)), *_signature(_key(name), arguments, returned), body, "}"]

    def _kind(self, verb: Mapping[str, Any]) -> tuple[str, str, str]:
        """The method of `Nebula`, the type of its options, and that of what it gives."""
        schema = _result_of(verb)
        if _title_of(schema) in self._ambiguous:
            # Named after its verb: a number behind the title would change when verbs are added.
            suffix = "Item" if verb.get("stream") else "Reply"
            schema = {**schema, "title": f"{class_name(str(verb['verb']))}{suffix}"}
        result = self._expression(schema, self._scope(schema, "Reply"))
        if verb.get("stream"):
            return "stream", "StreamOptions", result
        if verb.get("job"):
            self._imports.add("Job")
            return "start", "CallOptions", result
        return "call", "CallOptions", "void" if result == "null" else result

    def _about(self, verb: Mapping[str, Any]) -> list[str]:
        lines = [str(verb.get("description") or "")]
        for error in verb.get("errors", ()):
            about = str(error.get("description") or "")
            told = f": {about}" if about and about != error["code"] else ""
            lines.append(f"@throws NebulaError {quoted(error['code'])}{told}")
        return [*lines, *_deprecation(verb)]

    def _parameter(self, verb: Mapping[str, Any]) -> tuple[str | None, bool]:
        """The type of a verb's parameters, None without any; and whether they may be left out."""
        schema = verb["parameters"]
        scope = self._scope(schema)
        if PARAMETER_NAME in schema:
            # One model or list is sent as it is.
            return self._expression(schema, scope), "default" in schema
        if not schema.get("properties"):
            whole = schema.get("type", "object") != "object"
            return (self._expression(schema, scope), False) if whole else (None, True)
        title = f"{class_name(str(verb['verb']))}Parameters"
        name = self._names.give(title)
        about = [f"Parameters of {quoted(str(verb['verb']))}."]
        self._declared.append(self._interface(name, {**schema, "additionalProperties": False}, scope, about))
        return name, not schema.get("required")

    # --- types ---

    def _scope(self, schema: Any, suffix: str = "") -> _Scope:
        return _Scope(schema.get("$defs", {}) if isinstance(schema, Mapping) else {}, suffix)

    def _expression(self, schema: Any, scope: _Scope) -> str:
        """The type that a schema means."""
        if not isinstance(schema, Mapping):
            return "never" if schema is False else "unknown"
        if "$ref" in schema:
            return self._named(referred(schema["$ref"]), scope)
        if ("title" in schema and _is_interface(schema)) or (ENUM_NAMES in schema and is_named_enum(schema)):
            # A result or parameter that is a model or an enumeration as a whole.
            return self._declare(str(schema["title"]), schema, scope)
        return self._inline(schema, scope)

    def _inline(self, schema: Schema, scope: _Scope) -> str:
        if values := values_of(schema):
            return _union(map(_literal, values))
        if branches := schema.get("anyOf") or schema.get("oneOf"):
            return _union(self._branch(one, schema, scope) for one in branches)
        if branches := schema.get("allOf"):
            return " & ".join(_grouped(self._expression(one, scope)) for one in branches)
        kind = schema.get("type")
        if isinstance(kind, list):
            return _union(self._inline({**schema, "type": one}, scope) for one in kind)
        if kind == "array":
            return self._array(schema, scope)
        if kind == "object":
            return self._object(schema, scope)
        return _SCALARS.get(kind or "", "unknown")

    def _branch(self, branch: Any, union: Schema, scope: _Scope) -> str:
        code = self._expression(branch, scope)
        tag = union.get("discriminator", {}).get("propertyName")
        if tag is None or not isinstance(branch, Mapping):
            return code
        # In a union the tag is needed, also where its model has a default for it.
        model = scope.definitions.get(referred(str(branch.get("$ref", ""))), branch)
        values = values_of(model.get("properties", {}).get(tag, {}))
        if not values or tag in model.get("required", ()):
            return code
        return f"({code} & {{ {_key(tag)}: {_union(map(_literal, values))} }})"

    def _array(self, schema: Schema, scope: _Scope) -> str:
        prefix = schema.get("prefixItems")
        items = schema.get("items", {} if prefix is None else False)
        if prefix is None:
            return f"{_grouped(self._expression(items, scope))}[]"
        parts = [self._expression(one, scope) for one in prefix]
        # A tuple that may be longer than what its schema lists.
        if items is not False and schema.get("maxItems") != len(prefix):
            parts.append(f"...{_grouped(self._expression(items, scope))}[]")
        return f"[{', '.join(parts)}]"

    def _object(self, schema: Schema, scope: _Scope) -> str:
        if schema.get("properties"):
            fields = "; ".join(code for _, code in self._fields(schema, scope))
            return f"{{ {fields} }}"
        value = self._expression(schema.get("additionalProperties", {}), scope)
        key = self._expression(schema.get("propertyNames", {"type": "string"}), scope)
        # Of a mapping by the members of an enumeration, not all need be there.
        return (
            f"Record<string, {value}>" if key in ("string", "unknown") else f"Partial<Record<{key}, {value}>>"
        )

    def _fields(self, schema: Schema, scope: _Scope) -> Iterator[tuple[Schema, str]]:
        required = schema.get("required", ())
        for name, one in schema.get("properties", {}).items():
            mark = "" if name in required else "?"
            about = one if isinstance(one, Mapping) else {}
            if name in required and "default" in about:
                # It is always there, as in a reply: the default is nothing to its reader.
                about = {key: value for key, value in about.items() if key != "default"}
            yield about, f"{_key(name)}{mark}: {self._expression(one, scope)}"
        # Without a word about it pydantic ignores unknown fields, which TypeScript had better find.
        if schema.get("additionalProperties"):
            yield {}, "[name: string]: unknown"

    # --- declarations ---

    def _named(self, name: str, scope: _Scope) -> str:
        if name not in scope.names:
            definition = scope.definitions.get(name)
            if not isinstance(definition, Mapping):
                return "unknown"
            self._declare(name, definition, scope, reference=name)
        return scope.names[name]

    def _declare(self, name: str, schema: Schema, scope: _Scope, reference: str | None = None) -> str:
        title = class_name(str(schema.get("title") or name))
        identity = self._identity(title, schema, scope)
        is_known = identity in self._known
        given = self._known[identity] if is_known else self._names.give(title, f"{title}{scope.suffix}")
        # Before its parts, which may refer to it.
        self._known[identity] = given
        if reference is not None:
            scope.names[reference] = given
        if is_known:
            return given
        place = len(self._declared)
        lines = self._declaration(given, schema, scope)
        # Before what it refers to, as people write it: TypeScript does not mind the order.
        self._declared.insert(place, lines)
        return given

    def _identity(self, title: str, schema: Schema, scope: _Scope) -> str:
        itself = {key: value for key, value in schema.items() if key not in ("$defs", PARAMETER_NAME)}
        reached = scope.graph.reached(references(itself))
        self._steps += 1 + len(reached)
        if self._steps > _MOST_STEPS:
            raise ValueError("its types refer to each other too often")
        return digest([title, itself, reached])

    def _declaration(self, name: str, schema: Schema, scope: _Scope) -> list[str]:
        about = [str(schema.get("description", "")), *_deprecation(schema)]
        if _is_interface(schema):
            return self._interface(name, schema, scope, about)
        lines = [*comment(about), *_alias(name, self._inline(schema, scope))]
        values = [_literal(value) for value in values_of(schema)]
        if ENUM_NAMES in schema and is_named_enum(schema) and "unknown" not in values:
            members = zip(unique(map(str, schema[ENUM_NAMES])), values, strict=True)
            listed = (f"  {_key(member)}: {value}," for member, value in members)
            lines += [f"export const {name} = {{", *listed, "} as const;"]
        return lines

    def _interface(self, name: str, schema: Schema, scope: _Scope, about: Sequence[str]) -> list[str]:
        lines = [*comment(about), f"export interface {name} {{"]
        for one, code in self._fields(schema, scope):
            lines += (f"  {line}" for line in [*comment(_field_notes(one)), f"{code};"])
        return [*lines, "}"]


class _Scope:
    """The definitions that one schema refers to."""

    def __init__(self, definitions: Mapping[str, Schema], suffix: str) -> None:
        self.definitions = definitions
        self.graph = Definitions(definitions, is_exact=True)
        # What is declared already, by its name among the definitions.
        self.names: dict[str, str] = {}
        self.suffix = suffix


def _result_of(verb: Mapping[str, Any]) -> Any:
    return verb.get("item" if verb.get("stream") else "result", {})


def _title_of(schema: Any) -> str | None:
    """The name of a model that is a result as a whole; None for other results."""
    is_model = isinstance(schema, Mapping) and "title" in schema and _is_interface(schema)
    return class_name(str(schema["title"])) if is_model else None


def _ambiguous_titles(verbs: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """Titles that several models have, such as a generic dataclass with different arguments."""
    models: dict[str, set[str]] = {}
    for schema in map(_result_of, verbs):
        title = _title_of(schema)
        if title is not None:
            models.setdefault(title, set()).add(digest(schema))
    return frozenset(title for title, found in models.items() if len(found) > 1)


def _is_interface(schema: Schema) -> bool:
    # A model without fields is a mapping of nothing: an interface too, and not `Record`.
    is_mapping = isinstance(schema.get("additionalProperties"), Mapping)
    return schema.get("type") == "object" and "properties" in schema and not is_mapping


def _field_notes(schema: Schema) -> list[str]:
    notes = [str(schema.get("description", ""))]
    if isinstance(kind := schema.get("format"), str):
        notes.append(f"@format {kind}")
    if "default" in schema:
        notes.append(f"@defaultValue `{json.dumps(schema['default'])}`")
    return [*notes, *_deprecation(schema)]


def _deprecation(schema: Mapping[str, Any]) -> Iterator[str]:
    if schema.get("deprecated"):
        yield f"@deprecated {schema.get(DEPRECATED_BECAUSE) or 'Do not use it any more.'}"


# --- text ---


def quoted(text: str) -> str:
    """A literal that holds exactly this text, whatever it is."""
    code = json.dumps(text, ensure_ascii=False)
    # Signs that cannot be seen, and those that end a line for JavaScript, are written by their numbers.
    return "".join(sign if sign.isprintable() else _escaped(sign) for sign in code)


def _escaped(sign: str) -> str:
    return f"\\u{{{ord(sign):x}}}"


def comment(paragraphs: Iterable[str]) -> list[str]:
    """The lines of a TSDoc comment; none where there is nothing to say. No text can end it early."""
    lines = [line for one in paragraphs if one.strip() for line in _printable(one).strip().split("\n")]
    # Tags stand apart from the text before them.
    first = next((at for at, line in enumerate(lines) if line.startswith("@")), 0)
    if first:
        lines.insert(first, "")
    if not lines:
        return []
    if len(lines) == 1 and len(lines[0]) < _WIDTH - 10:
        return [f"/** {lines[0]} */"]
    return ["/**", *(f" * {line}".rstrip() for line in lines), " */"]


def _printable(text: str) -> str:
    kept = "".join(sign for sign in text.expandtabs(2) if sign.isprintable() or sign == "\n")
    return kept.replace("*/", "*\\/")


def _in_line(text: str) -> str:
    return re.sub(r"[^\w.-]", "_", text)


def _key(name: str) -> str:
    """A property's name: as it is where it is a plain identifier, else quoted."""
    return name if re.fullmatch(r"[A-Za-z_$][A-Za-z0-9_$]*", name) and name != "__proto__" else quoted(name)


def _literal(value: Any) -> str:
    if isinstance(value, str):
        return quoted(value)
    is_number = isinstance(value, int | float) and math.isfinite(value)
    return json.dumps(value) if is_number or value is None else "unknown"


def _union(branches: Iterable[str]) -> str:
    # null last, as people write it; the stable sort keeps the order of the others.
    return " | ".join(sorted(dict.fromkeys(branches), key="null".__eq__))


def _grouped(code: str) -> str:
    return f"({code})" if " | " in code or " & " in code else code


def _alias(name: str, code: str) -> list[str]:
    line = f"export type {name} = {code};"
    if len(line) <= _WIDTH or not re.fullmatch(r'("[^"]*"|[\w.-]+)( \| ("[^"]*"|[\w.-]+))+', code):
        return [line]
    branches = code.split(" | ")
    return [f"export type {name} =", *(f"  | {one}" for one in branches[:-1]), f"  | {branches[-1]};"]


def _signature(name: str, arguments: Sequence[str], returned: str) -> list[str]:
    line = f"{name}({', '.join(arguments)}): {returned} {{"
    if len(line) <= _WIDTH - 2:
        return [line]
    return [f"{name}(", *(f"  {one}," for one in arguments), f"): {returned} {{"]
