"""Schemas as flat programs for the pre-scan.

Most of a schema is *regular*: numbers, booleans, small enums, fixed, and records and unions of these. One
regular expression says what bytes such a run may have, and C walks it. Strings, bytes, arrays, maps and
recursion remain as steps of their own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

from nebula.errors import AvroError

_RECORDS: Final = ("record", "error")
_NAMED: Final = (*_RECORDS, "enum", "fixed")

# fastavro takes any text for a name. In a canonical form, a quote in it would pass for another schema.
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FULL_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")

RUN: Final = 0  # operand: match of a compiled pattern
STRING: Final = 1
BYTES: Final = 2  # operand: bytes at most
UNION: Final = 3  # operand: a program for each branch
ITEMS: Final = 4  # an array of regular items; operand: Items
ARRAY: Final = 5  # operand: the program of an item
MAP: Final = 6  # operand: the program of a key and its value
CALL: Final = 7  # operand: the program of a named type
ENUM: Final = 8  # operand: how many symbols

# Avro writes numbers zigzag in groups of seven bits, the last byte below 0x80. One number has one shortest
# form; a last byte of 0 after others would be a longer one.
LONG: Final = b"(?:[\x00-\x7f]|[\x80-\xff]{1,8}[\x01-\x7f]|[\x80-\xff]{9}\x01)"
INT: Final = b"(?:[\x00-\x7f]|[\x80-\xff]{1,3}[\x01-\x7f]|[\x80-\xff]{4}[\x01-\x0f])"

# The shorter, the nearer to 1970: they reach 139 years from it, 1,141 years, and 358 years.
_NEAR_MILLIS: Final = b"(?:[\x00-\x7f]|[\x80-\xff]{1,5}[\x01-\x7f]|[\x80-\xff]{6}\x01)"
_NEAR_MICROS: Final = b"(?:[\x00-\x7f]|[\x80-\xff]{1,7}[\x01-\x7f])"
_NEAR_DAYS: Final = b"(?:[\x00-\x7f]|[\x80-\xff][\x01-\x7f]|[\x80-\xff]{2}[\x01-\x0f])"

USUAL_DATES: Final = {
    "long-timestamp-millis": _NEAR_MILLIS,
    "long-local-timestamp-millis": _NEAR_MILLIS,
    "long-timestamp-micros": _NEAR_MICROS,
    "long-local-timestamp-micros": _NEAR_MICROS,
    "int-date": _NEAR_DAYS,
}
"""By type and logical type: patterns of numbers that are dates to all who read them. There are others."""

_FIXED_WIDTH: Final = {"null": b"", "boolean": b"[\x00\x01]", "float": b".{4}", "double": b".{8}"}
_NUMBERS: Final = {"int": INT, "long": LONG}

# An index below 64 is one byte.
_ONE_BYTE_INDEXES: Final = 64

# A long pattern is split, and a named type's is repeated where it is used only while it is short: records
# that hold records that hold records … would double it at each step.
_MAX_PATTERN_BYTES: Final = 4000
_MAX_REPEATED_BYTES: Final = 400
_MAX_PROGRAM_BYTES: Final = 1_000_000
_MAX_INLINED_STEPS: Final = 16

# `re` cannot count higher in one repetition, and no real fixed is as large.
MAX_FIXED_BYTES: Final = 1 << 20

# An unscaled decimal is turned into digits in quadratic time: 400 kB of one took half a minute. This many
# bytes are 308 digits.
MAX_DECIMAL_BYTES: Final = 128
NO_LIMIT: Final = 1 << 62

_ITEMS_AT_ONCE: Final = 64


class Step(NamedTuple):
    """One thing to look at.

    Attributes:
        code: which of the constants above.
        operand: what belongs to the code.
        values: how many values it has at most, without those that the operand's programs count.
        level: how many values of the program enclose it.
    """

    code: int
    operand: Any
    values: int
    level: int


@dataclass(slots=True, eq=False)
class Program:
    """The steps for values of one type.

    Attributes:
        height: levels of nesting within it, not counting those of the programs that it calls.
    """

    steps: tuple[Step, ...] = ()
    height: int = 0


@dataclass(frozen=True, slots=True)
class Items:
    """How to pass over items of an array that are regular."""

    one: Any
    many: Any
    at_once: int
    values: int
    is_empty: bool


@dataclass(frozen=True, slots=True)
class _Regular:
    """Bytes that a pattern describes."""

    pattern: bytes
    values: int
    height: int


_Part: TypeAlias = _Regular | Step


def compile_schema(schema: Any, numbers: Mapping[str, bytes] | None = None) -> Program:
    """Turn a schema into a program.

    Args:
        schema: as `fastavro.parse_schema` returns it: each type is defined where it is first named.
        numbers: patterns for ints and longs of logical types, as `USUAL_DATES`.

    Raises:
        AvroError: it would become too large, or breaks a rule of Avro's that fastavro does not check.
    """
    return _Compiler(numbers or {}).program(schema)


def logical_type(schema: Any) -> str | None:
    """A type and its logical type, as in `USUAL_DATES`; None: it has none."""
    if isinstance(schema, Mapping) and "logicalType" in schema:
        return f"{schema['type']}-{schema['logicalType']}"
    return None


class _Compiler:
    def __init__(self, numbers: Mapping[str, bytes]) -> None:
        self._numbers = numbers
        # Of named types: what to call, and what may stand in their place.
        self._programs: dict[str, Program] = {}
        self._parts: dict[str, list[_Part]] = {}
        self._bytes = 0

    def program(self, schema: Any) -> Program:
        parts = self._of(schema)
        # `_named` has made it already: references to the record call the same program.
        if isinstance(schema, Mapping) and schema["type"] in _RECORDS:
            return self._programs[str(schema["name"])]
        return self._fill(Program(), parts)

    def _fill(self, program: Program, parts: list[_Part]) -> Program:
        program.steps = tuple(self._step(part) for part in parts)
        program.height = max((_height(part) for part in parts), default=0)
        return program

    def _step(self, part: _Part) -> Step:
        if isinstance(part, Step):
            return part
        return Step(RUN, self._compiled(part.pattern).match, part.values, part.height)

    def _compiled(self, pattern: bytes) -> re.Pattern[bytes]:
        self._bytes += len(pattern)
        if self._bytes > _MAX_PROGRAM_BYTES:
            raise AvroError("is too large: too many fields, or too many copies of the same types")
        return re.compile(pattern, re.DOTALL)

    # Each of these returns parts whose levels count from the value itself.

    def _of(self, schema: Any) -> list[_Part]:
        if isinstance(schema, list):
            return self._union(schema)
        kind = str(schema["type"]) if isinstance(schema, Mapping) else str(schema)
        if kind in _FIXED_WIDTH:
            return [_Regular(_FIXED_WIDTH[kind], 1, 0)]
        if kind in _NUMBERS:
            return [_Regular(self._numbers.get(logical_type(schema) or kind, _NUMBERS[kind]), 1, 0)]
        if kind == "string":
            return [Step(STRING, None, 1, 0)]
        if kind == "bytes":
            return [Step(BYTES, MAX_DECIMAL_BYTES if _is_decimal(schema) else NO_LIMIT, 1, 0)]
        if kind == "array":
            return [self._array(schema["items"])]
        if kind == "map":
            pair = self._fill(Program(), [Step(STRING, None, 1, 0), *self._of(schema["values"])])
            return [Step(MAP, pair, 1, 0)]
        if kind in _NAMED:
            return self._named(schema)
        return self._reference(kind)

    def _named(self, schema: Mapping[str, Any]) -> list[_Part]:
        name = str(schema["name"])
        if not _FULL_NAME.fullmatch(name):
            raise AvroError(f"{name[:80]!r} is no name: letters, digits and _, with dots between")
        if schema["type"] == "enum":
            parts: list[_Part] = [_enum(len(schema["symbols"]))]
        elif schema["type"] == "fixed":
            parts = [_fixed(schema)]
        else:
            # Made before its fields, which may refer to it.
            program = self._programs[name] = Program()
            parts = self._record(name, schema["fields"])
            self._fill(program, parts)
        # Set last: within itself a type is called by its program, and its parts are not copied.
        self._parts[name] = parts
        return parts

    def _reference(self, name: str) -> list[_Part]:
        if name in self._parts and _is_short(self._parts[name]):
            return self._parts[name]
        if name not in self._programs:
            raise AvroError(f"no type is called {name[:80]!r}")
        program = self._programs[name]
        # No steps yet: the type refers to itself.
        if 0 < len(program.steps) <= _MAX_INLINED_STEPS:
            return list(program.steps)
        return [Step(CALL, program, 0, 0)]

    def _record(self, name: str, fields: Sequence[Mapping[str, Any]]) -> list[_Part]:
        names = [str(field["name"]) for field in fields]
        if len(set(names)) < len(names) or not all(_NAME.fullmatch(each) for each in names):
            raise AvroError(f"{name}: a field is there twice, or its name is none")
        parts: list[_Part] = []
        for field in fields:
            for part in self._of(field["type"]):
                _append(parts, _deeper(part))
        return _counted(parts)

    def _union(self, branches: Sequence[Any]) -> list[_Part]:
        kinds = [_kind_of_branch(branch) for branch in branches]
        if not kinds or len(set(kinds)) < len(kinds):
            raise AvroError(f"a union has no branch, or two of one type: {', '.join(kinds)[:200]}")
        compiled = [self._of(branch) for branch in branches]
        regular = [_as_regular(parts) for parts in compiled]
        # With an index of one byte the branches are alternatives of one expression.
        if len(branches) <= _ONE_BYTE_INDEXES and None not in regular:
            found = [one for one in regular if one is not None]
            if sum(len(one.pattern) for one in found) <= _MAX_PATTERN_BYTES:
                pattern = b"|".join(_index(number) + one.pattern for number, one in enumerate(found))
                values, height = (max(one.values for one in found), max(one.height for one in found))
                return [_Regular(b"(?:" + pattern + b")", 1 + values, 1 + height)]
        programs = tuple(self._fill(Program(), parts) for parts in compiled)
        return [Step(UNION, programs, 1, 0)]

    def _array(self, items: Any) -> Step:
        parts = self._of(items)
        regular = _as_regular(parts)
        if regular is None or len(regular.pattern) > _MAX_REPEATED_BYTES:
            return Step(ARRAY, self._fill(Program(), parts), 1, 0)
        once = b"(?:" + regular.pattern + b")"
        many = re.compile(once + b"{%d}" % _ITEMS_AT_ONCE, re.DOTALL)
        one = self._compiled(once)
        passing = Items(one.match, many.match, _ITEMS_AT_ONCE, regular.values, not regular.pattern)
        return Step(ITEMS, passing, 1, regular.height + 1)


def _append(parts: list[_Part], part: _Part) -> None:
    """Add a part, joined to the one before where both are regular and short enough together."""
    last = parts[-1] if parts else None
    if (
        isinstance(last, _Regular)
        and isinstance(part, _Regular)
        and len(last.pattern) + len(part.pattern) <= _MAX_PATTERN_BYTES
    ):
        joined = last.pattern + part.pattern
        parts[-1] = _Regular(joined, last.values + part.values, max(last.height, part.height))
    else:
        parts.append(part)


def _counted(parts: list[_Part]) -> list[_Part]:
    """The parts of a record's fields, with the record itself counted as a value."""
    # A record without fields has no bytes, and is a value all the same.
    if not parts:
        return [_Regular(b"", 1, 0)]
    first, *others = parts
    if isinstance(first, Step):
        return [first._replace(values=first.values + 1), *others]
    return [_Regular(first.pattern, first.values + 1, first.height), *others]


