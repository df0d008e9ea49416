"""Service processes that share a queue of jobs in PostgreSQL, and are killed and stopped."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from nebula.errors import JobEnded
from nebula.rpc.client.client import Client
from nebula.rpc.jobs.handle import JobHandle
from tests.cli.programs import Program, running
from tests.foreign.postgresql import PASSWORD, PostgresServer
from tests.rpc.conftest import RunningBroker

# The first one waits for PostgreSQL to be installed.
pytestmark = [pytest.mark.anyio, pytest.mark.foreign, pytest.mark.slow, pytest.mark.timeout(300)]

Start = Callable[..., AbstractContextManager[tuple[Program, dict[str, Any]]]]


@pytest.fixture
def anyio_backend() -> str:
    """Whose loop this side has says nothing of the processes."""
    return "asyncio"


@pytest.fixture
def broker_url(mortal_broker: RunningBroker) -> str:
    """A broker of ours, and a fresh one: what an instance left in a queue is no other test's."""
    return mortal_broker.url


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    path = tmp_path / "ledger"
    path.touch()
    return path


@pytest.fixture
def start(postgres: PostgresServer, broker_url: str, tmp_path: Path, ledger: Path) -> Start:
    """Starts an instance with a folder of its own, as on a machine of its own."""
    shared = {"NEBULA_JOBS": postgres.new_database(), "TALLIES_LEDGER": str(ledger)}

    def make(name: str, lease: float = 3.0) -> AbstractContextManager[tuple[Program, dict[str, Any]]]:
        words = ["run", "tests.foreign.tallies:app", "--broker", broker_url]
        own = {"NEBULA_STATE": str(tmp_path / name), "TALLIES_LEASE": str(lease)}
        return running(*words, env={**shared, **own})

    return make


async def _until_running(handle: JobHandle) -> None:
    async for status in handle.watch():
        if status.state == "running":
            return


def _runs(ledger: Path) -> list[str]:
    """What was written of runs, without the jobs' ids."""
    return [line.partition(" ")[2] for line in ledger.read_text().splitlines()]


async def _end(process: Program) -> int:
    return await anyio.to_thread.run_sync(process.wait)


async def test_job_of_a_killed_instance_is_run_again_by_another_that_was_there(
    client: Client, start: Start, ledger: Path
) -> None:
    with anyio.fail_after(60), start("a") as (first, _):
        handle = await client.start("tallies", "hold_once")
        await _until_running(handle)
        with start("b"):
            first.kill()
            await _end(first)

            assert await handle.result(int) == 2
    assert _runs(ledger) == ["1 begun", "2 begun", "2 ended"]


async def test_job_that_must_not_run_twice_is_lost_with_its_instance(
    client: Client, start: Start, ledger: Path
) -> None:
    with anyio.fail_after(60), start("a") as (first, _):
        handle = await client.start("tallies", "hold")
        await _until_running(handle)
        with start("b"):
            first.kill()
            await _end(first)
            with pytest.raises(JobEnded) as caught:
                await handle.result()

    assert (caught.value.state, caught.value.code) == ("lost", "engine-lost")
    assert _runs(ledger) == ["1 begun"]


async def test_instance_that_stood_still_too_long_ends_and_what_it_says_counts_no_more(
    client: Client, start: Start, ledger: Path
) -> None:
    with anyio.fail_after(60), start("a") as (first, _):
        handle = await client.start("tallies", "hold_once")
        await _until_running(handle)
        with start("b"):
            first.send_signal(signal.SIGSTOP)
            value = await handle.result(int)
            first.send_signal(signal.SIGCONT)
            code = await _end(first)
            state = (await handle.status()).state
    assert (value, state) == (2, "done")
    assert code != 0
    assert _runs(ledger) == ["1 begun", "2 begun", "2 ended"]


async def test_each_job_is_done_once_and_keys_hold_while_instances_are_killed(
    client: Client, start: Start, ledger: Path
) -> None:
    with anyio.fail_after(120), start("c"):
        handles = []
        for name in "ab":
            with start(name) as (process, _):
                handles += [
                    await client.start("tallies", "write", {"target": str(number % 3)})
                    for number in range(12)
                ]
                process.kill()
                await _end(process)
        values = [await handle.result(str) for handle in handles]

    assert values == [str(number % 3) for number in range(12)] * 2
    lines = [line.split() for line in ledger.read_text().splitlines()]
    ends = Counter(job for job, _, what, _ in lines if what == "ended")
    runs = Counter((job, attempt) for job, attempt, what, _ in lines if what == "begun")
    assert set(ends) == {handle.id.partition("/")[2] for handle in handles}
    # A run may end and its instance be killed before that is written; then it is run again, as its verb says.
    assert max(runs.values()) == 1
    _check_one_at_a_time(lines)
    assert all(count <= int(max(a for j, a in runs if j == job)) for job, count in ends.items())


def _check_one_at_a_time(lines: Sequence[Sequence[str]]) -> None:
    latest: dict[str, tuple[str, str]] = {}
    for job, attempt, what, target in lines:
        if what == "begun":
            latest[target] = job, attempt
        else:
            assert latest[target] == (job, attempt), "it went on while another one wrote the same target"


async def test_each_job_is_done_once_while_the_database_is_killed_and_comes_back(
    postgres: PostgresServer, client: Client, start: Start, ledger: Path
) -> None:
    # Longer than all of this: nobody is given up.
    with anyio.fail_after(120), start("a", lease=300.0), start("b", lease=300.0):
        handles = []
        for _ in range(3):
            handles += [
                await client.start("tallies", "write", {"target": str(number % 3)}) for number in range(12)
            ]
            postgres.kill()
            await anyio.to_thread.run_sync(postgres.start)
        values = [await handle.result(str) for handle in handles]

    assert values == [str(number % 3) for number in range(12)] * 3
    lines = [line.split() for line in ledger.read_text().splitlines()]
    jobs = [handle.id.partition("/")[2] for handle in handles]
    assert sorted((job, attempt) for job, attempt, what, _ in lines if what == "begun") == sorted(
        (job, "1") for job in jobs
    )
    _check_one_at_a_time(lines)


async def test_password_is_in_nothing_that_an_instance_says(
    postgres: PostgresServer, client: Client, start: Start
) -> None:
    with anyio.fail_after(60):
        with start("a") as (process, _):
            postgres.kill()
            try:
                await _end(process)
            finally:
                await anyio.to_thread.run_sync(postgres.start)
            said = await anyio.to_thread.run_sync(partial(process.communicate, timeout=10))

    text = "".join(part or "" for part in said)
    assert "does not answer" in text
    assert PASSWORD not in text
    assert "open%2Fsesame" not in text
