"""Files are read from any range of octets, each block once; what is damaged is told with the file's name."""

from __future__ import annotations

import io
import json
import pickle
import zlib
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
import pytest

from nebula.avro.varints import write_long
from nebula.record.container import ContainerReader, ContainerWriter
from nebula.spark.reading.blocks import read_blocks, read_header, walk
from nebula.spark.reading.errors import CorruptFileError
from nebula.spark.reading.files import File
from nebula.spark.reading.splits import Part, split, target_bytes
from tests.spark.reading.samples import encode, fields, write

NUMBER = fields(n="long", text="string")


def _file(path: Path) -> File:
    return File(str(path), path.stat().st_size, ())


def _part(path: Path, start: int = 0, end: int | None = None) -> Part:
    file = _file(path)
    return Part(file, start, file.size_bytes if end is None else end)


def _numbers(*parts: Part) -> list[int]:
    parsed = fastavro.parse_schema({"type": "array", "items": NUMBER})
    found: list[int] = []
    for part in parts:
        for data, count in read_blocks(part):
            rows: Any = fastavro.schemaless_reader(io.BytesIO(write_long(count) + data + b"\0"), parsed, None)
            found += [row["n"] for row in rows]
    return found


@pytest.fixture
def blocks(tmp_path: Path) -> Path:
    """Seven small blocks."""
    path = tmp_path / "blocks.avro"
    with ContainerWriter(path, json.dumps(NUMBER)) as writer:
        for number in range(20):
            writer.append(encode(NUMBER, [{"n": number, "text": "x" * number}]))
            if number % 3 == 2:
                writer.flush_block()
    return path


def test_file_that_is_split_at_any_octet_gives_each_row_once(blocks: Path) -> None:
    size = blocks.stat().st_size

    for at in range(size + 1):
        assert _numbers(_part(blocks, 0, at), _part(blocks, at, size)) == list(range(20)), f"split at {at}"


def test_file_that_is_split_into_single_octets_gives_each_row_once(blocks: Path) -> None:
    size = blocks.stat().st_size

    assert _numbers(*(_part(blocks, at, at + 1) for at in range(size))) == list(range(20))


@pytest.mark.parametrize("codec", ["null", "deflate", "bzip2", "xz"])
def test_codecs_of_fastavro_are_read(codec: str, tmp_path: Path) -> None:
    rows = [{"n": number, "text": "some text"} for number in range(3000)]
    path = write(tmp_path / "file.avro", NUMBER, rows, codec=codec)

    assert _numbers(_part(path)) == list(range(3000))


@pytest.mark.parametrize("codec", ["snappy", "zstandard"])
def test_codecs_that_arrow_has_are_read(codec: str, tmp_path: Path) -> None:
    data = encode(NUMBER, [{"n": number, "text": "text"} for number in range(100)])
    path = _with_block(tmp_path, codec, _packed(codec, data), 100)

    assert _numbers(_part(path)) == list(range(100))


def _packed(codec: str, data: bytes) -> bytes:
    if codec == "snappy":
        packed: bytes = pa.Codec("snappy").compress(data, asbytes=True)
        return packed + zlib.crc32(data).to_bytes(4, "big")
    return bytes(pa.Codec("zstd").compress(data, asbytes=True))


def _with_block(folder: Path, codec: str, data: bytes, count: int) -> Path:
    """A file of one block, as it stands."""
    metadata = {b"avro.schema": json.dumps(NUMBER).encode(), b"avro.codec": codec.encode()}
    sized = b"".join(write_long(len(each)) + each for pair in metadata.items() for each in pair)
    head = b"Obj\x01" + write_long(2) + sized + b"\0" + b"S" * 16
    path = folder / f"{codec}.avro"
    path.write_bytes(head + write_long(count) + write_long(len(data)) + data + b"S" * 16)
    return path


@pytest.mark.parametrize("codec", ["deflate", "snappy", "zstandard", "bzip2", "xz", "lzo"])
def test_block_that_does_not_unpack_is_told_with_the_file(codec: str, tmp_path: Path) -> None:
    path = _with_block(tmp_path, codec, b"\x06nothing of the kind", 3)

    with pytest.raises(CorruptFileError, match=codec) as told:
        _numbers(_part(path))

    assert told.value.path == str(path)
    assert told.value.code == "data"


def test_file_that_is_cut_anywhere_is_told_unless_whole_blocks_are_left(blocks: Path, tmp_path: Path) -> None:
    data = blocks.read_bytes()
    with ContainerReader(blocks) as reader:
        ends = {reader.header.end_bytes, *(block.end for block in reader.blocks())}
    cut = tmp_path / "cut.avro"

    for size in range(len(data)):
        cut.write_bytes(data[:size])
        if size in ends:
            assert _numbers(_part(cut)) == list(range(20))[: len(_numbers(_part(cut)))]
            continue
        with pytest.raises(CorruptFileError, match=r"cut\.avro"):
            _numbers(_part(cut))
        with pytest.raises(CorruptFileError, match=r"cut\.avro"):
            list(walk(_part(cut)))


