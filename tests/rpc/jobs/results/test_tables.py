"""Tables in files, read from any row on, as JSON and as Arrow."""

from __future__ import annotations

import json
import tracemalloc
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
import pytest
from pyarrow import parquet

from nebula.rpc.jobs.results.fetching import batches_of, rows_of
from nebula.rpc.jobs.results.tables import Form, Place, TableError, TableReader, files_of
from tests.rpc.jobs.results.tables import is_same, write


def _page(reader: TableReader, rows: int, size: int = 1 << 20, form: Form = "json") -> dict[str, Any]:
    # By way of JSON, as it goes.
    page: dict[str, Any] = json.loads(
        json.dumps({"data": reader.take(form, rows, size).data, "schema": reader.schema}, allow_nan=False)
    )
    return page


@pytest.mark.parametrize("at_once", [1, 7, 40, 1000])
def test_rows_come_back_as_they_were_written(tmp_path: Path, at_once: int) -> None:
    written = write(tmp_path / "t.parquet", files=3, rows=50)
    reader, read = TableReader(files_of(tmp_path / "t.parquet"), Place()), list[Any]()
    while not reader.is_over:
        read += rows_of(_page(reader, at_once))
    reader.close()

    assert is_same(read, written)


def test_rows_are_read_on_from_any_place(tmp_path: Path) -> None:
    written = write(tmp_path / "t.parquet", files=2, rows=100, group=30)
    files = files_of(tmp_path / "t.parquet")
    for row in (0, 1, 29, 30, 31, 60, 99, 100):
        reader = TableReader(files, Place(0, row))
        read = rows_of(_page(reader, 1000))

        assert is_same(read, written[row:])
        assert reader.is_over


def test_page_has_the_rows_that_fit_and_one_at_least(tmp_path: Path) -> None:
    written = write(tmp_path / "t.parquet", files=1, rows=50)
    reader = TableReader(files_of(tmp_path / "t.parquet"), Place())
    few = _page(reader, 1000, 2000)
    one = _page(reader, 1000, 1)

    assert 2 < len(few["data"]) < 20
    assert len(json.dumps(few["data"])) < 2500
    assert is_same(rows_of(one), [written[len(few["data"])]])


def test_arrow_has_the_same_rows(tmp_path: Path) -> None:
    write(tmp_path / "t.parquet", files=2, rows=50)
    reader = TableReader(files_of(tmp_path / "t.parquet"), Place(0, 3))
    pages = [batches_of(_page(reader, 30, form="arrow")) for _ in range(5)]
    foreign = parquet.read_table(tmp_path / "t.parquet").slice(3)

    assert reader.is_over
    read = pa.concat_tables(pages)
    # NaN equals nothing.
    assert read.drop_columns(["ratio"]).equals(foreign.drop_columns(["ratio"]))
    assert is_same(read["ratio"].to_pylist(), foreign["ratio"].to_pylist())


def test_instants_of_old_timestamps_are_in_utc(tmp_path: Path) -> None:
    at = [datetime(1, 1, 2, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC)]
    kind = pa.struct([("deep", pa.list_(pa.timestamp("us", "UTC")))])
    table = pa.table(
        {"at": pa.array(at, pa.timestamp("us", "UTC")), "s": pa.array([{"deep": [one]} for one in at], kind)}
    )
    parquet.write_table(table, tmp_path / "t.parquet", use_deprecated_int96_timestamps=True)
    reader = TableReader(files_of(tmp_path / "t.parquet"), Place())

    assert rows_of(_page(reader, 10)) == [{"at": one, "s": {"deep": [one]}} for one in at]


def test_table_without_rows_has_columns(tmp_path: Path) -> None:
    write(tmp_path / "t.parquet", files=1, rows=0)
    reader = TableReader(files_of(tmp_path / "t.parquet"), Place())

    assert reader.is_over
    assert _page(reader, 10)["data"] == []
    assert reader.schema[0] == {"name": "id", "type": "integer"}


@pytest.mark.parametrize("text", ["", "1", "-1.0", "0.0.0", "0. 1", "٣.0", "9" * 10 + ".0"])
def test_malformed_place_is_refused(text: str) -> None:
    with pytest.raises(TableError):
        Place.read(text)


@pytest.mark.parametrize("place", [Place(2, 0), Place(0, 51), Place(1, 10**17)])
def test_place_behind_the_end_is_refused(tmp_path: Path, place: Place) -> None:
    write(tmp_path / "t.parquet", files=2, rows=50)
    with pytest.raises(TableError):
        TableReader(files_of(tmp_path / "t.parquet"), place)


def test_date_that_python_lacks_is_reported(tmp_path: Path) -> None:
    table = pa.table({"day": pa.array([4_000_000], pa.int32()).cast(pa.date32())})
    parquet.write_table(table, tmp_path / "t.parquet")
    reader = TableReader(files_of(tmp_path / "t.parquet"), Place())
    with pytest.raises(TableError, match="cannot be told"):
        reader.take("json", 10, 1000)


def test_large_row_group_is_not_held_whole(tmp_path: Path) -> None:
    texts = pa.array([f"{number:0200}" for number in range(200_000)])
    parquet.write_table(pa.table({"text": texts}), tmp_path / "t.parquet", row_group_size=200_000)
    before = pa.total_allocated_bytes()
    del texts
    tracemalloc.start()
    reader = TableReader(files_of(tmp_path / "t.parquet"), Place(0, 150_000))
    most = 0
    while not reader.is_over:
        reader.take("json", 1000, 100_000)
        most = max(most, pa.total_allocated_bytes())
    python = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    # The file has 40 MB.
    assert most - before < 16_000_000
    assert python < 8_000_000
