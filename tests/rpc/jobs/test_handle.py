"""Handles: they miss no end, never go back, and never hang, whatever happens between any two steps."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from nebula.errors import CallTimeout, JobEnded, NebulaError, NoResponder, RemoteError
from nebula.rpc.errors import UnexpectedReply, VerbError
from nebula.rpc.jobs.handle import JobHandle
from nebula.rpc.jobs.runner import JobFailure, JobOutput, Progress
from nebula.rpc.jobs.service import JobService
from nebula.rpc.start_options import StartOptions
from nebula.stomp.client import AckMode
from tests.rpc.jobs.harness import House, ask

pytestmark = pytest.mark.anyio

_STEPS = ["subscribing", "subscribed", "asking", "answered", "watching"]


@dataclass
class FakeMessage:
    body: bytes

    def ack(self) -> None:
        pass


class FakeStomp:
    """Topics: what is published reaches those that subscribed before."""

    server = "nebula/test"

    def __init__(self, at: Callable[[str], Any]) -> None:
        self._at = at
        self._listeners: list[tuple[str, Any]] = []
        self.is_deaf = False

    def publish(self, destination: str, body: bytes, headers: Mapping[str, str]) -> None:
        for where, stream in self._listeners:
            if where == destination and not self.is_deaf:
                stream.send_nowait(FakeMessage(body))

    @asynccontextmanager
    async def subscribe(
        self,
        destination: str,
        *,
        ack: AckMode = AckMode.AUTO,
        eager: bool = False,
        timeout: float | None = None,
    ) -> AsyncIterator[AsyncIterator[FakeMessage]]:
        assert timeout
        assert eager
        assert ack is AckMode.CLIENT_INDIVIDUAL
        await self._at("subscribing")
        send, receive = anyio.create_memory_object_stream[FakeMessage](1000)
        self._listeners.append((destination, send))
        await self._at("subscribed")
        with send, receive:
            yield aiter(receive)
        self._listeners.remove((destination, send))


class FakeClient:
    """Asks services directly, by the names of their queues; `at` is called at each step."""

    def __init__(self, *services: JobService) -> None:
        self.queues = {service.via: service for service in services}
        self.queues["/queue/counting"] = services[0]
        self.stomp = FakeStomp(self.step)
        self.subscribe = self.stomp.subscribe
        self.at: dict[str, Callable[[], Any]] = {}
        self.asked: list[str] = []
        self.away: dict[str, NebulaError] = {}

    async def start_on(
        self, queue: str, service: str, verb: str, parameters: Any, options: StartOptions
    ) -> JobHandle:
        self.started = (queue, service, verb, parameters, options)
        return JobHandle(self, f"{service}/{'0' * 26}", via=queue)

    async def call_queue(
        self, queue: str, verb: str, parameters: Any, *, timeout: float | None = None
    ) -> Any:
        await self.step("asking")
        self.asked.append(f"{queue} {verb}")
        if (error := self.away.get(queue)) is not None:
            raise error
        try:
            answer = await ask(self.queues[queue], verb, parameters)
        except VerbError as failure:
            raise RemoteError(failure.code, failure.message, details=failure.details) from None
        await self.step("answered")
        # As over a wire.
        return json.loads(json.dumps(answer))

    async def step(self, name: str) -> None:
        if (action := self.at.pop(name, None)) is not None:
            await action()


@dataclass
class Watched:
    """A running job, its service, and a client whose topics are the service's."""

    house: House
    service: JobService
    client: FakeClient
    handle: JobHandle
    key: tuple[str, int]

    async def end(self) -> None:
        """Let it end, and wait until that is written and told."""
        self.house.runner.listener.on_done(*self.key, JobOutput(value=[1, 2, 3]))
        await self.house.published.until(self.handle.id, "done")


@asynccontextmanager
async def watching(tmp_path: Path, ask_after: float = 10.0) -> AsyncIterator[Watched]:
    house = House(tmp_path)
    async with house.living() as service:
        client = FakeClient(service)
        house.published.then = client.stomp.publish
        job = (await house.accept(service, neb_job_progress_every="100"))["job"]
        task = await house.runner.next_task()
        house.runner.listener.on_started(task.job, 1)
        await house.published.until(job, "running")
        handle = JobHandle(client, job, ask_after=ask_after)
        yield Watched(house, service, client, handle, (task.job, 1))


