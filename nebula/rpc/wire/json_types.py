"""Types and their JSON form: values from it, values into it, and its JSON Schema."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import SchemaValidator, core_schema, to_json

from nebula.rpc.wire.envelope import ascii_json

__all__ = ["DEPRECATED_BECAUSE", "ENUM_NAMES", "Adapter"]

# What our schemas say beyond JSON Schema, under the names that others use for it too.
ENUM_NAMES: Final = "x-enum-varnames"
DEPRECATED_BECAUSE: Final = "deprecationMessage"

# A model says for itself how its bytes travel; for all else we do. As text they would have to be UTF-8.
_CONFIG: Final = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")
_CORE_CONFIG: Final = core_schema.CoreConfig(ser_json_bytes="base64", val_json_bytes="base64")
_SCALARS: Final[Mapping[str, type]] = {"str": str, "int": int, "float": float, "bool": bool}
_DISTRUSTFUL: Final = ConfigDict(**_CONFIG, revalidate_instances="always")


@dataclass(frozen=True, slots=True)
class _Of:
    """Stands for a type where pydantic takes no config with it: a dataclass, a TypedDict."""

    kind: Any

    def __get_pydantic_core_schema__(
        self, _source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        return handler.generate_schema(self.kind)


class Adapter:
    """One type, or the parameters of one function.

    Args:
        kind: the type; or a function, whose arguments are read: a pair of positional and named ones.
        trusts: take an instance of a dataclass as it is; else its fields are checked, too.

    Attributes:
        read: makes a value of what JSON gave (`str`, `dict`, …); raises pydantic's ValidationError.
        take: the same of what may hold bytes, dates and decimals already, as Avro gives them.

    Raises:
        PydanticUserError, PydanticSchemaGenerationError: the type has no JSON form.
    """

    __slots__ = ("_adapter", "_model", "_scalars", "read", "take")

    def __init__(self, kind: Any, *, trusts: bool = True) -> None:
        whole: Any = kind if inspect.isfunction(kind) else Annotated[Any, _Of(kind)]
        self._adapter: TypeAdapter[Any] = TypeAdapter(whole, config=_CONFIG if trusts else _DISTRUSTFUL)
        self._model, self._scalars = _model_of_scalars(self._adapter.core_schema)
        validator = self._adapter.validator
        if inspect.isfunction(kind):
            validator = SchemaValidator(_arguments_of(self._adapter.core_schema), _CORE_CONFIG)
        self.take: Callable[[Any], Any] = validator.validate_python
        self.read = self.take
        if _knows_json_by_its_text(self._adapter.core_schema, set()):
            assert isinstance(validator, SchemaValidator)
            self.read = partial(_read_text, validator)

    def write(self, value: Any, *, is_exact: bool = False) -> bytes:
        """A value as ASCII-only JSON; one of another type goes by its own type.

        Args:
            value: to be written.
            is_exact: refuse one of another type.

        Raises:
            ValueError: it has no JSON form, or is of another type.
        """
        # No warnings: pydantic's would show the value on stderr.
        warnings: bool | Literal["error"] = False
        # "error" takes pydantic three times as long, so it is not asked about models that are exact for sure.
        if is_exact and (type(value) is not self._model or _types_in(value) != self._scalars):
            warnings = "error"
        return ascii_json(self._adapter.serializer.to_json(value, by_alias=True, warnings=warnings))

    def plain(self, value: Any) -> Any:
        """A value as dicts, lists and scalars of Python: dates, decimals and bytes stay what they are."""
        return self._adapter.serializer.to_python(value, by_alias=True, warnings=False)

    def model(self) -> type | None:
        """The class of models that `take` returns as they are; None if the type is something else."""
        schema: Any = self._adapter.core_schema
        trusts = schema.get("config", {}).get("revalidate_instances", "never") == "never"
        return schema["cls"] if schema["type"] == "model" and trusts else None

    def can_check_dataclasses(self) -> bool:
        """Whether there are dataclasses in it, and their fields can be checked once more."""
        found = [one for one in _nodes(self._adapter.core_schema, set()) if one.get("type") == "dataclass"]
        return bool(found) and all(map(_is_made_of_its_fields, found))

    def is_lazy(self) -> bool:
        """Whether it has an `Iterable`, which is checked as it is read, and can be read once."""
        return any(one.get("type") == "generator" for one in _nodes(self._adapter.core_schema, set()))

    def schema(self, mode: Literal["validation", "serialization"]) -> dict[str, Any]:
        """JSON Schema of what is read, or of what is written."""
        return self._adapter.json_schema(mode=mode, schema_generator=_Schemas)


def _arguments_of(function: Any) -> core_schema.CoreSchema:
    """The part of a function's schema that reads its arguments. The whole of it would call the function."""
    if function["type"] == "definitions":
        return core_schema.definitions_schema(_arguments_of(function["schema"]), function["definitions"])
    arguments: core_schema.CoreSchema = function["arguments_schema"]
    return arguments


