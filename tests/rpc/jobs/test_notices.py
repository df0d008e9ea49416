"""The end of a job arrives at the queue that its caller named, whichever side was away."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from nebula.errors import ConnectionLost, Rejected, ServerError
from nebula.rpc.contract.job_runner import JobOutput
from nebula.rpc.jobs.model.record import JobRecord
from nebula.rpc.jobs.model.states import JobState
from nebula.rpc.jobs.registry.job_filter import JobFilter
from nebula.rpc.jobs.registry.registry import JobRegistry
from nebula.rpc.jobs.registry.sqlite import SqliteJobRegistry
from nebula.rpc.jobs.service.notices import Notices
from nebula.rpc.jobs.service.service import JobService
from nebula.rpc.jobs.service.status_publisher import StatusPublisher, publish_nothing
from tests.rpc.jobs.harness import House, ask, request

pytestmark = pytest.mark.anyio

_MINE = "/queue/mine"
_ULID = "01JDB3QK6M0000000000000000"


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


class Fails:
    """Raises these, one at each delivery; then nothing. `is_over` when all were tried."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.is_over = anyio.Event()

    async def __call__(self, _destination: str) -> None:
        if not self.errors:
            return
        error = self.errors.pop(0)
        if not self.errors:
            self.is_over.set()
        raise error


async def _never(_destination: str) -> None:
    await anyio.sleep_forever()


async def _end_one(house: House, service: JobService, notify: str = _MINE) -> str:
    """A job that has ended, and is written as such."""
    job = str((await house.accept(service, neb_job_notify=notify))["job"])
    ulid = job.rpartition("/")[2]
    await house.runner.until(lambda: any(task.job == ulid for task in house.runner.submitted))
    house.runner.listener.on_done(ulid, 1, JobOutput(value=3))
    await house.published.until(job, "done")
    return job


async def _owed(service: JobService) -> list[JobRecord]:
    return await service.read(lambda registry: registry.owed_jobs(10))


async def _until_settled(service: JobService) -> None:
    while await _owed(service):
        await anyio.sleep(0)


async def test_end_is_delivered_to_a_queue_once_and_is_owed_no_more(house: House) -> None:
    async with house.living() as service:
        job = await _end_one(house, service)
        await _until_settled(service)
    async with house.living() as service:
        assert await _owed(service) == []
        again = house.published.told(_MINE)

    assert job.startswith("counting/")
    assert again == []


@pytest.mark.parametrize("error", [ConnectionLost("gone"), TimeoutError("no receipt")])
async def test_unconfirmed_end_is_sent_again_after_the_reconnect(house: House, error: Exception) -> None:
    house.on_deliver = fails = Fails(error)
    async with house.living() as service:
        await _end_one(house, service)
        await fails.is_over.wait()
        assert len(await _owed(service)) == 1
        service.republish()
        await house.published.until_told(_MINE, "done")
        await _until_settled(service)


async def test_statuses_are_sent_to_notify_once_the_request_is_answered(house: House) -> None:
    async with house.living() as service:
        asked = request("count", neb_job_notify=_MINE)
        job = str((await service.accept(asked, house.verb, ((), {})))["job"])
        task = await house.runner.next_task()
        house.runner.listener.on_started(task.job, 1)
        house.runner.listener.on_done(task.job, 1, JobOutput(value=3))
        await house.published.until(job, "done")
        await anyio.wait_all_tasks_blocked()
        before = house.published.told(_MINE)
        assert asked.after_reply is not None
        asked.after_reply()
        await _until_settled(service)

        assert (before, await _owed(service)) == ([], [])
        assert [one.state for one in house.published.told(_MINE)] == ["queued", "starting", "running", "done"]


async def test_statuses_of_a_request_that_was_given_up_are_sent(house: House) -> None:
    async with house.living() as service:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await service.accept(request("count", neb_job_notify=_MINE), house.verb, ((), {}))
        await house.published.until_told(_MINE, "starting")


