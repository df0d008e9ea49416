"""Unpacking of envelopes, by the schema that each value was written with: many values at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
import pyarrow.compute as pc  # type: ignore[import-untyped]

from nebula.avro.envelope import Item
from nebula.spark.reading.errors import DataError


@dataclass(frozen=True, slots=True)
class Unpacked:
    """Values of one schema, as data one after another.

    Attributes:
        fingerprint: of the schema.
        data: their bytes.
        count: how many they are.
    """

    fingerprint: int
    data: bytes
    count: int


def unpack(content: pa.Array) -> Iterator[Unpacked]:
    """The values in a column of envelopes, a schema at a time; deletions hold none and are left out.

    Args:
        content: the items of each envelope, keys with bytes.

    Raises:
        DataError: an envelope has two items of one key, or no fingerprint or body although it is no
            deletion.
    """
    # The row of each item.
    rows = pc.list_parent_indices(content)
    keys, values = content.flatten().flatten()
    bodies = _items(Item.BODY, rows, keys, values)
    fingerprints = _items(Item.FINGERPRINT, rows, keys, values)
    # Of tombstones only the rows count.
    gone = set(_items(Item.TOMBSTONE, rows, keys, values))
    by_schema: dict[bytes, list[bytes]] = {}
    # A loop in Python, as the group depends on the bytes of each envelope; the data are decoded by columns.
    for row in range(len(content)):
        if row in gone:
            continue
        body, fingerprint = bodies.get(row), fingerprints.get(row)
        if body is None or fingerprint is None or len(fingerprint) != 8:
            raise DataError("an envelope has no body, or no fingerprint of eight bytes")
        by_schema.setdefault(fingerprint, []).append(body)
    # This changes the order of rows with different schemas: a table has no order.
    for fingerprint, data in by_schema.items():
        yield Unpacked(int.from_bytes(fingerprint, "little"), b"".join(data), len(data))


def _items(key: Item, rows: pa.Array, keys: pa.Array, values: pa.Array) -> dict[int, bytes]:
    is_key = pc.equal(keys, int(key))
    found = dict(zip(rows.filter(is_key).to_pylist(), values.filter(is_key).to_pylist(), strict=True))
    # Of two items of one row the dictionary keeps one. The sum of nothing is null.
    if len(found) < (pc.sum(is_key).as_py() or 0):
        raise DataError(f"an envelope has the item {key.name.lower()} twice")
    return found
