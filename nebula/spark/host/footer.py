"""Metadata in the footer of a Parquet file: added to a file that is written, without writing it anew.

Spark offers no way to add to it as it writes. The metadata are in the footer, after all data, and nothing in
a file counts from its end; so a longer footer can take the place of the old one. It is Thrift's compact
protocol, of which this module reads only as much as it needs to find the list of key and value pairs.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

_MAGIC = b"PAR1"

# The types of Thrift's compact protocol.
_TRUE, _FALSE, _I8, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT, _UUID = range(1, 14)

# `FileMetaData.key_value_metadata`, a list of structs of two strings.
_PAIRS = 5


class FooterError(Exception):
    """The file is not Parquet as Spark writes it."""


def add_metadata(file: Path, pairs: Mapping[str, str]) -> None:
    """Add these pairs to a file's metadata. Not atomic: no other process may use the file meanwhile.

    Raises:
        FooterError: there is no footer with a list of pairs. The file is as it was.
    """
    with file.open("r+b") as opened:
        size = opened.seek(0, os.SEEK_END)
        # The last eight bytes: the footer's length and the mark.
        opened.seek(max(0, size - 8))
        tail = opened.read(8)
        begin = size - 8 - int.from_bytes(tail[:4], "little")
        if tail[4:] != _MAGIC or begin < 4:
            raise FooterError(f"{file} does not end as a Parquet file does")
        opened.seek(begin)
        footer = _with_pairs(opened.read(size - 8 - begin), pairs)
        opened.seek(begin)
        opened.write(footer + len(footer).to_bytes(4, "little") + _MAGIC)


def _with_pairs(footer: bytes, pairs: Mapping[str, str]) -> bytes:
    try:
        start, after, count = _find_pairs(footer)
    except IndexError as error:
        raise FooterError("the footer ends too soon") from error
    added = b"".join(_pair(key, value) for key, value in pairs.items())
    # The list's own header holds the count, so it is written anew; all else stays byte for byte.
    return footer[:start] + _list_header(count + len(pairs)) + added + footer[after:]


def _find_pairs(footer: bytes) -> tuple[int, int, int]:
    """Where the header of the list begins and ends, and how many pairs it has."""
    cursor = _Cursor(footer)
    number = 0
    while kind_and_step := cursor.byte():
        kind, step = kind_and_step & 15, kind_and_step >> 4
        number = number + step if step else cursor.zigzag()
        if number == _PAIRS and kind == _LIST:
            start = cursor.at
            count, _ = cursor.list_header()
            return start, cursor.at, count
        cursor.skip(kind)
    raise FooterError("the footer has no list of metadata")


def _list_header(count: int) -> bytes:
    return bytes([count << 4 | _STRUCT]) if count < 15 else bytes([15 << 4 | _STRUCT]) + _varint(count)


def _pair(key: str, value: str) -> bytes:
    # Both fields are one number after the one before; a zero ends the struct.
    field = bytes([1 << 4 | _BINARY])
    texts = (text.encode() for text in (key, value))
    return b"".join(field + _varint(len(text)) + text for text in texts) + b"\0"


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    return bytes([*encoded, number])


class _Cursor:
    """Reads, or skips, one value after the other."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    def byte(self) -> int:
        self.at += 1
        return self._data[self.at - 1]

    def varint(self) -> int:
        number = shift = 0
        while (byte := self.byte()) > 127:
            number |= (byte & 127) << shift
            shift += 7
        return number | byte << shift

    def zigzag(self) -> int:
        number = self.varint()
        return number >> 1 ^ -(number & 1)

    def list_header(self) -> tuple[int, int]:
        """How many elements follow, and of which type."""
        header = self.byte()
        return (header >> 4 if header >> 4 < 15 else self.varint()), header & 15

    def skip(self, kind: int) -> None:
        if kind in (_I16, _I32, _I64):
            self.varint()
        elif kind in (_I8, _DOUBLE, _UUID):
            self.at += {_I8: 1, _DOUBLE: 8, _UUID: 16}[kind]
        elif kind == _BINARY:
            length = self.varint()
            self.at += length
        elif kind in (_LIST, _SET):
            self._skip_list()
        elif kind == _MAP:
            self._skip_map()
        elif kind == _STRUCT:
            while header := self.byte():
                if not header >> 4:
                    self.zigzag()
                self.skip(header & 15)
        elif kind not in (_TRUE, _FALSE):
            raise FooterError(f"no value has the type {kind}")

    def _skip_list(self) -> None:
        count, kind = self.list_header()
        for _ in range(count):
            self._skip_element(kind)

    def _skip_map(self) -> None:
        count = self.varint()
        kinds = self.byte() if count else 0
        for _ in range(count):
            self._skip_element(kinds >> 4)
            self._skip_element(kinds & 15)

    def _skip_element(self, kind: int) -> None:
        # Inside a container a truth value is a byte; as a field it is in the field's type.
        if kind in (_TRUE, _FALSE):
            self.at += 1
        else:
            self.skip(kind)
