"""Jobs in a real Spark engine: what they may return, how they may end, what they leave behind."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import psutil
import pytest
from pyarrow import parquet  # type: ignore[import-untyped]  # it ships no types

from nebula.rpc.contract.job_runner import JobOutput
from tests.spark.engine import WITH_WORKERS, Engine, living, until
from tests.spark.told import task

pytestmark = pytest.mark.spark


@pytest.fixture
def state(shared_state: Path) -> Path:
    return shared_state


@pytest.fixture
def spark(shared_engine: Engine) -> Engine:
    return shared_engine


def test_status_says_which_java_and_spark_run(spark: Engine) -> None:
    status = spark.status()

    assert status["java"].startswith("Java ")
    assert int(status["spark"].split(".")[0]) >= 4
    assert psutil.Process(status["jvm_pid"]).name() == "java"


def test_value_comes_back_as_json(spark: Engine) -> None:
    assert spark.run_job("value", "count", rows=1000) == JobOutput(value=1000)


def test_job_without_context_or_value_is_done(spark: Engine) -> None:
    assert spark.run_job("nothing", "nothing") == JobOutput()


def test_async_job_is_awaited(spark: Engine) -> None:
    assert spark.run_job("later", "later", text="now") == JobOutput(value="now")


def test_job_may_print_and_read_without_touching_the_protocol(spark: Engine, state: Path) -> None:
    assert spark.run_job("noisy", "noisy") == JobOutput(value="")
    assert spark.told.all("noisy", "log") == ["printed by the job", "logged by the job"]
    assert "printed by the job" in (state / "engine" / "default" / "engine.err").read_text()


def test_processes_that_a_job_forks_disturb_nobody(spark: Engine) -> None:
    incarnation = spark.status()["incarnation"]
    output = spark.run_job("forks", "forks")

    assert output == JobOutput(value=[1, 2, 0, 1, 3])
    assert spark.told.all("forks", "log") == []
    assert spark.run_job("after forks", "count") == JobOutput(value=10)
    assert spark.status()["incarnation"] == incarnation


def test_job_that_says_more_than_a_line_may_have_fails_alone(spark: Engine) -> None:
    incarnation = spark.status()["incarnation"]
    failure = spark.run_job("long lines", "long_lines")

    assert len(failure.message) == 300
    assert {(len(text), text[-2:]) for text in spark.told.all("long lines", "log")} == {(4001, "x!")}
    assert spark.status()["incarnation"] == incarnation


def test_of_a_flood_of_logs_the_service_hears_the_last_lines_and_how_many_are_missing(spark: Engine) -> None:
    spark.run_job("flood", "logs_in_a_loop")
    told = spark.told.all("flood", "log")

    left_out = [int(text.split()[1].replace(",", "")) for text in told if text.startswith("…")]
    assert told[-1] == "19999"
    assert left_out
    assert sum(left_out) + len(told) - len(left_out) == 20_000


def test_number_that_json_has_not_is_a_bad_result(spark: Engine) -> None:
    assert spark.run_job("no numbers", "no_numbers").code == "bad-result"
    assert [progress.step for progress in spark.told.all("no numbers", "progress")] == [(1, 1, "beside it")]


def test_python_function_runs_in_spark_workers(spark: Engine) -> None:
    assert spark.run_job("udf", "udf_sum") == JobOutput(value=90)


def test_table_of_a_job_that_promises_a_list_is_collected(spark: Engine) -> None:
    output = spark.run_job("groups", "groups")

    assert output == JobOutput(value=[{"key": key, "count": 3} for key in range(3)])


def test_table_is_kept_as_parquet(spark: Engine, state: Path) -> None:
    output = spark.run_job("table", "table", rows=100)

    path = state / "results" / "table.parquet"
    assert output.path == str(path)
    assert output.rows == parquet.read_table(path).num_rows == 100
    assert output.bytes == sum(part.stat().st_size for part in path.glob("*.parquet"))
    assert output.schema == {"key": "bigint"}


def test_second_attempt_replaces_the_table_of_the_first(spark: Engine) -> None:
    spark.run_job("again", "table", rows=1)
    spark.submit(task("again", "tests.spark.jobs:table", attempt=2, rows=2))
    until(lambda: len(spark.told.all("again", "done")) == 2, "the second attempt is done")

    first, second = spark.told.all("again", "done")
    assert first.path == second.path
    assert parquet.read_table(second.path).num_rows == 2


@pytest.mark.parametrize(
    ("function", "code", "message", "sqlstate"),
    [
        ("raises_in_udf", "python", "ValueError: meter file is truncated (jobs.py:", "38000"),
        ("kills_worker", "worker-crashed", "a Python worker process died while it ran", None),
        ("missing_table", "analysis", "The table or view `nowhere` cannot be found.", "42P01"),
        ("divides_by_zero", "data", "Division by zero.", "22012"),
        ("raises_in_query", "data", "no readings today", "P0001"),
        ("gives_up", "empty", "no readings in the source", None),
        ("fails", "job", "KeyError: 'machine'", None),
        ("exits", "job", "SystemExit: 3", None),
        ("many_groups", "result-too-large", "the result has more than 1000 rows", None),
        ("long_text", "result-too-large", "the result is 100002 bytes of JSON, more than 65536", None),
        ("not_json", "bad-result", "", None),
        ("missing", "job", "the engine host cannot import tests.spark.jobs:missing", None),
    ],
)
def test_failure_has_a_code_and_a_short_text(
    spark: Engine, function: str, code: str, message: str, sqlstate: str | None
) -> None:
    failure = spark.run_job(function, function)

    assert (failure.code, failure.sqlstate) == (code, sqlstate)
    assert failure.message.startswith(message)
    assert len(failure.message) <= 300
    # Of a bad result the message says all.
    assert failure.trace.startswith("Traceback") or code == "bad-result"


def test_jobs_do_not_see_each_others_views(spark: Engine) -> None:
    assert spark.run_job("view", "makes_view") == JobOutput(value=1)
    assert spark.run_job("rdd", "makes_view_of_an_rdd") == JobOutput(value=1)
    assert spark.run_job("views", "counts_views") == JobOutput(value=0)


def test_progress_follows_tasks_and_steps_and_never_falls(spark: Engine) -> None:
    spark.run_job("steps", "two_steps")

    told = spark.told.all("steps", "progress")
    fractions = [progress.fraction for progress in told if progress.fraction is not None]
    assert all(earlier <= later for earlier, later in pairwise(fractions))
    assert {(1, 2, "first"), (2, 2, "second")} <= {progress.step for progress in told}
    assert any(0 < fraction < 0.5 for fraction in fractions)
    assert any(progress.tasks is not None and progress.tasks.known >= 8 for progress in told)
    assert [progress.note for progress in told if progress.note.startswith("part")]


def test_progress_has_the_stages_of_its_step(spark: Engine) -> None:
    spark.run_job("stages", "two_steps")

    told = [progress for progress in spark.told.all("stages", "progress") if progress.tasks is not None]
    assert {progress.step for progress in told if progress.tasks.stages} == {(1, 2, "first")}
    stages = [stage for progress in told for stage in progress.tasks.stages]
    assert any(0 < stage.done < stage.known and stage.active for stage in stages)
    assert "collect" in {stage.name for stage in stages}


def test_output_appears_when_the_job_is_done(spark: Engine, tmp_path: Path) -> None:
    output = spark.run_job("writes", "writes", path=str(tmp_path / "out.txt"))

    assert output == JobOutput(value="out.txt")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("out.txt", "whole")]


def test_output_of_a_failed_job_never_appears(spark: Engine, tmp_path: Path) -> None:
    spark.run_job("writes not", "writes", path=str(tmp_path / "out.txt"), fail=True)

    until(lambda: not list(tmp_path.iterdir()), "the unfinished output is removed")


def test_job_is_cancelled_between_two_actions(spark: Engine) -> None:
    spark.start_job("between", "between_actions")
    spark.told.wait("between", "log")
    spark.cancel("between")

    if not spark.told.wait("between", "cancelled"):
        spark.told.wait("between", "slots_free")
    assert "failed" not in spark.told.names("between")


def test_cancelled_python_code_frees_its_slots_and_removes_its_output(spark: Engine, state: Path) -> None:
    spark.start_job("slow", "slow_udf")
    until(lambda: _active(spark, "slow") == 2, "both slots are in use")
    spark.cancel("slow", reason="timed-out")

    # Busy as the machine may be, they can be free before the cancel was told.
    if not spark.told.wait("slow", "cancelled"):
        spark.told.wait("slow", "slots_free", seconds=10)
    until(lambda: not list((state / "results").glob("slow*")), "its output is removed")


def test_short_job_is_done_beside_a_long_one(spark: Engine) -> None:
    spark.start_job("long", "slow_udf")
    until(lambda: _active(spark, "long") == 2, "the long job holds both slots")
    spark.run_job("short", "count")

    assert not {"done", "failed"} & set(spark.told.names("long"))
    spark.cancel("long")
    if not spark.told.wait("long", "cancelled"):
        spark.told.wait("long", "slots_free")


def test_first_slot_of_a_long_job_that_comes_free_goes_to_the_short_one(
    spark: Engine, tmp_path: Path
) -> None:
    spark.start_job("forty", "gated", folder=str(tmp_path))
    until(lambda: len(list(tmp_path.glob("begun-*"))) == 2, "the long job holds both slots")
    spark.start_job("brief", "one_task")
    until(lambda: _known(spark, "brief") == 1, "the short job's task waits")
    # One of forty tasks ends, and the others would hold their slots for ever.
    (tmp_path / "go-0").touch()
    output = spark.told.wait("brief", "done", "failed")

    assert output == JobOutput(value=10)
    assert {path.name for path in tmp_path.glob("begun-*")} <= {"begun-0", "begun-1", "begun-2"}
    spark.cancel("forty")
    if not spark.told.wait("forty", "cancelled"):
        spark.told.wait("forty", "slots_free")


def test_code_that_ignores_its_cancel_is_told_as_cancelled_at_once_after_what_it_logged(
    spark: Engine, tmp_path: Path
) -> None:
    spark.start_job("deaf", "ignores_cancel", began=str(tmp_path / "began"))
    until((tmp_path / "began").exists, "its code has logged")
    spark.cancel("deaf")

    assert spark.told.wait("deaf", "cancelled") is False
    assert spark.told.names("deaf") == ["starting", "started", "log", "cancelled"]
    assert spark.run_job("beside", "count") == JobOutput(value=10)


def test_job_that_stops_spark_is_lost_and_a_fresh_engine_takes_the_next(spark: Engine) -> None:
    spark.start_job("stops", "stops_spark")

    assert spark.told.wait("stops", "lost") == "Spark's context was stopped"
    assert spark.run_job("after stop", "count") == JobOutput(value=10)


def test_killed_jvm_loses_its_jobs_and_leaves_nothing(spark: Engine, state: Path) -> None:
    spark.start_job("under jvm", "slow_udf")
    status = spark.status()
    until(lambda: len(living(status["incarnation"])) >= WITH_WORKERS, "Python workers are busy")
    psutil.Process(status["jvm_pid"]).kill()

    assert spark.told.wait("under jvm", "lost", seconds=5).startswith("Spark's JVM died")
    until(lambda: not living(status["incarnation"]), "no process is left", seconds=5)
    assert not list((state / "results").glob("under jvm*"))
    assert spark.run_job("after jvm", "count") == JobOutput(value=10)


# Another start of the JVM. `make test` kills fake hosts in test_runner, and the real JVM above.
@pytest.mark.slow
def test_killed_host_loses_its_jobs_and_leaves_nothing(spark: Engine) -> None:
    spark.until_ready()
    spark.start_job("under host", "slow_udf")
    status = spark.status()
    until(lambda: len(living(status["incarnation"])) >= WITH_WORKERS, "Python workers are busy")
    psutil.Process(status["pid"]).kill()

    assert spark.told.wait("under host", "lost", seconds=5) == "the engine host died (SIGKILL)"
    until(lambda: not living(status["incarnation"]), "no process is left", seconds=5)
    assert spark.run_job("after host", "count") == JobOutput(value=10)


def _known(spark: Engine, job: str) -> int:
    told = [progress.tasks.known for progress in spark.told.all(job, "progress") if progress.tasks]
    return told[-1] if told else 0


def _active(spark: Engine, job: str) -> int:
    told = [progress.tasks.active for progress in spark.told.all(job, "progress") if progress.tasks]
    return told[-1] if told else 0
