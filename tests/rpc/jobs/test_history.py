"""The history of a job: its steps, its log as it grows, all of it, and a rerun."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from nebula.headers import JOB_ID
from nebula.rpc.contract.job_runner import JobFailure, JobOutput, Progress
from nebula.rpc.errors import VerbError
from nebula.rpc.jobs.model.limits import JobLimits
from nebula.rpc.jobs.model.record import MAX_LOG_LINES, MOST_STEPS, JobRecord, with_step, with_steps_over
from nebula.rpc.jobs.service.service import JobService
from nebula.rpc.jobs.service.verbs import management_verbs
from nebula.rpc.jobs.verb import JobVerb
from tests.rpc.jobs.harness import House, ask, count, request

pytestmark = pytest.mark.anyio


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


async def _running(house: House, service: JobService, owner: str | None = None) -> tuple[str, str]:
    job = str((await service.accept(request("count", principal=owner), house.verb, ((), {})))["job"])
    ulid = job.rpartition("/")[2]
    await house.runner.until(lambda: any(task.job == ulid for task in house.runner.submitted))
    house.runner.listener.on_started(ulid, 1)
    return job, ulid


# --- steps ---


def _record(**fields: Any) -> JobRecord:
    return JobRecord("0" * 26, "count", {}, 1.0, **fields)


def test_step_begins_when_it_is_first_reported_and_ends_with_the_next() -> None:
    record = with_step(_record(), (1, 2, "read"), 10.0)
    record = with_step(record, (1, 2, "read"), 11.0)
    record = with_step(record, (2, 2, "write"), 12.0)
    record = with_step(record, None, 13.0)

    assert [tuple(step) for step in record.steps] == [
        (1, 2, "read", 10.0, 12.0), (2, 2, "write", 12.0, None),
    ]  # fmt: skip
    over = with_steps_over(record, 15.0)
    assert over.steps[-1].ended_at == 15.0
    assert with_steps_over(over, 16.0) == over


def test_step_that_is_begun_again_after_its_end_is_another_one() -> None:
    record = with_steps_over(with_step(_record(), (1, 1, "read"), 1.0), 2.0)

    assert len(with_step(record, (1, 1, "read"), 3.0).steps) == 2


def test_last_ones_of_very_many_steps_are_kept() -> None:
    record = _record()
    for number in range(1, 3 * MOST_STEPS):
        record = with_step(record, (number, 1000, ""), float(number))

    assert [step.number for step in record.steps] == list(range(2 * MOST_STEPS, 3 * MOST_STEPS))


async def test_steps_of_a_run_are_shown_with_their_times_and_counters(house: House) -> None:
    async with house.living() as service:
        job, ulid = await _running(house, service)
        began = house.time.seconds
        house.runner.listener.on_progress(ulid, 1, Progress(0.0, "read", (1, 2, "read"), at=began + 0.25))
        house.pass_time(service, 4.0)
        progress = Progress(0.5, "write", (2, 2, "write"), counters={"rows_read": 12})
        house.runner.listener.on_progress(ulid, 1, progress)
        house.pass_time(service, 1.0)
        house.runner.listener.on_done(ulid, 1, JobOutput(path="/p", rows=3, preview=[{"a": 1}]))
        await house.published.until(job, "done")
        known = await ask(service, "job.show", {"job": job})
        status = await ask(service, "job.status", {"job": job})

    assert [(step["name"], step["started_at"], step["ended_at"]) for step in known["steps"]] == [
        ("read", began + 0.25, began + 4.0), ("write", began + 4.0, began + 5.0),
    ]  # fmt: skip
    assert known["counters"] == status["counters"] == {"rows_read": 12}
    assert known["result"] == {"path": "/p", "rows": 3, "preview": [{"a": 1}]}


async def test_steps_of_a_lost_run_are_not_those_of_the_next(tmp_path: Path) -> None:
    house = House(tmp_path, on_lost="rerun")
    async with house.living() as service:
        job, ulid = await _running(house, service)
        house.runner.listener.on_progress(ulid, 1, Progress(0.0, "", (1, 2, "read")))
        house.runner.listener.on_lost(ulid, 1, "it died")
        await house.published.until(job, "queued")
        known = await ask(service, "job.show", {"job": job})

    assert known["steps"] == []


# --- the log ---


async def test_log_is_read_on_from_a_number(house: House) -> None:
    async with house.living() as service:
        job, ulid = await _running(house, service)
        for number in range(5):
            house.runner.listener.on_log(ulid, 1, f"line {number}")
        first = await ask(service, "job.log", {"job": job, "after": 0, "limit": 2})
        second = await ask(service, "job.log", {"job": job, "after": first["next"]})
        third = await ask(service, "job.log", {"job": job, "after": second["next"]})

    texts = [[line["text"] for line in one["lines"]] for one in (first, second, third)]
    assert texts == [["line 0", "line 1"], ["line 2", "line 3", "line 4"], []]
    assert (first["next"], second["next"], third["next"]) == (2, 5, 5)
    assert not any(one["is_over"] for one in (first, second, third))


async def test_log_is_over_with_the_line_that_came_last(house: House) -> None:
    async with house.living() as service:
        job, ulid = await _running(house, service)
        house.runner.listener.on_log(ulid, 1, "one")
        house.runner.listener.on_failed(ulid, 1, JobFailure("job", "no", trace="Traceback: no"))
        await house.published.until(job, "failed")
        part = await ask(service, "job.log", {"job": job, "after": 0, "limit": 1})
        rest = await ask(service, "job.log", {"job": job, "after": 1, "timeout": 20})

    assert (part["is_over"], rest["is_over"]) == (False, True)
    assert [line["text"] for line in rest["lines"]] == ["Traceback: no"]


@pytest.mark.parametrize("what", ["line", "end"])
async def test_follower_is_kept_waiting_for_a_line_or_the_end(house: House, what: str) -> None:
    answers: list[Any] = []

    async def follow(service: JobService, job: str) -> None:
        answers.append(await ask(service, "job.log", {"job": job, "after": 0, "timeout": 20}))

    async with house.living() as service:
        job, ulid = await _running(house, service)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(follow, service, job)
            await anyio.wait_all_tasks_blocked()
            assert answers == []
            if what == "line":
                house.runner.listener.on_log(ulid, 1, "at last")
                house.pass_time(service, 1.0)
            else:
                house.runner.listener.on_done(ulid, 1, JobOutput())

    (answer,) = answers
    assert [line["text"] for line in answer["lines"]] == (["at last"] if what == "line" else [])
    assert answer["is_over"] is (what == "end")


async def test_followers_beyond_the_limit_are_answered_at_once(house: House) -> None:
    house.limits = JobLimits(max_waiting=0)
    async with house.living() as service:
        job, _ulid = await _running(house, service)
        answer = await ask(service, "job.log", {"job": job, "after": 0, "timeout": 20})

    assert answer == {"lines": [], "next": 0, "is_over": False}


async def test_log_goes_on_with_its_numbers_after_a_restart(tmp_path: Path) -> None:
    house = House(tmp_path, on_lost="rerun")
    async with house.living() as service:
        job, ulid = await _running(house, service)
        house.runner.listener.on_log(ulid, 1, "before")
        first = await ask(service, "job.log", {"job": job, "after": 0})
    async with house.living() as service:
        later = await ask(service, "job.log", {"job": job, "after": first["next"]})

    assert [line["number"] for line in later["lines"]] == [2]
    assert later["lines"][0]["text"].startswith("attempt 1 was lost")


async def test_slow_reader_sees_by_the_numbers_that_lines_are_gone(house: House) -> None:
    async with house.living() as service:
        job, ulid = await _running(house, service)
        for _round in range(3):
            for _line in range(MAX_LOG_LINES):
                house.runner.listener.on_log(ulid, 1, "x")
            await ask(service, "job.status", {"job": job})
        answer = await ask(service, "job.log", {"job": job, "after": 7, "limit": 1})

    assert answer["lines"][0]["number"] == 2 * MAX_LOG_LINES + 1


# --- the same again ---


def _again(job: str, principal: str | None, **headers: str) -> Any:
    return request("job.rerun", {"job": job}, principal=principal, **headers)


async def _rerun(
    house: House, service: JobService, job: str, principal: str | None = None, **headers: str
) -> dict[str, Any]:
    known = {one.name: one for one in management_verbs(service)}["job.rerun"]
    asked = _again(job, principal, **headers)
    answer: dict[str, Any] = await known.invoke(known.signature.bind(asked.parameters), asked)
    return answer


async def test_rerun_is_a_new_job_of_the_asker_with_the_parameters(house: House) -> None:
    async with house.living() as service:
        old = (await house.accept(service, {"up_to": 9}))["job"]
        receipt = await _rerun(house, service, old)
        task = await house.runner.next_task(2)
        known = await ask(service, "job.show", {"job": receipt["job"]})

    assert receipt["job"] != old
    assert set(receipt) == {"job", "state", "position", "status", "via"}
    assert task.parameters == {"up_to": 9}
    assert known["rerun_of"] == old


async def test_rerun_is_answered_like_the_request_for_a_job(house: House) -> None:
    async with house.living() as service:
        verbs = {verb.name: verb.response for verb in management_verbs(service)}

    assert verbs["job.rerun"] == "success"
    assert verbs["job.show"] == "job.showresponse"


async def test_rerun_that_comes_twice_begins_one_job(house: House) -> None:
    headers = {JOB_ID.replace("-", "_"): "01JDB3QK6M0000000000000077"}
    async with house.living() as service:
        old = (await house.accept(service))["job"]
        first = await _rerun(house, service, old, **headers)
        second = await _rerun(house, service, old, **headers)

    assert first["job"] == second["job"] == "counting/01JDB3QK6M0000000000000077"


async def test_rerun_is_checked_again(tmp_path: Path) -> None:
    objections: list[str | None] = [None, "no such month"]
    house = House(tmp_path, check=lambda up_to=3: objections.pop(0))
    async with house.living() as service:
        old = (await house.accept(service))["job"]
        with pytest.raises(VerbError) as caught:
            await _rerun(house, service, old)

    assert (caught.value.code, caught.value.message) == ("bad-parameters", "no such month")


async def test_rerun_of_parameters_that_the_verb_takes_no_more_is_refused(house: House) -> None:
    async with house.living() as service:
        old = (await house.accept(service, {"up_to": 9}))["job"]

    def changed(up_to: str) -> None: ...

    house.declaration["function"] = changed
    async with house.living() as service:
        with pytest.raises(VerbError) as caught:
            await _rerun(house, service, old)

    assert caught.value.code == "bad-parameters"


async def test_rerun_of_a_verb_that_is_gone_says_so(house: House) -> None:
    async with house.living() as service:
        old = (await house.accept(service))["job"]
        service._verbs.clear()
        with pytest.raises(VerbError) as caught:
            await _rerun(house, service, old)

    assert (caught.value.code, caught.value.message) == (
        "unknown-verb", "counting has no job 'count' any more",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("allow", "owner", "asks", "may"),
    [
        (None, "alice", "alice", True),
        (None, "alice", "bob", False),
        (None, None, "bob", True),
        (["alice", "bob"], "alice", "alice", True),
        (["alice", "bob"], "alice", "bob", False),
        (["alice", "bob"], "", "bob", True),
        (["bob"], "alice", "alice", False),
        (["bob"], "alice", None, False),
    ],
)
async def test_rights_to_have_a_job_run_again(
    house: House, allow: list[str] | None, owner: str | None, asks: str | None, may: bool
) -> None:
    async with house.living() as service:
        verb = JobVerb("listed", count, engine="default")
        service.declare(verb, None if allow is None else frozenset(allow))
        receipt = await service.accept(request("listed", principal=owner), verb, ((), {}))
        code = None
        try:
            await _rerun(house, service, receipt["job"], asks)
        except VerbError as error:
            code = error.code

    assert code == (None if may else "not-allowed")


async def test_forgotten_job_is_reported_as_such(house: House) -> None:
    async with house.living() as service:
        with pytest.raises(VerbError) as caught:
            await ask(service, "job.show", {"job": "counting/01JDB3QK6M0000000000000000"})

    assert caught.value.message == (
        "counting knows no job 01JDB3QK6M0000000000000000: it was never accepted, or is forgotten, as a job "
        "is 30 days after its end, or when more than 10,000 have ended"
    )


async def test_list_is_filtered_by_states_and_time(house: House) -> None:
    async with house.living() as service:
        first, ulid = await _running(house, service)
        house.runner.listener.on_failed(ulid, 1, JobFailure("data", "no readings"))
        await house.published.until(first, "failed")
        house.pass_time(service, 10.0)
        second, _ulid = await _running(house, service)

        async def listed(**wanted: Any) -> list[str]:
            return [one["job"] for one in (await ask(service, "job.list", wanted))["jobs"]]

        now = house.time.seconds
        assert await listed() == [second, first]
        assert await listed(state=["failed", "done"]) == [first]
        assert await listed(state="failed") == [first]
        assert await listed(since=now) == [second]
        assert await listed(until=now) == [first]
        assert await listed(text="READING") == [first]
        assert await listed(before=second) == [first]
