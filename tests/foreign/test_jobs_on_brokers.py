"""Jobs over RabbitMQ and ActiveMQ: their states go to `/topic/…`, for these have no last values."""

from __future__ import annotations

import json
import threading
from collections.abc import AsyncGenerator
from pathlib import Path
from uuid import uuid4

import anyio
import pytest

from nebula.errors import JobEnded, JobError
from nebula.rpc.client.client import Client
from nebula.rpc.jobs import Job, JobState, JobStatus
from nebula.rpc.service.responder import Responder
from tests.foreign.suites import suites_of
from tests.rpc.conftest import Serving
from tests.rpc.jobs import test_started_jobs

# The first one waits for the broker to be installed.
pytestmark = [pytest.mark.anyio, pytest.mark.foreign, pytest.mark.timeout(300)]

_DEADLINE = 20.0

globals().update(suites_of(test_started_jobs))


@pytest.fixture(scope="session", params=["rabbitmq", "activemq"])
def broker_url(request: pytest.FixtureRequest) -> str:
    """A foreign broker, in place of ours."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url


class _House:
    """A service whose job `count` goes from half to end when it is let."""

    def __init__(self, state: Path) -> None:
        self.gate = threading.Event()
        self.app = Responder(f"counting-{uuid4().hex}", state=state)

        @self.app.job(engine=None)
        def count(ctx: Job, up_to: int) -> int:
            ctx.progress(1, 2, "half")
            while not self.gate.wait(0.01):
                ctx.raise_if_cancelled()
            if up_to < 0:
                raise JobError("cannot count down", code="backwards")
            return up_to

        self.count = count


@pytest.fixture
async def house(serving: Serving, tmp_path: Path) -> AsyncGenerator[_House]:
    one = _House(tmp_path)
    async with serving(one.app):
        try:
            yield one
        finally:
            # A thread that waits for it cannot be cancelled.
            one.gate.set()


async def test_watched_job_goes_from_its_early_answer_to_its_result(client: Client, house: _House) -> None:
    with anyio.fail_after(_DEADLINE):
        job = await client.start(house.app.name, "count", {"up_to": 3})
        seen = []
        async for status in job.watch():
            seen.append(status)
            if status.note == "half":
                house.gate.set()

        assert seen[-1].state == JobState.DONE
        assert [status.seq for status in seen] == sorted({status.seq for status in seen})
        assert await job.result() == 3


async def test_watcher_that_comes_late_sees_the_end(client: Client, house: _House) -> None:
    house.gate.set()
    with anyio.fail_after(_DEADLINE):
        job = await client.start(house.app.name, "count", {"up_to": 3})
        await job.wait()

        assert [status.state async for status in job.watch()] == [JobState.DONE]


async def test_cancelled_job_ends_as_cancelled(client: Client, house: _House) -> None:
    with anyio.fail_after(_DEADLINE):
        job = await client.start(house.app.name, "count", {"up_to": 3})
        async for status in job.watch():
            if status.note == "half":
                await job.cancel()

        assert status.state == JobState.CANCELLED


async def test_failed_job_is_told_with_its_code(client: Client, house: _House) -> None:
    house.gate.set()
    with anyio.fail_after(_DEADLINE):
        job = await client.start(house.app.name, "count", {"up_to": -1})
        with pytest.raises(JobEnded, match="cannot count down") as caught:
            await job.result()

        assert caught.value.code == "backwards"


async def test_same_dedupe_text_gets_the_same_job(client: Client, house: _House) -> None:
    with anyio.fail_after(_DEADLINE):
        first = await client.start(house.app.name, "count", {"up_to": 3}, dedupe="today")
        second = await client.start(house.app.name, "count", {"up_to": 3}, dedupe="today")

        assert (await first.status()).job == (await second.status()).job


async def test_end_waits_in_the_queue_that_the_caller_named(client: Client, house: _House) -> None:
    house.gate.set()
    ends = f"/queue/ends-{uuid4().hex}"
    with anyio.fail_after(_DEADLINE):
        job = await client.start(house.app.name, "count", {"up_to": 3}, notify=ends)
        await job.wait()
        async with client.subscribe(ends) as messages:
            async for message in messages:
                status = JobStatus.from_json(json.loads(message.body))
                if status.is_final:
                    break

    assert (status.job, status.state) == (job.id, JobState.DONE)


async def test_log_is_followed_to_its_end_and_the_job_run_again(client: Client, house: _House) -> None:
    house.gate.set()
    with anyio.fail_after(_DEADLINE):
        job = await client.start(house.app.name, "count", {"up_to": -1})
        texts = [line.text async for line in job.log(follow=True)]
        again = await job.rerun()
        end = await again.wait()

    assert "cannot count down" in texts[-1]
    assert (end.state, (await again.show())["rerun_of"]) == (JobState.FAILED, job.id)
