"""Jobs of a real service process that is killed, over a real broker."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from nebula.errors import JobEnded
from nebula.rpc.client.client import Client
from nebula.rpc.jobs.handle import JobHandle
from tests.cli.programs import Program, nebula, running

pytestmark = pytest.mark.anyio

Process = AbstractContextManager[tuple[Program, dict[str, Any]]]


@pytest.fixture
def words(broker_url: str) -> list[str]:
    """The command that runs the service."""
    return ["run", "tests.rpc.jobs.tallies:app", "--broker", broker_url]


@pytest.fixture
def state(tmp_path: Path) -> dict[str, str]:
    """Its environment: each process finds what the last one left."""
    return {"NEBULA_STATE": str(tmp_path)}


@pytest.fixture
def service(words: list[str], state: dict[str, str]) -> Callable[[], Process]:
    """Starts the service in a process of its own."""
    return partial(running, *words, env=state)


@asynccontextmanager
async def started(client: Client, start: Callable[[], Process], verb: str) -> AsyncIterator[Any]:
    """A job that runs, and the process that runs it."""
    with anyio.fail_after(30):
        with start() as (process, _):
            handle = await client.start("tallies", verb)
            async for status in handle.watch():
                if status.state == "running":
                    break
            yield handle, process


async def _kill(process: Program) -> None:
    process.kill()
    await anyio.to_thread.run_sync(process.wait)


async def _watch(handle: JobHandle, has_begun: anyio.Event, states: list[str]) -> None:
    async for status in handle.watch():
        has_begun.set()
        states.append(status.state)


async def test_watcher_of_a_job_whose_service_is_killed_sees_its_loss(
    client: Client, service: Callable[[], Process]
) -> None:
    async with started(client, service, "hold") as (handle, process):
        states: list[str] = []
        before = await handle.status()
        with ExitStack() as stack:
            async with anyio.create_task_group() as tasks:
                has_begun = anyio.Event()
                tasks.start_soon(_watch, handle, has_begun, states)
                await has_begun.wait()
                await _kill(process)
                stack.enter_context(service())
            after = await client.job(handle.id).status()
            with pytest.raises(JobEnded) as caught:
                await handle.result()

    assert states == ["running", "lost"]
    assert (caught.value.state, caught.value.code) == ("lost", "engine-lost")
    assert after.via == before.via


async def test_job_that_may_run_again_ends_well_after_a_kill(
    client: Client, service: Callable[[], Process]
) -> None:
    async with started(client, service, "hold_once") as (handle, process):
        await _kill(process)
        with service():
            assert await handle.result(int) == 2


async def test_job_that_kills_its_service_is_lost_after_its_retries(
    client: Client, service: Callable[[], Process], words: list[str], state: dict[str, str]
) -> None:
    with anyio.fail_after(30):
        with service() as (process, _):
            handle = await client.start("tallies", "crash")
            first = await anyio.to_thread.run_sync(process.wait)
        # It may not even come to say that it serves.
        second = await anyio.to_thread.run_sync(partial(nebula, *words, env=state))
        with service():
            end = await client.job(handle.id).wait()

    assert (first, second.returncode, end.state) == (9, 9, "lost")


async def test_open_jobs_of_a_killed_process_are_adopted_by_one_that_was_there(
    client: Client, service: Callable[[], Process]
) -> None:
    async with started(client, service, "hold_once") as (again, process):
        lost = await client.start("tallies", "hold")
        async for status in lost.watch():
            if status.state == "running":
                break
        before = await again.status()
        with service():
            await _kill(process)

            assert await again.result(int) == 2
            with pytest.raises(JobEnded) as caught:
                await client.job(lost.id).result()
            after = await client.job(again.id).status()

    assert (caught.value.state, caught.value.code) == ("lost", "engine-lost")
    assert after.via != before.via
