"""Acceptance: what is refused, what is the same job, and what survives a crash between any two steps."""

from __future__ import annotations

import asyncio
import math
import sqlite3
import threading
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from pydantic import BaseModel
from pydantic_core import from_json

from nebula.rpc.contract.job_runner import JobOutput, JobTask
from nebula.rpc.errors import VerbError
from nebula.rpc.jobs.model.limits import JobLimits
from nebula.rpc.jobs.registry.job_filter import JobFilter
from nebula.rpc.jobs.registry.registry import JobRegistry
from nebula.rpc.jobs.registry.sqlite import SqliteJobRegistry
from nebula.rpc.jobs.service.service import JobService
from nebula.rpc.jobs.verb import JobVerb
from nebula.rpc.wire.brokers import RABBITMQ
from tests.rpc.jobs.faults import failing_after
from tests.rpc.jobs.harness import DELIVERY, REPLY, House, ask, count, request

pytestmark = pytest.mark.anyio

_ULID = "01JDB3QK6M0000000000000000"


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


async def _refused(service: JobService, house: House, parameters: Any = None, **headers: str) -> VerbError:
    with pytest.raises(VerbError) as caught:
        await house.accept(service, parameters, **headers)
    listed = await ask(service, "job.list")
    assert all(one["state"] in ("queued", "starting") for one in listed["jobs"])
    return caught.value


async def test_early_success_says_which_job_and_where_to_look(house: House) -> None:
    house.runner.max_running = 1
    async with house.living() as service:
        first = await house.accept(service, neb_job_id=_ULID)
        second, third = await house.accept(service), await house.accept(service)

    assert first == {
        "job": f"counting/{_ULID}",
        "state": "queued",
        "position": 1,
        "status": f"X/jobs.counting.{_ULID}",
        "via": service.via,
    }
    assert (second["position"], third["position"]) == (1, 2)


async def test_job_is_on_the_disk_when_it_is_accepted(house: House) -> None:
    async with house.living() as service:
        receipt = await house.accept(service, {"up_to": 7}, neb_job_priority="8")
        # Another connection sees what is committed, and nothing else.
        registry = SqliteJobRegistry(house.registry_file, is_read_only=True)
        found = registry.find(receipt["job"].rpartition("/")[2])
        registry.close()

    assert found is not None
    assert (found.parameters, found.priority, found.owner) == ({"up_to": 7}, 8, "")


async def test_job_for_which_there_is_room_is_accepted_and_begun_by_one_commit(house: House) -> None:
    house.runner.max_running = 1
    async with house.living() as service:
        receipts = [await house.accept(service), await house.accept(service)]
        registry = SqliteJobRegistry(house.registry_file, is_read_only=True)
        found = [registry.find(receipt["job"].rpartition("/")[2]) for receipt in receipts]
        registry.close()

    assert [one and (one.state, one.seq, one.holder) for one in found] == [
        ("starting", 2, service.instance), ("queued", 1, None),
    ]  # fmt: skip


@pytest.mark.parametrize("principal", [None, "somebody"])
async def test_request_for_a_known_job_keeps_no_place(house: House, principal: str | None) -> None:
    house.runner.max_running = 1
    async with house.living() as service:
        known = await house.accept(service, neb_job_id=_ULID)
        first = await house.runner.next_task()
        house.runner.listener.on_done(first.job, 1, JobOutput(value=1))
        await house.published.until(first.job, "done")
        again = request(house.verb_name, principal=principal, neb_job_id=_ULID)
        with suppress(VerbError):
            answer = await service.accept(again, house.verb, house.verb.signature.bind(None))
            assert answer["job"] == known["job"]
        receipt = await house.accept(service)
        second = await house.runner.next_task(2)

    assert receipt["job"].endswith(second.job)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_job_whose_caller_was_cancelled_by_asyncio_itself_has_one_place(house: House) -> None:
    house.runner.max_running = 1
    is_held, goes_on = threading.Event(), threading.Event()

    def hold(_registry: JobRegistry) -> None:
        is_held.set()
        goes_on.wait(10.0)

    async with house.living() as service, anyio.create_task_group() as tasks:
        tasks.start_soon(service.read, hold)
        await anyio.to_thread.run_sync(is_held.wait, 10.0)
        # As `asyncio.timeout` does in a middleware.
        accepting = asyncio.create_task(house.accept(service))
        await anyio.wait_all_tasks_blocked()
        accepting.cancel()
        goes_on.set()
        await house.runner.next_task()
        second = await house.accept(service)

        assert (await ask(service, "job.status", {"job": second["job"]}))["position"] == 1