@pytest.mark.parametrize("step", _STEPS)
async def test_watch_sees_the_end_that_comes_at_any_step(tmp_path: Path, step: str) -> None:
    async with watching(tmp_path) as job:
        job.client.at[step] = job.end
        seen = []
        async for status in job.handle.watch():
            seen.append(status)
            if not status.is_final:
                await job.client.step("watching")

    assert seen[-1].state == "done"
    assert [status.seq for status in seen] == sorted({status.seq for status in seen})
    assert len(seen) == (1 if step in ("subscribing", "subscribed", "asking") else 2)


async def test_watch_of_an_ended_job_gives_its_end(tmp_path: Path) -> None:
    async with watching(tmp_path) as job:
        await job.end()
        seen = [status.state async for status in job.handle.watch()]

    assert seen == ["done"]


async def test_watch_never_goes_back(tmp_path: Path) -> None:
    async with watching(tmp_path) as job:

        async def move_on() -> None:
            for step in range(1, 5):
                job.house.pass_time(job.service, 1.0)
                job.house.runner.listener.on_progress(*job.key, Progress(step / 10))
                await job.house.published.until(job.handle.id, "running", step / 10)

        # All of these wait in the subscription, and the answer is newer than they are.
        job.client.at["subscribed"] = move_on
        seen = []
        async for status in job.handle.watch():
            seen.append(status.progress)
            if status.progress == 0.4:
                await job.end()

    assert seen == [0.4, 1.0]


async def test_watch_asks_where_nothing_is_heard(tmp_path: Path) -> None:
    async with watching(tmp_path, ask_after=0.05) as job:
        job.client.stomp.is_deaf = True
        seen = []
        async for status in job.handle.watch():
            seen.append(status.state)
            if len(seen) == 1:
                await job.end()

    assert seen == ["running", "done"]


async def test_empty_message_says_nothing_of_the_job(tmp_path: Path) -> None:
    async with watching(tmp_path) as job:

        async def be_away() -> None:
            job.client.stomp.publish(f"X/jobs.counting.{job.key[0]}", b"", {})
            await job.end()

        job.client.at["watching"] = be_away
        seen = []
        async for status in job.handle.watch():
            seen.append(status.state)
            if not status.is_final:
                await job.client.step("watching")

    assert seen == ["running", "done"]


async def test_state_that_nobody_knows_does_not_end_the_watch(tmp_path: Path) -> None:
    async with watching(tmp_path) as job:

        async def be_newer() -> None:
            body = json.dumps({"job": job.handle.id, "seq": 3, "state": "paused"} | {"seq": 4}).encode()
            job.client.stomp.publish(f"X/jobs.counting.{job.key[0]}", body, {})
            job.house.pass_time(job.service, 1.0)
            job.house.runner.listener.on_progress(*job.key, Progress(0.5))
            await job.house.published.until(job.handle.id, "running", 0.5)
            await job.end()

        job.client.at["watching"] = be_newer
        seen = []
        async for status in job.handle.watch():
            seen.append(status.state)
            await job.client.step("watching")

    assert seen == ["running", "paused", "done"]


@pytest.mark.parametrize("step", _STEPS[:4])
async def test_result_comes_whenever_the_job_ends(tmp_path: Path, step: str) -> None:
    async with watching(tmp_path) as job:
        job.client.at[step] = job.end

        assert await job.handle.result() == [1, 2, 3]
        assert await job.handle.result(tuple[int, ...]) == (1, 2, 3)
        with pytest.raises(UnexpectedReply):
            await job.handle.result(str)


async def test_result_in_a_file_is_a_place(tmp_path: Path) -> None:
    async with watching(tmp_path) as job:
        output = JobOutput(path="/results/a.parquet", rows=16, bytes=900)
        job.house.runner.listener.on_done(*job.key, output)

        assert await job.handle.result() == output


