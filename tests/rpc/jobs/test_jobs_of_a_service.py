"""Histories, logs and reruns of jobs of a whole service, as its clients have them."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import anyio
import pytest

from nebula import Client, sync
from nebula.errors import NebulaError, RemoteError
from nebula.rpc.contract.job_context import Job
from nebula.rpc.jobs.handle import JobHandle
from nebula.rpc.jobs.model.limits import JobLimits
from nebula.rpc.service.responder import Responder
from nebula.testing import TestClient

pytestmark = pytest.mark.anyio


def fresh(tmp_path: Path, limits: JobLimits | None = None) -> Responder:
    app = Responder(f"service-{uuid4().hex}", state=tmp_path, job_limits=limits)

    @app.job(engine=None)
    def add(ctx: Job, number: int) -> int:
        for step in (1, 2):
            with ctx.step(step, 2, f"step {step}"):
                ctx.log(f"line {step}")
        return number + 1

    @app.job(engine=None, allow=["nobody"])
    def closed(number: int) -> int:
        return number

    return app


async def test_job_is_run_again_with_its_parameters(tmp_path: Path) -> None:
    app = fresh(tmp_path)
    async with TestClient(app) as client:
        with anyio.fail_after(20):
            job = await client.start(app.name, "add", {"number": 3})
            assert await job.result() == 4
            again = await job.rerun(priority=9)
            assert await again.result() == 4
            known = await again.show()

    assert again.id != job.id
    assert (known["rerun_of"], known["parameters"], known["priority"]) == (job.id, {"number": 3}, 9)


async def test_steps_are_reported_however_short_they_are(tmp_path: Path) -> None:
    app = fresh(tmp_path)
    async with TestClient(app) as client:
        with anyio.fail_after(20):
            job = await client.start(app.name, "add", {"number": 3})
            await job.wait()
            known = await job.show()

    assert [(step["name"], step["ended_at"] is not None) for step in known["steps"]] == [
        ("step 1", True), ("step 2", True),
    ]  # fmt: skip
    assert [line["text"] for line in known["log"]] == ["line 1", "line 2"]


async def test_jobs_that_are_too_many_are_forgotten_at_the_next_start(tmp_path: Path) -> None:
    limits = JobLimits(keep_jobs=1)
    app = fresh(tmp_path, limits)
    jobs: list[JobHandle] = []
    with anyio.fail_after(20):
        async with TestClient(app) as client:
            for number in range(3):
                jobs.append(await client.start(app.name, "add", {"number": number}))
                await jobs[-1].wait()
        async with TestClient(app) as client:
            listed = await client.call(app.name, "job.list")
            with pytest.raises(RemoteError, match=r"knows no job .* or when more than 1 have ended"):
                await client.job(jobs[0].id).result()

    assert [one["job"] for one in listed["jobs"]] == [jobs[2].id]


async def test_stopping_service_keeps_no_caller_of_its_jobs_waiting(broker_url: str, tmp_path: Path) -> None:
    app, started = fresh(tmp_path), anyio.Event()

    @app.job(engine=None)
    async def hold() -> None:
        await anyio.sleep_forever()

    async def run() -> None:
        await app.run(broker_url, started=started, grace=1000.0)

    # They would wait longer.
    with anyio.fail_after(15):
        async with Client(broker_url) as client, anyio.create_task_group() as waiting:
            async with anyio.create_task_group() as serving:
                serving.start_soon(run)
                await started.wait()
                job = await client.start(app.name, "hold")
                for verb in ("job.result", "job.wait"):
                    asked = {"job": job.id, "timeout": 20}
                    waiting.start_soon(_ask_without_success, client, f"/queue/{app.name}", verb, asked)
                await anyio.wait_all_tasks_blocked()
                # What is answered after them shows that both are under way.
                await client.call(app.name, "ping")
                serving.cancel_scope.cancel()
            waiting.cancel_scope.cancel()


async def _ask_without_success(client: Client, queue: str, verb: str, parameters: object) -> None:
    with suppress(NebulaError):
        await client.call_queue(queue, verb, parameters)


async def _run(app: Responder, url: str, started: anyio.Event) -> None:
    await app.run(url, started=started)


async def test_sync_client_follows_a_log_and_shows_and_reruns_a_job(broker_url: str, tmp_path: Path) -> None:
    app, started = fresh(tmp_path), anyio.Event()

    def script() -> tuple[list[str], list[str], object, object]:
        with sync.Client(broker_url) as client:
            job = client.start(app.name, "add", {"number": 1})
            texts = [line.text for line in job.log(follow=True)]
            again = job.rerun()
            return texts, job.log(), again.result(), again.show()["rerun_of"] == job.id

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_run, app, broker_url, started)
            await started.wait()
            outcome = await anyio.to_thread.run_sync(script)
            tasks.cancel_scope.cancel()

    assert outcome == (["line 1", "line 2"], ["line 1", "line 2"], 2, True)
