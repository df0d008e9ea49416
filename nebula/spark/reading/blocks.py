"""Blocks of an Avro file: their data, decompressed, from any range of the file's bytes."""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types

from nebula.avro.varints import read_long
from nebula.errors import AvroError
from nebula.record.codecs import MAX_BLOCK_BYTES, codec_named
from nebula.record.container import SYNC_BYTES, ContainerError, ContainerReader, Header
from nebula.spark.reading.errors import CorruptFileError
from nebula.spark.reading.splits import Part

# Decompressed bytes that are decoded at once: enough for a call to count little, and little enough for them
# and what is made of them to stay in a processor's cache.
_GROUP_BYTES: Final = 1 << 20
_SEARCH_BYTES: Final = 1 << 20


def read_header(path: str) -> Header:
    """The header of a file. Raises CorruptFileError: it is no Avro file, or cannot be opened."""
    try:
        with ContainerReader(Path(path)) as reader:
            return reader.header
    except (ContainerError, OSError) as error:
        raise _corrupt(path, error) from error


def read_blocks(part: Part) -> Iterator[tuple[bytes, int]]:
    """The bare data of a part's blocks, some blocks at a time, with their count.

    Raises:
        CorruptFileError: the file is cut or damaged, or its codec is not known.
    """
    path = part.file.path
    try:
        # Two handles: one goes from head to head, the other reads data, so that neither loses its place.
        with ContainerReader(Path(path)) as reader, Path(path).open("rb") as file:
            # Parts were made of the size at that time: a file that has shrunk since is another one.
            if reader.size_bytes < part.file.size_bytes:
                raise CorruptFileError(path, "it was longer when it was listed")
            yield from _groups(reader, file, part)
    except (ContainerError, OSError, AvroError) as error:
        raise _corrupt(path, error) from error


def walk(part: Part) -> Iterator[None]:
    """Go over all blocks of a file without reading what is in them.

    Raises:
        CorruptFileError: the file is cut, or its blocks do not follow on each other.
    """
    try:
        with ContainerReader(Path(part.file.path)) as reader:
            # From head to head without reading the data: cheap even for large files, and enough to see a
            # cut.
            for _ in reader.blocks():
                yield
    except (ContainerError, OSError) as error:
        raise _corrupt(part.file.path, error) from error


def _groups(reader: ContainerReader, file: BinaryIO, part: Part) -> Iterator[tuple[bytes, int]]:
    decompress = _decompressor(reader.header.codec)
    # One search for each part: behind its first block each block follows the one before it.
    start = _first_block(file, reader.header, part)
    data, count, size = list[bytes](), 0, 0
    # The marker before a block decides whose it is, and of the last block's the first byte.
    for block in reader.blocks(start, part.end + SYNC_BYTES) if start is not None else ():
        file.seek(block.data_offset)
        try:
            data.append(decompress(file.read(block.size_bytes)))
        except AvroError as error:
            raise AvroError(f"{error}, in the block at byte {block.offset}") from error
        count, size = count + block.count, size + len(data[-1])
        if size >= _GROUP_BYTES:
            yield b"".join(data), count
            data, count, size = [], 0, 0
    if count:
        yield b"".join(data), count


# How Avro files are split: each block ends with the file's random 16-byte marker. A part owns the blocks
# whose preceding marker begins within it, so each block has one owner, wherever the cuts fall. A marker
# in the data by chance (2^-128 for each position) would be noticed: what follows would not be blocks that
# end with the marker.
def _first_block(file: BinaryIO, header: Header, part: Part) -> int | None:
    """Where the first block behind a marker begins, from the part's start on; None if no block does."""
    # The header ends with the marker too: the part that has its first byte owns the first block.
    if part.start <= header.end_bytes - SYNC_BYTES:
        return header.end_bytes
    position, before = part.start, b""
    file.seek(position)
    while position - len(before) < part.end:
        # In portions: a part may be large, and only one marker is searched for.
        chunk = file.read(_SEARCH_BYTES)
        found = (before + chunk).find(header.sync)
        if found >= 0:
            return position - len(before) + found + SYNC_BYTES
        if not chunk:
            return None
        position += len(chunk)
        # A marker may lie across two chunks.
        before = (before + chunk)[-(SYNC_BYTES - 1) :]
    return None


def _corrupt(path: str, error: Exception) -> CorruptFileError:
    if isinstance(error, OSError):
        return CorruptFileError(path, f"it cannot be read: {error.strerror or error}")
    return CorruptFileError(path, str(error).removeprefix(f"{path}: "))


def _decompressor(codec: str) -> Callable[[bytes], bytes]:
    if codec in ("null", "deflate"):
        return codec_named(codec).decompress
    if codec not in _MORE:
        raise AvroError(f"its codec {codec!r} is not one of null, deflate, {', '.join(_MORE)}")
    unpack = _MORE[codec]

    def decompress(data: bytes) -> bytes:
        try:
            return unpack(data)
        except (OSError, EOFError, ValueError, lzma.LZMAError, zlib.error, pa.ArrowException) as error:
            raise AvroError(f"a block is not of {codec}") from error

    return decompress


def _unzstd(data: bytes) -> bytes:
    # Arrow has the codec wherever Spark is; the module that the recorder uses may be missing here.
    # Arrow reads as a stream, so that the size can be bounded; Zstandard's own header may leave it out.
    return _bounded(pa.input_stream(pa.py_buffer(data), compression="zstd"))


def _unsnappy(data: bytes) -> bytes:
    size, start = _snappy_size(data)
    # Avro puts four bytes of checksum behind Snappy's data ("Required Codecs" of the specification).
    unpacked: bytes = pa.Codec("snappy").decompress(data[:-4], size, asbytes=True)
    if zlib.crc32(unpacked) != int.from_bytes(data[-4:], "big") or not start:
        raise AvroError("the checksum of a block is wrong")
    return unpacked


def _snappy_size(data: bytes) -> tuple[int, int]:
    # Snappy's own numbers have no sign, unlike Avro's zigzag ones, which are half of them or odd.
    number, end = read_long(data, 0)
    size = 2 * number if number >= 0 else -2 * number - 1
    if size > MAX_BLOCK_BYTES:
        raise AvroError(f"a block of more than {MAX_BLOCK_BYTES} bytes")
    return size, end


def _unbzip2(data: bytes) -> bytes:
    unpacker = bz2.BZ2Decompressor()
    return _whole(unpacker, unpacker.decompress(data, MAX_BLOCK_BYTES))


def _unxz(data: bytes) -> bytes:
    unpacker = lzma.LZMADecompressor()
    return _whole(unpacker, unpacker.decompress(data, MAX_BLOCK_BYTES))


def _whole(unpacker: bz2.BZ2Decompressor | lzma.LZMADecompressor, unpacked: bytes) -> bytes:
    if not unpacker.eof:
        raise AvroError(f"a block ends too soon, or is more than {MAX_BLOCK_BYTES} bytes")
    return unpacked


def _bounded(stream: Any) -> bytes:
    # One byte more than allowed, to tell "just as large" from "larger".
    unpacked: bytes = stream.read(MAX_BLOCK_BYTES + 1)
    if len(unpacked) > MAX_BLOCK_BYTES:
        raise AvroError(f"a block of more than {MAX_BLOCK_BYTES} bytes")
    return unpacked


_MORE: Final[dict[str, Callable[[bytes], bytes]]] = {
    "snappy": _unsnappy,
    "zstandard": _unzstd,
    "bzip2": _unbzip2,
    "xz": _unxz,
}
