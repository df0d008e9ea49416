"""GenericEnvelope: the body of a MaXaM message (D.16)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

from nebula.avro.prescan import NO_END, read_block
from nebula.avro.varints import read_long, write_long
from nebula.errors import AvroError

SCHEMA: Final[dict[str, Any]] = {
    "type": "record",
    "name": "GenericEnvelope",
    "namespace": "com.tattsgroup.gaming.venueenvelope",
    "fields": [
        {
            "name": "content",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "GenericItem",
                    "fields": [{"name": "key", "type": "int"}, {"name": "value", "type": "bytes"}],
                },
            },
        }
    ],
}
"""The published one, with both records in the namespace that it declares (D.16)."""

# An envelope has a handful of items; one of two bytes each could be made of any body.
MAX_ITEMS: Final = 1_000
_LEAST_KEY: Final = -(1 << 31)
_GREATEST_KEY: Final = (1 << 31) - 1

# The numbers of one byte.
_SHORT: Final = tuple(read_long(bytes((byte,)), 0)[0] for byte in range(0x80))


class Item(IntEnum):
    """Keys of items. Readers skip those that they do not know."""

    TOPIC = 1
    FINGERPRINT = 2
    BODY = 3
    TIMESTAMP = 4
    TOMBSTONE = 5


_KNOWN: Final = frozenset(int(key) for key in Item)


@dataclass(frozen=True, slots=True)
class Envelope:
    """The items of one envelope, in order; keys that are not ours may repeat."""

    items: tuple[tuple[int, bytes], ...]

    def first(self, key: int) -> bytes | None:
        """The value of the first item of this key; None if it has no such item."""
        return next((value for each, value in self.items if each == key), None)

    @property
    def is_tombstone(self) -> bool:
        """It stands for a deletion."""
        return self.first(Item.TOMBSTONE) is not None

    @property
    def body(self) -> bytes | None:
        """The Avro datum."""
        return self.first(Item.BODY)

    @property
    def fingerprint(self) -> int | None:
        """Of the schema that the body was written with.

        Raises:
            AvroError: it has not eight bytes.
        """
        data = self.first(Item.FINGERPRINT)
        if data is None:
            return None
        if len(data) != 8:
            raise AvroError(f"a fingerprint of {len(data)} bytes")
        # B.9: little-endian, as in Avro's single-object encoding.
        return int.from_bytes(data, "little")

    @property
    def topic(self) -> str | None:
        """What it was published to, as its publisher says. Raises AvroError if that is not UTF-8."""
        data = self.first(Item.TOPIC)
        try:
            return None if data is None else data.decode()
        except UnicodeDecodeError as error:
            raise AvroError("the topic is not UTF-8") from error

    @property
    def timestamp_ms(self) -> int | None:
        """Milliseconds since 1970. Raises AvroError if it is no number."""
        data = self.first(Item.TIMESTAMP)
        if data is None:
            return None
        # The item is `bytes`, and the number in it is a varint of its own.
        number, end = read_long(data, 0)
        if end != len(data):
            raise AvroError("bytes are left over behind the timestamp")
        return number


def make_envelope(
    *,
    topic: str | None = None,
    fingerprint: int | None = None,
    body: bytes | None = None,
    timestamp_ms: int | None = None,
    is_tombstone: bool = False,
) -> Envelope:
    """An envelope of the items that are given: those for routing and reading first (B.9)."""
    items: list[tuple[int, bytes]] = []
    if topic is not None:
        items.append((Item.TOPIC, topic.encode()))
    if fingerprint is not None:
        items.append((Item.FINGERPRINT, fingerprint.to_bytes(8, "little")))
    if timestamp_ms is not None:
        items.append((Item.TIMESTAMP, write_long(timestamp_ms)))
    if is_tombstone:
        items.append((Item.TOMBSTONE, b""))
    if body is not None:
        items.append((Item.BODY, body))
    return Envelope(tuple(items))


def encode_envelope(envelope: Envelope) -> bytes:
    """The bytes of an envelope."""
    return _encode(envelope.items)


def _encode(items: Iterable[tuple[int, bytes]]) -> bytes:
    chunks = [b"%b%b%b" % (write_long(key), write_long(len(value)), value) for key, value in items]
    if not chunks:
        # An empty array has no block, only the zero count that ends it.
        return b"\0"
    return b"%b%b\0" % (write_long(len(chunks)), b"".join(chunks))


def decode_envelope(data: bytes) -> Envelope:
    """Read an envelope, in time and memory bounded by its length.

    Raises:
        AvroError: it is none.
    """
    items: list[tuple[int, bytes]] = []
    met: set[int] = set()
    count, end, position = read_block(data, 0, NO_END)
    while count:
        # Checked before the items are read: the count comes from the peer, and may be any number.
        if len(items) + count > MAX_ITEMS:
            raise AvroError(f"more than {MAX_ITEMS} items")
        for _ in range(count):
            try:
                key, length = data[position], data[position + 1]
            except IndexError:
                raise AvroError("the data ends within an item") from None
            # Most are of one byte each. To call for these would cost a third of the rate.
            if key < 0x80 and length < 0x80:
                key, length, position = _SHORT[key], _SHORT[length], position + 2
            else:
                key, position = read_long(data, position)
                length, position = read_long(data, position)
            value = data[position : position + length]
            if len(value) != length:
                raise AvroError("an item is longer than the envelope")
            # What is checked and what is read must be the same item: of each of our keys there is one.
            if key in met or not _LEAST_KEY <= key <= _GREATEST_KEY:
                raise AvroError(f"the key {key} twice, or not of 32 bits")
            if key in _KNOWN:
                met.add(key)
            items.append((key, value))
            position += length
        count, end, position = read_block(data, position, end)
    if position != len(data):
        raise AvroError("bytes are left over behind the envelope")
    return Envelope(tuple(items))
