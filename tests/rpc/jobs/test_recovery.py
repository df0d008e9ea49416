"""The start of a service with jobs from before, and the state that it leaves at its end."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from nebula.errors import ConnectionLost, Rejected
from nebula.rpc.contract.job_runner import JobFailure, JobOutput
from nebula.rpc.jobs.model.limits import JobLimits
from tests.own_logs import own_logs
from tests.rpc.jobs.harness import House, ask

pytestmark = pytest.mark.anyio


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


async def test_waiting_jobs_wait_on_in_their_order(house: House) -> None:
    house.runner.max_running = 1
    async with house.living() as service:
        receipts = [await house.accept(service, {"up_to": number}) for number in (1, 2, 3)]
        await house.runner.next_task()
        via = service.via
    async with house.living() as service:
        task = await house.runner.next_task()
        first = await ask(service, "job.status", {"job": receipts[0]["job"]})
        third = await ask(service, "job.status", {"job": receipts[2]["job"]})

        assert service.via == via
    assert task.parameters == {"up_to": 2}
    assert (first["state"], first["error"]["code"]) == ("lost", "engine-lost")
    assert (third["state"], third["position"]) == ("queued", 1)


async def test_loss_is_published_to_watchers(house: House) -> None:
    async with house.living() as service:
        receipt = await house.accept(service)
        task = await house.runner.next_task()
        house.runner.listener.on_started(task.job, 1)
        seen = await house.published.until(receipt["job"], "running")
    async with house.living() as service:
        end = await house.published.until(receipt["job"], "lost")

    assert end.seq > seen.seq


async def test_job_that_may_run_again_does_after_a_restart(house: House) -> None:
    house.declaration["on_lost"] = "rerun"
    async with house.living() as service:
        receipt = await house.accept(service, {"up_to": 9})
        task = await house.runner.next_task()
        house.runner.listener.on_started(task.job, 1)
        await house.published.until(receipt["job"], "running")
    async with house.living() as service:
        again = await house.runner.next_task()
        house.runner.listener.on_started(again.job, 2)
        house.runner.listener.on_done(again.job, 2, JobOutput(value=9))
        await house.published.until(receipt["job"], "done")

    assert (again.job, again.attempt, again.parameters) == (task.job, 2, {"up_to": 9})


async def test_job_that_was_being_cancelled_is_cancelled_after_a_restart(house: House) -> None:
    house.declaration["on_lost"] = "rerun"
    async with house.living() as service:
        receipt = await house.accept(service)
        await house.runner.next_task()
        await ask(service, "job.cancel", {"job": receipt["job"]})
    async with house.living() as service:
        await house.published.until(receipt["job"], "cancelled")

        assert house.runner.submitted == []


async def test_ended_jobs_are_left_as_they_are(house: House) -> None:
    async with house.living() as service:
        receipt = await house.accept(service)
        task = await house.runner.next_task()
        house.runner.listener.on_started(task.job, 1)
        house.runner.listener.on_done(task.job, 1, JobOutput(value=[1, 2]))
        await house.published.until(receipt["job"], "done")
    async with house.living() as service:
        result = await ask(service, "job.result", {"job": receipt["job"]})

        assert house.published.messages == []
    assert result == {"value": [1, 2]}


async def test_end_of_the_service_loses_what_its_runner_had_and_begins_nothing(house: House) -> None:
    house.runner.max_running = 1
    async with house.living() as service:
        running, waiting = await house.accept(service), await house.accept(service)
        task = await house.runner.next_task()
        runner = house.runner
        runner.on_stop = lambda: runner.listener.on_lost(task.job, 1, "the service stopped")

    assert len(runner.submitted) == 1
    assert house.published.states(running["job"]) == ["queued", "starting", "lost"]
    assert house.published.states(waiting["job"]) == ["queued"]


async def test_job_to_be_run_again_waits_for_the_next_start(house: House) -> None:
    house.declaration["on_lost"] = "rerun"
    async with house.living() as service:
        receipt = await house.accept(service)
        task = await house.runner.next_task()
        runner = house.runner
        runner.on_stop = lambda: runner.listener.on_lost(task.job, 1, "the service stopped")
    assert len(runner.submitted) == 1
    assert house.published.states(receipt["job"]) == ["queued", "starting", "queued"]

    async with house.living():
        again = await house.runner.next_task()

    assert (again.job, again.attempt) == (task.job, 2)


async def test_waiting_jobs_are_published_again_after_a_restart(house: House) -> None:
    house.runner.max_running = 0
    async with house.living() as service:
        receipt = await house.accept(service)
    async with house.living():
        pass

    (status,) = house.published.statuses(receipt["job"])
    assert (status.state, status.seq, status.position) == ("queued", 1, 1)


async def test_old_jobs_are_forgotten_with_results_of_our_own_making(house: House, tmp_path: Path) -> None:
    house.limits = JobLimits(keep_for=100.0)
    elsewhere = tmp_path / "mine.parquet"
    elsewhere.write_text("the user's")
    async with house.living() as service:
        folder = house.registry_file.parent / "results"
        ended, made = [], []
        for number in (1, 2):
            ended.append((await house.accept(service))["job"])
            task = await house.runner.next_task(number)
            made.append(folder / f"{task.job}.parquet")
            made[-1].mkdir(parents=True)
            house.runner.listener.on_started(task.job, 1)
            path = made[0] if number == 1 else elsewhere
            house.runner.listener.on_done(task.job, 1, JobOutput(path=str(path)))
            await house.published.until(task.job, "done")
    house.time.seconds += 101.0
    async with house.living() as service:
        listed = await ask(service, "job.list")

        assert sorted(house.published.deleted) == sorted(map(house.published.destination, ended))

    assert listed["jobs"] == []
    assert [path.exists() for path in (*made, elsewhere)] == [False, True, True]


async def test_unconfirmed_end_outlives_the_limit_on_jobs_and_is_given_up_with_a_warning(
    house: House,
) -> None:
    async def be_full(destination: str) -> None:
        raise Rejected("rejected-full", destination)

    house.limits, house.on_deliver = JobLimits(keep_for=100.0, keep_jobs=1), be_full
    async with house.living() as service:
        jobs = [(await house.accept(service, neb_job_notify="/queue/full"))["job"] for _ in range(2)]
        for number, job in enumerate(jobs, start=1):
            task = await house.runner.next_task(number)
            house.runner.listener.on_failed(task.job, 1, JobFailure("data", "bad"))
            await house.published.until(job, "failed")
        await service.housekeeping.prune()
        assert [one["job"] for one in (await ask(service, "job.list"))["jobs"]] == jobs[::-1]

        house.time.seconds += 101.0
        with own_logs() as logs:
            await service.housekeeping.prune()
        listed = await ask(service, "job.list")

    assert listed["jobs"] == []
    assert [(line["event"], line["log_level"], line["jobs"]) for line in logs] == [
        ("job ends given up", "warning", 2)
    ]


async def test_job_whose_status_cannot_be_deleted_is_remembered(house: House) -> None:
    house.limits = JobLimits(keep_for=100.0)

    def be_away(destination: str, body: bytes, headers: Mapping[str, str]) -> None:
        raise ConnectionLost("gone")

    async with house.living() as service:
        receipt = await house.accept(service)
        task = await house.runner.next_task()
        house.runner.listener.on_failed(task.job, 1, JobFailure("data", "bad"))
        await house.published.until(receipt["job"], "failed")
        house.time.seconds += 101.0
        house.published.then = be_away
        await service.housekeeping.prune()
        kept = await ask(service, "job.status", {"job": receipt["job"]})
        house.published.then = lambda _destination, _body, _headers: None
        await service.housekeeping.prune()
        listed = await ask(service, "job.list")

    assert kept["state"] == "failed"
    assert listed["jobs"] == []
