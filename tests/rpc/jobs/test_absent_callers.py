"""A job is started today and its result read tomorrow, though caller, service and broker die in between."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from nebula.rpc.client.client import Client
from nebula.rpc.jobs.model.record import JobRecord
from nebula.rpc.jobs.registry.sqlite import peek
from tests.cli.programs import Program, environment, running
from tests.ports import free_port

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

Process = AbstractContextManager[tuple[Program, dict[str, Any]]]

# A program of the user's, which says the job's id and then waits for something else.
_CALLER = """
import sys, time
from nebula.sync import Client

with Client(sys.argv[1]) as client:
    job = client.start("tallies", "until_there", {"path": sys.argv[2]}, notify=sys.argv[3])
    print(job.id, flush=True)
    time.sleep(1000)
"""

# The same user's, tomorrow.
_TOMORROW = """
import sys
from nebula.sync import Client

with Client(sys.argv[1]) as client:
    print(client.job(sys.argv[2]).result(str))
"""


@dataclass
class House:
    """Broker, service and their state, which a test starts and kills one by one."""

    folder: Path
    url: str
    stack: ExitStack

    def broker(self) -> Program:
        port = self.url.rpartition(":")[2]
        words = ("broker", "--port", port, "--data", str(self.folder / "data"))
        return self._start(partial(running, *words))

    def service(self) -> Program:
        words = ("run", "tests.rpc.jobs.tallies:app", "--broker", self.url)
        return self._start(partial(running, *words, env={"NEBULA_STATE": str(self.folder / "state")}))

    def caller(self, notify: str) -> str:
        """Have a program start a job, and kill it: the job's id."""
        words = [sys.executable, "-c", _CALLER, self.url, str(self.file), notify]
        with subprocess.Popen(words, env=environment(), stdout=subprocess.PIPE, text=True) as program:
            assert program.stdout is not None
            job = program.stdout.readline().strip()
            program.kill()
        return job

    @property
    def file(self) -> Path:
        return self.folder / "file"

    def recorded(self, job: str) -> JobRecord | None:
        """A job as the service's disk has it."""
        (folder,) = (self.folder / "state" / "tallies").iterdir()
        return peek(folder, lambda registry: registry.find(job.rpartition("/")[2]))

    def _start(self, start: Callable[[], Process]) -> Program:
        process, _line = self.stack.enter_context(start())
        return process


@pytest.fixture
def anyio_backend() -> str:
    """Which loop this process has matters to none of the others."""
    return "asyncio"


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    with ExitStack() as stack:
        yield House(tmp_path, f"stomp://127.0.0.1:{free_port()}", stack)


def _kill(process: Program) -> None:
    process.kill()
    process.wait()


async def _until(house: House, job: str, is_so: Callable[[JobRecord], bool]) -> None:
    while (record := house.recorded(job)) is None or not is_so(record):
        await anyio.sleep(0.02)


async def _ends(url: str, queue: str) -> list[dict[str, Any]]:
    """The statuses in a queue, up to the first end of a job."""
    seen: list[dict[str, Any]] = []
    async with Client(url) as client, client.subscribe(queue) as messages:
        async for message in messages:
            seen.append(json.loads(message.body))
            if seen[-1]["state"] == "done":
                break
    return seen


async def test_result_is_there_tomorrow_although_everybody_died_today(house: House) -> None:
    with anyio.fail_after(60):
        broker, service = house.broker(), house.service()
        job = house.caller("/queue/ends")
        await _until(house, job, lambda record: record.state == "running")
        _kill(service)
        _kill(broker)
        broker, service = house.broker(), house.service()
        house.file.touch()
        await _until(house, job, lambda record: record.state == "done" and not record.is_owed)
        _kill(service)
        _kill(broker)
        broker, service = house.broker(), house.service()
        words = [sys.executable, "-c", _TOMORROW, house.url, job]
        program = await anyio.to_thread.run_sync(
            partial(subprocess.run, words, env=environment(), capture_output=True, text=True, check=False)
        )
        told = await _ends(house.url, "/queue/ends")

    assert program.stdout == "it is there\n", program.stderr
    assert (told[-1]["job"], told[-1]["state"]) == (job, "done")
    assert [status["seq"] for status in told] == sorted(status["seq"] for status in told)


@pytest.mark.parametrize("is_service_killed", [False, True])
async def test_end_during_an_outage_of_the_broker_is_delivered_afterwards(
    house: House, is_service_killed: bool
) -> None:
    with anyio.fail_after(60):
        broker, service = house.broker(), house.service()
        job = house.caller("/queue/ends")
        await _until(house, job, lambda record: record.state == "running")
        _kill(broker)
        house.file.touch()
        await _until(house, job, lambda record: record.state == "done")
        owed = house.recorded(job)
        if is_service_killed:
            _kill(service)
        house.broker()
        if is_service_killed:
            house.service()
        told = await _ends(house.url, "/queue/ends")

    assert owed is not None
    assert owed.is_owed
    assert (told[-1]["job"], told[-1]["state"], told[-1]["seq"]) == (job, "done", owed.seq)


async def test_log_is_followed_over_the_death_of_the_service(house: House) -> None:
    texts: list[str] = []
    has_begun = anyio.Event()

    async def follow(client: Client, job: str) -> None:
        async for line in client.job(job).log(follow=True):
            texts.append(line.text)
            has_begun.set()

    with anyio.fail_after(60):
        house.broker()
        service = house.service()
        async with Client(house.url) as client:
            handle = await client.start("tallies", "until_there", {"path": str(house.file)})
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(follow, client, handle.id)
                await has_begun.wait()
                _kill(service)
                service = house.service()
                house.file.touch()
            result = await client.job(handle.id).result()
            again = await client.job(handle.id).log()

    assert result == "it is there"
    # Nothing twice, nothing left out.
    assert texts == again
    assert [text for text in texts if "waits" in text] == ["attempt 1 waits", "attempt 2 waits"]
