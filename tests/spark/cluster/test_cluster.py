"""Jobs on a standalone cluster of one master and two workers, whose machines die."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from nebula.testing import RunningBroker
from services.cluster.machines import Cluster, cluster
from tests.spark.cluster.flights import ask_delays, expected_delays
from tests.spark.engine import CONF, Engine, engine, until
from tests.spark.told import task

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

# Several JVMs start beside each other, on few cores.
PATIENCE_SECONDS = 150.0

STEADY = "tests.spark.cluster.jobs:steady"
SOURCE = "tests.spark.source.jobs"


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("machines")) as running:
        yield running


@pytest.fixture(scope="module")
def spark(machines: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    state, conf = tmp_path_factory.mktemp("state"), {**CONF, **machines.conf}
    with engine(state, master=machines.master, conf=conf, patience=PATIENCE_SECONDS) as running:
        yield running


def start_steady(spark: Engine, job: str) -> None:
    """Start a job, and wait until a cluster works on it."""
    spark.submit(task(job, STEADY))
    until(
        lambda: any(p.tasks and p.tasks.done for p in spark.told.all(job, "progress")),
        "a task is done",
        PATIENCE_SECONDS,
    )


def test_cluster_answers_as_a_table_made_without_spark_does(spark: Engine) -> None:
    assert ask_delays(spark, "F").value == expected_delays()


def test_stream_goes_over_a_spool_that_all_see_to_the_workers_and_back(spark: Engine, tmp_path: Path) -> None:
    # More than one task of each batch.
    count = 25_000
    with RunningBroker(transport="tcp") as broker:
        options = {"broker": broker.url, "destination": "/queue/readings"}
        spark.submit(task("T1", f"{SOURCE}:write_rows", count=count, options=options))
        spark.told.wait("T1", "done")
        spark.submit(
            task(
                "T2",
                f"{SOURCE}:read_stream",
                options={**options, "spool": str(tmp_path / "spool"), "content": "text", "partitions": "2"},
                checkpoint=str(tmp_path / "checkpoint"),
                out=str(tmp_path / "out"),
                rows=count,
                columns=["count(*) as rows", "count(distinct get_json_object(body, '$.id')) as ids"],
            )
        )
        assert spark.told.wait("T2", "done").value == [{"rows": count, "ids": count}]


def test_cancelled_job_frees_the_workers(spark: Engine) -> None:
    spark.submit(task("C", STEADY, tasks=200))
    until(
        lambda: any(p.tasks and p.tasks.active for p in spark.told.all("C", "progress")),
        "a task runs",
        PATIENCE_SECONDS,
    )
    spark.cancel("C")

    is_free = spark.told.wait("C", "cancelled")
    assert is_free or spark.told.wait("C", "slots_free")
    assert spark.run_job("C2", "count").value == 10


def test_job_of_an_engine_that_the_others_leave_no_worker_says_what_it_waits_for(
    machines: Cluster, spark: Engine, tmp_path: Path
) -> None:
    assert spark.run_job("C3", "count").value == 10  # this engine has all cores there are
    conf = {**CONF, **machines.conf}
    with engine(tmp_path, master=machines.master, conf=conf, patience=PATIENCE_SECONDS) as second:
        second.submit(task("X", STEADY))
        until(
            lambda: any("waits for executors" in p.note for p in second.told.all("X", "progress")),
            "it says so",
            PATIENCE_SECONDS,
        )


def test_job_is_done_although_a_worker_dies_under_it(machines: Cluster, spark: Engine) -> None:
    start_steady(spark, "W")
    machines.workers[-1].kill()

    assert spark.told.wait("W", "done", "failed").value == 45
    machines.add_worker().await_registered()


# The last one: it leaves no cluster.
def test_job_is_done_although_the_master_dies_under_it_and_the_next_start_says_that_it_is_gone(
    machines: Cluster, spark: Engine
) -> None:
    start_steady(spark, "M")
    machines.head.kill()

    assert spark.told.wait("M", "done", "failed").value == 45
    spark.restart()
    until(lambda: spark.status()["broken"], "the engine was tried anew", PATIENCE_SECONDS)
    spark.submit(task("N", STEADY))
    failure = spark.told.wait("N", "done", "failed")

    assert failure.code == "engine-unavailable"
    assert failure.message == f"no Spark master answers at {machines.master}"
