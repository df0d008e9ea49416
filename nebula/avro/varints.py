"""Avro's numbers: zigzag varints ("Binary Encoding" of the Avro specification)."""

from __future__ import annotations

from typing import Final

from nebula.errors import AvroError

_MOST_BYTES: Final = 10
_LIMIT: Final = 1 << 64


def read_long(data: bytes, position: int) -> tuple[int, int]:
    """A number, and the position behind it.

    Raises:
        AvroError: the data ends within it, it has more than 64 bits, or more bytes than it needs.
    """
    try:
        byte = data[position]
        position += 1
        if byte < 0x80:  # most are this small
            return (byte >> 1) ^ -(byte & 1), position
        value = byte & 0x7F
        shift = 7
        while byte >= 0x80:
            byte = data[position]
            position += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if shift > 7 * _MOST_BYTES:
                raise AvroError("a number is too long")
    except IndexError:
        raise AvroError("the data ends within a number") from None
    # Ten groups of seven bits have room for 70, of which 64 count.
    if value >= _LIMIT:
        raise AvroError("a number has more than 64 bits")
    if not byte:  # each number has one form only, so that the same value is the same bytes
        raise AvroError("a number is longer than it need be")
    return (value >> 1) ^ -(value & 1), position


def write_long(number: int) -> bytes:
    """The bytes of a number."""
    # Python's shift keeps the sign: the second part is -1 for negative numbers and 0 for others.
    value = (number << 1) ^ (number >> 63)
    data = bytearray()
    while value >= 0x80:
        data.append((value & 0x7F) | 0x80)
        value >>= 7
    data.append(value)
    return bytes(data)
