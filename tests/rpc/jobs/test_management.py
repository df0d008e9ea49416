"""The verbs by which callers look at jobs and end them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import anyio
import pytest

from nebula.rpc.contract.job_runner import JobFailure, JobOutput
from nebula.rpc.errors import VerbError
from nebula.rpc.jobs.model.limits import JobLimits
from nebula.rpc.jobs.registry.registry import JobRegistry
from nebula.rpc.jobs.service.service import JobService
from nebula.rpc.jobs.service.verbs import management_verbs
from tests.rpc.jobs.harness import House, ask, request

pytestmark = pytest.mark.anyio

_UNKNOWN = "01JDB3QK6M0000000000000000"


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


async def _owned(house: House, service: JobService, owner: str | None) -> str:
    receipt = await service.accept(request("count", principal=owner), house.verb, ((), {}))
    return str(receipt["job"])


async def _finished(house: House, service: JobService, end: JobOutput | JobFailure) -> str:
    job = await _owned(house, service, None)
    ulid = job.rpartition("/")[2]
    await house.runner.until(lambda: any(task.job == ulid for task in house.runner.submitted))
    listener = house.runner.listener
    listener.on_started(ulid, 1)
    listener.on_done(ulid, 1, end) if isinstance(end, JobOutput) else listener.on_failed(ulid, 1, end)
    return job


async def _error(service: JobService, verb: str, parameters: Any, principal: str | None = None) -> VerbError:
    with pytest.raises(VerbError) as caught:
        await ask(service, verb, parameters, principal)
    return caught.value


async def test_management_verbs_are_these(house: House) -> None:
    async with house.living() as service:
        names = [verb.name for verb in management_verbs(service)]

    assert names == [
        "job.status", "job.list",
        "job.owners", "job.result", "job.cancel", "job.log", "job.wait", "job.show", "job.rerun",
        "engine.status", "engine.restart",
    ]  # fmt: skip


@pytest.mark.parametrize("verb", ["job.status", "job.result", "job.cancel", "job.log", "job.wait"])
@pytest.mark.parametrize(
    ("job", "code"),
    [
        (f"counting/{_UNKNOWN}", "not-found"),
        (_UNKNOWN, "not-found"),
        (f"prices/{_UNKNOWN}", "not-found"),
        ("counting/1", "bad-parameters"),
    ],
)
async def test_unknown_job(house: House, verb: str, job: str, code: str) -> None:
    async with house.living() as service:
        error = await _error(service, verb, {"job": job})

    assert error.code == code


@pytest.mark.parametrize("verb", ["job.status", "job.result", "job.cancel", "job.log", "job.wait"])
async def test_job_of_another_instance_is_elsewhere(house: House, verb: str) -> None:
    async with house.living() as first:
        job = await _owned(house, first, None)
        async with house.living() as second:
            error = await _error(second, verb, {"job": job})

        assert (error.code, error.details) == ("elsewhere", {"via": first.via})


@pytest.mark.parametrize("verb", ["job.result", "job.cancel", "job.log"])
@pytest.mark.parametrize(
    ("owner", "asks", "may"),
    [
        ("alice", "alice", True),
        ("alice", "mallory", False),
        ("alice", None, False),
        ("alice", "anonymous", False),
        ("anonymous", "anonymous", True),
        ("anonymous", "bob", True),
        (None, None, True),
    ],
)
async def test_only_the_owner_of_a_job_may_touch_it(
    house: House, verb: str, owner: str | None, asks: str | None, may: bool
) -> None:
    async with house.living() as service:
        job = await _owned(house, service, owner)
        code = None
        try:
            await ask(service, verb, {"job": job}, asks)
        except VerbError as error:
            code = error.code
        status = await ask(service, "job.status", {"job": job}, asks)

    assert (code == "not-allowed") is not may
    assert status["job"] == job


async def test_result_of_a_large_kind_is_a_path(house: House) -> None:
    async with house.living() as service:
        output = JobOutput(path="/results/x.parquet", rows=3, bytes=70, schema={"a": "int"})
        job = await _finished(house, service, output)
        result = await ask(service, "job.result", {"job": job})

    assert result == {"path": "/results/x.parquet", "rows": 3, "bytes": 70, "schema": {"a": "int"}}


async def test_job_that_returned_nothing_has_an_empty_result(house: House) -> None:
    async with house.living() as service:
        job = await _finished(house, service, JobOutput())

        assert await ask(service, "job.result", {"job": job}) == {}


@pytest.mark.parametrize(
    ("failure", "code"),
    [(JobFailure("empty", "no rows"), "empty"), (JobFailure("Not Kebab", "no rows"), "job")],
)
async def test_result_of_a_failed_job_is_its_error(house: House, failure: JobFailure, code: str) -> None:
    async with house.living() as service:
        job = await _finished(house, service, failure)
        error = await _error(service, "job.result", {"job": job})

    assert (error.code, error.message, error.details) == (code, "no rows", {"state": "failed"})


async def test_result_of_an_open_job_may_be_asked_for_later(house: House) -> None:
    async with house.living() as service:
        job = await _owned(house, service, None)
        error = await _error(service, "job.result", {"job": job})

    assert (error.code, error.retryable) == ("not-ended", True)


async def test_waiting_job_is_cancelled_when_the_answer_comes(house: House) -> None:
    house.runner.max_running = 1
    async with house.living() as service:
        await _owned(house, service, None)
        job = await _owned(house, service, None)
        status = await ask(service, "job.cancel", {"job": job})
        again = await ask(service, "job.cancel", {"job": job})

    assert (status["state"], status["error"]["code"]) == ("cancelled", "cancelled")
    assert again == status
    assert len(house.runner.submitted) == 1
    assert house.runner.cancels == []


@pytest.mark.parametrize("is_started", [False, True])
async def test_job_in_work_is_cancelling_when_the_answer_comes(house: House, is_started: bool) -> None:
    async with house.living() as service:
        job = await _owned(house, service, None)
        task = await house.runner.next_task()
        if is_started:
            house.runner.listener.on_started(task.job, 1)
        status = await ask(service, "job.cancel", {"job": job})
        await house.runner.until(lambda: house.runner.cancels == [(task.job, 1, "cancelled")])
        house.runner.listener.on_cancelled(task.job, 1, slots_free=True)
        await house.published.until(job, "cancelled")

    assert status["state"] == "cancelling"


async def test_ended_job_stays_as_it_is_when_it_is_cancelled(house: House) -> None:
    async with house.living() as service:
        job = await _finished(house, service, JobOutput(value=1))
        status = await ask(service, "job.cancel", {"job": job})

    assert status["state"] == "done"


async def test_code_that_does_not_stop_is_called_cancelled_and_the_log_says_so(house: House) -> None:
    house.limits = JobLimits(cancel_grace=10.0)
    async with house.living() as service:
        job = await _owned(house, service, None)
        await house.runner.next_task()
        await ask(service, "job.cancel", {"job": job})
        house.pass_time(service, 10.0)
        end = await house.published.until(job, "cancelled")
        log = await ask(service, "job.log", {"job": job})

    assert end.note == "its code did not stop"
    assert [line["text"] for line in log["lines"]] == ["it was cancelled, but its code did not stop"]


async def test_log_has_what_was_just_said(house: House) -> None:
    async with house.living() as service:
        job = await _owned(house, service, None)
        task = await house.runner.next_task()
        for number in range(5):
            house.runner.listener.on_log(task.job, 1, f"line {number}")
        log = await ask(service, "job.log", {"job": job, "limit": 2})

    assert [(line["number"], line["text"]) for line in log["lines"]] == [(4, "line 3"), (5, "line 4")]
    assert log["lines"][0]["at"] == 1_000_000.0


async def test_trace_of_a_failure_is_in_the_log_alone(house: House) -> None:
    async with house.living() as service:
        job = await _finished(house, service, JobFailure("job", "ValueError: bad", trace="Traceback: secret"))
        status = await ask(service, "job.status", {"job": job})
        log = await ask(service, "job.log", {"job": job})

    assert "secret" not in str(status)
    assert [line["text"] for line in log["lines"]] == ["Traceback: secret"]


async def test_wait_is_answered_when_the_job_ends(house: House) -> None:
    async with house.living() as service:
        job = await _owned(house, service, None)
        task = await house.runner.next_task()
        answers: list[Any] = []

        async def wait() -> None:
            answers.append(await ask(service, "job.wait", {"job": job}))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            assert answers == []
            house.runner.listener.on_failed(task.job, 1, JobFailure("data", "bad"))

    assert answers[0]["state"] == "failed"


async def test_wait_for_an_open_job_reads_nothing_before_the_job_ends(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with house.living() as service:
        job = await _owned(house, service, None)
        task = await house.runner.next_task()
        with monkeypatch.context() as unreadable:
            unreadable.setattr(JobRegistry, "find", None)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ask, service, "job.wait", {"job": job})
                await anyio.wait_all_tasks_blocked()
                unreadable.undo()
                house.runner.listener.on_failed(task.job, 1, JobFailure("data", "bad"))


async def test_wait_for_an_ended_job_is_answered_at_once(house: House) -> None:
    async with house.living() as service:
        job = await _finished(house, service, JobOutput())

        assert (await ask(service, "job.wait", {"job": job}))["state"] == "done"


async def test_wait_is_answered_in_time_although_the_job_goes_on(house: House) -> None:
    async with house.living() as service:
        job = await _owned(house, service, None)
        await house.runner.next_task()
        known = {one.name: one for one in management_verbs(service)}["job.wait"]
        asked = request("job.wait", {"job": job})
        asked.deadline = time.monotonic() + 0.05
        by_deadline = await known.invoke(known.signature.bind({"job": job}), asked)
        by_timeout = await ask(service, "job.wait", {"job": job, "timeout": 0})

    assert (by_deadline["state"], by_timeout["state"]) == ("starting", "starting")


async def test_too_many_waits_are_answered_at_once(house: House) -> None:
    house.limits = JobLimits(max_waiting=1)
    answers: list[Any] = []
    async with house.living() as service:
        job = await _owned(house, service, None)
        await house.runner.next_task()
        is_answered = anyio.Event()

        async def wait() -> None:
            answers.append(await ask(service, "job.wait", {"job": job}))
            is_answered.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            tasks.start_soon(wait)
            await is_answered.wait()
            tasks.cancel_scope.cancel()

    assert [answer["state"] for answer in answers] == ["starting"]


async def test_list_shows_the_latest_first_page_by_page(house: House) -> None:
    house.runner.max_running = 1
    async with house.living() as service:
        jobs = [await _owned(house, service, owner) for owner in ("alice", "bob", "alice", "alice")]
        first = await ask(service, "job.list", {"owner": "alice", "limit": 2})
        second = await ask(service, "job.list", {"owner": "alice", "limit": 2, "before": first["next"]})
        waiting = await ask(service, "job.list", {"state": "queued", "verb": "count"})

    assert [one["job"] for one in first["jobs"]] == [jobs[3], jobs[2]]
    assert ([one["job"] for one in second["jobs"]], second["next"]) == ([jobs[0]], None)
    assert [(one["job"], one["position"]) for one in waiting["jobs"]] == [
        (jobs[3], 3), (jobs[2], 2), (jobs[1], 1),
    ]  # fmt: skip


async def test_last_page_of_a_list_is_known_as_such_and_one_after_nothing_is_none(house: House) -> None:
    async with house.living() as service:
        for _ in range(3):
            await _owned(house, service, None)
        whole = await ask(service, "job.list", {"limit": 3})
        part = await ask(service, "job.list", {"limit": 2})
        error = await _error(service, "job.list", {"before": _UNKNOWN})

    assert (len(whole["jobs"]), whole["next"]) == (3, None)
    assert part["next"] == part["jobs"][1]["job"]
    assert error.code == "not-found"


async def test_job_that_waits_says_what_for_and_not_by_its_parameters(tmp_path: Path) -> None:
    house = House(tmp_path, exclusive=lambda *_, **__: "the secret place")
    async with house.living() as service:
        first, second = [await _owned(house, service, "alice") for _ in range(2)]
        status = await ask(service, "job.status", {"job": second}, "bob")
        told = house.published.statuses(second)[-1]

    assert status["note"] == told.note == f"waits for {first}, which has the same exclusive key"


async def test_engines_report_their_state_and_are_restarted(house: House) -> None:
    async with house.living() as service:
        status = await ask(service, "engine.status")
        await ask(service, "engine.restart")
        await ask(service, "engine.restart", {"engine": "default"})
        error = await _error(service, "engine.restart", {"engine": "bulk"})

    assert status["default"] == {"state": "ready", "may_restart": True}
    assert status["service"]["state"] == "ready"
    assert house.runner.restarts == 2
    assert error.code == "not-found"


async def test_engine_is_restarted_by_its_operators_alone(house: House) -> None:
    house.options["operators"] = {"default": ["olga"]}
    async with house.living() as service:
        errors = [await _error(service, "engine.restart", None, who) for who in (None, "anonymous", "bob")]
        await ask(service, "engine.restart", None, "olga")
        told = {who: await ask(service, "engine.status", None, who) for who in (None, "bob", "olga")}

    assert {who: status["default"]["may_restart"] for who, status in told.items()} == {
        None: False,
        "bob": False,
        "olga": True,
    }
    assert "may_restart" not in told["olga"]["service"]
    assert {error.code for error in errors} == {"not-allowed"}
    assert "operators" in errors[0].message
    assert house.runner.restarts == 1


async def test_engine_without_named_operators_is_nobodys_whom_the_broker_vouches_for(house: House) -> None:
    async with house.living() as service:
        error = await _error(service, "engine.restart", None, "bob")
        await ask(service, "engine.restart", None, "anonymous")

    assert error.code == "not-allowed"
    assert house.runner.restarts == 1