async def test_request_that_comes_twice_at_a_time_holds_the_statuses_until_both_are_answered(
    house: House,
) -> None:
    async with house.living() as service:
        asked = [request("count", neb_job_notify=_MINE, neb_job_id=_ULID) for _ in range(2)]
        for one in asked:
            await service.accept(one, house.verb, ((), {}))
        told = []
        for one in asked:
            assert one.after_reply is not None
            one.after_reply()
            told.append(len(house.published.told(_MINE)))

    assert told[0] == 0 < told[1]


async def test_unconfirmed_end_is_sent_by_the_next_process(house: House) -> None:
    house.on_deliver = _never
    async with house.living() as service:
        job = await _end_one(house, service)
        assert house.published.told(_MINE)[-1].state != "done"
    house.on_deliver = None
    async with house.living() as service:
        await house.published.until_told(_MINE, "done")
        await _until_settled(service)
        told = house.published.told(_MINE)

    assert [(status.job, status.state) for status in told] == [(job, "done")]


async def test_end_whose_confirmation_was_lost_is_sent_twice_with_one_number(house: House) -> None:
    async def arrive_and_be_lost(destination: str) -> None:
        seen.append(destination)
        has_arrived.set()
        await anyio.sleep_forever()

    seen: list[str] = []
    has_arrived = anyio.Event()
    house.on_deliver = arrive_and_be_lost
    async with house.living() as service:
        await _end_one(house, service)
        await has_arrived.wait()
        before = (await _owed(service))[0].seq
    house.on_deliver = None
    async with house.living():
        await house.published.until_told(_MINE, "done")
        told = house.published.told(_MINE)

    assert seen == [_MINE]
    assert [status.seq for status in told] == [before]


async def test_jobs_that_notify_a_topic_are_not_owed(house: House) -> None:
    async with house.living() as service:
        await _end_one(house, service, "/topic/mine")
        assert await _owed(service) == []

    assert house.published.told("/topic/mine")[-1].state == "done"


@pytest.mark.parametrize(
    "errors",
    [
        [Rejected("rejected-unauthorised", _MINE)],
        [Rejected("rejected-invalid", _MINE)],
        [ServerError("not there")] * 3,
    ],
)
async def test_end_that_the_broker_does_not_take_is_given_up_and_the_log_says_so(
    house: House, errors: list[Exception]
) -> None:
    house.on_deliver = fails = Fails(*errors)
    async with house.living() as service:
        job = await _end_one(house, service)
        while not fails.is_over.is_set():
            service.republish()
            await anyio.sleep(0)
        await _until_settled(service)
        log = await ask(service, "job.log", {"job": job})

    assert log["lines"][-1]["text"].startswith("its end cannot be told: ")
    assert [status.state for status in house.published.told(_MINE)].count("done") == 0


async def test_cancelled_end_is_published_once_although_its_code_runs_a_little_longer(house: House) -> None:
    async with house.living() as service:
        job = str((await house.accept(service, neb_job_notify=_MINE))["job"])
        ulid = (await house.runner.next_task()).job
        house.runner.listener.on_started(ulid, 1)
        await ask(service, "job.cancel", {"job": job})
        house.runner.listener.on_cancelled(ulid, 1, slots_free=False)
        await house.published.until_told(_MINE, "cancelled")
        await _until_settled(service)
        house.runner.listener.on_slots_free(ulid, 1)

        assert await _owed(service) == []
        (kept,) = await service.read(lambda registry: registry.page(JobFilter(), 5))
    assert (kept.holder, kept.note) == (None, "")


async def test_queue_that_is_full_is_tried_again_and_holds_up_no_other(house: House) -> None:
    def full(until: anyio.Event) -> Callable[[str], Awaitable[None]]:
        async def deliver(destination: str) -> None:
            if destination == "/queue/full" and not until.is_set():
                raise Rejected("rejected-full", destination)

        return deliver

    house.on_deliver = full(has_room := anyio.Event())
    async with house.living() as service:
        await _end_one(house, service, "/queue/full")
        await _end_one(house, service)
        await house.published.until_told(_MINE, "done")
        assert [record.notify for record in await _owed(service)] == ["/queue/full"]
        has_room.set()
        service.republish()
        await house.published.until_told("/queue/full", "done")


