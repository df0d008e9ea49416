"""Isolated runs in real engines: each has a JVM of its own, which ends with it."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from nebula.rpc.contract.job_runner import JobOutput
from tests.spark.engine import Engine, engine, living, until
from tests.spark.told import isolated

# Two engines at a time.
pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]


@pytest.fixture
def spark(shared_engine: Engine) -> Engine:
    return shared_engine


def test_isolated_run_has_a_jvm_of_its_own_that_ends_with_it(spark: Engine) -> None:
    spark.submit(isolated("alone", "tests.spark.jobs:count"))
    output = spark.told.wait("alone", "done", "failed")
    (incarnation,) = spark.told.all("alone", "starting")

    assert output == JobOutput(value=10)
    assert incarnation != spark.status()["incarnation"]
    until(lambda: not living(incarnation), "no process is left")


def test_cancel_of_an_isolated_run_ends_code_that_never_asks(spark: Engine) -> None:
    spark.submit(isolated("deaf-alone", "tests.spark.jobs:ignores_cancel"))
    spark.told.wait("deaf-alone", "log")
    spark.cancel("deaf-alone")
    if not spark.told.wait("deaf-alone", "cancelled"):
        spark.told.wait("deaf-alone", "slots_free")

    assert not living(spark.told.all("deaf-alone", "starting")[0])
    assert spark.run_job("beside deaf-alone", "count") == JobOutput(value=10)


def test_killed_jvm_of_an_isolated_run_loses_that_job_alone(spark: Engine) -> None:
    spark.submit(isolated("killed-alone", "tests.spark.jobs:between_actions"))
    spark.told.wait("killed-alone", "log")
    (run,) = spark.status()["isolated"]
    psutil.Process(run["jvm_pid"]).kill()

    assert spark.told.wait("killed-alone", "lost").startswith("Spark's JVM died")
    until(lambda: not living(spark.told.all("killed-alone", "starting")[0]), "no process is left")
    assert spark.run_job("beside killed", "count") == JobOutput(value=10)


@pytest.mark.timeout(300)
def test_folders_may_have_spaces_and_other_signs_in_their_names(tmp_path: Path) -> None:
    state = tmp_path / "my state, 100%25 of [it]"
    with engine(state, warm=False) as spark:
        spark.submit(isolated("alone in here", "tests.spark.jobs:table", rows=3))
        output = spark.told.wait("alone in here", "done", "failed")

    assert isinstance(output, JobOutput), output
    assert output.path is not None
    assert Path(output.path).parent == state / "results"
    assert (output.rows, output.preview) == (3, [{"key": 0}, {"key": 1}, {"key": 2}])