async def test_result_of_a_job_that_failed_raises_why(tmp_path: Path) -> None:
    async with watching(tmp_path) as job:
        job.house.runner.listener.on_failed(*job.key, JobFailure("empty", "no readings"))
        with pytest.raises(JobEnded) as caught:
            await job.handle.result()

    error = caught.value
    assert (error.job, error.state, error.code, error.message) == (
        job.handle.id, "failed", "empty", "no readings",
    )  # fmt: skip


async def test_cancel_returns_at_once_and_wait_when_it_is_over(tmp_path: Path) -> None:
    async with watching(tmp_path) as job:
        status = await job.handle.cancel()
        job.house.runner.listener.on_log(*job.key, "cleaning up")
        log = await job.handle.log()
        job.house.runner.listener.on_cancelled(*job.key, slots_free=True)
        end = await job.handle.wait()

    assert (status.state, end.state, log) == ("cancelling", "cancelled", ["cleaning up"])


async def test_handle_follows_to_the_instance_that_holds_the_job_once(tmp_path: Path) -> None:
    house = House(tmp_path)
    async with house.living() as holder:
        job = (await house.accept(holder))["job"]
        async with house.living() as other:
            client = FakeClient(other, holder)
            handle = JobHandle(client, job)
            first = await handle.status()
            await handle.status()

            assert first.via == holder.via
            assert client.asked == [
                "/queue/counting job.status",
                f"{holder.via} job.status",
                f"{holder.via} job.status",
            ]


async def test_two_instances_that_point_at_each_other_are_asked_once_each(tmp_path: Path) -> None:
    class Confused(FakeClient):
        async def call_queue(
            self, queue: str, verb: str, parameters: Any, *, timeout: float | None = None
        ) -> Any:
            self.asked.append(queue)
            via = "/queue/counting.b" if queue.endswith("a") else "/queue/counting.a"
            raise RemoteError("elsewhere", "not here", details={"via": via})

    house = House(tmp_path)
    async with house.living() as service:
        client = Confused(service)
        handle = JobHandle(client, "counting/" + "0" * 26, via="/queue/counting.a")
        with pytest.raises(RemoteError):
            await handle.status()

    assert client.asked == ["/queue/counting.a", "/queue/counting.b"]


async def test_job_that_nobody_knows_is_not_found(tmp_path: Path) -> None:
    house = House(tmp_path)
    async with house.living() as service:
        handle = JobHandle(FakeClient(service), "counting/" + "0" * 26)
        with pytest.raises(RemoteError) as caught:
            await handle.result()

    assert caught.value.code == "not-found"


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
    """When it has been asked so often; and the job ends meanwhile."""
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
async def test_service_that_is_away_at_first_is_told(tmp_path: Path, error: NebulaError) -> None:
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


async def _be_back(job: Watched, asked: int) -> None:
    if len(job.client.asked) < asked:
        job.client.at["asking"] = partial(_be_back, job, asked)
    else:
        job.client.away = {}


async def test_job_that_is_forgotten_while_it_is_watched_is_told(tmp_path: Path) -> None:
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


async def test_rerun_is_asked_of_the_instance_that_holds_the_job(tmp_path: Path) -> None:
    house = House(tmp_path)
    async with house.living() as holder:
        job = (await house.accept(holder))["job"]
        async with house.living() as other:
            client = FakeClient(other, holder)
            new = await JobHandle(client, job).rerun(priority=7, notify="/queue/mine")

    options = {"priority": 7, "notify": "/queue/mine"}
    assert client.started == (holder.via, "counting", "job.rerun", {"job": job}, options)
    assert new.id != job


async def test_all_that_is_known_of_a_job_is_shown(tmp_path: Path) -> None:
    async with watching(tmp_path) as job:
        job.house.runner.listener.on_log(*job.key, "one")
        known = await job.handle.show()

        assert (known["job"], known["parameters"], known["steps"]) == (
            job.handle.id, {"up_to": 3}, [],
        )  # fmt: skip
        assert [line["text"] for line in known["log"]] == ["one"]
        assert [tuple(line)[1:] for line in await job.handle.log_lines(after=0)] == [("one", 1)]


def test_handle_needs_to_know_the_service() -> None:
    with pytest.raises(ValueError, match="does not say whose job"):
        JobHandle(None, "0" * 26)  # type: ignore[arg-type]  # refused before it is used
