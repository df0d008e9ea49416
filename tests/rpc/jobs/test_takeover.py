"""Takeover of open jobs from the folders of instances that died."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from nebula.rpc.contract.job_runner import JobOutput
from nebula.rpc.jobs.model.limits import JobLimits
from nebula.rpc.jobs.model.record import LogLine
from nebula.rpc.jobs.model.states import JobState
from nebula.rpc.jobs.registry.registry import JobRegistry
from nebula.rpc.jobs.registry.sqlite import SqliteJobRegistry
from nebula.rpc.jobs.registry.state_folder import StateFolder
from nebula.rpc.jobs.registry.takeover import Orphans
from nebula.rpc.jobs.service.other_instances import OtherInstances
from nebula.rpc.jobs.service.service import JobService
from tests.own_logs import all_logs
from tests.rpc.jobs.harness import House, ask
from tests.rpc.jobs.registries import job

pytestmark = pytest.mark.anyio


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path, on_lost="rerun")


@pytest.fixture
def left(tmp_path: Path) -> Path:
    """The registry of an instance that died: one job waits, one ran, one was being cancelled, one is done."""
    folder = tmp_path / "counting" / "dead"
    folder.mkdir(parents=True)
    registry = SqliteJobRegistry(folder / "jobs.sqlite")
    for number, state in enumerate(
        (JobState.QUEUED, JobState.RUNNING, JobState.CANCELLING, JobState.DONE), start=1
    ):
        registry.insert(job(number, state=state, seq=3, dedupe=f"key {number}"))
    registry.close()
    return folder


def _ids(folder: Path) -> list[int]:
    registry = SqliteJobRegistry(folder / "jobs.sqlite")
    found = [int(record.id) for record in registry.open_jobs()]
    registry.close()
    return found


@asynccontextmanager
async def adopting(house: House, dead: Path) -> AsyncIterator[JobService]:
    """An instance that runs, after it has looked at what this folder has."""
    # Its own folder is a new one while another process has the other.
    lock = StateFolder.lock(dead)
    assert lock is not None
    async with house.living() as service:
        lock.close()
        await service.housekeeping.take_over()
        yield service


async def _adopt(house: House, dead: Path) -> dict[int, dict[str, Any]]:
    """The four jobs as a running instance reports them, after it has looked."""
    async with adopting(house, dead) as service:
        for number in (1, 2):
            await house.runner.next_task(number)
        return {number: await ask(service, "job.status", {"job": job(number).id}) for number in (1, 2, 3)}


async def test_jobs_of_a_dead_instance_go_on_by_their_verbs_rules_in_one_that_lives(
    house: House, left: Path
) -> None:
    found = await _adopt(house, left)

    assert {number: status["state"] for number, status in found.items()} == {
        1: "starting",
        2: "starting",
        3: "cancelled",
    }
    assert {task.job: task.attempt for task in house.runner.submitted} == {job(1).id: 1, job(2).id: 2}
    assert all(status["seq"] > 3 and status["via"] != "/queue/counting.dead" for status in found.values())
    assert _ids(left) == []


async def test_adopted_job_with_a_later_start_time_is_begun_then(house: House, left: Path) -> None:
    registry = SqliteJobRegistry(left / "jobs.sqlite")
    registry.forget(job(number).id for number in (1, 2, 3))
    registry.insert(job(5, not_before=house.time.seconds + 0.05))
    registry.close()
    async with adopting(house, left):
        house.time.seconds += 1.0
        # Nothing happens but that time passes.
        task = await house.runner.next_task()

    assert task.job == job(5).id


async def test_end_that_a_dead_instance_owes_is_delivered_by_a_living_one(house: House, left: Path) -> None:
    registry = SqliteJobRegistry(left / "jobs.sqlite")
    registry.insert(job(5, state=JobState.DONE, verb="gone", notify="/queue/mine", is_owed=True))
    registry.close()
    async with adopting(house, left) as service:
        await house.published.until_told("/queue/mine", "done")
        known = await ask(service, "job.show", {"job": job(5).id})

    assert [status.job for status in house.published.told("/queue/mine")] == [f"counting/{job(5).id}"]
    assert known["state"] == "done"


async def test_log_of_an_adopted_job_keeps_its_numbers(house: House, left: Path) -> None:
    registry = SqliteJobRegistry(left / "jobs.sqlite")
    for _round in range(3):
        registry.add_lines(job(1).id, [LogLine(1.0, "x")] * 600)
    before = registry.lines(job(1).id, 2)
    registry.close()
    async with adopting(house, left) as service:
        after = await ask(service, "job.log", {"job": job(1).id, "after": 1798})

    assert [line["number"] for line in after["lines"]] == [line.number for line in before] == [1799, 1800]


async def test_folder_that_another_process_has_is_left_alone(house: House, left: Path) -> None:
    lock = StateFolder.lock(left)
    assert lock is not None
    async with house.living() as service:
        await service.housekeeping.take_over()

        assert house.runner.submitted == []
    lock.close()
    assert _ids(left) == [1, 2, 3]


@pytest.mark.parametrize(
    ("declaration", "is_warned"), [({"exclusive": "up_to"}, True), ({"max_running": 1}, True), ({}, False)]
)
async def test_instance_warns_that_keys_hold_for_each_instance_alone(
    tmp_path: Path, declaration: dict[str, Any], is_warned: bool
) -> None:
    first, second = House(tmp_path, **declaration), House(tmp_path, "k", **declaration)
    with all_logs() as logs:
        async with first.living() as one:
            assert "jobs not excluded across instances" not in [line["event"] for line in logs]
            async with second.living():
                pass

    warnings = [line for line in logs if line["event"] == "jobs not excluded across instances"]
    assert len(warnings) == is_warned
    assert all((line["other_instances"], line["verbs"]) == ([one.instance], ["count"]) for line in warnings)


async def test_job_of_an_undeclared_verb_is_left_to_an_instance_that_declares_it(
    house: House, left: Path
) -> None:
    lock = StateFolder.lock(left)
    assert lock is not None
    house.verb_name = "other"
    async with house.living() as service:
        lock.close()
        await service.housekeeping.take_over()

    assert _ids(left) == [1, 2, 3]


async def test_folder_of_a_newer_version_is_left_alone(house: House, left: Path) -> None:
    lock = StateFolder.lock(left)
    assert lock is not None
    with sqlite3.connect(left / "jobs.sqlite") as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    async with house.living() as service:
        lock.close()
        await service.housekeeping.take_over()

        assert house.runner.submitted == []


async def test_folder_that_cannot_be_read_does_no_harm(house: House, left: Path) -> None:
    lock = StateFolder.lock(left)
    assert lock is not None
    async with house.living() as service:
        with sqlite3.connect(left / "jobs.sqlite") as db:
            db.execute("DROP TABLE lines")
        db.close()
        lock.close()
        await service.housekeeping.take_over()
        receipt = await house.accept(service)
        task = await house.runner.next_task()

    assert receipt["job"] == f"counting/{task.job}"


async def test_job_that_is_in_two_folders_after_a_crash_runs_once(
    house: House, left: Path, tmp_path: Path
) -> None:
    mine = tmp_path / "counting" / "mine"
    mine.mkdir()
    state = StateFolder.lock(mine)
    assert state is not None
    with state:
        orphans = Orphans.of(left, state, ["count"])
        assert orphans is not None
        registry = SqliteJobRegistry(mine / "jobs.sqlite")
        with registry.transaction():
            orphans.add_to(registry)
        # Killed here, before it removes them there.
        registry.close()
        orphans.close()
    assert (_ids(left), _ids(mine)) == ([1, 2, 3], [1, 2, 3])

    # The next process takes the first folder, which is that of the dead one, and then the other's jobs.
    house.runner.max_running = 4
    async with house.living() as service:
        assert service.instance == "dead"
        assert house.runner.submitted == []
        await service.housekeeping.take_over()
        for number in (1, 2):
            await house.runner.next_task(number)

    assert sorted(task.job for task in house.runner.submitted) == [job(1).id, job(2).id]
    assert _ids(mine) == []


async def test_same_request_made_again_during_the_takeover_does_not_block_it(
    house: House, left: Path
) -> None:
    lock = StateFolder.lock(left)
    assert lock is not None
    async with house.living() as service:

        def insert(registry: JobRegistry) -> None:
            registry.insert(job(9, state=JobState.DONE, dedupe="key 1"))

        await service.read(insert)
        lock.close()
        await service.housekeeping.take_over()
        task = await house.runner.next_task()

    assert task.job == job(1).id


async def test_instance_looks_for_such_folders_by_itself(house: House, left: Path) -> None:
    house.limits = JobLimits(adopt_every=0.01)
    lock = StateFolder.lock(left)
    assert lock is not None
    async with house.living():
        lock.close()
        for number in (1, 2):
            await house.runner.next_task(number)

    assert sorted(task.job for task in house.runner.submitted) == [job(1).id, job(2).id]


async def test_job_with_an_owed_notice_is_forgotten_with_its_result(house: House, left: Path) -> None:
    house.limits = JobLimits(keep_for=100.0)
    path = left / "results" / f"{job(5).id}.parquet"
    path.mkdir(parents=True)
    registry = SqliteJobRegistry(left / "jobs.sqlite")
    output = JobOutput(path=str(path))
    registry.insert(
        job(5, state=JobState.DONE, ended_at=1.0, notify="/queue/mine", is_owed=True, output=output)
    )
    registry.close()
    async with adopting(house, left) as service:
        await house.published.until_told("/queue/mine", "done")
        await service.housekeeping.prune()

        assert (await ask(service, "job.list", {"state": "done"}))["jobs"] == []
    assert not path.exists()


async def test_folder_that_cannot_be_looked_at_ends_no_start(tmp_path: Path) -> None:
    home = tmp_path / "counting"
    # Something that is not a file cannot be locked.
    (home / "odd" / "lock").mkdir(parents=True)
    for name in ("mine", "taken", "free"):
        (home / name).mkdir()
    mine, taken = StateFolder.lock(home / "mine"), StateFolder.lock(home / "taken")
    assert mine is not None
    assert taken is not None
    with mine, taken:
        running = await OtherInstances("counting", mine, is_shared=False).running()

    assert running == ["taken"]