async def test_job_may_be_accepted_now_and_begun_later(house: House) -> None:
    async with house.living() as service:
        receipt = await house.accept(service, neb_job_not_before="1000060000")
        now = await house.accept(service, neb_job_not_before="999999000")
        first = await house.runner.next_task()
        house.pass_time(service, 60.0)
        second = await house.runner.next_task(2)

    assert (receipt["state"], receipt["position"]) == ("queued", None)
    assert [now["job"], receipt["job"]] == [f"counting/{task.job}" for task in (first, second)]


async def test_job_that_is_begun_later_may_wait_for_its_turn_from_then_on(tmp_path: Path) -> None:
    house = House(tmp_path, expires=30.0)
    house.runner.max_running = 1
    async with house.living() as service:
        await house.accept(service)
        later = await house.accept(service, neb_job_not_before="1000060000")
        first = await house.runner.next_task()
        for seconds in (40.0, 49.0):
            house.pass_time(service, seconds)
            assert (await ask(service, "job.status", {"job": later["job"]}))["state"] == "queued"
        house.pass_time(service, 1.0)
        await house.published.until(later["job"], "expired")

        assert [task.job for task in house.runner.submitted] == [first.job]


@pytest.mark.parametrize(
    "exclusive", ["up_to", lambda up_to=3, **_: up_to, lambda *args, **named: named.get("up_to", 3)]
)
async def test_jobs_with_the_same_exclusive_key_are_not_run_at_the_same_time(
    house: House, exclusive: Any
) -> None:
    house.declaration["exclusive"] = exclusive
    async with house.living() as service:
        for parameters in ({"up_to": 3}, None, {"up_to": 4}):
            await house.accept(service, parameters)
        tasks = [await house.runner.next_task(number) for number in (1, 2)]

    assert [task.parameters for task in tasks] == [{"up_to": 3}, {"up_to": 4}]


async def test_exclusive_key_that_is_too_long_refuses_the_request(house: House) -> None:
    house.declaration["exclusive"] = lambda **_: "x" * 257
    async with house.living() as service:
        error = await _refused(service, house)

    assert (error.code, error.message) == (
        "bad-parameters",
        "the exclusive key is longer than 256 characters",
    )


@pytest.mark.parametrize(
    ("headers", "field"),
    [
        ({"neb_job_id": "not-a-ulid"}, "neb-job-id"),
        ({"neb_job_id": _ULID.lower()}, "neb-job-id"),
        ({"neb_job_timeout": "soon"}, "neb-job-timeout"),
        ({"neb_job_timeout": "0"}, "neb-job-timeout"),
        ({"neb_job_timeout": "-5"}, "neb-job-timeout"),
        ({"neb_job_progress_every": "1.5"}, "neb-job-progress-every"),
        ({"neb_job_priority": "10"}, "neb-job-priority"),
        ({"neb_job_not_before": "tomorrow"}, "neb-job-not-before"),
        ({"neb_job_not_before": "1" * 14}, "neb-job-not-before"),
        ({"neb_job_dedupe": ""}, "neb-job-dedupe"),
        ({"neb_job_dedupe": "x" * 257}, "neb-job-dedupe"),
        ({"neb_job_notify": "nowhere"}, "neb-job-notify"),
        ({"neb_job_notify": "/queue/nebula.broker"}, "neb-job-notify"),
        ({"neb_job_notify": "/queue/" + "x" * 4000}, "neb-job-notify"),
    ],
)
async def test_header_outside_its_form_is_refused(
    house: House, headers: Mapping[str, str], field: str
) -> None:
    async with house.living() as service:
        error = await _refused(service, house, **headers)

    assert (error.code, error.details[0]["field"]) == ("bad-parameters", field)


