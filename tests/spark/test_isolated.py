"""Jobs with an engine host of their own, by a host that only pretends."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from nebula.rpc.contract.job_runner import JobOutput
from nebula.spark import Spark, SparkRunner
from nebula.spark.class_archive import ClassArchive
from nebula.spark.processes import engine_processes
from nebula.spark.settings import EngineSettings
from tests.spark import fakes
from tests.spark.told import Told, isolated, running

pytestmark = pytest.mark.anyio

fake_runner = partial(fakes.fake_runner, is_shared=False)


def hosts(runner: SparkRunner) -> list[dict[str, Any]]:
    return [run for run in runner.status()["isolated"] if run["pid"] is not None]


async def until_running(runner: SparkRunner, count: int) -> None:
    while len(hosts(runner)) != count:
        await anyio.sleep(0.01)


async def test_isolated_job_has_a_host_of_its_own_that_ends_with_it(tmp_path: Path) -> None:
    told, runner = Told(), fake_runner(tmp_path)
    async with running(runner, told):
        runner.submit(isolated("A", "done", month=1))
        runner.submit(isolated("B", "done", month=2))
        outputs = [await told.until(job, "done") for job in "AB"]
        await until_running(runner, 0)

    assert outputs == [JobOutput(value={"month": 1}), JobOutput(value={"month": 2})]
    assert told.names("A") == ["starting", "started", "done"]
    (first,), (second,) = told.all("A", "starting"), told.all("B", "starting")
    assert first != second
    assert list(engine_processes(first)) == list(engine_processes(second)) == []


async def test_engine_whose_jobs_are_all_isolated_starts_no_host_of_its_own(tmp_path: Path) -> None:
    told, runner = Told(), fake_runner(tmp_path)
    async with running(runner, told):
        runner.submit(isolated("A", "done"))
        await told.until("A", "done")
        status = runner.status()

    assert (status["state"], status["starts"]) == ("stopped", 0)


async def test_no_more_hosts_live_than_the_engine_may_run_jobs(tmp_path: Path) -> None:
    told, runner = Told(), fake_runner(tmp_path, max_running=1)
    async with running(runner, told):
        runner.submit(isolated("A", "waits"))
        runner.submit(isolated("B", "done"))
        await told.until("A", "started")
        before = told.names("B")
        incarnation = told.all("A", "starting")[0]
        runner.cancel("A", 1, reason="cancelled")
        await told.until("B", "starting")

        assert list(engine_processes(incarnation)) == []
        await told.until("B", "done")

    assert before == []


@pytest.mark.parametrize("function", ["deaf", "child", "stuck"])
async def test_cancel_ends_code_that_never_asks_with_all_its_processes(tmp_path: Path, function: str) -> None:
    told, runner = Told(), fake_runner(tmp_path, stop_grace=0.1)
    async with running(runner, told):
        runner.submit(isolated("A", function))
        await told.until("A", "started")
        incarnation = told.all("A", "starting")[0]
        runner.cancel("A", 1, reason="cancelled")
        slots_free = await told.until("A", "cancelled")
        if not slots_free:
            await told.until("A", "slots_free")

        assert list(engine_processes(incarnation)) == []

    assert "lost" not in told.names("A")


async def test_job_is_cancelled_while_its_host_starts(tmp_path: Path) -> None:
    told, runner = Told(), fake_runner(tmp_path, "slow")
    async with running(runner, told):
        runner.submit(isolated("A", "done"))
        await until_running(runner, 1)
        runner.cancel("A", 1, reason="cancelled")
        await told.until("A", "cancelled")
        await until_running(runner, 0)

    assert told.names("A") == ["cancelled"]


async def test_killed_host_loses_its_own_job_and_no_other(tmp_path: Path) -> None:
    told, runner = Told(), fake_runner(tmp_path)
    async with running(runner, told):
        runner.submit(isolated("A", "waits"))
        runner.submit(isolated("B", "waits"))
        await told.until("A", "started")
        await told.until("B", "started")
        pid = next(run["pid"] for run in hosts(runner) if run["job"] == "A")
        os.kill(pid, signal.SIGKILL)
        reason = await told.until("A", "lost")
        others = told.names("B")
        runner.cancel("B", 1, reason="cancelled")
        await told.until("B", "cancelled")

    assert reason == "the engine host died (SIGKILL)"
    assert others == ["starting", "started"]


async def test_lost_attempt_is_over_before_the_next_begins(tmp_path: Path) -> None:
    told, runner = Told(), fake_runner(tmp_path)
    async with running(runner, told):
        runner.submit(isolated("A", "dies"))
        await told.until("A", "lost")
        assert list(engine_processes(told.all("A", "starting")[0])) == []
        runner.submit(isolated("A", "done", attempt=2))
        await told.until("A", "done")

    assert told.names("A") == ["starting", "started", "lost", "starting", "started", "done"]


async def test_what_a_killed_host_left_unfinished_is_removed_and_that_of_others_kept(tmp_path: Path) -> None:
    other = tmp_path / "results" / "B.parquet.__B.1"
    told, runner = Told(), fake_runner(tmp_path)
    async with running(runner, told):
        other.mkdir(parents=True)
        runner.submit(isolated("A", "leaves_unfinished"))
        await told.until("A", "lost")

    assert [path.name for path in (tmp_path / "results").iterdir()] == [other.name]
    assert list((tmp_path / "engine" / "default" / "runs").iterdir()) == []
    assert (tmp_path / "engine" / "default" / "isolated-engine.err").exists()


async def test_job_whose_engine_does_not_start_twice_fails_and_says_where_to_look(tmp_path: Path) -> None:
    told, runner = Told(), fake_runner(tmp_path, "dies")
    async with running(runner, told):
        runner.submit(isolated("A", "done"))
        failure = await told.until("A", "failed")

    assert failure.code == "engine-unavailable"
    assert str(tmp_path / "engine" / "default" / "isolated-engine.err") in failure.message


async def test_engine_counts_as_idle_for_its_archive_while_none_of_its_isolated_jobs_runs(
    tmp_path: Path,
) -> None:
    idle: list[Callable[[], float]] = []

    def noted(settings: EngineSettings, idle_seconds: Callable[[], float]) -> ClassArchive:
        idle.append(idle_seconds)
        return ClassArchive(settings, idle_seconds)

    command = fakes.fake_command("good", tmp_path)
    runner = SparkRunner(Spark(), tmp_path, "reports", is_shared=False, command=command, archive=noted)
    told = Told()
    async with running(runner, told):
        runner.submit(isolated("A", "waits"))
        await told.until("A", "started")
        busy = idle[0]()
        runner.cancel("A", 1, reason="cancelled")
        await until_running(runner, 0)
        while not idle[0]():
            await anyio.sleep(0.01)

    assert busy == 0.0


async def test_host_that_floods_its_job_with_log_lines_is_heard_to_the_end(tmp_path: Path) -> None:
    told, runner = Told(), fake_runner(tmp_path)
    async with running(runner, told):
        runner.submit(isolated("A", "floods"))
        runner.submit(isolated("B", "done"))
        await told.until("B", "done")
        await told.until("A", "done")

    assert told.all("A", "log")[-1] == "line 19999"


async def test_restart_of_the_engine_leaves_isolated_jobs_alone(tmp_path: Path) -> None:
    told, runner = Told(), fake_runner(tmp_path)
    async with running(runner, told):
        runner.submit(isolated("A", "waits"))
        await told.until("A", "started")
        runner.restart()
        runner.submit(isolated("B", "done"))
        await told.until("B", "done")
        runner.cancel("A", 1, reason="cancelled")
        await told.until("A", "cancelled")

    assert told.names("A") == ["starting", "started", "cancelled"]


async def test_restart_by_hand_has_the_next_job_find_out_whether_hosts_start_again(tmp_path: Path) -> None:
    told, runner = Told(), fake_runner(tmp_path, "broken")
    async with running(runner, told):
        runner.submit(isolated("A", "done"))
        await told.until("A", "failed")
        while runner.is_broken is None:
            await anyio.sleep(0.01)
        runner.restart()
        with anyio.fail_after(5):
            while runner.is_broken is not None:
                await anyio.sleep(0.01)


async def test_engine_is_failing_until_a_host_for_a_run_can_be_started(tmp_path: Path) -> None:
    told, runner = Told(), fake_runner(tmp_path, "dies", back_off=(0.01,))
    async with running(runner, told):
        before = runner.failing
        runner.submit(isolated("A", "done"))
        failure = await told.until("A", "failed")
        while runner.failing is None:
            await anyio.sleep(0.01)

    assert (before, runner.failing) == (None, failure.message)