def test_marker_is_found_wherever_the_search_reads_on(tmp_path: Path) -> None:
    path = tmp_path / "large.avro"
    with ContainerWriter(path, json.dumps(NUMBER), codec="null", block_bytes=1) as writer:
        for number, size in enumerate((3 << 20, 1, 1)):
            writer.append(encode(NUMBER, [{"n": number, "text": "x" * size}]))
    with ContainerReader(path) as reader:
        marker = next(reader.blocks()).end - 16
    size = path.stat().st_size

    # The search reads a mebibyte at a time: each of these lets another octet of the marker be the last of it.
    for octets in range(18):
        start = marker + octets - (1 << 20)
        assert _numbers(_part(path, start, size)) == [1, 2]
        assert _numbers(_part(path, 0, start)) == [0]


def test_damaged_marker_is_told_by_whoever_reads_its_block(blocks: Path) -> None:
    data = bytearray(blocks.read_bytes())
    data[-3] ^= 1
    blocks.write_bytes(data)

    with pytest.raises(CorruptFileError, match="sync marker"):
        _numbers(_part(blocks))


@pytest.mark.parametrize("content", [b"", b"Obj", b"PK\x03\x04 is a zip", b"Obj\x01" + b"\xff" * 40])
def test_what_is_no_avro_file_is_told(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "other.avro"
    path.write_bytes(content)

    for read in (lambda: read_header(str(path)), lambda: _numbers(_part(path))):
        with pytest.raises(CorruptFileError, match=r"other\.avro"):
            read()


def test_file_that_is_gone_or_shrunk_since_it_was_listed_is_told(blocks: Path) -> None:
    listed = _part(blocks)
    with ContainerReader(blocks) as reader:
        first = next(reader.blocks())
    blocks.write_bytes(blocks.read_bytes()[: first.end])

    with pytest.raises(CorruptFileError, match="it was longer when it was listed"):
        _numbers(listed)
    blocks.unlink()
    with pytest.raises(CorruptFileError, match="No such file"):
        _numbers(listed)


def test_container_without_blocks_has_no_rows(tmp_path: Path) -> None:
    assert _numbers(_part(write(tmp_path / "none.avro", NUMBER, []))) == []


def test_many_blocks_come_some_at_a_time(tmp_path: Path) -> None:
    rows = [{"n": number, "text": "x" * 100_000} for number in range(100)]
    path = write(tmp_path / "many.avro", NUMBER, rows)

    portions = [(len(data), count) for data, count in read_blocks(_part(path))]

    assert sum(count for _, count in portions) == 100
    assert len(portions) > 1
    assert max(size for size, _ in portions) < 5 << 20


def _sized(*sizes: int) -> list[File]:
    return [File(f"/{at}.avro", size, ()) for at, size in enumerate(sizes)]


def test_small_files_share_a_task_and_large_ones_are_split() -> None:
    mega = 1 << 20

    tasks = split(_sized(mega, 100 * mega, mega, 12 * mega), 10 * mega)

    assert max(sum(part.end - part.start for part in task) for task in tasks) <= 12 * mega
    covered: dict[str, int] = {}
    for part in sorted((p for task in tasks for p in task), key=lambda p: (p.file.path, p.start)):
        assert part.start == covered.get(part.file.path, 0)
        covered[part.file.path] = part.end
    assert covered == {"/0.avro": mega, "/1.avro": 100 * mega, "/2.avro": mega, "/3.avro": 12 * mega}
    # The two small ones, with what opening costs, and the one that is not worth a second opening.
    assert len([task for task in tasks if len(task) > 1]) == 1
    assert len([part for task in tasks for part in task if part.file.path == "/3.avro"]) == 1


@pytest.mark.parametrize(
    ("sizes", "slots", "target"), [([1], 2, 4), ([1 << 40], 8, 64), ([100 << 20], 2, 26)]
)
def test_each_slot_has_two_tasks_within_limits(sizes: list[int], slots: int, target: int) -> None:
    assert target_bytes(_sized(*sizes), slots) >> 20 == target


def test_files_of_nearly_one_size_make_two_tasks_for_each_slot() -> None:
    files = _sized(*(2_220_000 + 500 * (at % 3) for at in range(8)))

    assert [len(task) for task in split(files, target_bytes(files, 2))] == [2, 2, 2, 2]


def test_error_survives_the_way_from_a_worker() -> None:
    error: Any = pickle.loads(pickle.dumps(CorruptFileError("/a.avro", "cut")))

    assert (error.path, error.problem, str(error)) == ("/a.avro", "cut", "/a.avro: cut")