@pytest.mark.parametrize(
    ("sent", "field"),
    [
        (b'{"share":1e999}', "share"),
        (b'{"share":NaN}', "share"),
        (b'{"share":"-inf"}', "share"),
        (b'{"anything":{"levels":[1,[2,Infinity]]}}', "anything.levels.1.1"),
        (b'{"limits":{"low":0,"high":1e999}}', "limits.high"),
    ],
)
async def test_number_that_json_has_not_is_refused_by_its_name(sent: bytes, field: str) -> None:
    verb = JobVerb("measuring", measure, engine="default")

    with pytest.raises(VerbError) as caught:
        verb.parameters_of(verb.signature.bind(from_json(sent)))

    assert (caught.value.code, caught.value.message) == (
        "bad-parameters",
        f"{field}: Input should be a finite number",
    )
    assert caught.value.details[0]["field"] == field


async def test_request_with_infinity_is_no_job(house: House) -> None:
    house.declaration["function"] = measure
    async with house.living() as service:
        error = await _refused(service, house, from_json(b'{"share":1e999}'))

    assert error.code == "bad-parameters"


def test_default_that_json_has_not_stays_a_default() -> None:
    verb = JobVerb("measuring", measure, engine="default")
    recorded = verb.parameters_of(verb.signature.bind({"share": 0.5}))

    assert recorded == {"share": 0.5, "anything": None, "limits": None}
    assert verb.signature.bind(recorded)[1]["up_to"] == math.inf


class Limits(BaseModel):
    low: float
    high: float


def measure(
    share: float = 1.0, up_to: float = math.inf, anything: Any = None, limits: Limits | None = None
) -> None:
    """A job's code, which never runs."""


async def test_check_refuses_in_its_own_words(house: House) -> None:
    house.declaration["check"] = lambda up_to=3: "too far" if up_to > 10 else None
    async with house.living() as service:
        error = await _refused(service, house, {"up_to": 11})
        receipt = await house.accept(service, {"up_to": 10})

    assert (error.code, error.message) == ("bad-parameters", "too far")
    assert receipt["state"] == "queued"


async def test_check_that_waits_too_long_refuses(house: House) -> None:
    async def check(up_to: int = 3) -> None:
        await anyio.sleep_forever()

    house.declaration["check"] = check
    house.limits = JobLimits(check_timeout=0.01)
    async with house.living() as service:
        error = await _refused(service, house)

    assert error.code == "deadline-exceeded"


async def test_known_job_is_not_checked_again(house: House) -> None:
    verdicts = iter([None, "the source is gone by now"])
    house.declaration["check"] = lambda up_to=3: next(verdicts)
    async with house.living() as service:
        first = await house.accept(service, **DELIVERY)
        again = await house.accept(service, **DELIVERY)

    assert again["job"] == first["job"]


async def test_full_queue_is_busy_but_knows_its_jobs(house: House) -> None:
    house.runner.max_running = 1
    house.limits = JobLimits(max_queued=2, owner_share=1.0)
    async with house.living() as service:
        await house.accept(service)
        waiting = [await house.accept(service, **DELIVERY), await house.accept(service)]
        error = await _refused(service, house)
        again = await house.accept(service, **DELIVERY)

    assert (error.code, error.retryable) == ("busy", True)
    assert "2 jobs are queued" in error.message
    assert again["job"] == waiting[0]["job"]


async def test_broken_engine_is_unavailable_but_its_jobs_are_known(house: House) -> None:
    async with house.living() as service:
        first = await house.accept(service, **DELIVERY)
        house.runner.is_broken = "Spark's engine cannot start"
        error = await _refused(service, house)
        again = await house.accept(service, **DELIVERY)

    assert (error.code, error.message) == ("engine-unavailable", "Spark's engine cannot start")
    assert again["job"] == first["job"]