def _model_of_scalars(schema: Any) -> tuple[type | None, tuple[type, ...]]:
    """A model whose fields are all scalars that are written as they are, and their types.

    The model is None for any other schema.
    """
    if schema["type"] != "model" or "serialization" in schema:
        return None, ()
    inner = schema["schema"]
    if inner["type"] != "model-fields" or inner["computed_fields"] or "extras_schema" in inner:
        return None, ()
    kinds = [_scalar_of(field["schema"]) for field in inner["fields"].values()]
    scalars = tuple(kind for kind in kinds if kind is not None)
    return (schema["cls"], scalars) if len(scalars) == len(kinds) else (None, ())


def _scalar_of(schema: Any) -> type | None:
    if "serialization" in schema:
        return None
    return _scalar_of(schema["schema"]) if schema["type"] == "default" else _SCALARS.get(schema["type"])


def _types_in(model: Any) -> tuple[type, ...]:
    return tuple(map(type, vars(model).values()))


def _read_text(validator: SchemaValidator, value: Any) -> Any:
    return validator.validate_json(to_json(value, bytes_mode="base64"))


def _knows_json_by_its_text(node: Any, seen: set[int]) -> bool:
    """Whether pydantic has to see the JSON itself, as a `str` or `list` of Python would mean something else.

    So it is with bytes, strict types, and types with one rule for JSON and another for Python. All others
    save the way back to text, which costs more than the reading.
    """
    if id(node) in seen:
        return False
    seen.add(id(node))
    if isinstance(node, Mapping):
        if node.get("type") in ("bytes", "json-or-python") or node.get("strict") is True:
            return True
        return any(_knows_json_by_its_text(one, seen) for one in node.values())
    if isinstance(node, list | tuple):
        return any(_knows_json_by_its_text(one, seen) for one in node)
    return False


def _nodes(node: Any, seen: set[int]) -> Iterator[Mapping[str, Any]]:
    """All mappings in a schema of pydantic's, each once."""
    if id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, Mapping):
        yield node
    if isinstance(node, Mapping | list | tuple):
        for one in node.values() if isinstance(node, Mapping) else node:
            yield from _nodes(one, seen)


def _is_made_of_its_fields(dataclass: Mapping[str, Any]) -> bool:
    """Whether one with the same fields can be made: none is lost, as `InitVar` is, or made by itself."""
    fields = dataclass["schema"].get("fields", ())
    return not any(
        isinstance(one, Mapping) and (one.get("init_only") or one.get("init") is False) for one in fields
    )


class _Schemas(GenerateJsonSchema):
    """JSON Schema as pydantic writes it, with what it leaves out and a typed client wants."""

    def field_is_required(self, field: Any, total: bool) -> bool:
        # What is written has the fields with a default too; readers need not ask whether they are there.
        if self.mode == "serialization" and field["type"] in ("model-field", "dataclass-field"):
            return not (field.get("serialization_exclude") or field.get("serialization_exclude_if"))
        return super().field_is_required(field, total)

    def decimal_schema(self, schema: core_schema.DecimalSchema) -> JsonSchemaValue:
        return {**super().decimal_schema(schema), "format": "decimal"}

    def enum_schema(self, schema: core_schema.EnumSchema) -> JsonSchemaValue:
        members: list[Enum] = schema["members"]
        return {**super().enum_schema(schema), ENUM_NAMES: [one.name for one in members]}

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        shown = super().model_schema(schema)
        kind: type[BaseModel] = schema["cls"]
        because = vars(kind).get("__deprecated__")
        if isinstance(because, str):
            shown |= {"deprecated": True, DEPRECATED_BECAUSE: because}
        for name, field in kind.model_fields.items():
            told = shown.get("properties", {}).get(field.alias or name)
            if told is not None and field.deprecation_message:
                told[DEPRECATED_BECAUSE] = field.deprecation_message
        return shown
