"""Python types from JSON Schema: expressions, and the classes that they name."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from nebula.codegen.layout import broken, docstring, plain, quoted
from nebula.codegen.names import Names, class_name, field_name, member_name, unique
from nebula.codegen.schemas import (
    Definitions,
    Schema,
    identity_of,
    is_model,
    is_named_enum,
    limits_of,
    references,
    referred,
    values_of,
)
from nebula.codegen.values import Expression, expression_of
from nebula.rpc.wire.json_types import DEPRECATED_BECAUSE, ENUM_NAMES

_SCALARS: Final = {"integer": "int", "number": "float", "boolean": "bool", "null": "None"}
_FORMATS: Final = {
    "date-time": "dt.datetime",
    "date": "dt.date",
    "time": "dt.time",
    "duration": "dt.timedelta",
    "uuid": "UUID",
    "decimal": "Decimal",
    "base64": "bytes",
    "base64url": "bytes",
    "binary": "bytes",
}
_HOMES: Final = {"UUID": "uuid", "Decimal": "decimal"}

# A longer union is written so that it can be broken into lines.
_LONG: Final = 66

# Characters of all types together, far above what any service needs: definitions that refer to others, twice
# each, would fill the memory by a kilobyte.
# A description comes from a service that may be hostile: work is counted (`Types.spend`) and ends at this
# number.
_MOST_WRITTEN: Final = 10_000_000

# What each definition counts as that is come through to tell types apart, or to find the type of a default.
_STEP: Final = 10


@dataclass(slots=True)
class _Field:
    name: str
    wire_name: str
    type: str
    schema: Schema
    default: Expression | None


@dataclass(slots=True)
class _Class:
    name: str
    schema: Schema
    fields: list[_Field] = field(default_factory=list)
    required: set[str] = field(default_factory=set)
    root: str | None = None


class Scope:
    """One schema with the definitions that it refers to."""

    def __init__(self, types: Types, schema: Schema, suffix: str = "") -> None:
        self.types = types
        self.definitions: Mapping[str, Schema] = schema.get("$defs", {})
        self.suffix = suffix
        self.names: dict[str, str] = {}
        self._graph = Definitions(self.definitions, is_exact=False)

    def identity_of(self, schema: Schema, name: str = "") -> str:
        """See `nebula.codegen.schemas.identity_of`."""
        itself = {key: value for key, value in schema.items() if key != "$defs"}
        reached = self._graph.reached(references(itself))
        # Where all refer to all, this is the square of what the service said.
        self.types.spend(_STEP * len(reached))
        return identity_of(itself, reached, name)

    def of_reference(self, reference: str, value: Any) -> Expression | None:
        """See `nebula.codegen.values.Named`."""
        self.types.spend(_STEP)
        definition = self.definitions.get(referred(reference), {})
        name = self.types.expression({"$ref": reference}, self)
        if is_named_enum(definition):
            members = dict(_members(definition))
            found = next((member for member, one in members.items() if one == value), None)
            return None if found is None else Expression(f"{name}.{found}")
        if is_model(definition):
            return Expression(f"{name}.model_validate({plain(value)})", is_constant=False)
        return expression_of(definition, value, self.of_reference)


class Types:
    """The types of one module.

    Args:
        names: of the module.
        hidden: names that no field may have: those of the module's own classes, which annotations mean.

    Attributes:
        imports: what they need, as module and name; without a name the module itself.
    """

    # `write_stubs` makes two passes: the first finds the class names, the second avoids them (`hidden`).
    def __init__(self, names: Names, hidden: Collection[str] = ()) -> None:
        self.imports: set[tuple[str, str]] = set()
        self._names = names
        self._hidden = hidden
        self._written = 0
        self._classes: dict[str, _Class] = {}
        self._finished: list[_Class] = []

    # --- expressions ---

    def expression(self, schema: Any, scope: Scope) -> str:
        """The type that a schema means, for annotations.

        Raises:
            ValueError: all types together would be longer than any module is.
        """
        # An expression contains those within it, so the sum of their lengths bounds the memory that a hostile
        # description can use.
        text = self._annotation(schema, scope)
        self.spend(len(text))
        return text

    def spend(self, characters: int) -> None:
        """Count what was written, or come through. Raises ValueError when it is too much."""
        self._written += characters
        if self._written > _MOST_WRITTEN:
            raise ValueError(
                f"its types would take more than {_MOST_WRITTEN} characters, or refer to each other too often"
            )

    @property
    def class_names(self) -> set[str]:
        """The classes that there are by now."""
        return {one.name for one in self._classes.values()}

    def _annotation(self, schema: Any, scope: Scope) -> str:
        if not isinstance(schema, Mapping):
            return self._use("typing", "Any")
        base = self._base(schema, scope)
        limits = [f"{name}={plain(value)}" for name, value in limits_of(schema).items()]
        tag = schema.get("discriminator", {}).get("propertyName")
        # pydantic needs the attribute's name, so a renamed field cannot be a discriminator.
        if tag is not None and field_name(tag) == tag and tag not in self._hidden:
            limits.append(f"discriminator={quoted(tag)}")
        if not limits:
            return base
        self._use("pydantic", "Field")
        return f"{self._use('typing', 'Annotated')}[{base}, Field({', '.join(limits)})]"

    def _base(self, schema: Schema, scope: Scope) -> str:
        if "$ref" in schema:
            return self._referred(referred(schema["$ref"]), scope)
        if schema.get("format") == "decimal":
            return self._format("decimal")
        if ENUM_NAMES in schema and is_named_enum(schema):
            # A result that is an enumeration as a whole; whatever may be a literal just as well has no names.
            return self._class(schema, scope.identity_of(schema), scope)
        values = values_of(schema)
        if values and all(isinstance(value, str | int | None) for value in values):
            return f"{self._use('typing', 'Literal')}[{', '.join(map(plain, values))}]"
        if branches := schema.get("anyOf") or schema.get("oneOf"):
            return self._union([self.expression(branch, scope) for branch in branches])
        if len(branches := schema.get("allOf", ())) == 1:
            return self.expression(branches[0], scope)
        kind = schema.get("type")
        if isinstance(kind, list):
            # A list of types is a union of schemas with the same other keywords.
            return self._union([self._base({**schema, "type": one}, scope) for one in kind])
        if kind == "string":
            return self._format(schema.get("format"))
        if kind == "array":
            return self._array(schema, scope)
        if kind == "object":
            return self._object(schema, scope)
        return _SCALARS.get(kind or "") or self._use("typing", "Any")

    def _union(self, branches: list[str]) -> str:
        # None last, as people write it; the stable sort keeps the order of the others.
        parts = sorted(dict.fromkeys(branches), key="None".__eq__)
        text = " | ".join(parts)
        if len(parts) > 1 and len(text) > _LONG:
            return f"{self._use('typing', 'Union')}[{', '.join(parts)}]"
        return text

    def _format(self, name: str | None) -> str:
        kind = _FORMATS.get(name or "", "str")
        if kind.startswith("dt."):
            self.imports.add(("datetime as dt", ""))
        elif kind in _HOMES:
            self._use(_HOMES[kind], kind)
        return kind

    def _array(self, schema: Schema, scope: Scope) -> str:
        if prefix := schema.get("prefixItems"):
            return f"tuple[{', '.join(self.expression(one, scope) for one in prefix)}]"
        kind = "set" if schema.get("uniqueItems") else "list"
        return f"{kind}[{self.expression(schema.get('items', {}), scope)}]"

    def _object(self, schema: Schema, scope: Scope) -> str:
        if is_model(schema) and "properties" in schema:
            return self._class(schema, scope.identity_of(schema), scope)
        inner = schema.get("additionalProperties")
        key = self.expression(schema.get("propertyNames", {"type": "string"}), scope)
        return f"dict[{key if key != 'Any' else 'str'}, {self.expression(inner, scope)}]"

    def _use(self, module: str, name: str) -> str:
        self.imports.add((module, name))
        return name

    # --- classes ---

    def _referred(self, name: str, scope: Scope) -> str:
        if name in scope.names:
            return scope.names[name]
        definition = scope.definitions.get(name, {})
        if is_model(definition) or is_named_enum(definition) or "title" in definition:
            return self._class(definition, scope.identity_of(definition, name), scope, name)
        # A type's other name, such as a recursive one of JSON itself: inside itself it may be anything.
        scope.names[name] = self._use("typing", "Any")
        scope.names[name] = self.expression(definition, scope)
        return scope.names[name]

    def _class(self, schema: Schema, identity: str, scope: Scope, reference: str | None = None) -> str:
        known = self._classes.get(identity)
        # Requests and replies share the class of a model, so that a value can go from one to the other.
        if known is None:
            title = class_name(schema.get("title") or reference or "Value")
            known = _Class(self._names.give(title, f"{title}{scope.suffix}"), schema)
            known.required = set(schema.get("required", ()))
            # Before its fields are read, because one may have this type itself.
            self._classes[identity] = known
        # A reply has all fields; what a request may leave out shows where the model is one's.
        known.required &= set(schema.get("required", ()))
        if reference is not None:
            scope.names[reference] = known.name
        if is_model(schema):
            named = unique((field_name(name) for name in schema.get("properties", ())), self._hidden)
            fields = zip(named, schema.get("properties", {}).items(), strict=True)
            known.fields = [self._field(name, wire, one, scope) for name, (wire, one) in fields]
        elif not is_named_enum(schema):
            known.root = self.expression(schema, scope)
        # After what it is made of: defaults name members of enumerations.
        if known not in self._finished:
            self._finished.append(known)
        return known.name

    def _field(self, name: str, wire_name: str, schema: Any, scope: Scope) -> _Field:
        kind = self.expression(schema, scope)
        schema = schema if isinstance(schema, Mapping) else {}
        default = (
            expression_of(schema, schema["default"], scope.of_reference) if "default" in schema else None
        )
        return _Field(name, wire_name, kind, schema, default)

    def blocks(self) -> Iterator[list[str]]:
        """The classes as lines, each after those that it is made of, as far as there is such an order."""
        for one in self._finished:
            if one.root is not None:
                root = f"class {one.name}({self._use('pydantic', 'RootModel')}[{one.root}]):"
                yield [*broken(root, 0), *docstring(_about(one.schema) or one.name, 4)]
            elif is_named_enum(one.schema):
                yield self._enum(one)
            else:
                yield self._model(one)

    def _enum(self, one: _Class) -> list[str]:
        bases = {"string": "StrEnum", "integer": "IntEnum"}
        base = self._use("enum", bases.get(one.schema.get("type", ""), "Enum"))
        about = _about(one.schema)
        head = [f"class {one.name}({base}):", *([*docstring(about, 4), ""] if about else ())]
        return [*head, *(f"    {name} = {plain(value)}" for name, value in _members(one.schema))]

    def _model(self, one: _Class) -> list[str]:
        lines = [
            line for each in one.fields for line in self._field_lines(each, each.wire_name in one.required)
        ]
        # An optional field without a default must not be sent as null; `Partial` omits it.
        is_partial = any(each.default is None and each.wire_name not in one.required for each in one.fields)
        module, name = ("nebula.rpc", "Partial") if is_partial else ("pydantic", "BaseModel")
        base = self._use(module, name)
        about, config = _about(one.schema), self._config(one)
        body = [*(docstring(about, 4) if about else ()), *([""] if about and (config or lines) else ())]
        body += [*config, *([""] if config and lines else ()), *lines]
        return [f"class {one.name}({base}):", *(body or ["    pass"])]

    def _config(self, one: _Class) -> list[str]:
        options = []
        if any(each.name != each.wire_name for each in one.fields):
            options.append("populate_by_name=True")
        if _has_base64([each.schema for each in one.fields]):
            options += ['ser_json_bytes="base64"', 'val_json_bytes="base64"']
        # A boolean says whether unknown fields are allowed; a schema describes them.
        if isinstance(extra := one.schema.get("additionalProperties"), bool):
            options.append(f'extra="{"allow" if extra else "forbid"}"')
        if not options:
            return []
        self._use("pydantic", "ConfigDict")
        return broken(f"model_config = ConfigDict({', '.join(options)})", 4)

    def _field_lines(self, each: _Field, is_required: bool) -> list[str]:
        kind, arguments = each.type, []
        default = each.default
        if default is None and not is_required:
            kind, default = self._stand_in(kind)
        if default is not None:
            made = default.code if default.is_constant else _factory(default.code)
            arguments.append(f"{'default' if default.is_constant else 'default_factory'}={made}")
        if each.name != each.wire_name:
            # Not `alias`: type checkers would take that for the argument's name.
            wire_name = quoted(each.wire_name)
            arguments += [f"validation_alias={wire_name}", f"serialization_alias={wire_name}"]
        if about := each.schema.get("description"):
            arguments.append(f"description={quoted(about)}")
        if each.schema.get("deprecated"):
            arguments.append(f"deprecated={quoted(each.schema.get(DEPRECATED_BECAUSE, 'deprecated'))}")
        head = f"{each.name}: {kind}"
        if not arguments:
            return broken(head, 4)
        if len(arguments) == 1 and default is not None and default.is_constant:
            return broken(f"{head} = {default.code}", 4)
        self._use("pydantic", "Field")
        return broken(f"{head} = Field({', '.join(arguments)})", 4)

    def _stand_in(self, kind: str) -> tuple[str, Expression]:
        """A default for a field whose default only the service knows. It is not sent."""
        for empty in ("list", "dict", "set"):
            # `Partial` omits it unless it was set, so the empty value is not sent.
            if kind.startswith(f"{empty}["):
                return kind, Expression(f"{empty}()", is_constant=False)
        return (kind if kind.endswith("None") or kind == "Any" else f"{kind} | None"), Expression("None")


def _members(schema: Schema) -> Iterator[tuple[str, Any]]:
    values = values_of(schema)
    names = schema.get(ENUM_NAMES, [str(value) for value in values])
    yield from zip(unique(map(member_name, names)), values, strict=True)


def _about(schema: Schema) -> str:
    about = str(schema.get("description", ""))
    if schema.get("deprecated"):
        about += f"\n\nDeprecated: {schema.get(DEPRECATED_BECAUSE, 'do not use it any more')}"
    return about.strip()


def _has_base64(node: Any) -> bool:
    if isinstance(node, list):
        return any(map(_has_base64, node))
    if not isinstance(node, Mapping):
        return False
    return node.get("format") in ("base64", "base64url") or any(map(_has_base64, node.values()))


def _factory(code: str) -> str:
    return {"[]": "list", "list()": "list", "{}": "dict", "dict()": "dict", "set()": "set"}.get(
        code, f"lambda: {code}"
    )