@pytest.mark.parametrize(
    ("first", "second", "is_same"),
    [
        ({"neb_job_dedupe": "day 1"}, {"neb_job_dedupe": "day 1"}, True),
        ({"neb_job_dedupe": "day 1", **REPLY}, {"neb_job_dedupe": "day 2", **REPLY}, False),
        ({"neb_job_dedupe": "day 1", "neb_job_id": _ULID}, {"neb_job_dedupe": "day 1"}, True),
        ({"neb_job_id": _ULID}, {"neb_job_id": _ULID}, True),
        ({"neb_job_id": _ULID, **REPLY}, {**REPLY}, False),
        (DELIVERY, {**DELIVERY, "redelivered": "true"}, True),
        (DELIVERY, {**DELIVERY, "message_id": "m-2"}, False),
        (DELIVERY, {**DELIVERY, "message_id": "m-2", "redelivered": "true"}, False),
        ({"message_id": "m-1"}, {"message_id": "m-1"}, True),
        ({"neb_job_dedupe": "day 1", **DELIVERY}, {"neb_job_dedupe": "day 2", **DELIVERY}, False),
        (REPLY, REPLY, False),
        ({"neb_reply_id": "r1"}, {"neb_reply_id": "r1"}, False),
        ({}, {}, False),
    ],
)
async def test_same_key_is_the_same_job(
    house: House, first: Mapping[str, str], second: Mapping[str, str], is_same: bool
) -> None:
    async with house.living() as service:
        one, other = await house.accept(service, **first), await house.accept(service, **second)
        listed = await ask(service, "job.list")

    assert (one["job"] == other["job"]) is is_same
    assert len(listed["jobs"]) == (1 if is_same else 2)


