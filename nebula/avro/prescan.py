"""Pre-scan of a datum before a library decodes it: hostile data are refused in bounded time and memory.

A decoder trusts what it reads. A recursive schema lets a few kB nest deeper than the machine's stack,
and five bytes of an array of nulls ask for as many items as a number can count. So each datum
is gone over once by its schema, with a stack of our own and nothing built; what then goes to the
library is neither deep, nor wide, nor longer than it says.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from nebula.avro.programs import (
    ARRAY,
    BYTES,
    CALL,
    ENUM,
    ITEMS,
    MAP,
    RUN,
    STRING,
    UNION,
    Items,
    Program,
)
from nebula.avro.varints import read_long
from nebula.errors import AvroError

__all__ = ["MAX_DEPTH", "MAX_VALUES", "read_block", "scan"]

MAX_DEPTH: Final = 64
"""Records, arrays, maps and unions within each other, at most."""

MAX_VALUES: Final = 200_000
"""Values that a datum may hold at most, those without bytes too: going over them takes a tenth of a
second or so at worst, in which a broker does nothing else."""

NO_END: Final = -1
"""Of a block that does not say how many bytes it has."""

_Frame: TypeAlias = tuple[Program, int, int, int, bool, int]


# How it works: the schema was compiled into small programs (`nebula.avro.programs`). A step checks one
# value, or a run of values by one match of a regular expression. `stack` has a frame for each program
# that is not finished, so that depth is bounded by a limit and not by the interpreter's stack.
#
# Longer than our other functions: a call for each value would cost half of the rate.
def scan(  # noqa: C901
    program: Program, data: bytes, *, max_depth: int = MAX_DEPTH, max_values: int = MAX_VALUES
) -> None:
    """Go over a datum. What passes is one value of the schema, its numbers in their only shortest form.

    Logical types are not looked into.

    Raises:
        AvroError: it is too deep, holds too much, ends too soon or too late, or names what its schema
            does not have.
    """
    # A frame: the program and the next step in it; the items left in a block and where that must
    # end; whether it is a block at all; how deep it lies.
    stack: list[_Frame] = []
    steps, at, left, end, is_block, depth, position = program.steps, 0, 0, NO_END, False, 0, 0
    counted = 0
    # Known from the schema alone, before a byte is read.
    _check_depth(program.height, max_depth)
    while True:
        if at == len(steps):
            if is_block:
                at, left = 0, left - 1
                if left <= 0:
                    left, end, position = read_block(data, position, end)
                if left:
                    continue
            if not stack:
                break
            program, at, left, end, is_block, depth = stack.pop()
            steps = program.steps
            continue
        code, operand, values, level = steps[at]
        at += 1
        counted += values
        # Counted before it is read, since values without bytes take time too.
        if counted > max_values:
            raise _too_many(max_values)
        if code == RUN:
            match = operand(data, position)
            if match is None:
                raise AvroError(f"no such value as the schema says, from byte {position}")
            position = match.end()
        elif code == STRING:
            position = _after_string(data, position)
        elif code == BYTES:
            position = _after_bytes(data, position, operand)
        elif code == ITEMS:
            position, counted = _after_items(data, position, operand, counted, max_values)
        elif code == ENUM:
            _, position = _index(data, position, operand)
        else:
            # Only these steps need a frame; runs, texts and bytes, which are most of a datum, do not.
            stack.append((program, at, left, end, is_block, depth))
            if code == UNION:
                branch, position = _index(data, position, len(operand))
                operand = operand[branch]
            program, steps, left, end = operand, operand.steps, 0, NO_END
            is_block = code in (ARRAY, MAP)
            # A block begins at its end: its first header is read there, like the others.
            at = len(steps) if is_block else 0
            # A record counts its own level in its steps.
            depth += level if code == CALL else level + 1
            _check_depth(depth + program.height, max_depth)
    if position != len(data):
        raise AvroError(f"{len(data) - position} bytes are left over")


def _check_depth(depth: int, most: int) -> None:
    if depth > most:
        raise AvroError(f"deeper than {most} types within each other")


def _too_many(most: int) -> AvroError:
    return AvroError(f"more than {most} values")


def _after_items(data: bytes, position: int, items: Items, counted: int, most: int) -> tuple[int, int]:
    """The position behind an array of regular items, and how many values there were up to it."""
    count, end, position = read_block(data, position, NO_END)
    while count:
        counted += count * items.values
        if counted > most:
            raise _too_many(most)
        # Items without bytes are counted, and there is nothing to match.
        many, rest = (0, 0) if items.is_empty else divmod(count, items.at_once)
        # One call of a regular expression matches many items, where a loop would make a call for each.
        for match_next, times in ((items.many, many), (items.one, rest)):
            for _ in range(times):
                match = match_next(data, position)
                if match is None:
                    raise AvroError(f"no such item as the schema says, from byte {position}")
                position = match.end()
        count, end, position = read_block(data, position, end)
    return position, counted


def read_block(data: bytes, position: int, end: int) -> tuple[int, int, int]:
    """Begin the next block of an array or map: its items, where it has to end, and its first byte.

    Args:
        end: where the block before had to end, or `NO_END`.

    Raises:
        AvroError: a block does not end where it says, or the data ends before.
    """
    if end not in (NO_END, position):
        raise AvroError(f"a block ends at byte {position}, and says at {end}")
    count, position = read_long(data, position)
    if count >= 0:
        return count, NO_END, position
    # A negative count is followed by the block's size in bytes ("Arrays" of the specification).
    size, position = _length(data, position)
    return -count, position + size, position


def _length(data: bytes, position: int) -> tuple[int, int]:
    """A length that the rest of the data can have."""
    size, position = read_long(data, position)
    if not 0 <= size <= len(data) - position:
        raise AvroError("a length beyond the end of the data")
    return size, position


def _index(data: bytes, position: int, choices: int) -> tuple[int, int]:
    index, position = read_long(data, position)
    if not 0 <= index < choices:
        raise AvroError(f"no such branch or symbol: {index}")
    return index, position


def _after_bytes(data: bytes, position: int, most: int) -> int:
    size, position = _length(data, position)
    if size > most:
        raise AvroError(f"a number of {size} bytes")
    return position + size


def _after_string(data: bytes, position: int) -> int:
    size, position = read_long(data, position)
    text = data[position : position + size]
    # A negative size gives a slice too, so it is compared as well as the length.
    if not 0 <= size == len(text):
        raise AvroError("a text with a length beyond the end of the data")
    if not text.isascii():
        try:
            text.decode()
        except UnicodeDecodeError:
            raise AvroError(f"a text that is no UTF-8, from byte {position}") from None
    return position + size
