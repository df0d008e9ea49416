"""Metadata that are added to Parquet files which another program wrote."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
import pytest
from pyarrow import parquet

from nebula.spark.host.footer import FooterError, add_metadata

COLUMNS: dict[str, list[Any]] = {
    "number": [1, 2, None],
    "text": ["a", None, "ä" * 200],
    "flag": [True, False, None],
    "price": [Decimal("1.20"), Decimal("0.00"), None],
    "at": [dt.datetime(2026, 1, 1, tzinfo=dt.UTC)] * 3,
    "nested": [{"list": [1.5, 2.5]}, None, {"list": []}],
}


def written(file: Path, *, keys: int = 1, **options: Any) -> Path:
    metadata = {f"key-{number}": "value" * number for number in range(keys)}
    parquet.write_table(pa.table(COLUMNS).replace_schema_metadata(metadata), file, **options)
    return file


@pytest.mark.parametrize("keys", [1, 13, 14, 200])
def test_pair_is_added_and_all_else_is_as_before(tmp_path: Path, keys: int) -> None:
    file = written(tmp_path / "a.parquet", keys=keys, row_group_size=1)
    before = parquet.ParquetFile(file)
    add_metadata(file, {"nebula.job": "01JOB", "long": "x" * 1000})
    after = parquet.ParquetFile(file)

    assert after.metadata.metadata == {
        **before.metadata.metadata, b"nebula.job": b"01JOB", b"long": b"x" * 1000
    }  # fmt: skip
    assert after.read().equals(before.read())
    assert after.metadata.num_row_groups == 3


def test_pair_is_added_to_a_file_with_bloom_filters_and_an_index(tmp_path: Path) -> None:
    file = written(tmp_path / "a.parquet", write_page_index=True, write_page_checksum=True)
    add_metadata(file, {"nebula.job": "01JOB"})

    assert parquet.read_metadata(file).metadata[b"nebula.job"] == b"01JOB"
    assert parquet.read_table(file).num_rows == 3


@pytest.mark.parametrize(
    "content", [b"", b"PAR1", b"PAR1\xff\xff\xff\x7fPAR1", b"x" * 100, b"PAR1\0\0\0\0PAR1"]
)
def test_other_files_are_refused_and_left_as_they_were(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "a.parquet"
    file.write_bytes(content)

    with pytest.raises(FooterError):
        add_metadata(file, {"nebula.job": "01JOB"})
    assert file.read_bytes() == content


def test_footer_that_is_cut_or_garbled_is_refused_or_read_to_its_list(tmp_path: Path) -> None:
    whole = written(tmp_path / "whole.parquet").read_bytes()
    size = int.from_bytes(whole[-8:-4], "little")
    footer = whole[-8 - size : -8]
    file = tmp_path / "a.parquet"
    for cut in range(0, size, 7):
        file.write_bytes(b"PAR1" + footer[:cut] + cut.to_bytes(4, "little") + b"PAR1")
        try:
            add_metadata(file, {"nebula.job": "01JOB"})
        except FooterError:
            continue
        # Past the list of pairs it does not look.
        assert footer.index(b"key-0") < cut
