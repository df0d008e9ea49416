"""Avro object container files of data that are encoded already: nothing is decoded to be written.

A file is a header (schema, codec, a random sync marker) and blocks; each block says how many data it holds
and how many bytes it has, and ends with the marker. So a file that was cut anywhere is good up to its last
whole block, and may be read in parts that begin at blocks ("Object Container Files" of the specification).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, Self

from nebula.avro.varints import read_long, write_long
from nebula.errors import AvroError
from nebula.private import open_private
from nebula.record.codecs import Codec, codec_named
from nebula.record.disk import sync_file, truncate, write_at

MAGIC: Final = b"Obj\x01"
SYNC_BYTES: Final = 16
BLOCK_BYTES: Final = 64 * 1024
"""What a block holds before it is compressed, by default: readers split files between blocks."""

_USUAL_HEADER_BYTES: Final = 32 * 1024
_MAX_HEADER_BYTES: Final = 4 * 1024 * 1024
_LONGEST_LONG: Final = 10


class ContainerError(AvroError):
    """A file is not a whole container.

    Attributes:
        path: of the file.
        offset: where the damage begins; everything before it is good.
    """

    def __init__(self, path: Path, offset: int, problem: str) -> None:
        super().__init__(f"{path}: {problem}, from byte {offset}")
        self.path = path
        self.offset = offset


@dataclass(frozen=True, slots=True)
class Header:
    """Header of a container.

    Attributes:
        metadata: all of it, among it `avro.schema` and `avro.codec`.
        sync: the marker behind each block.
        end_bytes: the size of the header, which is where the first block begins.
    """

    metadata: Mapping[str, bytes]
    sync: bytes
    end_bytes: int

    @property
    def schema(self) -> str:
        """The writer's schema, as JSON."""
        return self.metadata["avro.schema"].decode()

    @property
    def codec(self) -> str:
        """The name of the codec."""
        return self.metadata.get("avro.codec", b"null").decode()


@dataclass(frozen=True, slots=True)
class Block:
    """Where a block is.

    Attributes:
        offset: of its first byte in the file.
        count: of its data.
        data_offset: where its data begin, compressed.
        size_bytes: of its data, compressed.
    """

    offset: int
    count: int
    data_offset: int
    size_bytes: int

    @property
    def end(self) -> int:
        """The offset behind it."""
        return self.data_offset + self.size_bytes + SYNC_BYTES


@dataclass(frozen=True, slots=True)
class Cut:
    """What is left of a file that was cut.

    Attributes:
        count: of the data in its whole blocks.
        size_bytes: of the file now.
        removed_bytes: that were behind its last whole block.
    """

    count: int
    size_bytes: int
    removed_bytes: int


