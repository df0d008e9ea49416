"""Job handles: they miss no end, never go back and never hang, whatever happens between two steps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from nebula.errors import JobEnded, RemoteError
from nebula.rpc.contract.job_runner import JobFailure, JobOutput, Progress
from nebula.rpc.errors import UnexpectedReply
from nebula.rpc.http_problems import problem_of
from nebula.rpc.jobs.handle import JobHandle
from tests.rpc.jobs.handles import FakeClient, watching
from tests.rpc.jobs.harness import House

pytestmark = pytest.mark.anyio

_STEPS = ["subscribing", "subscribed", "asking", "answered", "watching"]


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


async def test_watch_asks_after_silence(tmp_path: Path) -> None:
    async with watching(tmp_path, ask_after=0.05) as job:
        job.client.stomp.is_deaf = True
        seen = []
        async for status in job.handle.watch():
            seen.append(status.state)
            if len(seen) == 1:
                await job.end()

    assert seen == ["running", "done"]


async def test_watch_of_a_waiting_job_shows_how_it_comes_nearer(tmp_path: Path) -> None:
    async with watching(tmp_path) as job:
        job.house.runner.max_running = 1
        _first, second = [await job.house.accept(job.service) for _ in range(2)]
        handle = JobHandle(job.client, second["job"], ask_after=5.0)
        seen = []
        async for status in handle.watch():
            seen.append((status.state, status.position))
            if len(seen) == 1:
                await job.end()
                job.house.pass_time(job.service, 2.0)
            elif len(seen) == 2:
                await handle.cancel()

    assert seen == [("queued", 2), ("queued", 1), ("cancelled", None)]


async def test_watch_sees_by_asking_where_a_job_stands_and_never_goes_back(tmp_path: Path) -> None:
    async with watching(tmp_path, ask_after=0.05) as job:
        job.house.runner.max_running = 1
        _first, second = [await job.house.accept(job.service) for _ in range(2)]
        stale = json.dumps(job.house.published.statuses(second["job"])[-1].to_json()).encode()
        handle = JobHandle(job.client, second["job"], ask_after=0.05)
        job.client.stomp.is_deaf = True
        seen = []
        async for status in handle.watch():
            seen.append((status.state, status.position))
            if len(seen) == 1:
                await job.end()
            elif len(seen) == 2:
                job.client.stomp.is_deaf = False
                job.client.stomp.publish(job.house.published.destination(second["job"]), stale, {})
                await handle.cancel()

    assert seen == [("queued", 2), ("queued", 1), ("cancelled", None)]


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


async def test_unknown_state_does_not_end_the_watch(tmp_path: Path) -> None:
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


async def test_result_of_a_job_that_ends_soon_takes_one_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nebula.rpc.jobs.handle._SHORT_SECONDS", 20.0)
    async with watching(tmp_path) as job, anyio.create_task_group() as tasks:

        async def end_soon() -> None:
            tasks.start_soon(job.end)

        job.client.at["asking"] = end_soon
        via = job.service.via

        assert await JobHandle(job.client, job.handle.id, via=via).result() == [1, 2, 3]
        assert job.client.asked == [f"{via} job.result"]


async def test_failure_of_a_job_that_ends_soon_takes_one_question(tmp_path: Path) -> None:
    async with watching(tmp_path) as job:
        job.house.runner.listener.on_failed(*job.key, JobFailure("empty", "no readings"))
        await job.house.published.until(job.handle.id, "failed")
        with pytest.raises(JobEnded, match="no readings"):
            await JobHandle(job.client, job.handle.id, via=job.service.via).result()

        assert job.client.asked == [f"{job.service.via} job.result"]


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


@pytest.mark.parametrize(
    ("state", "code", "status"),
    [("timed_out", "timed-out", 504), ("lost", "lost", 500), ("expired", "expired", 504)],
)
async def test_end_without_a_code_has_that_of_its_state(
    tmp_path: Path, state: str, code: str, status: int
) -> None:
    id_ = "counting/" + "0" * 26

    class Foreign(FakeClient):
        async def call_queue(
            self, queue: str, verb: str, parameters: Any, *, timeout: float | None = None
        ) -> Any:
            return {"job": id_, "seq": 3, "state": state}

    house = House(tmp_path)
    async with house.living() as service:
        with pytest.raises(JobEnded) as caught:
            await JobHandle(Foreign(service), id_, via=service.via).result()

    assert (caught.value.code, problem_of(caught.value).status) == (code, status)


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


@pytest.mark.parametrize("queue", ["/queue/payments", "/queue/counting-house", "/topic/counting.a", "None"])
async def test_service_that_names_a_queue_of_another_is_not_believed(tmp_path: Path, queue: str) -> None:
    class Hostile(FakeClient):
        async def call_queue(
            self, queue_: str, verb: str, parameters: Any, *, timeout: float | None = None
        ) -> Any:
            self.asked.append(queue_)
            raise RemoteError("elsewhere", "ask there", details={"via": queue})

    house = House(tmp_path)
    async with house.living() as service:
        client = Hostile(service)
        with pytest.raises(UnexpectedReply):
            await JobHandle(client, "counting/" + "0" * 26).cancel()
        with pytest.raises(ValueError, match="no queue of the service"):
            JobHandle(client, "counting/" + "0" * 26, via=queue)

    assert client.asked == ["/queue/counting"]


async def test_unknown_job_is_not_found(tmp_path: Path) -> None:
    house = House(tmp_path)
    async with house.living() as service:
        handle = JobHandle(FakeClient(service), "counting/" + "0" * 26)
        with pytest.raises(RemoteError) as caught:
            await handle.result()

    assert caught.value.code == "not-found"


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


async def test_full_view_of_a_job_is_shown(tmp_path: Path) -> None:
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


async def test_follower_whom_the_service_does_not_keep_waiting_asks_again_after_a_pause(
    tmp_path: Path,
) -> None:
    async def follow() -> None:
        async for _ in job.handle.log(follow=True):
            pass

    async with watching(tmp_path) as job, anyio.create_task_group() as tasks:
        job.service.queries.waiters._most = 0
        job.handle._pause = 60.0
        tasks.start_soon(follow)
        for _ in range(40):
            # Each question is two of these.
            await job.service.read(lambda registry: registry.find(job.key[0]))
        tasks.cancel_scope.cancel()

    assert len(job.client.asked) < 5
