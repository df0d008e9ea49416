"""A job's life in a service: what its watchers, its callers and its runner see."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from nebula.errors import ConnectionLost
from nebula.rpc.contract.job_runner import JobFailure, JobListener, JobOutput, Progress
from nebula.rpc.jobs.model.limits import JobLimits
from nebula.rpc.jobs.model.status import JobStatus
from nebula.rpc.wire.brokers import RABBITMQ
from tests.own_logs import own_logs
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
    assert task.function == "tests.rpc.jobs.harness:count"
    assert house.published.states(receipt["job"]) == ["queued", "starting", "running", "done"]
    assert [status.seq for status in house.published.statuses(receipt["job"])] == [1, 2, 3, 4]
    assert (end.progress, end.error) == (1.0, None)
    assert result == {"value": 5}


async def test_unwritten_status_is_not_published(house: House) -> None:
    async with house.living() as service:
        receipt = await house.accept(service)
        task = await house.runner.next_task()
        for verb in ("on_started", "on_lost"):
            getattr(house.runner.listener, verb)(task.job, 1, *(["died"] if verb == "on_lost" else []))
            told = house.published.statuses(receipt["job"])[-1]
            written = await ask(service, "job.status", {"job": receipt["job"]})
            assert told.seq <= written["seq"]

    assert house.published.states(receipt["job"]) == ["queued", "starting", "running", "lost"]


async def test_progress_is_published_when_it_is_due(house: House) -> None:
    async with house.living() as service:
        receipt = await house.accept(service)
        task = await house.runner.next_task()
        house.runner.listener.on_started(task.job, 1)
        house.runner.listener.on_progress(task.job, 1, Progress(0.25, "reading", (1, 4, "read")))
        await house.published.until(receipt["job"], "running")
        house.pass_time(service, 2.0)
        status = JobStatus.from_json(await ask(service, "job.status", {"job": receipt["job"]}))

    assert (status.progress, status.note, status.step) == (0.25, "reading", (1, 4, "read"))
    assert house.published.statuses(receipt["job"])[-1] == status


async def test_request_may_ask_for_progress_more_often(house: House) -> None:
    async with house.living() as service:
        receipt = await house.accept(service, neb_job_progress_every="500")
        task = await house.runner.next_task()
        house.runner.listener.on_started(task.job, 1)
        await house.published.until(receipt["job"], "running")
        house.pass_time(service, 0.5)
        house.runner.listener.on_progress(task.job, 1, Progress(0.25))
        status = await ask(service, "job.status", {"job": receipt["job"]})

    assert status["progress"] == 0.25


async def test_statuses_go_also_where_the_request_says(house: House) -> None:
    async with house.living() as service:
        await house.accept(
            service, neb_job_notify="/queue/mine", neb_reply_id="r1", neb_reply_to="/queue/inbox"
        )
        task = await house.runner.next_task()
        house.runner.listener.on_failed(task.job, 1, JobFailure("data", "bad row"))
        await house.published.until_told("/queue/mine", "failed")

    there = [
        (status.state, headers)
        for where, status, headers in house.published.messages
        if where == "/queue/mine"
    ]
    assert [state for state, _ in there] == ["queued", "starting", "failed"]
    assert {headers["neb-in-reply-to"] for _, headers in there} == {"r1"}
    # They go by the service's own rights: only answers, which go by the right to answer, are marked.
    assert all("neb-response" not in headers for _, headers in there)
    assert {headers["persistent"] for _, headers in there} == {"true"}


async def test_id_too_long_to_be_given_back_is_left_out_of_what_the_notified_get(house: House) -> None:
    async with house.living() as service:
        await house.accept(service, neb_job_notify="/queue/mine", neb_reply_id="x" * 16_000)
        await house.runner.next_task()

    there = [headers for where, _, headers in house.published.messages if where == "/queue/mine"]
    assert there
    # The broker would end the connection over the longer line, and the service with it.
    assert not any("neb-in-reply-to" in headers for headers in there)


@pytest.mark.parametrize("own", ["60000", "9999000"])
async def test_request_may_shorten_the_time_limit_and_not_lengthen_it(house: House, own: str) -> None:
    house.declaration["timeout"] = 600.0
    async with house.living() as service:
        await house.accept(service, neb_job_timeout=own)
        task = await house.runner.next_task()

    assert task.timeout == min(600.0, int(own) / 1000)


async def test_job_that_runs_too_long_times_out(house: House) -> None:
    house.declaration["timeout"] = 600.0
    async with house.living() as service:
        receipt = await house.accept(service)
        task = await house.runner.next_task()
        house.runner.listener.on_started(task.job, 1)
        house.pass_time(service, 600.0)
        await house.runner.until(lambda: house.runner.cancels == [(task.job, 1, "timed-out")])
        house.runner.listener.on_cancelled(task.job, 1, slots_free=True)
        end = await house.published.until(receipt["job"], "timed_out")

    assert end.error is not None
    assert end.error.code == "deadline-exceeded"


async def test_job_whose_turn_does_not_come_in_time_expires(house: House) -> None:
    house.declaration["expires"] = 30.0
    house.runner.max_running = 1
    async with house.living() as service:
        await house.accept(service)
        waiting = await house.accept(service)
        house.pass_time(service, 31.0)
        await house.published.until(waiting["job"], "expired")

    assert len(house.runner.submitted) == 1


async def test_service_without_a_connection_goes_on(house: House) -> None:
    async with house.living() as service:

        def is_gone(destination: str, body: bytes, headers: Mapping[str, str]) -> None:
            raise ConnectionLost("gone")

        house.published.then = is_gone
        receipt = await house.accept(service)
        task = await house.runner.next_task()
        house.runner.listener.on_started(task.job, 1)
        status = await ask(service, "job.status", {"job": receipt["job"]})

    assert status["state"] == "running"


async def test_open_jobs_are_published_again_after_a_reconnect(house: House) -> None:
    async with house.living() as service:
        done, running = await house.accept(service), await house.accept(service)
        await house.runner.next_task(2)
        house.runner.listener.on_started(running["job"].rpartition("/")[2], 1)
        house.runner.listener.on_failed(done["job"].rpartition("/")[2], 1, JobFailure("data", "bad"))
        await house.published.until(done["job"], "failed")
        await ask(service, "job.status", {"job": running["job"]})
        house.published.messages.clear()
        service.republish()

    assert [(status.job, status.state) for _, status, _ in house.published.messages] == [
        (running["job"], "running")
    ]


async def test_only_the_end_outlives_the_service_where_the_broker_keeps_last_values(house: House) -> None:
    async with house.living() as service:
        receipt = await house.accept(service)
        task = await house.runner.next_task()
        house.runner.listener.on_started(task.job, 1)
        house.runner.listener.on_done(task.job, 1, JobOutput(value=1))
        await house.published.until(receipt["job"], "done")

    assert receipt["status"] == house.published.destination(receipt["job"])
    assert house.published.states(receipt["job"]) == ["queued", "starting", "running", "done"]
    assert house.published.kept(receipt["job"]) == ["done"]


async def test_statuses_stay_on_a_topic_where_the_broker_has_no_last_values(house: House) -> None:
    house.brand = RABBITMQ
    house.limits = JobLimits(keep_jobs=0)
    async with house.living() as service:
        receipt = await house.accept(service)
        task = await house.runner.next_task()
        house.runner.listener.on_failed(task.job, 1, JobFailure("data", "bad"))
        await house.published.until(receipt["job"], "failed")
        await service.housekeeping.prune()

    assert receipt["status"] == f"/topic/jobs.{receipt['job'].replace('/', '.')}"
    assert house.published.kept(receipt["job"]) == ["queued", "starting", "failed"]
    assert house.published.deleted == []


async def test_log_says_how_a_job_ended_by_its_level_and_for_whom_it_was(house: House) -> None:
    async def live(end: Callable[[JobListener, str], None], state: str, number: int) -> None:
        receipt = await house.accept(service, principal="olga", neb_reply_id="r1")
        task = await house.runner.next_task(number)
        house.runner.listener.on_started(task.job, 1)
        end(house.runner.listener, task.job)
        await house.published.until(receipt["job"], state)

    with own_logs() as logs:
        async with house.living() as service:
            await live(lambda listener, job: listener.on_done(job, 1, JobOutput(value=5)), "done", 1)
            await live(
                lambda listener, job: listener.on_failed(job, 1, JobFailure("data", "odd")), "failed", 2
            )
            await live(lambda listener, job: listener.on_lost(job, 1, "Spark's JVM died"), "lost", 3)

    ends = [line for line in logs if line["event"] in ("job ended", "job lost")]
    assert [(line["event"], line["log_level"], line.get("code")) for line in ends] == [
        ("job ended", "info", None),
        ("job ended", "warning", "data"),
        ("job lost", "warning", "engine-lost"),
        ("job ended", "error", "engine-lost"),
    ]
    assert {(line["principal"], line["request_id"], line["verb"]) for line in ends} == {
        ("olga", "r1", "count")
    }