async def test_queue_that_does_not_answer_holds_up_no_other(house: House) -> None:
    async def deliver(destination: str) -> None:
        if destination == "/queue/silent":
            await anyio.sleep_forever()

    house.on_deliver = deliver
    async with house.living() as service:
        await _end_one(house, service, "/queue/silent")
        for _ in range(2):
            await _end_one(house, service)
        await house.published.until_told(_MINE, "done", times=2)
        while len(await _owed(service)) > 1:
            await anyio.sleep(0)

        assert [record.notify for record in await _owed(service)] == ["/queue/silent"]


async def test_more_ends_than_a_page_are_sent_although_the_first_ones_are_stuck(tmp_path: Path) -> None:
    registry = SqliteJobRegistry(tmp_path / "jobs.sqlite")
    for number in range(250):
        notify = "/queue/full" if number < 150 else _MINE
        fields = {"state": JobState.DONE, "notify": notify, "is_owed": True}
        registry.insert(replace(JobRecord(f"{number:026}", "count", {}, 1.0), **fields))  # type: ignore[arg-type]
    tried: list[str] = []
    all_are = anyio.Event()

    async def do(work: Callable[[JobRegistry], Any]) -> Any:
        return work(registry)

    async def deliver(destination: str, _body: bytes, _headers: Mapping[str, str]) -> None:
        tried.append(destination)
        if len(tried) == 101:
            all_are.set()
        if destination == "/queue/full":
            raise Rejected("rejected-full", destination)

    await _tell(do, deliver, all_are)
    left = registry.owed_jobs(1000)
    registry.close()

    # The queue that is full is asked once, not a hundred and fifty times.
    assert sorted(tried) == ["/queue/full", *[_MINE] * 100]
    assert {record.notify for record in left} == {"/queue/full"}


class Counting(SqliteJobRegistry):
    """Counts how often the ends that are owed are read."""

    reads = 0

    def owed_jobs(self, *asked: Any, **more: Any) -> list[JobRecord]:
        self.reads += 1
        return super().owed_jobs(*asked, **more)


async def test_ends_that_have_piled_up_are_read_once_each(tmp_path: Path) -> None:
    registry = Counting(tmp_path / "jobs.sqlite")
    jobs = [JobRecord(f"{number:026}", "count", {}, 1.0, state=JobState.DONE) for number in range(600)]
    with registry.transaction():
        for number, job in enumerate(jobs):
            registry.insert(replace(job, notify=f"/queue/{number % 2}", is_owed=True))
    told: list[str] = []
    all_are = anyio.Event()

    async def do(work: Callable[[JobRegistry], Any]) -> Any:
        return work(registry)

    async def deliver(destination: str, body: bytes, _headers: Mapping[str, str]) -> None:
        told.append(f"{destination} {json.loads(body)['job'][-26:]}")
        if len(told) == len(jobs):
            all_are.set()

    await _tell(do, deliver, all_are)
    left = registry.owed_jobs(10)
    registry.close()

    assert left == []
    assert sorted(told, key=lambda one: one[:8]) == [
        f"/queue/{queue} {number:026}" for queue in (0, 1) for number in range(queue, 600, 2)
    ]
    # Three pages for each queue, and the one that says that there is no more.
    assert registry.reads == 2 * 4 + 1


async def _tell(do: Callable[..., Any], deliver: Callable[..., Any], all_are: anyio.Event) -> None:
    """Send what is owed until this is true, and no work is left."""
    notices = Notices(
        do, StatusPublisher("counting", "/queue/a", publish_nothing).notice, deliver, lambda: 2.0
    )
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(notices.run)
            await all_are.wait()
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
