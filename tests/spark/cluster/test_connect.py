"""Jobs through a Spark Connect server: answers, errors, cancel, and what outlives whom."""

from __future__ import annotations

import os
import re
import signal
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from services.cluster.machines import Machine, connect_server
from tests.spark.cluster.connecting import PATIENCE_SECONDS, is_running, reaching, start_endless
from tests.spark.cluster.flights import ask_delays, expected_delays
from tests.spark.engine import Engine, living, until
from tests.spark.reading.samples import READING, readings, write
from tests.spark.told import task

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    with connect_server(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("state")


@pytest.fixture(scope="module")
def spark(server: Machine, state: Path) -> Iterator[Engine]:
    with reaching(server.address, state) as running:
        yield running


def test_server_answers_as_a_table_made_without_spark_does(spark: Engine) -> None:
    assert ask_delays(spark, "F").value == expected_delays()


def test_no_java_runs_beside_the_service(spark: Engine) -> None:
    spark.until_ready()
    status = spark.status()

    assert (status["java"], status["jvm_pid"]) == ("", None)
    assert [process.pid for process in living(status["incarnation"])] == [status["pid"]]


def test_python_functions_and_tables_come_back(spark: Engine) -> None:
    assert spark.run_job("U", "udf_sum").value == 90
    assert spark.run_job("G", "groups").value == [{"key": key, "count": 3} for key in range(3)]
    assert spark.run_job("T", "table").rows == 100


@pytest.mark.parametrize("reader", ["polars", "fastavro"])
def test_avro_files_are_read_by_the_server(spark: Engine, tmp_path: Path, reader: str) -> None:
    for part in range(2):
        write(tmp_path / f"{part}.avro", READING, readings(1000, first=1000 * part))
    job = f"A-{reader}"
    spark.submit(task(job, "tests.spark.reading.jobs:sums", path=str(tmp_path), options={"reader": reader}))
    sums = spark.told.wait(job, "done").value

    assert (sums["rows"], sums["value"]) == (2000, sum(range(2000)) * 0.25)


def test_jobs_do_not_see_each_others_views(spark: Engine) -> None:
    assert spark.run_job("V1", "makes_view").value == 1
    assert spark.run_job("V2", "counts_views").value == 0


@pytest.mark.parametrize(
    ("function", "code", "message"),
    [
        ("raises_in_udf", "python", "ValueError: meter file is truncated (jobs.py:"),
        ("missing_table", "analysis", "The table or view `nowhere` cannot be found."),
        ("divides_by_zero", "data", "Division by zero."),
        ("raises_in_query", "data", "no readings today"),
        ("kills_worker", "worker-crashed", "a Python worker process died"),
        ("gives_up", "empty", "no readings in the source"),
    ],
)
def test_failure_has_the_code_that_a_driver_of_our_own_gives_it(
    spark: Engine, function: str, code: str, message: str
) -> None:
    failure = spark.run_job(f"E-{function}", function)

    assert failure.code == code
    assert failure.message.startswith(message)


def test_progress_is_told_by_the_server(spark: Engine) -> None:
    spark.submit(task("P", "tests.spark.cluster.jobs:steady"))
    assert spark.told.wait("P", "done").value == 45

    counts = [progress.tasks.done for progress in spark.told.all("P", "progress") if progress.tasks]
    assert max(counts) > 0
    assert [
        stage
        for progress in spark.told.all("P", "progress")
        if progress.tasks
        for stage in progress.tasks.stages
    ]


@pytest.mark.parametrize("function", ["slow_udf", "between_actions"])
def test_cancelled_job_ends_wherever_it_is(spark: Engine, function: str) -> None:
    job = f"C-{function}"
    spark.submit(task(job, f"tests.spark.jobs:{function}"))
    spark.told.wait(job, "log")
    spark.cancel(job)

    assert spark.told.wait(job, "cancelled") or spark.told.wait(job, "slots_free")


def test_cancelled_job_leaves_nothing_on_the_server(spark: Engine, tmp_path: Path) -> None:
    worker = start_endless(spark, "X", tmp_path)
    spark.cancel("X")

    until(lambda: not is_running(worker), "the job's code has ended on the server", PATIENCE_SECONDS)


def test_job_of_a_killed_host_is_lost_and_ended_on_the_server_by_the_next_one(
    spark: Engine, state: Path, tmp_path: Path
) -> None:
    worker = start_endless(spark, "K", tmp_path)
    psutil.Process(spark.status()["pid"]).kill()
    spark.told.wait("K", "lost")

    until(lambda: not is_running(worker), "the job's code has ended on the server", PATIENCE_SECONDS)
    assert spark.run_job("K2", "count").value == 10
    until(lambda: not list(state.rglob("connect/*")), "no session is remembered")


def test_next_attempt_begins_in_another_instance_after_the_first_ones_end_on_the_server(
    server: Machine, tmp_path: Path
) -> None:
    function = "tests.spark.cluster.jobs:overlapping"
    # An instance that is not heard of any more, and whose folder nobody takes.
    with reaching(server.address, tmp_path / "lost", silence_timeout=3600.0) as lost:
        start_endless(lost, "O", tmp_path)
        os.kill(lost.status()["pid"], signal.SIGSTOP)
        with reaching(server.address, tmp_path / "other") as other:
            other.submit(replace(task("O", function, folder=str(tmp_path)), attempt=2))

            assert other.told.wait("O", "done").value is False


def test_setting_that_the_server_refuses_breaks_the_engine_in_a_sentence(
    server: Machine, tmp_path: Path
) -> None:
    conf = {"spark.sql.warehouse.dir": str(tmp_path)}
    before = opened(server)
    with reaching(server.address, tmp_path / "state", conf) as spark:
        failure = spark.run_job("A", "count")
        until(lambda: opened(server) > before, "the server tells of its session")

    assert failure.code == "engine-unavailable"
    assert "spark.sql.warehouse.dir" in failure.message
    assert failure.message.endswith("Give it to the server when that is started")
    until(lambda: opened(server) - before <= opened(server, "Closing"), "its session was closed", 30)


def test_what_listens_and_is_no_connect_server_breaks_the_engine_in_a_sentence(tmp_path: Path) -> None:
    with babbler() as address, reaching(address, tmp_path) as spark:
        failure = spark.run_job("A", "count")

    assert failure.code == "engine-unavailable"
    assert failure.message.startswith(f"what listens at sc://{address} is no Spark Connect server for us")


# The last one: it leaves no server.
def test_job_of_a_killed_server_is_lost_and_the_next_start_says_that_it_is_gone(
    server: Machine, spark: Engine, tmp_path: Path
) -> None:
    start_endless(spark, "S", tmp_path)
    server.kill()

    assert spark.told.wait("S", "lost") == f"the Spark Connect server at sc://{server.address} is gone"
    failure = spark.run_job("S2", "count")

    assert failure.code == "engine-unavailable"
    assert failure.message == f"no Spark Connect server answers at sc://{server.address}"


@contextmanager
def babbler() -> Iterator[str]:
    """The address of a program that says something else."""

    class Babbling(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.sendall(b"220 mail.example.com ready\r\n")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Babbling) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield "{}:{}".format(*server.server_address)
        server.shutdown()
        thread.join()


def opened(server: Machine, what: str = "") -> set[str]:
    """The ids of sessions that its log tells of, or that this word was said of."""
    return set(re.findall(rf"{what}.* sessionId: ([0-9a-f-]{{36}})", server.log.read_text()))
