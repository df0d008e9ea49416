"""A look at a datum before a library decodes it: hostile ones are refused in bounded time and memory.

A decoder trusts what it reads. A recursive schema lets a few kB nest deeper than the machine's stack,
and five octets of an array of nulls ask for as many items as a number can count. So each datum
is gone over once by its schema, with a stack of our own and nothing built; what then goes to the
library is neither deep, nor wide, nor longer than it says.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Any, Final, TypeAlias

from nebula.avro.varints import read_long
from nebula.errors import AvroError

MAX_DEPTH: Final = 64
"""Records, arrays, maps and unions within each other, at most."""

MAX_VALUES: Final = 100_000
"""Values that a datum may hold at most, those without octets too: going over them takes a tenth of a
second or so, in which a broker does nothing else."""

_PLAIN_SIZES: Final = {"null": 0, "boolean": 1, "float": 4, "double": 8}
_INT_RANGE: Final = range(-(1 << 31), 1 << 31)


class _Kind(Enum):
    PLAIN = auto()  # so many octets, whatever they are
    BOOLEAN = auto()
    INT = auto()
    LONG = auto()
    BYTES = auto()
    ENUM = auto()
    UNION = auto()
    RECORD = auto()
    ARRAY = auto()
    MAP = auto()
    REST = auto()  # what is left of a block of an array or map


class _Node:
    """One type of a schema."""

    __slots__ = ("children", "kind", "size")

    def __init__(self, kind: _Kind, size: int = 0) -> None:
        self.kind = kind
        self.size = size  # octets of PLAIN; symbols of ENUM
        self.children: list[_Node] = []


Program: TypeAlias = _Node
"""A schema, compiled for `scan`."""

_Todo: TypeAlias = tuple[_Node, int, int]
"""What is to be read: a type, how deep it lies, and for REST how many items are left."""


def compile_schema(schema: Any) -> Program:
    """Compile a parsed schema: every named type is defined before it is used.

    Raises:
        AvroError: a type that Avro does not have.
    """
    return _Compiler().node(schema)


class _Compiler:
    def __init__(self) -> None:
        self._named: dict[str, _Node] = {}

    def node(self, schema: Any) -> _Node:
        if isinstance(schema, list):
            node = _Node(_Kind.UNION)
            node.children = [self.node(branch) for branch in schema]
            return node
        if isinstance(schema, Mapping):
            return self._complex(schema)
        return self._plain(str(schema))

    def _plain(self, name: str) -> _Node:
        if name in self._named:
            return self._named[name]
        match name:
            case "boolean":
                return _Node(_Kind.BOOLEAN, 1)
            case "int":
                return _Node(_Kind.INT)
            case "long":
                return _Node(_Kind.LONG)
            case "bytes" | "string":
                return _Node(_Kind.BYTES)
        if name not in _PLAIN_SIZES:
            raise AvroError(f"no type is called {name[:80]!r}")
        return _Node(_Kind.PLAIN, _PLAIN_SIZES[name])

    def _complex(self, schema: Mapping[str, Any]) -> _Node:
        match schema["type"]:
            case "record" | "error":
                node = self._named[schema["name"]] = _Node(_Kind.RECORD)
                node.children = [self.node(field["type"]) for field in schema["fields"]]
            case "enum":
                node = self._named[schema["name"]] = _Node(_Kind.ENUM, len(schema["symbols"]))
            case "fixed":
                node = self._named[schema["name"]] = _Node(_Kind.PLAIN, schema["size"])
            case "array":
                node = _Node(_Kind.ARRAY)
                node.children = [self.node(schema["items"])]
            case "map":
                node = _Node(_Kind.MAP)
                node.children = [_Node(_Kind.BYTES), self.node(schema["values"])]
            case plain:  # with a logical type or properties of its own
                node = self.node(plain)
        return node


# Longer than our other functions: a call for each value would cost half of the rate.
def scan(  # noqa: C901
    program: Program, data: bytes, *, max_depth: int = MAX_DEPTH, max_values: int = MAX_VALUES
) -> None:
    """Go over a datum.

    Raises:
        AvroError: it is too deep, holds too much, ends too soon or too late, or names what its schema
            does not have.
    """
    position, size = 0, len(data)
    todo: list[_Todo] = [(program, 0, 0)]
    values = 0
    while todo:
        node, depth, left = todo.pop()
        kind = node.kind
        if kind is _Kind.REST:
            if left > 1:
                todo.append((node, depth, left - 1))
            todo.extend((child, depth + 1, 0) for child in reversed(node.children))
            continue
        values += 1
        if values > max_values:
            raise AvroError(f"more than {max_values} values")
        if kind is _Kind.PLAIN:
            position += node.size
        elif kind is _Kind.LONG:
            _, position = read_long(data, position)
        elif kind is _Kind.BYTES:
            length, position = read_long(data, position)
            if not 0 <= length <= size - position:
                raise AvroError("a length beyond the end of the data")
            position += length
        elif kind is _Kind.RECORD:
            _go_deeper(depth, max_depth)
            todo.extend((child, depth + 1, 0) for child in reversed(node.children))
        elif kind is _Kind.UNION:
            _go_deeper(depth, max_depth)
            branch, position = _index(data, position, len(node.children), "union")
            todo.append((node.children[branch], depth + 1, 0))
        elif kind is _Kind.ARRAY or kind is _Kind.MAP:
            _go_deeper(depth, max_depth)
            count, position = _block(data, position)
            if count:
                if count > max_values - values:
                    raise AvroError(f"more than {max_values} values")
                todo.append((node, depth, 0))  # another block may follow
                todo.append((_rest_of(node), depth, count))
        else:
            position = _scan_narrow(node, data, position)
        if position > size:
            raise AvroError("the data ends too soon")
    if position != size:
        raise AvroError(f"{size - position} octets are left over")


def _scan_narrow(node: _Node, data: bytes, position: int) -> int:
    """Types of which not every encoding is a value."""
    if node.kind is _Kind.ENUM:
        return _index(data, position, node.size, "enum")[1]
    if node.kind is _Kind.BOOLEAN:
        if data[position : position + 1] not in (b"\0", b"\1"):
            raise AvroError("a boolean is neither 0 nor 1")
        return position + 1
    number, position = read_long(data, position)
    if number not in _INT_RANGE:
        raise AvroError("an int has more than 32 bits")
    return position


def _go_deeper(depth: int, max_depth: int) -> None:
    if depth >= max_depth:
        raise AvroError(f"deeper than {max_depth} types within each other")


def _index(data: bytes, position: int, choices: int, what: str) -> tuple[int, int]:
    index, position = read_long(data, position)
    if not 0 <= index < choices:
        raise AvroError(f"no such branch of the {what}")
    return index, position


def _block(data: bytes, position: int) -> tuple[int, int]:
    """Items of the block that begins here."""
    count, position = read_long(data, position)
    if count < 0:
        count = -count
        size, position = read_long(data, position)
        if not 0 <= size <= len(data) - position:
            raise AvroError("a block beyond the end of the data")
    return count, position


def _rest_of(node: _Node) -> _Node:
    rest = _Node(_Kind.REST)
    rest.children = node.children
    return rest
