"""The supervisor, driven through every transition and death by a host that only pretends."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import nebula.spark.runner
from nebula.rpc.contract.job_runner import JobFailure, JobOutput, JobTask, Progress, StageCounts, TaskCounts
from nebula.rpc.middleware.conventions import Meters
from nebula.rpc.middleware.job_spans import TracedRunner
from nebula.spark import Spark, SparkRunner
from nebula.spark.engine_process import TICK_SECONDS
from nebula.spark.processes import engine_processes
from tests.own_logs import own_logs
from tests.spark.fakes import fake_command, fake_runner
from tests.spark.told import Told, running, task

pytestmark = pytest.mark.anyio


async def until_state(runner: SparkRunner, state: str) -> None:
    while runner.status()["state"] != state:
        await anyio.sleep(0.01)


async def until_gone(incarnation: str) -> None:
    while list(engine_processes(incarnation)):
        await anyio.sleep(0.01)


async def test_job_that_was_submitted_before_the_engine_is_up_is_told_in_order(tmp_path: Path) -> None:
    told, runner = Told(), fake_runner(tmp_path)
    runner.submit(task("A", "done", month=1))

    async with running(runner, told):
        output = await told.until("A", "done")

    assert told.names("A") == ["starting", "started", "done"]
    tasks = TaskCounts(5, 10, 2, (StageCounts(7, "count", 5, 8, 2),))
    assert told.all("A", "progress") == [Progress(0.5, "half", (1, 2, "first"), tasks)]
    assert output == JobOutput(value={"month": 1})


@pytest.mark.parametrize("parameters", [None, [1, 2], "text", 7, {"month": 1}])
async def test_host_gets_the_parameters_in_whatever_shape_the_verb_takes(
    tmp_path: Path, parameters: Any
) -> None:
    told, runner = Told(), fake_runner(tmp_path)
    async with running(runner, told):
        runner.submit(JobTask("A", 1, "done", "done", parameters, None))
        output = await told.until("A", "done")

    assert output == JobOutput(value=parameters)


async def test_host_gets_the_trace_of_the_request(tmp_path: Path) -> None:
    told, runner = Told(), fake_runner(tmp_path)
    trace = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
    async with running(runner, told):
        runner.submit(JobTask("A", 1, "trace", "trace", None, None, trace))
        output = await told.until("A", "done")

    assert output == JobOutput(value=trace)


async def test_host_gets_the_trace_of_the_run_where_that_has_a_span(tmp_path: Path) -> None:
    spans, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    told, runner = (
        Told(),
        TracedRunner(fake_runner(tmp_path), provider.get_tracer("test"), Meters(None), "reports"),
    )
    parent = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
    async with running(runner, told):
        runner.submit(JobTask("A", 1, "trace", "trace", None, None, parent))
        output = await told.until("A", "done")

    (span,) = spans.get_finished_spans()
    assert span.parent is not None
    assert f"{span.parent.span_id:016x}" == "b7ad6b7169203331"
    assert span.context is not None
    assert output.value["traceparent"].split("-")[1:3] == [
        "0af7651916cd43dd8448eb211c80319c",
        f"{span.context.span_id:016x}",
    ]
    assert runner.status()["state"] == "stopped"


async def test_table_is_told_by_path_rows_bytes_and_schema(tmp_path: Path) -> None:
    told, runner = Told(), fake_runner(tmp_path)
    async with running(runner, told):
        runner.submit(task("A", "table"))
        output = await told.until("A", "done")

    assert output == JobOutput(None, "/results/table.parquet", 7, 100, {"id": "bigint"})


async def test_failure_is_told_with_its_code_and_the_log_before_it(tmp_path: Path) -> None:
    told, runner = Told(), fake_runner(tmp_path)
    async with running(runner, told):
        runner.submit(task("A", "failed"))
        failure = await told.until("A", "failed")

    assert told.names("A") == ["starting", "started", "log", "failed"]
    assert failure == JobFailure("data", "Division by zero.", "22012", "…")


async def test_end_of_a_job_is_told_once_and_nothing_after_it(tmp_path: Path) -> None:
    told, runner = Told(), fake_runner(tmp_path)
    async with running(runner, told):
        runner.submit(task("A", "twice"))
        runner.submit(task("B", "done"))
        await told.until("B", "done")

    assert [what for what, _ in told.of["A"]] == ["starting", "started", "done"]


async def test_waiting_job_is_cancelled_without_reaching_the_host(tmp_path: Path) -> None:
    told, runner = Told(), fake_runner(tmp_path, "slow")
    async with running(runner, told):
        runner.submit(task("A", "done"))
        runner.cancel("A", 1, reason="cancelled")
        slots_free = await told.until("A", "cancelled")

    assert told.names("A") == ["cancelled"]
    assert slots_free


async def test_running_job_is_cancelled_once_however_often_it_is_asked(tmp_path: Path) -> None:
    told, runner = Told(), fake_runner(tmp_path)
    async with running(runner, told):
        runner.submit(task("A", "waits"))
        await told.until("A", "started")
        runner.cancel("A", 1, reason="timed-out")
        runner.cancel("A", 1, reason="cancelled")
        await told.until("A", "cancelled")
        runner.cancel("A", 1, reason="cancelled")
        runner.submit(task("B", "done"))
        await told.until("B", "done")

    assert told.names("A") == ["starting", "started", "cancelled"]


async def test_slots_of_a_cancelled_job_are_told_free_later(tmp_path: Path) -> None:
    told, runner = Told(), fake_runner(tmp_path)
    async with running(runner, told):
        runner.submit(task("A", "holds_slots"))
        await told.until("A", "started")
        runner.cancel("A", 1, reason="cancelled")
        await told.until("A", "slots_free")

    assert told.of["A"][-2:] == [("cancelled", False), ("slots_free", 1)]


async def test_job_that_ends_before_its_cancel_arrives_is_done(tmp_path: Path) -> None:
    told, runner = Told(), fake_runner(tmp_path)
    async with running(runner, told):
        runner.submit(task("A", "was_quicker"))
        await told.until("A", "started")
        runner.cancel("A", 1, reason="cancelled")
        await told.until("A", "done")

    assert told.names("A") == ["starting", "started", "done"]


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        ("dies", "the engine host died (exit status 9)"),
        ("jvm_dies", "Spark's JVM died"),
        ("raving", "did not speak our language"),
    ],
)
async def test_jobs_are_lost_with_their_host_and_a_fresh_one_takes_the_next(
    tmp_path: Path, function: str, reason: str
) -> None:
    told, runner = Told(), fake_runner(tmp_path)
    async with running(runner, told):
        runner.submit(task("A", "waits"))
        runner.submit(task("B", function))
        lost_with = await told.until("A", "lost")
        runner.submit(task("A", "done", attempt=2))
        await told.until("A", "done")

    assert reason in lost_with
    assert told.names("B") == ["starting", "started", "lost"]
    assert told.names("A") == ["starting", "started", "lost", "starting", "started", "done"]
    first, second = told.all("A", "starting")
    assert first != second


async def test_killed_host_is_noticed_at_once(tmp_path: Path) -> None:
    told, runner = Told(), fake_runner(tmp_path)
    async with running(runner, told):
        runner.submit(task("A", "waits"))
        await told.until("A", "started")
        os.kill(runner.status()["pid"], signal.SIGKILL)
        with anyio.fail_after(10):
            await told.until("A", "lost")


async def test_job_whose_host_dies_while_it_is_cancelled_counts_as_cancelled(tmp_path: Path) -> None:
    told, runner = Told(), fake_runner(tmp_path)
    async with running(runner, told):
        runner.submit(task("A", "dies_when_cancelled"))
        await told.until("A", "started")
        runner.cancel("A", 1, reason="cancelled")
        slots_free = await told.until("A", "cancelled")

    assert slots_free
    assert "lost" not in told.names("A")


async def test_engine_that_does_not_start_in_time_is_started_again(tmp_path: Path) -> None:
    told, runner = Told(), fake_runner(tmp_path, "slow", start_timeout=0.1)
    async with running(runner, told):
        while runner.status()["starts"] < 2:
            await anyio.sleep(0.01)


@pytest.mark.parametrize("mode", ["dies", "gibberish", "newer", "impolite"])
async def test_engine_that_fails_five_times_in_a_row_is_broken(tmp_path: Path, mode: str) -> None:
    told, runner = Told(), fake_runner(tmp_path, mode, back_off=(0.01, 0.01, 0.01, 0.01, 20.0))
    async with running(runner, told):
        runner.submit(task("A", "done"))
        failure = await told.until("A", "failed")
        starts = runner.status()["starts"]

    assert starts == 5
    assert failure.code == "engine-unavailable"
    assert failure.message == runner.is_broken
    assert "engine.err" in failure.message


async def test_restart_mends_a_broken_engine_without_waiting(tmp_path: Path) -> None:
    told = Told()
    runner = SparkRunner(
        Spark(),
        tmp_path,
        "reports",
        command=fake_command("mended", tmp_path),
        back_off=(3600.0,),
    )
    async with running(runner, told):
        await until_state(runner, "waiting")
        runner.restart()
        await until_state(runner, "ready")


async def test_program_that_does_not_exist_breaks_the_engine_with_its_name(tmp_path: Path) -> None:
    told = Told()
    missing = str(tmp_path / "missing")
    runner = SparkRunner(Spark(), tmp_path, "reports", command=[missing], back_off=(0.01,))
    async with running(runner, told):
        runner.submit(task("A", "done"))
        failure = await told.until("A", "failed")

    assert missing in failure.message


async def test_restart_loses_the_open_jobs_and_starts_afresh(tmp_path: Path) -> None:
    told, runner = Told(), fake_runner(tmp_path)
    async with running(runner, told):
        runner.submit(task("A", "waits"))
        await told.until("A", "started")
        runner.restart()
        reason = await told.until("A", "lost")
        await until_state(runner, "ready")

    assert reason == "the engine was restarted by request"
    assert runner.status()["starts"] == 2


async def test_engine_with_a_stuck_job_is_replaced_when_nothing_else_runs(tmp_path: Path) -> None:
    told, runner = Told(), fake_runner(tmp_path)
    async with running(runner, told):
        runner.submit(task("A", "stuck"))
        await told.until("A", "started")
        runner.cancel("A", 1, reason="cancelled")
        await told.until("A", "slots_free")

    assert told.names("A") == ["starting", "started", "cancelled", "log", "slots_free"]


async def test_engine_with_a_stuck_job_is_replaced_under_others_after_a_while(tmp_path: Path) -> None:
    told, runner = Told(), fake_runner(tmp_path, replace_after=0.1)
    async with running(runner, told):
        runner.submit(task("A", "stuck"))
        runner.submit(task("B", "waits"))
        await told.until("B", "started")
        runner.cancel("A", 1, reason="cancelled")
        reason = await told.until("B", "lost")

    assert reason == "the engine was replaced: the code of a cancelled job did not stop"


async def test_idle_engine_is_replaced_after_its_number_of_jobs(tmp_path: Path) -> None:
    told, runner = Told(), fake_runner(tmp_path, recycle_after_jobs=2)
    async with running(runner, told):
        for job in "AB":
            runner.submit(task(job, "done"))
        await told.until("B", "done")
        while runner.status()["starts"] < 2:
            await anyio.sleep(0.01)
        runner.submit(task("C", "done"))
        await told.until("C", "done")


async def test_idle_engine_is_stopped_and_the_next_job_starts_it_again(tmp_path: Path) -> None:
    told, runner = Told(), fake_runner(tmp_path, idle_stop=0.1)
    async with running(runner, told):
        runner.submit(task("A", "done"))
        await told.until("A", "done")
        await until_state(runner, "stopped")
        stopped = runner.status()
        runner.submit(task("B", "done"))
        await told.until("B", "done")

    assert (stopped["last_end"], stopped["starts"], stopped["pid"]) == (
        "the engine was idle for 0.1 s",
        1,
        None,
    )
    assert runner.status()["starts"] == 2


@pytest.mark.parametrize("function", ["waits", "holds_its_slots"])
async def test_engine_that_runs_a_job_is_not_idle_however_long_it_takes(
    tmp_path: Path, function: str
) -> None:
    told, runner = Told(), fake_runner(tmp_path, idle_stop=0.1)
    async with running(runner, told):
        runner.submit(task("A", function))
        await told.until("A", "started")
        if function == "holds_its_slots":
            # Told as cancelled, but some of it still runs.
            runner.cancel("A", 1, reason="cancelled")
            await told.until("A", "cancelled")
        # Looked at several times meanwhile, each half a second.
        for _ in range(3):
            runner.submit(task("B", "done", attempt=len(told.of.get("B", [])) + 1))
            await told.until("B", "done")
            await anyio.sleep(TICK_SECONDS)
        status = runner.status()

    assert (status["state"], status["starts"]) == ("ready", 1)


async def test_idle_engine_is_replaced_when_it_is_old(tmp_path: Path) -> None:
    told, runner = Told(), fake_runner(tmp_path, recycle_after=0.1)
    async with running(runner, told):
        runner.submit(task("A", "done"))
        await told.until("A", "done")
        while runner.status()["starts"] < 2:
            await anyio.sleep(0.01)
        await until_state(runner, "ready")

        assert runner.status()["last_end"] == "the engine was replaced at the age of 0.1 s"


async def test_jobs_that_come_while_the_engine_is_replaced_wait_and_none_is_lost(tmp_path: Path) -> None:
    told, runner = Told(), fake_runner(tmp_path, recycle_after_jobs=1)
    jobs = [f"job {number}" for number in range(12)]
    async with running(runner, told):
        for job in jobs:
            runner.submit(task(job, "done"))
            await told.until(job, "done")
            # Each time at another moment of the replacement.
            while runner.status()["starts"] < 2 and job == jobs[5]:
                await anyio.sleep(0.01)

    assert {tuple(told.names(job)) for job in jobs} == {("starting", "started", "done")}


async def test_host_that_is_killed_while_it_is_replaced_loses_nothing(tmp_path: Path) -> None:
    told, runner = Told(), fake_runner(tmp_path, "deaf", recycle_after_jobs=1, stop_grace=2)
    async with running(runner, told):
        runner.submit(task("A", "done"))
        await told.until("A", "done")
        pid = runner.status()["pid"]
        # It ignores its Stop, and would be waited for.
        while runner.status()["state"] != "starting":
            await anyio.sleep(0.01)
        runner.submit(task("B", "done"))
        with suppress(ProcessLookupError):  # it was waited for long enough on a busy machine
            os.kill(pid, signal.SIGKILL)
        await told.until("B", "done")

    assert told.names("B") == ["starting", "started", "done"]


async def test_engine_that_dies_while_it_is_idle_is_started_again(tmp_path: Path) -> None:
    told, runner = Told(), fake_runner(tmp_path)
    async with running(runner, told):
        await until_state(runner, "ready")
        os.kill(runner.status()["pid"], signal.SIGKILL)
        while runner.status()["starts"] < 2:
            await anyio.sleep(0.01)
        why = runner.status()["last_end"]
        runner.submit(task("A", "done"))
        await told.until("A", "done")

    assert why == "the engine host died (SIGKILL)"


async def test_engines_of_one_service_have_folders_of_their_own_and_share_results(tmp_path: Path) -> None:
    command = fake_command("good", tmp_path)
    engines = [
        SparkRunner(Spark(), tmp_path, "reports", name, command=command) for name in ("default", "bulk")
    ]
    told = Told()
    async with running(engines[0], told), running(engines[1], told):
        for number, runner in enumerate(engines):
            runner.submit(task(f"job {number}", "done"))
            await told.until(f"job {number}", "done")

    assert {path.name for path in (tmp_path / "engine").iterdir()} == {"default", "bulk"}
    assert (tmp_path / "results").is_dir()


async def test_status_tells_no_setting_that_may_be_secret(tmp_path: Path) -> None:
    secret = {
        "spark.hadoop.fs.s3a.secret.key": "hush",
        "spark.sql.catalog.pg.password": "hush",
        "spark.sql.catalog.pg.url": "jdbc:postgresql://hush@host",
        "spark.sql.some.accessKey": "hush",
        "spark.sql.warehouse.dir": "s3://host/?token=hush",
    }
    runner = fake_runner(tmp_path, conf={"spark.sql.shuffle.partitions": "7", **secret})

    assert runner.status()["conf"] == {"spark.sql.shuffle.partitions": "7", **dict.fromkeys(secret)}
    assert "hush" not in str(runner.status())


async def test_cold_engine_starts_with_its_first_job(tmp_path: Path) -> None:
    told, runner = Told(), fake_runner(tmp_path, warm=False)
    async with running(runner, told):
        before = runner.status()["starts"]
        runner.submit(task("A", "done"))
        await told.until("A", "done")

    assert before == 0
    assert runner.status()["starts"] == 1


async def test_host_that_ignores_its_stop_is_killed_in_bounded_time(tmp_path: Path) -> None:
    told, runner = Told(), fake_runner(tmp_path, "deaf", stop_grace=0.2)
    async with running(runner, told, seconds=10):
        await until_state(runner, "ready")
        incarnation = runner.status()["incarnation"]

    assert list(engine_processes(incarnation)) == []


async def test_grandchild_that_holds_the_output_open_neither_hides_the_hosts_end_nor_outlives_it(
    tmp_path: Path,
) -> None:
    told, runner = Told(), fake_runner(tmp_path, "parent")
    async with running(runner, told):
        await until_state(runner, "ready")
        incarnation, pid = runner.status()["incarnation"], runner.status()["pid"]
        with anyio.fail_after(5):
            # One that is just being started shows no environment for a moment.
            while len(list(engine_processes(incarnation))) < 2:
                await anyio.sleep(0.01)
            os.kill(pid, signal.SIGKILL)
            await until_gone(incarnation)


async def test_restart_of_an_engine_that_starts_is_no_failure_and_says_nothing_against_its_archive(
    tmp_path: Path,
) -> None:
    told, runner = Told(), fake_runner(tmp_path, "hangs once", back_off=[3600.0])
    async with running(runner, told):
        while not (tmp_path / "archives").exists():
            await anyio.sleep(0.01)
        runner.restart()
        runner.submit(task("A", "done"))
        await told.until("A", "done")

    assert (tmp_path / "archives").read_text() == "True\nTrue\n"


async def test_engine_of_a_cluster_that_took_long_to_fail_is_broken_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nebula.spark.runner, "_SLOW_SECONDS", 0.0)
    told, runner = Told(), fake_runner(tmp_path, "dies", master="spark://127.0.0.1:1", back_off=[3600.0])
    async with running(runner, told):
        runner.submit(task("A", "done"))
        failure = await told.until("A", "failed")

    assert failure.code == "engine-unavailable"
    assert "Spark's engine cannot start" in failure.message


async def test_results_appear_where_workers_reach_them_if_that_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEBULA_RESULTS", str(tmp_path / "shared"))
    command = fake_command("good", tmp_path)
    runner = SparkRunner(Spark(), tmp_path / "state" / "reports" / "one", "reports", command=command)
    told = Told()

    async with running(runner, told):
        runner.submit(task("A", "done"))
        await told.until("A", "done")
    assert (tmp_path / "shared" / "reports" / "one" / "results").is_dir()
    assert not (tmp_path / "state" / "reports" / "one" / "results").exists()


async def test_unfinished_results_of_a_dead_host_are_removed_and_whole_ones_kept(tmp_path: Path) -> None:
    results = tmp_path / "results"
    for name in ("A.parquet", "B.parquet.__B.1"):
        (results / name).mkdir(parents=True)
        (results / name / "part").touch()
    runner = fake_runner(tmp_path)
    async with running(runner, Told()):
        await until_state(runner, "ready")

    assert [path.name for path in results.iterdir()] == ["A.parquet"]


@pytest.mark.parametrize("end", ["killed", "cancelled"])
async def test_what_a_job_wrote_elsewhere_goes_with_the_host_that_dies_under_it(
    tmp_path: Path, end: str
) -> None:
    (places := tmp_path / "places").mkdir()
    told, runner = Told(), fake_runner(tmp_path)
    async with running(runner, told):
        runner.submit(task("A", "writes_elsewhere", path=str(places / "table")))
        await told.until("A", "log")
        before = [path.name for path in places.iterdir()]
        if end == "killed":
            os.kill(runner.status()["pid"], signal.SIGKILL)
            await told.until("A", "lost")
        else:
            runner.cancel("A", 1, reason="cancelled")
            await told.until("A", "cancelled")
        after = list(places.iterdir())

    assert (before, after) == (["table.__A.1"], [])


async def test_status_says_what_runs(tmp_path: Path) -> None:
    told, runner = Told(), fake_runner(tmp_path, master="local[2]")
    async with running(runner, told):
        runner.submit(task("A", "waits"))
        await told.until("A", "started")
        status = runner.status()

    assert status["state"] == "ready"
    assert status["master"] == "local[2]"
    assert status["java"] == "Java 17 from a fake"
    now = {"waiting": 0, "open": 1, "settling": 0, "stuck": 0}
    assert status["jobs"] == now | {"done": 0, "failed": 0, "cancelled": 0, "lost": 0}


def test_runner_works_on_a_loop_that_is_not_in_the_main_thread(tmp_path: Path) -> None:
    told, runner = Told(), fake_runner(tmp_path)

    async def run_one_job() -> None:
        async with running(runner, told):
            runner.submit(task("A", "done"))
            await told.until("A", "done")

    thread = threading.Thread(target=lambda: anyio.run(run_one_job, backend_options={"use_uvloop": True}))
    thread.start()
    thread.join(20)

    assert told.names("A") == ["starting", "started", "done"]


# --- an engine that fails ---


async def test_engine_is_failing_from_its_first_failed_start_until_one_is_ready(tmp_path: Path) -> None:
    command = fake_command("mended", tmp_path)
    runner = SparkRunner(Spark(), tmp_path, "reports", command=command, back_off=(3600.0,))
    said = [runner.failing]
    async with running(runner, Told()):
        await until_state(runner, "waiting")
        is_broken = runner.is_broken
        said.append(runner.failing)
        runner.restart()
        await until_state(runner, "ready")
        said.append(runner.failing)

    before, failing, after = said
    assert (before, after) == (None, None)
    assert failing is not None
    assert failing.startswith("Spark's engine did not start, the engine host died (exit status 2")
    assert is_broken is None


async def test_engine_that_nothing_wants_is_tried_again_once_it_has_failed(tmp_path: Path) -> None:
    told = Told()
    command = fake_command("mended", tmp_path)
    runner = SparkRunner(Spark(warm=False), tmp_path, "reports", command=command, back_off=(0.2,))
    async with running(runner, told):
        runner.submit(task("A", "done"))
        await until_state(runner, "waiting")
        runner.cancel("A", 1, reason="cancelled")
        await told.until("A", "cancelled")
        await until_state(runner, "ready")

        assert runner.failing is None


async def test_engine_that_nothing_wants_is_tried_again_once_it_has_died(tmp_path: Path) -> None:
    told, runner = Told(), fake_runner(tmp_path, warm=False)
    async with running(runner, told):
        runner.submit(task("A", "jvm_dies"))
        await told.until("A", "lost")
        with anyio.fail_after(20):
            while runner.status()["starts"] == 1:
                await anyio.sleep(0.01)
        await until_state(runner, "ready")

        assert runner.failing is None


async def test_second_engine_in_a_row_that_dies_early_is_not_followed_at_once(tmp_path: Path) -> None:
    told, runner = Told(), fake_runner(tmp_path, back_off=(3600.0,))
    with own_logs() as logs:
        async with running(runner, told):
            for job in ("A", "B"):
                runner.submit(task(job, "jvm_dies"))
                await told.until(job, "lost")
            await until_state(runner, "waiting")
            starts, failing = runner.status()["starts"], runner.failing
            runner.restart()
            await until_state(runner, "ready")

    assert starts == 2
    assert failing == "Spark's engine has ended, Spark's JVM died"
    ends = [line for line in logs if line["event"] == "engine host ended"]
    assert [(line["log_level"], line["reason"]) for line in ends] == [
        ("warning", "Spark's JVM died"),
        ("warning", "Spark's JVM died"),
        ("info", "the service stopped"),
    ]


async def test_engine_that_finished_a_job_is_followed_at_once_whenever_it_dies(tmp_path: Path) -> None:
    told, runner = Told(), fake_runner(tmp_path, back_off=(3600.0,))
    async with running(runner, told):
        for number in range(3):
            runner.submit(task(f"A{number}", "done"))
            await told.until(f"A{number}", "done")
            runner.submit(task(f"B{number}", "jvm_dies"))
            await told.until(f"B{number}", "lost")
        await until_state(runner, "ready")

    assert runner.status()["starts"] == 4


async def test_broken_engine_is_told_once_as_an_error(tmp_path: Path) -> None:
    with own_logs() as logs:
        runner = fake_runner(tmp_path, "broken")
        async with running(runner, Told()):
            while runner.status()["starts"] < 3:
                await anyio.sleep(0.01)

    errors = [line for line in logs if line["log_level"] == "error"]
    assert [(line["event"], line["reason"]) for line in errors] == [("engine broken", "There is no Java")]
