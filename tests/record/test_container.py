"""Container files: read by fastavro, cut anywhere, on a disk that fails."""

from __future__ import annotations

import io
import json
from pathlib import Path

import fastavro
import pytest

from nebula.avro import Schema
from nebula.errors import SettingsError
from nebula.record.container import ContainerError, ContainerReader, ContainerWriter, cut
from tests.record.full_disk import files_of_at_most

READING = Schema(
    {
        "type": "record",
        "name": "venue.Reading",
        "fields": [{"name": "machine", "type": "string"}, {"name": "turnover", "type": "long"}],
    }
)
TEXT = json.dumps(READING.definition)


def readings(count: int) -> list[dict[str, object]]:
    return [{"machine": f"EGM{number % 7}", "turnover": number} for number in range(count)]


def write(path: Path, count: int, *, codec: str = "null", block_bytes: int = 64) -> None:
    with ContainerWriter(path, TEXT, codec=codec, block_bytes=block_bytes) as writer:
        for reading in readings(count):
            writer.append(READING.encode(reading))


def read(octets: bytes) -> list[object]:
    return list(fastavro.reader(io.BytesIO(octets)))


@pytest.mark.parametrize("codec", ["null", "deflate", "zstandard"])
def test_another_library_reads_what_was_written(tmp_path: Path, codec: str) -> None:
    path = tmp_path / "readings.avro"
    write(path, 1000, codec=codec)

    assert read(path.read_bytes()) == readings(1000)


@pytest.mark.parametrize("codec", ["null", "deflate", "zstandard"])
def test_blocks_of_another_library_are_read(tmp_path: Path, codec: str) -> None:
    path = tmp_path / "readings.avro"
    with path.open("wb") as file:
        fastavro.writer(file, READING.parsed, readings(100), codec=codec, sync_interval=200)

    with ContainerReader(path) as reader:
        blocks = list(reader.blocks())
        data = b"".join(map(reader.read, blocks))
    assert len(blocks) > 1
    assert sum(block.count for block in blocks) == 100
    assert data == b"".join(map(READING.encode, readings(100)))


def test_an_empty_file_has_a_header_and_no_block(tmp_path: Path) -> None:
    path = tmp_path / "readings.avro"
    write(path, 0)

    with ContainerReader(path) as reader:
        assert list(reader.blocks()) == []
        assert json.loads(reader.header.schema) == READING.definition
    assert read(path.read_bytes()) == []


def test_a_file_that_was_cut_anywhere_keeps_its_whole_blocks(tmp_path: Path) -> None:
    whole = tmp_path / "whole.avro"
    write(whole, 40)
    octets = whole.read_bytes()
    with ContainerReader(whole) as reader:
        header = reader.header.end_bytes
        blocks = list(reader.blocks())

    for size in range(header, len(octets) + 1):
        path = tmp_path / "cut.avro"
        path.write_bytes(octets[:size])
        kept = sum(block.count for block in blocks if block.end <= size)

        found = cut(path)

        assert found.count == kept
        assert found.removed_bytes == size - path.stat().st_size
        assert read(path.read_bytes()) == readings(kept)


def test_a_file_that_was_cut_in_its_header_is_no_container(tmp_path: Path) -> None:
    path = tmp_path / "cut.avro"
    write(path, 1)
    octets = path.read_bytes()
    with ContainerReader(path) as reader:
        header = reader.header.end_bytes

    for size in range(header):
        path.write_bytes(octets[:size])
        with pytest.raises(ContainerError, match=r"cut\.avro"):
            cut(path)


def test_a_block_that_was_overwritten_is_an_error_that_names_file_and_offset(tmp_path: Path) -> None:
    path = tmp_path / "readings.avro"
    write(path, 40)
    with ContainerReader(path) as reader:
        second = list(reader.blocks())[1]
    octets = bytearray(path.read_bytes())
    octets[second.end - 1] ^= 0xFF
    path.write_bytes(octets)

    with ContainerReader(path) as reader, pytest.raises(ContainerError) as error:
        list(reader.blocks())
    assert error.value.offset == second.offset
    assert str(path) in str(error.value)
    assert cut(path).size_bytes == second.offset


def test_data_that_are_not_compressed_as_said_are_an_error(tmp_path: Path) -> None:
    for codec in ("deflate", "zstandard"):
        path = tmp_path / f"{codec}.avro"
        write(path, 100, codec=codec, block_bytes=10_000)
        with ContainerReader(path) as reader:
            (block,) = reader.blocks()
        octets = bytearray(path.read_bytes())
        octets[block.data_offset : block.data_offset + 4] = b"\xff\xff\xff\xff"
        path.write_bytes(octets)

        with ContainerReader(path) as reader, pytest.raises(ContainerError, match=path.name):
            reader.read(block)


def test_a_header_longer_than_usual_is_read(tmp_path: Path) -> None:
    path = tmp_path / "readings.avro"
    notes = {"notes": b"x" * 100_000}
    with ContainerWriter(path, TEXT, metadata=notes) as writer:
        writer.append(READING.encode(readings(1)[0]))

    with ContainerReader(path) as reader:
        assert reader.header.metadata["notes"] == notes["notes"]
        assert [block.count for block in reader.blocks()] == [1]


def test_a_full_disk_loses_nothing_of_what_was_appended(tmp_path: Path) -> None:
    path = tmp_path / "readings.avro"
    writer = ContainerWriter(path, TEXT, codec="null", block_bytes=1_000_000)
    for reading in readings(100):
        writer.append(READING.encode(reading))
    writer.sync()
    for reading in readings(200)[100:]:
        writer.append(READING.encode(reading))

    before = path.read_bytes()
    with files_of_at_most(len(before) + 100), pytest.raises(OSError, match="File too large"):
        writer.sync()
    assert path.read_bytes() == before
    assert (writer.written, writer.count) == (100, 200)

    writer.sync()
    writer.close()
    assert read(path.read_bytes()) == readings(200)


def test_a_disk_that_is_full_from_the_start_leaves_no_file(tmp_path: Path) -> None:
    path = tmp_path / "readings.avro"

    with files_of_at_most(10), pytest.raises(OSError, match="File too large"):
        ContainerWriter(path, TEXT)
    assert not path.exists()


def test_a_file_is_never_written_over(tmp_path: Path) -> None:
    path = tmp_path / "readings.avro"
    path.write_bytes(b"something")

    with pytest.raises(FileExistsError):
        ContainerWriter(path, TEXT)
    assert path.read_bytes() == b"something"


def test_an_unknown_codec_is_refused_with_those_that_there_are(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="null, deflate, zstandard"):
        ContainerWriter(tmp_path / "readings.avro", TEXT, codec="lzw")
    assert list(tmp_path.iterdir()) == []