class ContainerWriter:
    """Writes a new container file.

    Nothing that was appended is lost by an error of the disk: the file is cut back to its last whole block,
    and what was appended waits in memory until `flush_block` or `sync` is called again. Not safe to be called
    from two threads at once.

    Args:
        path: of the file; it must not exist.
        schema: the writer's schema, as JSON. What is appended must be data of it: this is not checked.
        codec: `null`, `deflate` or `zstandard`.
        block_bytes: a block is written when it holds this many, uncompressed.
        metadata: more of it for the header; names that begin with `avro.` are Avro's.

    Raises:
        SettingsError: there is no such codec here.
        OSError: the file cannot be made.

    Attributes:
        path: of the file.
        count: of all data appended.
        written: how many of them are in whole blocks of the file.
        size_bytes: of the file, up to its last whole block.
        buffered_bytes: that wait for their block, uncompressed.
    """

    def __init__(
        self,
        path: Path,
        schema: str,
        *,
        codec: str = "deflate",
        block_bytes: int = BLOCK_BYTES,
        metadata: Mapping[str, bytes] | None = None,
    ) -> None:
        self.path = path
        self._codec: Codec = codec_named(codec)
        self._block_bytes = block_bytes
        # Random, so that it does not occur in the data: readers look for it to find the next block.
        self._sync = os.urandom(SYNC_BYTES)
        self._data: list[bytes] = []
        self.count = self.written = self.size_bytes = self.buffered_bytes = 0
        everything = {**(metadata or {}), "avro.schema": schema.encode(), "avro.codec": codec.encode()}
        # O_EXCL: two recorders never write into one file, whatever their names are.
        self._file = open_private(path, os.O_WRONLY | os.O_EXCL)
        try:
            self._write(_encode_header(everything, self._sync))
        except BaseException:
            # No reader accepts half a header, and the file would occupy its name.
            os.close(self._file)
            path.unlink()
            raise

    def append(self, datum: bytes) -> None:
        """Take a datum; written with its block. Raises OSError if that is full and cannot be written."""
        # Kept until `flush_block` has succeeded, so that an error of the disk loses nothing that was
        # appended.
        self._data.append(datum)
        self.count += 1
        self.buffered_bytes += len(datum)
        if self.buffered_bytes >= self._block_bytes:
            self.flush_block()

    def extend(self, data: Sequence[bytes]) -> None:
        """As `append`, of many: they go into one block."""
        self._data += data
        self.count += len(data)
        self.buffered_bytes += sum(map(len, data))
        if self.buffered_bytes >= self._block_bytes:
            self.flush_block()

    def flush_block(self) -> None:
        """Write what waits as one block, whole or not at all. Raises OSError."""
        if not self._data:
            return
        data = self._codec.compress(b"".join(self._data))
        head = write_long(len(self._data)) + write_long(len(data))
        # Written as one piece, which `write_at` undoes as a whole.
        self._write(b"%b%b%b" % (head, data, self._sync))
        self.written = self.count
        self._data.clear()
        self.buffered_bytes = 0

    def sync(self) -> None:
        """As `flush_block`; then make the file's contents durable. Raises OSError, SyncFailed."""
        self.flush_block()
        sync_file(self._file, self.path)

    def close(self) -> None:
        """As `flush_block`; then close the file. Idempotent. Raises OSError: it is still open then."""
        # If this raises, the file stays open and the data wait: there may be room later.
        if self._file >= 0:
            self.flush_block()
            self.abandon()

    def abandon(self) -> None:
        """Close the file without what waits. Idempotent."""
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()

    def _write(self, data: bytes) -> None:
        self.size_bytes = write_at(self._file, data, self.size_bytes)


