"""What rows become in JSON: what Spark's own `from_json` makes the same values of."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from nebula.spark.source.encoding import encoder
from nebula.spark.source.options import JSON


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (math.nan, "NaN"),
        (math.inf, "Infinity"),
        ([-math.inf, 1.5], ["-Infinity", 1.5]),
        ({"octets": b"\xff\xfe"}, {"octets": "//4="}),
        ([b"\xfb"], ["+w=="]),
        (None, None),
    ],
)
def test_value_that_json_has_no_form_for_is_written_as_spark_does(value: Any, written: Any) -> None:
    def refuse(constant: str) -> Any:
        raise AssertionError(f"{constant} is no JSON")

    body = encoder(JSON, None, "/queue/a")({"value": value})

    assert json.loads(body, parse_constant=refuse) == {"value": written}
