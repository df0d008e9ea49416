"""The codec of recorded files is one that polars reads."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from nebula.avro import Schema
from nebula.record.container import ContainerWriter
from nebula.record.recorder import Recording
from tests.spark.reading.samples import fields


def test_polars_reads_what_is_recorded_by_default_and_no_zstandard(tmp_path: Path) -> None:
    schema, usual = Schema(fields(a="int")), Recording(("/queue/a",), tmp_path).codec
    for codec in (usual, "zstandard"):
        with ContainerWriter(tmp_path / codec, json.dumps(schema.definition), codec=codec) as writer:
            writer.append(schema.encode({"a": 5}))

    assert usual == "deflate"
    assert pl.read_avro(tmp_path / usual).rows() == [(5,)]
    with pytest.raises(pl.exceptions.PolarsError, match="codec"):
        pl.read_avro(tmp_path / "zstandard")