class ContainerReader:
    """Finds the blocks of a file, by their heads only: nothing is decompressed or decoded.

    Args:
        path: of the file.

    Raises:
        ContainerError: it is no container, or its header is cut.
        OSError: it cannot be read.

    Attributes:
        path: of the file.
        header: of the file.
        size_bytes: of the file when it was opened.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        # Buffered for little more than heads: their data are skipped.
        self._file: BinaryIO = path.open("rb", buffering=4096)
        try:
            self.size_bytes = os.fstat(self._file.fileno()).st_size
            self.header = self._read_header()
        except BaseException:
            self._file.close()
            raise

    def blocks(self, start: int = 0, end: int | None = None) -> Iterator[Block]:
        """The blocks that begin at offsets from `start` on and before `end`, in order.

        Args:
            start: a block's offset; 0 is the first one.
            end: None is the end of the file.

        Raises:
            ContainerError: the next block is not whole.
        """
        # Offset 0 is in the header, and a block cannot begin there, so it can stand for the first block.
        position = start or self.header.end_bytes
        end = self.size_bytes if end is None else min(end, self.size_bytes)
        while position < end:
            block = self._block(position)
            yield block
            position = block.end

    def read(self, block: Block) -> bytes:
        """The data of a block, decompressed. Raises ContainerError if its codec cannot read them."""
        self._file.seek(block.data_offset)
        try:
            return codec_named(self.header.codec).decompress(self._file.read(block.size_bytes))
        except AvroError as error:
            raise ContainerError(self.path, block.offset, str(error)) from error

    def close(self) -> None:
        """Close the file. Idempotent."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _block(self, offset: int) -> Block:
        self._file.seek(offset)
        # Two numbers of at most ten bytes; bytes behind them belong to the data and are not used.
        head = self._file.read(2 * _LONGEST_LONG)
        try:
            count, position = read_long(head, 0)
            size, position = read_long(head, position)
        except AvroError as error:
            raise ContainerError(self.path, offset, "no block of data begins there") from error
        block = Block(offset, count, offset + position, size)
        # A reader that counts would make no progress by an empty block.
        if count <= 0 or size < 0 or block.end > self.size_bytes:
            raise ContainerError(self.path, offset, "the block is cut, or was never one")
        self._file.seek(block.end - SYNC_BYTES)
        # The marker is checked without reading the data, so that finding all blocks costs one seek for
        # each.
        if self._file.read(SYNC_BYTES) != self.header.sync:
            raise ContainerError(self.path, offset, "the block does not end with the file's sync marker")
        return block

    def _read_header(self) -> Header:
        data = self._file.read(_USUAL_HEADER_BYTES)
        if not data.startswith(MAGIC):
            raise ContainerError(self.path, 0, "this is no Avro container file")
        try:
            # The header has the schema, which may be larger than what is read at first.
            return self._decode_header(data)
        except ContainerError:
            rest = self._file.read(_MAX_HEADER_BYTES)
            if not rest:
                raise
            return self._decode_header(data + rest)

    def _decode_header(self, data: bytes) -> Header:
        try:
            metadata, position = _decode_map(data, len(MAGIC))
        except AvroError as error:
            raise ContainerError(self.path, 0, f"its header cannot be read ({error})") from error
        sync = data[position : position + SYNC_BYTES]
        if len(sync) < SYNC_BYTES or "avro.schema" not in metadata:
            raise ContainerError(self.path, 0, "its header is cut, or has no schema")
        return Header(metadata, sync, position + SYNC_BYTES)


def cut(path: Path) -> Cut:
    """Cut a file at its last whole block, and make that durable. What is whole is left as it is.

    Raises:
        ContainerError: its header is not whole, so nothing can be kept.
        OSError, SyncFailed: it cannot be read, or not cut.
    """
    count, end = 0, 0
    with ContainerReader(path) as reader:
        end, size = reader.header.end_bytes, reader.size_bytes
        try:
            for block in reader.blocks():
                count, end = count + block.count, block.end
        except ContainerError as error:
            # The offset of the first block that is not whole, which is where the file has to end.
            end = error.offset
    if end < size:
        truncate(path, end)
    return Cut(count, end, size - end)


def _encode_header(metadata: Mapping[str, bytes], sync: bytes) -> bytes:
    entries = [_encode_bytes(key.encode()) + _encode_bytes(value) for key, value in metadata.items()]
    # A map is a series of blocks of entries, ended by an empty one: the zero byte.
    return b"%b%b%b\0%b" % (MAGIC, write_long(len(entries)), b"".join(entries), sync)


def _encode_bytes(data: bytes) -> bytes:
    return write_long(len(data)) + data


def _decode_map(data: bytes, position: int) -> tuple[dict[str, bytes], int]:
    found: dict[str, bytes] = {}
    count, position = read_long(data, position)
    while count:
        if count < 0:  # then the block's bytes are counted, too
            count = -count
            _, position = read_long(data, position)
        for _ in range(count):
            key, position = _decode_bytes(data, position)
            # In a foreign file names may be any bytes; only those that begin with `avro.` are used.
            found[key.decode(errors="replace")], position = _decode_bytes(data, position)
        count, position = read_long(data, position)
    return found, position


def _decode_bytes(data: bytes, position: int) -> tuple[bytes, int]:
    size, position = read_long(data, position)
    if not 0 <= size <= len(data) - position:
        raise AvroError("it ends too soon")
    return data[position : position + size], position + size
