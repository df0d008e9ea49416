"""Instances whose PostgreSQL keeps its connections and says nothing: they end in time, each on its own."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
import pytest

from nebula.extras.postgres import PostgresJobs
from nebula.extras.postgres_database import Database
from nebula.rpc.jobs.model.limits import JobLimits
from nebula.rpc.jobs.registry.errors import RegistryLost
from nebula.rpc.jobs.registry.state_folder import StateFolder
from nebula.rpc.jobs.service.service import JobService
from tests.foreign.postgresql import PostgresServer
from tests.rpc.jobs.harness import House

# The first one waits for PostgreSQL to be installed.
pytestmark = [pytest.mark.anyio, pytest.mark.foreign, pytest.mark.timeout(300)]


@pytest.fixture
def house(tmp_path: Path, database: Database) -> House:
    house = House(tmp_path)
    house.options["database"] = PostgresJobs(database)
    return house


@pytest.fixture
def freeze(postgres: PostgresServer) -> Iterator[Callable[[], None]]:
    """Lets it hang until the end of the test, which has to come without it."""
    is_over, waited = threading.Event(), list[bool]()

    def watch() -> None:
        if not is_over.wait(15):
            waited.append(True)
            postgres.thaw()

    def freeze() -> None:
        postgres.freeze()
        watcher.start()

    watcher = threading.Thread(target=watch)
    yield freeze
    is_over.set()
    if watcher.is_alive():
        watcher.join()
    postgres.thaw()
    assert not waited, "the end came only when the database answered"


async def test_answer_to_a_sign_of_life_counts_before_what_comes_next_is_begun(house: House) -> None:
    async with house.living() as service:
        shared_queue, writer = service._shared_queue, service._actions.writer
        assert shared_queue is not None
        assert writer is not None
        may_go_on, seen = threading.Event(), list[float]()
        writer.post(lambda _registry: may_go_on.wait(10))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(shared_queue.beat)
            await anyio.wait_all_tasks_blocked()
            writer.deadline = math.inf
            writer.post(lambda _registry: None, lambda _none: seen.append(writer.deadline))
            may_go_on.set()

    assert seen[0] < math.inf


async def test_stop_does_not_wait_for_a_database_that_says_nothing(
    house: House, freeze: Callable[[], None]
) -> None:
    house.limits = JobLimits(lease=3.0)
    try:
        async with house.living() as service:
            assert service._shared_queue is not None
            # Now nothing is on its way, mostly: only the end itself has to be asked for.
            await service._shared_queue.beat()
            freeze()
    except* RegistryLost:
        # What was on its way, as a look at the queue, is waited for until the deadline.
        pass


async def test_start_is_given_up_although_the_database_says_nothing(
    tmp_path: Path, database: Database, freeze: Callable[[], None]
) -> None:
    freeze()
    with StateFolder.take("counting", lambda: "i", tmp_path) as folder:
        service = JobService("counting", state=folder, runners={}, database=PostgresJobs(database))
        with anyio.move_on_after(0.1) as scope:
            await service.run(lambda *_message: None)

    assert scope.cancelled_caught
