"""A job's life in a service: every state, as its watchers and its callers see it."""

from __future__ import annotations

from pathlib import Path

import pytest

from nebula.rpc.jobs.runner import JobOutput
from tests.rpc.jobs.harness import House, ask

pytestmark = pytest.mark.anyio


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


async def test_job_goes_through_its_states_and_gives_its_result(house: House) -> None:
    async with house.living() as service:
        receipt = await house.accept(service, {"up_to": 5})
        task = await house.runner.next_task()
        listener = house.runner.listener
        listener.on_starting(task.job, 1, "first")
        listener.on_started(task.job, 1)
        listener.on_done(task.job, 1, JobOutput(value=5))
        end = await house.published.until(receipt["job"], "done")
        result = await ask(service, "job.result", {"job": receipt["job"]})

    assert (task.verb, task.parameters, task.attempt) == ("count", {"up_to": 5}, 1)
    assert house.published.states(receipt["job"]) == ["queued", "starting", "running", "done"]
    assert [status.seq for status in house.published.statuses(receipt["job"])] == [1, 2, 3, 4]
    assert (end.progress, end.error) == (1.0, None)
    assert result == {"value": 5}
