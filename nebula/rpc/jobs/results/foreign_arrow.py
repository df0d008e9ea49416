"""Safe reading of Arrow IPC streams from untrusted services. Needs pyarrow.

pyarrow trusts its input: invalid offsets can crash the process, a compressed buffer can expand to any size,
and columns without bytes can claim any number of rows.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types

__all__ = ["MOST_ROWS", "read_foreign"]

MOST_ROWS: Final = 10_000
"""Maximum number of rows of a page."""

# Fields of the tables in Arrow's Message.fbs.
_HEADER, _COMPRESSION = 2, 3


def read_foreign(data: bytes) -> pa.Table:
    """The table in a stream; it takes no more memory than the bytes of the stream.

    Raises:
        ValueError: the stream has properties that Nebula's own services never send.
        pyarrow.ArrowException, struct.error: it is not an Arrow stream.
    """
    import pyarrow as pa

    # Checked before pyarrow decodes anything, because decoding unpacks compressed buffers.
    _refuse_bombs(data)
    with pa.ipc.open_stream(data) as stream:
        for field in stream.schema:
            _refuse_odd(field.type, is_many=False)
        table = stream.read_all()
    if table.num_rows > MOST_ROWS:
        raise ValueError("too many rows")
    # Full validation, because the quick one does not check all offsets, and a wrong offset reads foreign
    # memory.
    table.validate(full=True)
    return table


def _refuse_bombs(data: bytes) -> None:
    from pyarrow import ipc

    for message in ipc.MessageReader.open_stream(data):
        if message.type == "dictionary" or (
            message.type == "record batch" and _is_compressed(message.metadata.to_pybytes())
        ):
            raise ValueError("the stream is compressed")


def _is_compressed(metadata: bytes) -> bool:
    """Whether a message, a flatbuffer, is a record batch with compressed buffers."""
    # Read by hand: a library for flatbuffers would be a dependency for two fields.
    (root,) = struct.unpack_from("<I", metadata, 0)
    header = _field(metadata, root, _HEADER)
    if not header:
        return True  # it is none at all
    (batch,) = struct.unpack_from("<I", metadata, header)
    return _field(metadata, header + batch, _COMPRESSION) != 0


def _field(metadata: bytes, table: int, number: int) -> int:
    """The position of a field in a flatbuffer table; 0: it is not set."""
    (back,) = struct.unpack_from("<i", metadata, table)
    vtable = table - back
    (size,) = struct.unpack_from("<H", metadata, vtable)
    place = 4 + 2 * number
    (offset,) = struct.unpack_from("<H", metadata, vtable + place) if place < size else (0,)
    return table + offset if offset else 0


def _refuse_odd(kind: pa.DataType, *, is_many: bool) -> None:
    """Raise ValueError for a type whose values may take no bytes, so that the number of rows has no bound."""
    from pyarrow import types

    if types.is_struct(kind):
        # Only inside a list: a column of the table has as many rows as the table, whose number is checked.
        is_odd = is_many and not kind.num_fields
    elif types.is_list(kind) or types.is_map(kind):
        is_odd, is_many = False, True
    elif types.is_nested(kind) or types.is_dictionary(kind):
        is_odd = True
    else:
        is_odd = is_many and (
            types.is_null(kind) or (types.is_fixed_size_binary(kind) and not kind.byte_width)
        )
    if is_odd:
        raise ValueError(f"columns of the type {kind} are no result's")
    if types.is_nested(kind):
        for number in range(kind.num_fields):
            _refuse_odd(kind.field(number).type, is_many=is_many)