def _deeper(part: _Part) -> _Part:
    if isinstance(part, Step):
        return part._replace(level=part.level + 1)
    return _Regular(part.pattern, part.values, part.height + 1)


def _kind_of_branch(branch: Any) -> str:
    if isinstance(branch, list):
        raise AvroError("a union stands directly in a union")
    if isinstance(branch, Mapping):
        # A union may hold several named types, and one of each other kind ("Unions" of the specification).
        return str(branch["name"] if branch["type"] in _NAMED else branch["type"])
    return str(branch)


def _is_short(parts: list[_Part]) -> bool:
    """Whether it may be repeated wherever the type is named."""
    if len(parts) != 1:
        return False
    part = parts[0]
    return isinstance(part, Step) or len(part.pattern) <= _MAX_REPEATED_BYTES


def _height(part: _Part) -> int:
    return part.level if isinstance(part, Step) else part.height


def _as_regular(parts: list[_Part]) -> _Regular | None:
    if len(parts) == 1 and isinstance(parts[0], _Regular):
        return parts[0]
    return None


def _enum(symbols: int) -> _Part:
    if not 0 < symbols <= _ONE_BYTE_INDEXES:
        return Step(ENUM, symbols, 1, 0)
    return _Regular(b"[" + b"".join(_index(number) for number in range(symbols)) + b"]", 1, 0)


def _fixed(schema: Mapping[str, Any]) -> _Part:
    size = schema["size"]
    if not isinstance(size, int) or size < 0:
        raise AvroError(f"{schema['name']}: the size of a fixed is a number of bytes")
    most = MAX_DECIMAL_BYTES if _is_decimal(schema) else MAX_FIXED_BYTES
    if size > most:
        raise AvroError(f"{schema['name']}: has {size} bytes, {most} are allowed")
    return _Regular(b".{%d}" % size if size else b"", 1, 0)


def _is_decimal(schema: Any) -> bool:
    return isinstance(schema, Mapping) and schema.get("logicalType") == "decimal"


def _index(number: int) -> bytes:
    """A pattern for the index of a branch or symbol, zigzag."""
    # The zigzag form of a number that is not negative is twice the number; below 64 it is one byte.
    return re.escape(bytes([number * 2]))
