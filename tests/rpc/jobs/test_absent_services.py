"""Handles whose service is away for a while, or whose instance is for good."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from nebula.errors import CallTimeout, NebulaError, NoResponder, RemoteError
from nebula.rpc.jobs.handle import JobHandle
from tests.rpc.jobs.handles import FakeClient, Watched, watching
from tests.rpc.jobs.harness import House

pytestmark = pytest.mark.anyio

_AWAY = [
    NoResponder("rejected-no-consumer", "/queue/counting"),
    CallTimeout("no answer"),
    RemoteError("busy", "the service is stopping, try again", retryable=True),
]


@pytest.mark.parametrize("error", _AWAY)
async def test_watch_goes_on_while_the_service_is_away(tmp_path: Path, error: NebulaError) -> None:
    async with watching(tmp_path, ask_after=0.01) as job:
        job.client.stomp.is_deaf = True
        seen = []
        async for status in job.handle.watch():
            seen.append(status.state)
            if len(seen) == 1:
                asked = len(job.client.asked)
                job.client.away = dict.fromkeys(job.client.queues, error)
                job.client.at["asking"] = partial(_come_back, job, asked + 4)

    assert seen == ["running", "done"]


async def _come_back(job: Watched, asked: int) -> None:
    """Bring the service back after a number of requests; the job ends in between."""
    if len(job.client.asked) < asked:
        job.client.at["asking"] = partial(_come_back, job, asked)
    else:
        job.client.away = {}
        await job.end()


@pytest.mark.parametrize("error", _AWAY)
async def test_log_is_followed_over_the_absence_of_the_service_with_nothing_twice(
    tmp_path: Path, error: NebulaError
) -> None:
    async with watching(tmp_path, ask_after=0.01) as job:
        listener, texts = job.house.runner.listener, []
        listener.on_log(*job.key, "one")
        async for line in job.handle.log(follow=True):
            texts.append((line.number, line.text))
            if line.text == "one":
                listener.on_log(*job.key, "two")
                job.client.away = dict.fromkeys(job.client.queues, error)
                job.client.at["asking"] = partial(_come_back, job, len(job.client.asked) + 4)

    assert texts == [(1, "one"), (2, "two")]


@pytest.mark.parametrize("error", _AWAY)
async def test_service_that_is_away_at_first_is_reported(tmp_path: Path, error: NebulaError) -> None:
    async with watching(tmp_path) as job:
        job.client.away = dict.fromkeys(job.client.queues, error)
        with pytest.raises(type(error)):
            await job.handle.result()
        with pytest.raises(type(error)):
            await anext(job.handle.log(follow=True))


@pytest.mark.parametrize("error", _AWAY)
async def test_result_is_had_although_the_service_goes_between_the_end_and_the_question(
    tmp_path: Path, error: NebulaError
) -> None:
    async with watching(tmp_path, ask_after=0.01) as job:
        await job.end()

        async def be_away() -> None:
            job.client.away = dict.fromkeys(job.client.queues, error)
            job.client.at["asking"] = partial(_be_back, job, len(job.client.asked) + 3)

        job.client.at["answered"] = be_away

        assert await job.handle.result() == [1, 2, 3]
        assert job.client.asked.count("/queue/counting job.result") == 4


async def test_result_is_had_although_the_service_stops_while_it_is_waited_for(tmp_path: Path) -> None:
    async with watching(tmp_path) as job:
        handle = JobHandle(job.client, job.handle.id, via=job.service.via, ask_after=0.01)

        async def be_away() -> None:
            job.client.away = dict.fromkeys(job.client.queues, _AWAY[0])
            job.client.at["asking"] = partial(_be_back, job, len(job.client.asked) + 5)
            await job.end()

        job.service.queries.waiters.dismiss()
        job.client.at["answered"] = be_away

        assert await handle.result() == [1, 2, 3]


async def test_result_is_had_although_the_service_dies_while_it_is_waited_for(tmp_path: Path) -> None:
    async with watching(tmp_path) as job:
        handle = JobHandle(job.client, job.handle.id, via=job.service.via, ask_after=0.01)
        job.client.away = dict.fromkeys(job.client.queues, CallTimeout("no answer in time"))

        async def be_gone() -> None:
            job.client.away = dict.fromkeys(job.client.queues, _AWAY[0])
            job.client.at["asking"] = partial(_be_back, job, len(job.client.asked) + 5)
            await job.end()

        job.client.at["subscribing"] = be_gone

        assert await handle.result() == [1, 2, 3]


async def _be_back(job: Watched, asked: int) -> None:
    if len(job.client.asked) < asked:
        job.client.at["asking"] = partial(_be_back, job, asked)
    else:
        job.client.away = {}


async def test_job_that_is_forgotten_while_it_is_watched_raises_not_found(tmp_path: Path) -> None:
    async with watching(tmp_path, ask_after=0.01) as job:
        job.client.stomp.is_deaf = True
        gone = RemoteError("not-found", "counting knows no such job")
        watch = job.handle.watch()
        await anext(watch)
        job.client.away = dict.fromkeys(job.client.queues, gone)
        with pytest.raises(RemoteError, match="knows no such job"):
            await anext(watch)
        await watch.aclose()


async def test_others_are_asked_for_a_job_whose_instance_is_away(tmp_path: Path) -> None:
    async with watching(tmp_path) as job:
        job.client.away["/queue/counting.gone"] = NoResponder("rejected-no-consumer", "/queue/counting.gone")
        handle = JobHandle(job.client, job.handle.id, via="/queue/counting.gone")

        assert (await handle.status()).state == "running"
        await handle.status()

    assert job.client.asked == [
        "/queue/counting.gone job.status",
        "/queue/counting job.status",
        "/queue/counting job.status",
    ]


async def test_others_are_asked_next_where_only_time_tells_that_an_instance_is_away(tmp_path: Path) -> None:
    async with watching(tmp_path) as job:
        job.client.away["/queue/counting.gone"] = CallTimeout("no answer")
        handle = JobHandle(job.client, job.handle.id, via="/queue/counting.gone")
        with pytest.raises(CallTimeout):
            await handle.status()

        assert (await handle.status()).state == "running"


class FolderOfADeadOne(FakeClient):
    """The others know whose folder the job is in, and that one is gone."""

    async def call_queue(
        self, queue: str, verb: str, parameters: Any, *, timeout: float | None = None
    ) -> Any:
        self.asked.append(queue)
        if queue == "/queue/counting.gone":
            raise NoResponder("rejected-no-consumer", queue)
        raise RemoteError("elsewhere", "another has it", details={"via": "/queue/counting.gone"})


@pytest.mark.parametrize("via", [None, "/queue/counting.gone"])
async def test_job_that_stays_with_an_instance_that_is_gone_is_given_up_after_a_while(
    tmp_path: Path, via: str | None
) -> None:
    async with House(tmp_path).living() as service:
        client = FolderOfADeadOne(service)
        handle = JobHandle(client, "counting/" + "0" * 26, via=via, ask_after=0.01)
        with anyio.fail_after(5), pytest.raises(NoResponder, match=r"counting\.gone"):
            await handle.result()

    assert client.asked.count("/queue/counting") > 1
