"""Values of previews, where JSON lacks a form for them."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from nebula.spark.host.parquet import readable

_OCTETS = b"\xfb\xff"


@pytest.mark.parametrize(
    ("kind", "value", "shown"),
    [
        (BinaryType(), _OCTETS, "+/8="),
        (BinaryType(), None, None),
        (ArrayType(BinaryType()), [_OCTETS, None], ["+/8=", None]),
        (MapType(StringType(), BinaryType()), [("k", _OCTETS)], [("k", "+/8=")]),
        (StructType([StructField("inside", BinaryType())]), {"inside": _OCTETS}, {"inside": "+/8="}),
    ],
)
def test_bytes_in_a_preview_are_base64_of_the_standard_alphabet(
    kind: DataType, value: Any, shown: Any
) -> None:
    assert readable(value, kind) == shown
