"""What Spark has written, read without its disk: the rows, and what foreign readers make of the files."""

from __future__ import annotations

import csv
import io
import json
import urllib.request
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
import pytest
from pyarrow import parquet

from nebula.rpc.contract.job_runner import JobOutput
from nebula.sync import Client, JobHandle
from tests.cli.programs import running

pytestmark = [pytest.mark.spark, pytest.mark.slow]

_APP = """
from pyspark.sql import DataFrame

from nebula import Job, Responder
from nebula.spark import Spark

app = Responder("odd", spark=Spark(master="local[2]", memory="512m"))

SQL = '''
SELECT id, cast(id AS decimal(20, 4)) / 10 AS price, cast(cast(id AS string) AS binary) AS raw,
  date_add(date'0001-01-01', cast(id AS int)) AS day,
  timestamp'1582-10-04 23:59:59.999999 UTC' + make_dt_interval(cast(id AS int)) AS at,
  timestamp_ntz'9999-12-31 23:59:59.999999' AS local,
  map('k', cast(id AS double), 'nan', double('NaN')) AS props, map(cast(id AS int), 'v') AS numbers,
  array(struct(timestamp'2026-01-02 03:04:05Z' AS at, X'00ff' AS raw), null) AS parts,
  IF(id % 2 = 0, null, 'tèxt, "' || id || '"') AS name
FROM range(0, 3000, 1, 3)
'''


@app.job
def table(ctx: Job) -> DataFrame:
    return ctx.spark.sql(SQL)
"""

_CONFIG = """
store = "memory"
app = ["odd:app"]

[[listener]]
port = 0

[[listener]]
port = 0
http = true
calls = true
"""


class Done:
    """A job that has ended, where it is asked for, and what it wrote."""

    def __init__(self, job: JobHandle, http: str, output: JobOutput) -> None:
        self.job, self.http = job, http
        self.foreign = parquet.read_table(output.path, coerce_int96_timestamp_unit="us").sort_by("id")

    def get(self, format_: str) -> bytes:
        with urllib.request.urlopen(f"{self.http}/jobs/{self.job.id}/result?format={format_}") as response:
            body: bytes = response.read()
            return body


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Done]:
    folder = tmp_path_factory.mktemp("odd")
    (folder / "odd.py").write_text(_APP)
    (folder / "nebula.toml").write_text(_CONFIG)
    with running("broker", cwd=folder) as (process, first):
        assert process.stdout is not None
        second = json.loads(process.stdout.readline())
        with Client(first["url"]) as client:
            job = client.start("odd", "table")
            yield Done(job, f"http://127.0.0.1:{urlsplit(second['url']).port}", job.result(JobOutput))


def test_rows_have_the_types_that_spark_gave_them(done: Done) -> None:
    rows = list(done.job.rows())
    row = rows[7]

    assert [row["id"] for row in rows] == list(range(3000))
    assert (row["price"], row["raw"], row["day"]) == (Decimal("0.7"), b"7", date(1, 1, 8))
    assert row["local"] == datetime(9999, 12, 31, 23, 59, 59, 999_999)  # noqa: DTZ001 - it has no zone
    assert row["props"]["k"] == 7.0
    assert str(row["props"]["nan"]) == "nan"
    assert row["numbers"] == {7: "v"}
    assert row["parts"] == [{"at": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), "raw": b"\0\xff"}, None]
    assert (row["name"], rows[8]["name"]) == ('tèxt, "7"', None)


def test_instants_are_those_that_others_read(done: Done) -> None:
    # pyarrow has no zone for INT96, and the instant all the same.
    foreign = [at.replace(tzinfo=UTC) for at in done.foreign["at"].to_pylist()]

    assert [row["at"] for row in done.job.rows()] == foreign


def test_arrow_and_pandas_have_all_rows(done: Done) -> None:
    table = done.job.to_arrow()
    same = ["id", "price", "raw", "day", "local", "numbers", "name"]

    assert table.select(same).equals(done.foreign.select(same).combine_chunks())
    assert done.job.to_pandas()["id"].tolist() == list(range(3000))


def test_parquet_over_http_has_all_rows(done: Done) -> None:
    table = parquet.read_table(pa.BufferReader(done.get("parquet")))
    same = ["id", "price", "raw", "day", "local", "numbers", "name"]

    assert table.select(same).equals(done.foreign.select(same))
    assert str(table.schema.field("at").type) == "timestamp[us, tz=UTC]"


def test_csv_over_http_has_all_rows(done: Done) -> None:
    lines = list(csv.DictReader(io.StringIO(done.get("csv").decode(), newline=""), strict=True))
    foreign: list[dict[str, Any]] = done.foreign.to_pylist()

    assert [int(line["id"]) for line in lines] == [row["id"] for row in foreign]
    assert [line["name"] or None for line in lines] == [row["name"] for row in foreign]
    assert [Decimal(line["price"]) for line in lines] == [row["price"] for row in foreign]
    assert [datetime.fromisoformat(line["at"]).replace(tzinfo=None) for line in lines] == [
        row["at"] for row in foreign
    ]


def test_ndjson_over_http_has_all_rows(done: Done) -> None:
    rows = [json.loads(line) for line in done.get("ndjson").splitlines()]

    assert [date.fromisoformat(row["day"]) for row in rows] == done.foreign["day"].to_pylist()
    assert rows[7]["numbers"] == [[7, "v"]]
    assert rows[7]["props"] == {"k": 7.0, "nan": "NaN"}
