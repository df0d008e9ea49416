"""`ctx.read` in an engine without Hive, as one is without any `conf`."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

import pytest

from nebula.rpc.contract.job_runner import JobFailure, JobOutput
from tests.spark.engine import Engine
from tests.spark.reading.samples import fields, write
from tests.spark.told import task

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
_PATIENCE_SECONDS = 240.0
_NUMBERS = count()


@pytest.fixture
def spark(shared_engine: Engine) -> Engine:
    return shared_engine


def _rows(spark: Engine, path: Path, **options: Any) -> Any:
    job = f"plain-{next(_NUMBERS)}"
    spark.submit(task(job, "tests.spark.reading.jobs:rows", path=str(path), options=options))
    return spark.told.wait(job, "done", "failed", seconds=_PATIENCE_SECONDS)


def test_fastavro_reads_what_the_others_cannot(spark: Engine, tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"a": 1}, {"a": None}]
    # A folder's column that the data have is too much for spark-avro, and such a union for polars.
    write(tmp_path / "a=5" / "a.avro", fields(a=["null", "int", "long"]), rows)

    end = _rows(spark, tmp_path)

    assert isinstance(end, JobOutput), end
    assert end.value == rows


def test_hive_is_refused_with_what_to_do(spark: Engine, tmp_path: Path) -> None:
    write(tmp_path / "a.avro", fields(a="int"), [{"a": 1}])

    end = _rows(spark, tmp_path, reader="hive")

    assert isinstance(end, JobFailure), end
    assert end.code == "data"
    assert "the engine has no Hive" in end.message
