"""What a job's engine tells beside its result: steps, rows, previews, its name in files, Spark's pages."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from pyarrow import parquet  # type: ignore[import-untyped]  # it ships no types

from nebula.spark import Spark
from tests.spark.engine import CONF, Engine, engine, living
from tests.spark.told import task

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with engine(
        tmp_path_factory.mktemp("state"), ui=True, conf=CONF | {_SECRET: "hunter2 & söhne"}
    ) as running:
        running.until_ready()
        yield running


_SECRET = "spark.hadoop.fs.s3a.secret.key"


def run(spark: Engine, job: str, function: str, **parameters: Any) -> None:
    spark.submit(task(job, f"tests.spark.report_jobs:{function}", **parameters))
    spark.told.wait(job, "done")


def test_each_step_is_told_with_its_time_however_short_it_is(spark: Engine) -> None:
    run(spark, "S", "quick_steps")

    begun = [progress for progress in spark.told.all("S", "progress") if progress.at is not None]
    assert [progress.step for progress in begun] == [(n, 3, f"step {n}") for n in (1, 2, 3)]
    times = [progress.at for progress in begun]
    assert times == sorted(times)


def test_rows_that_were_read_and_written_are_counted_over_all_steps(spark: Engine, tmp_path: Path) -> None:
    run(spark, "R", "copies", folder=str(tmp_path))

    counters = spark.told.all("R", "progress")[-1].counters
    # A range is a source, too.
    assert counters == {"rows_read": 3000, "rows_written": 3000}


def test_statement_whose_result_has_no_columns_is_done_and_gives_null_or_the_empty_list(
    spark: Engine, tmp_path: Path
) -> None:
    made = tmp_path / "made"
    run(spark, "Q1", "makes_table", where=str(made))
    run(spark, "Q2", "inserts_into_it")
    rows = sum(parquet.read_metadata(part).num_rows for part in made.glob("*.parquet"))
    run(spark, "Q3", "drops_it")

    assert rows == 12
    told = [spark.told.all(job, "done")[-1] for job in ("Q1", "Q2", "Q3")]
    assert [(done.value, done.path) for done in told] == [(None, None), ([], None), (None, None)]


def test_table_has_a_preview_of_ten_rows_and_its_files_bear_the_jobs_name(spark: Engine) -> None:
    output = spark.run_job("T", "table", rows=1000)
    parts = list(Path(output.path).glob("*.parquet"))

    assert output.preview == [{"key": key} for key in range(10)]
    assert output.bytes == sum(part.stat().st_size for part in parts)
    assert {parquet.read_metadata(part).metadata[b"nebula.job"] for part in parts} == {b"T"}


def test_signed_table_is_read_by_spark(spark: Engine) -> None:
    path = spark.run_job("T2", "table", rows=1000).path
    run(spark, "T3", "counts_file", path=path)

    assert spark.told.all("T3", "done")[-1].value == 1000


def test_preview_has_the_values_that_json_lacks_as_text_and_is_left_out_when_rows_are_huge(
    spark: Engine,
) -> None:
    run(spark, "V", "odd_values")
    run(spark, "H", "huge_rows")

    assert spark.told.all("V", "done")[-1].preview == [
        {"at": "2026-01-02T03:04:05", "price": "1.20", "bytes": "+/8=", "nothing": None, "nan": None}
    ]
    assert spark.told.all("H", "done")[-1].preview is None


def test_preview_has_intervals_and_variants_as_people_read_them(spark: Engine) -> None:
    run(spark, "I", "intervals_and_variants")

    assert spark.told.all("I", "done")[-1].preview == [
        {
            "months": "P1Y2M",
            "ago": "-P3M",
            "time": "P1DT2H3M4.5S",
            "value": {"a": [1, "b"]},
            "several": ["P2Y"],
            "inside": {"v": 7},
            "by_name": [["k", "PT1H"]],
        }
    ]


def test_output_at_a_place_of_the_jobs_own_is_signed_and_told_in_its_log(
    spark: Engine, tmp_path: Path
) -> None:
    run(spark, "O", "writes_table", path=str(tmp_path / "out"))

    [part] = (tmp_path / "out").glob("*.parquet")
    assert parquet.read_metadata(part).metadata[b"nebula.job"] == b"O"
    told = spark.told.all("O", "log")[-1]
    assert told == f"wrote {tmp_path / 'out'}: 1 files, {part.stat().st_size} bytes, 50 rows"


def test_password_among_the_settings_is_on_no_command_line_and_left_in_no_file(spark: Engine) -> None:
    run(spark, "W", "hadoop_setting", name="fs.s3a.secret.key")
    status = spark.status()
    programs = [process.cmdline() for process in living(status["incarnation"])]
    folder = Path(psutil.Process(status["jvm_pid"]).environ()["TMPDIR"]).parent

    assert spark.told.all("W", "done")[-1].value == "hunter2 & söhne"
    assert len(programs) >= 2
    assert "hunter2" not in str(programs)
    files = [file.read_bytes() for file in folder.rglob("*") if file.is_file()]
    assert files
    assert not any(b"hunter2" in text for text in files)
    assert status["conf"][_SECRET] is None


def test_sparks_pages_are_on_the_loopback_alone_and_told_in_status_and_log(spark: Engine) -> None:
    spark.run_job("U", "count")
    status = spark.status()
    page = status["ui"]

    assert spark.told.all("U", "log") == [f"Spark shows its work at {page}/jobs/"]
    with urllib.request.urlopen(f"{page}/jobs/", timeout=20) as answer:
        assert answer.status == 200
    listening = [
        c.laddr.ip for c in psutil.Process(status["jvm_pid"]).net_connections() if c.status == "LISTEN"
    ]
    assert {address.removeprefix("::ffff:") for address in listening} == {"127.0.0.1"}


@pytest.mark.parametrize(("priority", "level", "weight"), [(0, "low", 1), (4, "normal", 4), (9, "high", 16)])
def test_job_has_a_fair_pool_with_the_weight_of_its_priority(
    spark: Engine, priority: int, level: str, weight: int
) -> None:
    spark.submit(replace(task(f"P{priority}", "tests.spark.report_jobs:pool"), priority=priority))
    output = spark.told.wait(f"P{priority}", "done", "failed")

    assert output.value == {"level": level, "weight": weight, "mode": "FAIR"}


def test_pages_on_a_cluster_want_the_drivers_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"spark\.driver\.host"):
        Spark(master="spark://host:7077", ui=True)

    (tmp_path / "spark-defaults.conf").write_text("spark.ui.port 0\nspark.driver.host  10.1.2.3\n")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert Spark(master="spark://host:7077", ui=True).ui
