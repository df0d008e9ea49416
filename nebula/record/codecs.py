"""Codecs of Avro container files ("Object Container Files", "Required Codecs" of the specification)."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol, cast

from nebula.errors import AvroError, SettingsError

MAX_BLOCK_BYTES: Final = 256 * 1024 * 1024
"""The most bytes that a block may unpack to. Our writers stay far below; a foreign file may not."""

_ZSTD_LEVEL: Final = 1
# Level 6 makes files a few percent smaller, and is a fifth slower (docs/decisions/0029).
_DEFLATE_LEVEL: Final = 1
_RAW: Final = -zlib.MAX_WBITS  # Avro's deflate has neither zlib's header nor its checksum


@dataclass(frozen=True, slots=True)
class Codec:
    """One way to compress a block.

    Attributes:
        name: in the file's header.
        compress: the bytes of a block.
        decompress: the reverse. Raises AvroError for bytes that are not compressed this way, or for too much.
    """

    name: str
    compress: Callable[[bytes], bytes]
    decompress: Callable[[bytes], bytes]


def codec_named(name: str) -> Codec:
    """`null`, `deflate` or `zstandard`.

    Raises:
        SettingsError: no codec has this name, or its package is not installed. Says what to install.
    """
    if name == "zstandard":
        return _zstandard()
    found = _BUILT_IN.get(name)
    if found is None:
        raise SettingsError(f"the codec {name!r} is not one of null, deflate, zstandard")
    return found


def _deflate(data: bytes) -> bytes:
    # A new object for each block: a block is read alone, so it must not refer to bytes of another.
    packer = zlib.compressobj(_DEFLATE_LEVEL, zlib.DEFLATED, _RAW)
    return packer.compress(data) + packer.flush()


def _inflate(data: bytes) -> bytes:
    unpacker = zlib.decompressobj(_RAW)
    try:
        # Without the second argument a few megabytes could unpack to gigabytes.
        unpacked = unpacker.decompress(data, MAX_BLOCK_BYTES)
    except zlib.error as error:
        raise AvroError("a block is not deflated") from error
    # `eof` is False both for a block that was cut and for one that has more than was asked for.
    return _whole(unpacked, is_whole=unpacker.eof)


def _whole(unpacked: bytes, *, is_whole: bool) -> bytes:
    if not is_whole:
        raise AvroError(f"a block ends too soon, or is more than {MAX_BLOCK_BYTES} bytes")
    return unpacked


_BUILT_IN: Final = {
    "null": Codec("null", bytes, bytes),
    "deflate": Codec("deflate", _deflate, _inflate),
}


class _Unpacker(Protocol):
    """What we use of a decompressor."""

    eof: bool

    def decompress(self, data: bytes, max_length: int) -> bytes: ...


class _Zstd(Protocol):
    """What we use of the module, which Python has from 3.14 on."""

    ZstdError: type[Exception]

    def compress(self, data: bytes, level: int) -> bytes: ...

    def ZstdDecompressor(self) -> _Unpacker: ...  # noqa: N802


def _zstandard() -> Codec:
    zstd = _zstd_module()

    def decompress(data: bytes) -> bytes:
        unpacker = zstd.ZstdDecompressor()
        try:
            unpacked = unpacker.decompress(data, MAX_BLOCK_BYTES)
        except zstd.ZstdError as error:
            raise AvroError("a block is not of zstandard") from error
        return _whole(unpacked, is_whole=unpacker.eof)

    return Codec("zstandard", lambda data: zstd.compress(data, _ZSTD_LEVEL), decompress)


def _zstd_module() -> _Zstd:
    try:
        if sys.version_info >= (3, 14):
            from compression import zstd
        else:
            from backports import zstd
    except ImportError as error:
        raise SettingsError(
            "the codec zstandard needs backports.zstd: pip install 'nebula-rpc[zstd]', or take deflate"
        ) from error
    return cast("_Zstd", zstd)
