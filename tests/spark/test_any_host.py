"""What holds of every engine host, whether jobs share one or have one each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from nebula.rpc.contract.job_runner import JobFailure, JobTask
from nebula.spark.lines import MAX_LINE_BYTES
from nebula.spark.processes import engine_processes
from tests.spark.fakes import fake_runner
from tests.spark.told import Told, isolated, running, task

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.parametrize("one", [task, isolated], ids=["shared", "isolated"]),
]

One = Callable[..., JobTask]


async def test_silent_host_is_killed_and_its_job_lost(tmp_path: Path, one: One) -> None:
    told, runner = Told(), fake_runner(tmp_path, is_shared=one is task)
    async with running(runner, told):
        runner.submit(one("A", "hangs"))
        await told.until("A", "started")
        # Not before: the host of a busy machine is silent for longer while it starts.
        object.__setattr__(runner._settings, "silence_timeout", 0.2)
        reason = await told.until("A", "lost")

    assert reason == "the engine host was silent for 0.2 s"


@pytest.mark.parametrize(
    ("mode", "trace"),
    [
        pytest.param("mended", "tried", id="whatever it was"),
        pytest.param("with archive dies", "died", id="by its archive, which it has no more"),
    ],
)
async def test_start_that_fails_is_tried_again_and_takes_the_waiting_job(
    tmp_path: Path, one: One, mode: str, trace: str
) -> None:
    told, runner = Told(), fake_runner(tmp_path, mode, is_shared=one is task)
    async with running(runner, told):
        runner.submit(one("A", "done"))
        await told.until("A", "done")

    assert (tmp_path / trace).exists()
    assert told.names("A") == ["starting", "started", "done"]


async def test_engine_that_says_why_it_cannot_start_fails_the_job_with_that_and_is_broken_at_once(
    tmp_path: Path, one: One
) -> None:
    told, runner = Told(), fake_runner(tmp_path, "broken", is_shared=one is task)
    async with running(runner, told):
        runner.submit(one("A", "done"))
        failure = await told.until("A", "failed")

        while runner.is_broken is None:
            await anyio.sleep(0.01)
        why = runner.is_broken
        runner.submit(one("B", "done"))
        await told.until("B", "failed")

    assert failure == JobFailure("engine-unavailable", "There is no Java")
    assert told.names("A") == ["failed"]
    # The next request need not be accepted to find that out.
    assert why == "There is no Java"


@pytest.mark.parametrize("odd", [float("inf"), "x" * MAX_LINE_BYTES], ids=["infinity", "too long"])
async def test_job_whose_parameters_cannot_be_said_fails_alone(tmp_path: Path, one: One, odd: Any) -> None:
    told, runner = Told(), fake_runner(tmp_path, is_shared=one is task)
    async with running(runner, told):
        runner.submit(one("A", "done", share=odd))
        failure = await told.until("A", "failed")
        runner.submit(one("B", "done"))
        await told.until("B", "done")

    assert failure.code == "bad-parameters"
    assert failure.message.startswith("the parameters cannot be given to the engine: ")
    assert told.names("A") == ["starting", "failed"]


async def test_stopping_tells_open_jobs_as_lost_and_leaves_no_process(tmp_path: Path, one: One) -> None:
    told, runner = Told(), fake_runner(tmp_path, is_shared=one is task)
    async with running(runner, told):
        runner.submit(one("A", "waits"))
        await told.until("A", "started")

    assert told.all("A", "lost") == ["the service stopped"]
    assert list(engine_processes(told.all("A", "starting")[0])) == []
    assert runner.status()["state"] == "stopped"