async def test_repeated_reply_id_is_another_job_each_time(house: House) -> None:
    house.runner.max_running = 10
    async with house.living() as service:
        receipts = [
            await house.accept(service, {"up_to": number // 2}, **REPLY, message_id=f"m-{number}")
            for number in range(10)
        ]
        await house.runner.next_task(10)

    assert len({receipt["job"] for receipt in receipts}) == 10
    assert [task.parameters["up_to"] for task in house.runner.submitted] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]


_AGAIN = {**REPLY, "redelivered": "true"}


@pytest.mark.parametrize("check", [None, lambda **_: None])
async def test_broker_without_lasting_message_ids_says_what_is_delivered_again(
    house: House, check: Any
) -> None:
    house.brand, house.declaration["check"] = RABBITMQ, check
    async with house.living() as service:
        first = await house.accept(service, {"up_to": 1}, **REPLY, message_id="T_1@@s@@1")
        second = await house.accept(service, {"up_to": 1}, **REPLY, message_id="T_1@@s@@2")
        again = await house.accept(service, {"up_to": 1}, **_AGAIN, message_id="T_1@@t@@1")
        other = await house.accept(service, {"up_to": 2}, **_AGAIN, message_id="T_1@@t@@2")
        asker = await house.accept(service, {"up_to": 1}, **{**_AGAIN, "neb_reply_id": "r2"})

    assert again["job"] == second["job"]
    assert len({one["job"] for one in (first, second, other, asker)}) == 4


async def test_request_delivered_again_to_another_instance_has_its_job(house: House) -> None:
    house.brand = RABBITMQ
    async with house.living() as first:
        receipt = await house.accept(first, **REPLY)
        async with house.living() as second:
            again = await house.accept(second, **_AGAIN)

    assert (again["job"], again["via"]) == (receipt["job"], first.via)


async def test_requests_at_the_same_time_are_one_job(house: House) -> None:
    receipts: list[dict[str, Any]] = []
    async with house.living() as service:

        async def accept() -> None:
            receipts.append(await house.accept(service, **DELIVERY))

        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(accept)

    assert len(receipts) == 20
    assert len({receipt["job"] for receipt in receipts}) == 1
    assert len(house.runner.submitted) == 1


async def test_repeated_request_gets_the_present_state_of_its_job(house: House) -> None:
    async with house.living() as service:
        await house.accept(service, **DELIVERY)
        task = await house.runner.next_task()
        house.runner.listener.on_done(task.job, 1, JobOutput(value=1))
        again = await house.accept(service, **DELIVERY)

    assert (again["state"], again["position"]) == ("done", None)


async def test_id_of_another_principal_is_refused(house: House) -> None:
    async with house.living() as service:

        async def accept(principal: str | None, **headers: str) -> dict[str, Any]:
            asked = request("count", principal=principal, **headers)
            return await service.accept(asked, house.verb, ((), {}))

        await accept("alice", neb_job_id=_ULID)
        with pytest.raises(VerbError) as caught:
            await accept("mallory", neb_job_id=_ULID)
        first, second = await accept("alice", neb_job_dedupe="k"), await accept("bob", neb_job_dedupe="k")

    assert caught.value.code == "not-allowed"
    assert first["job"] != second["job"]


async def test_id_of_another_verb_is_refused(house: House) -> None:
    async with house.living() as service:
        other = JobVerb("other", count, engine="default")
        service.declare(other)
        await house.accept(service, neb_job_id=_ULID)
        with pytest.raises(VerbError) as caught:
            await service.accept(request("other", neb_job_id=_ULID), other, ((), {}))

    assert caught.value.code == "bad-parameters"


async def test_job_of_another_instance_is_known_with_its_via(house: House) -> None:
    async with house.living() as first:
        receipt = await house.accept(first, **DELIVERY)
        runner = house.runner
        await runner.next_task()
        async with house.living() as second:
            again = await house.accept(second, **DELIVERY)

        assert second.via != first.via
        assert (again["job"], again["via"], again["state"]) == (receipt["job"], first.via, "starting")
        assert house.runner.submitted == []


async def test_caller_that_is_gone_still_has_its_job(house: House) -> None:
    async with house.living() as service:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await house.accept(service)
        task = await house.runner.next_task()

    assert task.attempt == 1


async def _live_until_it_crashes(house: House) -> dict[str, Any] | None:
    """Accept a job and run it to its end, unless something fails. Returns the caller's receipt, if any."""
    receipt = None
    try:
        async with house.living() as service:
            receipt = await house.accept(service, **DELIVERY)
            task = await house.runner.next_task()
            house.runner.listener.on_started(task.job, task.attempt)
            house.runner.listener.on_done(task.job, task.attempt, JobOutput(value=1))
            await house.published.until(receipt["job"], "done")
    except* (sqlite3.OperationalError, VerbError):
        pass
    return receipt


async def _redeliver(house: House) -> tuple[dict[str, Any], list[JobTask]]:
    """Deliver the request to the next process: the receipt, and the tasks that run then."""
    async with house.living() as service:
        receipt = await house.accept(service, **DELIVERY)
        await ask(service, "job.status", {"job": receipt["job"]})
        tasks = list(house.runner.submitted)
        listed = await service.read(lambda registry: registry.page(JobFilter(), 10))

    assert len(listed) == 1
    return receipt, tasks


@pytest.mark.parametrize("statements", range(1, 45))
async def test_disk_that_fails_at_any_statement_makes_no_second_job(house: House, statements: int) -> None:
    house.options["connect"] = partial(sqlite3.connect, factory=failing_after(statements))
    told = await _live_until_it_crashes(house)
    ran = list(house.runner.submitted)
    house.options.clear()

    receipt, tasks = await _redeliver(house)

    # It ran once or, if the crash came between writing and handing over, not at all: never twice.
    assert len(ran) + len(tasks) <= 1
    if told is not None:
        assert receipt["job"] == told["job"]
    if not ran and not tasks:
        assert receipt["state"] == "lost"


@pytest.mark.parametrize("telling", range(1, 5))
async def test_crash_after_any_telling_makes_no_second_job(house: House, telling: int) -> None:
    told: list[str] = []

    async def live() -> None:
        async with house.living() as service:
            publish = house.published

            def crash(destination: str, body: bytes, headers: Mapping[str, str]) -> None:
                told.append(publish.messages[-1][1].state)
                if len(told) == telling:
                    raise ZeroDivisionError

            publish.then = crash
            await house.accept(service, **DELIVERY)
            task = await house.runner.next_task()
            house.runner.listener.on_started(task.job, 1)
            await publish.until(task.job, "running")
            house.runner.listener.on_done(task.job, 1, JobOutput(value=1))
            await anyio.sleep_forever()

    with pytest.raises(BaseExceptionGroup):
        await live()
    ran = list(house.runner.submitted)

    receipt, tasks = await _redeliver(house)

    assert told == ["queued", "starting", "running", "done"][:telling]
    assert len(ran) + len(tasks) <= 1
    # What was told is what the next process knows, or what follows from it.
    assert receipt["state"] == ("done" if told[-1] == "done" else "lost")


async def test_crash_at_the_handing_over_loses_the_job_rather_than_running_it_twice(house: House) -> None:
    async def live() -> None:
        async with house.living() as service:

            def crash(task: JobTask) -> None:
                raise ZeroDivisionError

            house.runner.on_submit = crash
            await house.accept(service, **DELIVERY)
            await anyio.sleep_forever()

    with pytest.raises(BaseExceptionGroup):
        await live()

    receipt, tasks = await _redeliver(house)

    assert (receipt["state"], tasks) == ("lost", [])
