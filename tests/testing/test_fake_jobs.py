"""Fakes of jobs: what starts one finds a job, whose states, result and end are a real one's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from nebula import Depends, JobEnded, RemoteError, VerbError
from nebula.rpc.contract.job_context import Job
from nebula.rpc.jobs.model.states import JobState
from nebula.rpc.service.responder import Responder
from nebula.testing import FakeCall, TestClient, fake

pytestmark = pytest.mark.anyio

_DEADLINE = 10.0

reports = Responder("reports")


async def nobody() -> str:
    raise NotImplementedError


@reports.job(engine=None, check=nobody)
def delays(ctx: Job, month: int, *, who: str = Depends(nobody)) -> list[int]:
    raise NotImplementedError


@reports.verb
async def count() -> int:
    raise NotImplementedError


async def test_fake_of_a_job_is_done_with_what_it_was_told() -> None:
    report = fake(delays, returns=[1, 2])
    with anyio.fail_after(_DEADLINE):
        async with TestClient(report, fake(count, returns=3)) as client:
            job = await client.start(delays, month=1)
            assert report.calls == [FakeCall({"month": 1})]
            assert [status async for status in job.watch()][-1].state == JobState.DONE
            assert await job.result() == [1, 2]
            assert (await job.status()).state == JobState.DONE
            assert await client.call(count) == 3

    assert job.id.startswith("reports/")


async def test_fake_of_a_job_keeps_its_contract() -> None:
    report = fake(delays, returns=[])
    with anyio.fail_after(_DEADLINE):
        async with TestClient(report) as client:
            with pytest.raises(RemoteError, match="bad-parameters: month"):
                await client.start("reports", "delays", {"month": "May"})
    with pytest.raises(TypeError, match="could not return"):
        fake(delays, returns="late")

    assert report.calls == []


@pytest.mark.parametrize("parameters", [None, 1, [1, 2], {"a": {"b": 1}}, "text"])
async def test_fake_of_a_job_by_name_takes_anything(parameters: Any) -> None:
    report = fake("reports", "delays", job=True, side_effect=lambda given: [given])
    with anyio.fail_after(_DEADLINE):
        async with TestClient(report) as client:
            job = await client.start("reports", "delays", parameters)
            assert await job.result() == [parameters]

    assert report.calls == [FakeCall(parameters)]


async def test_job_that_is_asked_for_twice_is_one() -> None:
    report = fake(delays, returns=[])
    with anyio.fail_after(_DEADLINE):
        async with TestClient(report) as client:
            jobs = [await client.start("reports", "delays", {"month": 1}, dedupe="today") for _ in range(2)]

    assert jobs[0].id == jobs[1].id
    assert len(report.calls) == 1


async def test_fake_of_a_job_fails_and_is_cancelled_as_a_job_is() -> None:
    begun = anyio.Event()

    async def hang(month: int) -> list[int]:
        begun.set()
        if month == 2:
            raise VerbError("no-data", "nothing of May")
        await anyio.sleep_forever()
        raise AssertionError

    with anyio.fail_after(_DEADLINE):
        async with TestClient(fake(delays, side_effect=hang)) as client:
            with pytest.raises(JobEnded, match="failed: nothing of May"):
                await (await client.start(delays, month=2)).result()
            job = await client.start(delays, month=1)
            await begun.wait()
            await job.cancel()
            with pytest.raises(JobEnded, match="cancelled"):
                await job.result()


async def test_fakes_of_jobs_leave_nothing_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("NEBULA_STATE", str(tmp_path))
    with anyio.fail_after(_DEADLINE):
        async with TestClient(fake(delays, returns=[])) as client:
            await client.start(delays, month=1)
            assert list(tmp_path.iterdir())

    assert not list(tmp_path.iterdir())
