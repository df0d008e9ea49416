"""Avro types as a tree: each named type stands where it is used, and what Spark cannot hold is refused.

The readers work on this tree and not on the schema's JSON, so that names, references and the many ways to
write a nullable type are dealt with once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, assert_never

from nebula.spark.reading.errors import UnsupportedTypeError

MAX_DECIMAL_DIGITS: Final = 38

# What a union of several number types becomes: the widest of them, as in spark-avro.
_WIDEST: Final = (({"int", "long"}, "long"), ({"float", "double"}, "double"))

# Logical types that change what Spark makes of the type below them. The others count as that type.
_LOGICAL: Final = {
    ("int", "date"),
    ("long", "timestamp-millis"),
    ("long", "timestamp-micros"),
    ("long", "local-timestamp-millis"),
    ("long", "local-timestamp-micros"),
    ("bytes", "decimal"),
    ("fixed", "decimal"),
}


@dataclass(frozen=True, slots=True)
class Primitive:
    """A type without parts. `precision` and `scale` are of a decimal."""

    kind: str
    logical: str | None = None
    precision: int = 0
    scale: int = 0


@dataclass(frozen=True, slots=True)
class Enum:
    """A choice of symbols; `default` stands for those that a reader does not know."""

    name: str
    aliases: tuple[str, ...]
    symbols: tuple[str, ...]
    default: str | None


@dataclass(frozen=True, slots=True)
class Fixed:
    """A fixed number of bytes; a decimal if `precision` is not 0."""

    name: str
    aliases: tuple[str, ...]
    size_bytes: int
    precision: int = 0
    scale: int = 0


@dataclass(frozen=True, slots=True)
class Array:
    """Any number of items."""

    items: AvroType


@dataclass(frozen=True, slots=True)
class Map:
    """Values by text."""

    values: AvroType


@dataclass(frozen=True, slots=True)
class Field:
    """A part of a record. `default` counts only if `has_default`."""

    name: str
    aliases: tuple[str, ...]
    type: AvroType
    has_default: bool
    default: Any


@dataclass(frozen=True, slots=True)
class Record:
    """Fields in order."""

    name: str
    aliases: tuple[str, ...]
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class Unsupported:
    """A type that Spark cannot hold, and `why`: an error only if that column is wanted."""

    why: str


@dataclass(frozen=True, slots=True)
class Union:
    """One of its branches. Spark holds it as `inner`, null where the branch is null."""

    branches: tuple[AvroType, ...]
    inner: AvroType

    @property
    def some(self) -> tuple[AvroType, ...]:
        """The branches but null."""
        return tuple(each for each in self.branches if each != NULL)


AvroType: TypeAlias = Primitive | Enum | Fixed | Array | Map | Record | Union | Unsupported

NULL: Final = Primitive("null")


def parse(parsed: Any) -> AvroType:
    """The tree of a schema that fastavro has parsed (`nebula.avro.Schema.parsed`).

    Raises:
        UnsupportedTypeError: a record holds itself, or a decimal has more than 38 digits. Names the field.
    """
    return _Parser().type_of(parsed, "")


def parse_record(parsed: Any) -> Record:
    """As `parse`, for what a file holds rows of. Raises UnsupportedTypeError also for what is no record."""
    tree = parse(parsed)
    if not isinstance(tree, Record):
        raise UnsupportedTypeError("the schema is no record, and so has no columns")
    return tree


def parts(each: AvroType) -> Iterator[AvroType]:
    """A type, and behind it all types within it; not the null that only says that another may be missing."""
    yield each
    match each:
        case Array():
            yield from parts(each.items)
        case Map():
            yield from parts(each.values)
        case Record():
            for field in each.fields:
                yield from parts(field.type)
        case Union():
            for branch in each.some:
                yield from parts(branch)
        case Primitive() | Enum() | Fixed() | Unsupported():
            pass
        case _:
            assert_never(each)


def unwrap(each: AvroType) -> tuple[AvroType, bool]:
    """What a value is that is not null, and whether it may be null."""
    # A union says whether null is one of its branches; any other type may be null only if it is null
    # itself.
    if isinstance(each, Union):
        return each.inner, NULL in each.branches
    return each, each == NULL


class _Parser:
    def __init__(self) -> None:
        self._named: dict[str, Any] = {}
        self._open: list[str] = []

    def type_of(self, schema: Any, where: str) -> AvroType:
        if isinstance(schema, list):
            return self._union(schema, where)
        if isinstance(schema, str):
            # A name stands for the definition that came before it; in the tree it is that definition again.
            if schema in self._named:
                return self.type_of(self._named[schema], where)
            return Primitive(schema)
        kind = schema["type"]
        # `{"type": ["null", "int"]}` and `{"type": {"type": "int"}}` are other ways to write the inner
        # type.
        if isinstance(kind, list) or (isinstance(kind, Mapping) and "name" not in schema):
            return self.type_of(kind, where)
        match kind:
            case "record" | "error":
                return self._record(schema, where)
            case "enum":
                name = self._remember(schema)
                return Enum(name, _aliases(schema), tuple(schema["symbols"]), schema.get("default"))
            case "fixed":
                name = self._remember(schema)
                return Fixed(name, _aliases(schema), int(schema["size"]), *_digits(schema, where))
            case "array":
                return Array(self.type_of(schema["items"], f"{where}[]"))
            case "map":
                return Map(self.type_of(schema["values"], f"{where}{{}}"))
        if kind in self._named:
            return self.type_of(self._named[kind], where)
        # A logical type on the wrong type is ignored, as the specification demands ("Logical Types").
        logical = schema.get("logicalType") if (kind, schema.get("logicalType")) in _LOGICAL else None
        return Primitive(kind, logical, *_digits(schema, where))

    def _record(self, schema: Mapping[str, Any], where: str) -> Record:
        name = self._remember(schema)
        # Avro allows a record within itself, such as a list's next element. A table has columns of fixed
        # depth.
        if name in self._open:
            raise UnsupportedTypeError(f"{where}: {name} holds itself, and Spark has no such type")
        self._open.append(name)
        fields = tuple(
            Field(
                each["name"],
                tuple(each.get("aliases", ())),
                self.type_of(each["type"], f"{where}.{each['name']}".removeprefix(".")),
                "default" in each,
                each.get("default"),
            )
            for each in schema["fields"]
        )
        # Only while its fields are read: elsewhere a record may be used any number of times.
        self._open.pop()
        return Record(name, _aliases(schema), fields)

    def _union(self, schemas: list[Any], where: str) -> Union:
        branches = tuple(self.type_of(each, where) for each in schemas)
        some = [each for each in branches if each != NULL]
        if len(some) < 2:
            # Null and one type, which is a nullable column, or a single type alone.
            return Union(branches, some[0] if some else NULL)
        kinds = {each.kind if isinstance(each, Primitive) and each.logical is None else "" for each in some}
        for numbers, widest in _WIDEST:
            if kinds <= numbers:
                # As in spark-avro: a union of int and long is a column of longs.
                return Union(branches, Primitive(widest))
        why = (
            f"{where} is a union of several types ({', '.join(map(_word, some))}): Spark has no such column; "
            "leave it out by columns=, or by a reader schema without it"
        )
        return Union(branches, Unsupported(why))

    def _remember(self, schema: Mapping[str, Any]) -> str:
        name = str(schema["name"])
        self._named[name] = schema
        return name


def _digits(schema: Mapping[str, Any], where: str) -> tuple[int, int]:
    if (schema["type"], schema.get("logicalType")) not in (("bytes", "decimal"), ("fixed", "decimal")):
        return 0, 0
    precision, scale = int(schema["precision"]), int(schema.get("scale", 0))
    if precision > MAX_DECIMAL_DIGITS:
        raise UnsupportedTypeError(f"{where} is a decimal of {precision} digits, and Spark's have at most 38")
    # The scale may be missing, and is 0 then ("Decimal" of the specification).
    return precision, scale


def _aliases(schema: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(schema.get("aliases", ()))


def _word(each: AvroType) -> str:
    if isinstance(each, Primitive):
        return each.logical or each.kind
    return each.name if isinstance(each, Record | Enum | Fixed) else type(each).__name__.lower()
