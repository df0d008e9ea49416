"""Instances of a service that share one queue of jobs, in one loop, over a real PostgreSQL."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import psycopg
import pytest

from nebula.extras.postgres import PostgresJobs
from nebula.extras.postgres_database import Database
from nebula.extras.postgres_registry import PostgresJobRegistry
from nebula.rpc.contract.job_runner import JobOutput, JobTask
from nebula.rpc.errors import VerbError
from nebula.rpc.jobs.model.limits import JobLimits
from nebula.rpc.jobs.model.states import JobState
from nebula.rpc.jobs.registry.errors import RegistryLost
from nebula.rpc.jobs.registry.registry import JobRegistry
from nebula.rpc.jobs.registry.sqlite import SqliteJobRegistry, peek
from nebula.rpc.jobs.registry.state_folder import StateFolder
from nebula.rpc.jobs.registry.takeover import Orphans
from nebula.rpc.jobs.service.service import JobService
from tests.foreign.postgresql import PostgresServer, SlowDatabase
from tests.own_logs import all_logs
from tests.rpc.jobs.harness import House, ask
from tests.rpc.jobs.registries import job

# The first one waits for PostgreSQL to be installed.
pytestmark = [pytest.mark.anyio, pytest.mark.foreign, pytest.mark.timeout(300)]


@pytest.fixture
def new_house(tmp_path: Path, database: Database) -> Callable[..., House]:
    """An instance with a folder of its own; all have the database."""

    def make(name: str, **declaration: Any) -> House:
        house = House(tmp_path / name, name, **declaration)
        house.options["database"] = PostgresJobs(database)
        return house

    return make


@asynccontextmanager
async def living(*houses: House) -> AsyncIterator[list[JobService]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(house.living()) for house in houses]


def _finish(house: House, job: str, attempt: int = 1) -> None:
    house.runner.listener.on_started(job, attempt)
    house.runner.listener.on_done(job, attempt, JobOutput(value="done"))


async def _wait(service: JobService, job: str) -> str:
    status = await ask(service, "job.wait", {"job": job})
    return str(status["state"])


async def test_idle_instance_takes_what_waits_and_any_instance_answers_for_it(
    new_house: Callable[..., House],
) -> None:
    first, second = new_house("a"), new_house("b")
    first.runner.max_running = 0
    async with living(first, second) as (asked, other):
        receipt = await first.accept(asked, {"up_to": 7})
        task = await second.runner.next_task()
        _finish(second, task.job)
        state = await _wait(asked, receipt["job"])
        results = [await ask(one, "job.result", {"job": receipt["job"]}) for one in (asked, other)]

        assert first.runner.submitted == []
    assert (task.parameters, receipt["via"], state) == ({"up_to": 7}, "/queue/counting", "done")
    assert results == [{"value": "done"}, {"value": "done"}]


async def test_each_job_runs_once_whoever_accepted_it(new_house: Callable[..., House]) -> None:
    houses = [new_house(name) for name in "abc"]
    async with living(*houses) as services:
        accepted = []
        for number in range(30):
            house = houses[number % 3]
            house.runner.on_submit = lambda task, house=house: _soon(house, task.job)  # type: ignore[misc]
            accepted.append((await house.accept(services[number % 3]))["job"].partition("/")[2])
        states = [await _wait(services[0], f"counting/{job}") for job in accepted]
        begun = [task.job for house in houses for task in house.runner.submitted]

    assert states == ["done"] * 30
    assert sorted(begun) == sorted(accepted)


@pytest.mark.slow
async def test_each_job_runs_once_while_requests_are_refused(new_house: Callable[..., House]) -> None:
    houses = [new_house(name) for name in "ab"]
    accepted, refused = list[str](), Counter[str]()
    for house in houses:
        house.limits = JobLimits(max_queued=4, owner_share=1.0)

    async def ask_for(house: House, service: JobService, jobs: int) -> None:
        while jobs > 0:
            try:
                accepted.append((await house.accept(service))["job"].partition("/")[2])
                jobs -= 1
            except VerbError as error:
                refused[error.code] += 1
                await anyio.sleep(0.001)

    async def work(house: House, job: str) -> None:
        # As long as others wait, so that both instances are after the same ones.
        await anyio.sleep(0.01)
        _finish(house, job)

    async with living(*houses) as services, anyio.create_task_group() as tasks:

        def begin(house: House, task: JobTask) -> None:
            tasks.start_soon(work, house, task.job)

        for house in houses:
            house.runner.on_submit = partial(begin, house)
        async with anyio.create_task_group() as asking:
            for house, service in zip(houses, services, strict=True):
                for _ in range(4):
                    asking.start_soon(ask_for, house, service, 8)
        states = [await _wait(services[0], f"counting/{job}") for job in accepted]
        begun = [task.job for house in houses for task in house.runner.submitted]

    assert refused["busy"] > 0
    assert states == ["done"] * 64
    assert sorted(begun) == sorted(accepted)


def _soon(house: House, job: str) -> None:
    from sniffio import current_async_library

    if current_async_library() == "asyncio":
        import asyncio

        asyncio.get_running_loop().call_soon(_finish, house, job)
    else:
        import trio

        trio.lowlevel.current_trio_token().run_sync_soon(_finish, house, job)


async def test_keys_and_numbers_hold_over_all_instances(new_house: Callable[..., House]) -> None:
    rules = {"exclusive": "up_to", "max_running": 2}
    first, second = new_house("a", **rules), new_house("b", **rules)
    first.runner.max_running, second.runner.max_running = 1, 0
    async with living(first, second) as (one, other):
        held = await first.accept(one, {"up_to": 1})
        task = await first.runner.next_task()
        second.runner.max_running = 2
        await second.accept(other, {"up_to": 1})
        await second.accept(other, {"up_to": 2})
        next_one = await second.runner.next_task()
        third = await second.accept(other, {"up_to": 3})
        status = await ask(other, "job.status", {"job": third["job"]})
        assert [one.parameters for one in second.runner.submitted] == [{"up_to": 2}]
        _finish(first, task.job)
        then = await _begun(3, first, second)
        _finish(second, next_one.job)
        at_last = await _begun(4, first, second)

    assert held["state"] == "queued"
    assert (status["state"], status["position"]) == ("queued", 2)
    assert (then, at_last) == ([1, 1, 2], [1, 1, 2, 3])


async def _begun(many: int, *houses: House) -> list[int]:
    """What so many jobs were asked for that some instance has begun."""

    def found() -> list[int]:
        return sorted(task.parameters["up_to"] for house in houses for task in house.runner.submitted)

    async with anyio.create_task_group() as tasks:

        async def watch(house: House) -> None:
            await house.runner.until(lambda: len(found()) >= many)
            tasks.cancel_scope.cancel()

        for house in houses:
            tasks.start_soon(watch, house)
    return found()


async def test_running_job_is_cancelled_by_way_of_another_instance(new_house: Callable[..., House]) -> None:
    first, second = new_house("a"), new_house("b")
    first.runner.max_running = 0
    async with living(first, second) as (asked, _):
        receipt = await first.accept(asked)
        task = await second.runner.next_task()
        second.runner.listener.on_started(task.job, 1)
        await ask(asked, "job.cancel", {"job": receipt["job"]})
        await second.runner.until(lambda: bool(second.runner.cancels))
        second.runner.listener.on_cancelled(task.job, 1, slots_free=True)

        assert await _wait(asked, receipt["job"]) == "cancelled"


async def test_follower_at_another_instance_hears_of_a_line_when_it_is_written(
    new_house: Callable[..., House],
) -> None:
    first, second = new_house("a"), new_house("b")
    second.runner.max_running = 0
    answers: list[dict[str, Any]] = []
    async with living(first, second) as (one, other):
        receipt = await first.accept(one)
        task = await first.runner.next_task()
        first.runner.listener.on_started(task.job, 1)
        await first.published.until(task.job, "running")

        async def follow() -> None:
            # Longer than the houses live.
            answers.append(await ask(other, "job.log", {"job": receipt["job"], "after": 0, "timeout": 25}))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(follow)
            while not other.queries.waiters._waiting:
                await anyio.sleep(0.01)
            first.runner.listener.on_log(task.job, 1, "hello")
            first.pass_time(one, 1.0)

    assert [line["text"] for line in answers[0]["lines"]] == ["hello"]


async def test_result_is_forgotten_by_who_made_it_while_that_one_lives_and_then_by_any(
    new_house: Callable[..., House],
) -> None:
    first, second = new_house("a"), new_house("b")
    second.runner.max_running = 0
    for house in (first, second):
        house.limits = JobLimits(keep_for=100.0)
    made: list[Path] = []

    async def run_one(service: JobService, number: int) -> None:
        await first.accept(service)
        task = await first.runner.next_task(number)
        made.append(next((first.root / "counting").iterdir()) / "results" / f"{task.job}.parquet")
        made[-1].mkdir(parents=True)
        first.runner.listener.on_started(task.job, 1)
        first.runner.listener.on_done(task.job, 1, JobOutput(path=str(made[-1])))
        await first.published.until(task.job, "done")

    async def forgotten(service: JobService) -> list[bool]:
        known = [await service.read(partial(JobRegistry.find, job=path.stem)) for path in made]
        return [record is None and not path.exists() for record, path in zip(known, made, strict=True)]

    async with living(second) as (other,):
        async with living(first) as (one,):
            await run_one(one, 1)
            first.time.seconds += 101.0
            second.time.seconds += 101.0
            await other.housekeeping.prune()
            by_another = await forgotten(other)
            await one.housekeeping.prune()
            by_its_maker = await forgotten(other)
            await run_one(one, 2)
        second.time.seconds += 101.0
        await other.housekeeping.prune()
        when_it_is_gone = await forgotten(other)

    assert (by_another, by_its_maker, when_it_is_gone) == ([False], [True], [True, True])


async def test_waiting_job_is_cancelled_by_any_instance(new_house: Callable[..., House]) -> None:
    first, second = new_house("a"), new_house("b")
    first.runner.max_running = second.runner.max_running = 0
    async with living(first, second) as (one, other):
        receipt = await first.accept(one)
        await ask(other, "job.cancel", {"job": receipt["job"]})

        assert await _wait(one, receipt["job"]) == "cancelled"


async def test_request_that_comes_again_to_another_instance_gets_the_same_job(
    new_house: Callable[..., House],
) -> None:
    first, second = new_house("a"), new_house("b")
    second.runner.max_running = 0
    async with living(first, second) as (one, other):
        receipts = [
            await first.accept(one, neb_job_dedupe="today"),
            await second.accept(other, neb_job_dedupe="today"),
        ]
        await first.runner.next_task()

    assert receipts[0]["job"] == receipts[1]["job"]
    assert second.runner.submitted == []


@pytest.mark.parametrize(("on_lost", "state"), [("rerun", "queued"), ("fail", "lost")])
async def test_instance_that_stops_leaves_its_jobs_to_the_others_by_their_verbs_rules(
    new_house: Callable[..., House], on_lost: str, state: str
) -> None:
    first, second = new_house("a", on_lost=on_lost), new_house("b", on_lost=on_lost)
    second.runner.max_running = 0
    async with living(second) as (other,):
        async with living(first) as (one,):
            receipt = await first.accept(one)
            task = await first.runner.next_task()
            runner = first.runner
            runner.on_stop = lambda: runner.listener.on_lost(task.job, 1, "the service stopped")
        status = await ask(other, "job.status", {"job": receipt["job"]})

    assert status["state"] == state


async def test_verb_that_an_instance_does_not_have_is_left_to_the_others(
    new_house: Callable[..., House],
) -> None:
    old, new = new_house("a"), new_house("b")
    new.verb_name = "tally"
    async with living(old, new) as (one, other):
        new.runner.max_running = 0
        receipt = await new.accept(other)
        new.runner.max_running = 1
        other.advance()
        begun = await new.runner.next_task()
        _finish(new, begun.job)

        assert await _wait(one, receipt["job"]) == "done"
        assert old.runner.submitted == []


async def test_waiting_job_of_a_verb_that_nobody_has_now_is_cancelled_by_any_instance(
    new_house: Callable[..., House],
) -> None:
    old, new = new_house("a"), new_house("b")
    new.verb_name, old.runner.max_running = "tally", 0
    async with living(new) as (other,):
        async with living(old) as (one,):
            receipt = await old.accept(one)
        await ask(other, "job.cancel", {"job": receipt["job"]})

        assert await _wait(other, receipt["job"]) == "cancelled"


async def test_jobs_of_a_verb_that_nobody_has_had_for_long_end_as_they_do_without_others(
    new_house: Callable[..., House], database: Database
) -> None:
    old, new = new_house("a"), new_house("b")
    new.verb_name, old.runner.max_running = "tally", 1
    async with living(new) as (other,):
        async with living(old) as (one,):
            receipts = [await old.accept(one) for _ in range(2)]
            task = await old.runner.next_task()
            old.runner.listener.on_started(task.job, 1)
            await old.published.until(receipts[0]["job"], "running")
        with psycopg.connect(database.url) as db:
            db.execute('UPDATE "nebula-jobs-counting".verbs SET seen_at = to_timestamp(0)')
        assert other.housekeeping.shared_queue is not None
        other.housekeeping.shared_queue._joined_at = float("-inf")
        await other.housekeeping.shared_queue.beat()
        states = [await _wait(other, receipt["job"]) for receipt in receipts]

    assert states == ["lost", "failed"]


async def test_open_jobs_of_folders_go_on_where_a_service_changes_to_the_database(
    tmp_path: Path, database: Database
) -> None:
    before, other = House(tmp_path, "a", on_lost="rerun"), House(tmp_path, "b", on_lost="rerun")
    accepted = []
    async with living(before, other) as services:
        for house, service in zip((before, other), services, strict=True):
            house.runner.max_running = 1
            accepted += [(await house.accept(service, {"up_to": n}))["job"] for n in (1, 2)]
            runner, task = house.runner, await house.runner.next_task()
            house.runner.on_stop = partial(runner.listener.on_lost, task.job, 1, "the service stopped")
    house = House(tmp_path, "c", on_lost="rerun")
    house.options["database"], house.runner.max_running = PostgresJobs(database), 4
    async with living(house) as (service,):
        assert service.instance in {one.instance for one in services}
        for number in range(1, 5):
            task = await house.runner.next_task(number)
            _finish(house, task.job, task.attempt)
        assert {await _wait(service, job) for job in accepted} == {"done"}
        shown = [await ask(service, "job.show", {"job": job}) for job in accepted]
    async with living(house) as (service,):
        again = await ask(service, "job.list")

    assert [one["parameters"] for one in shown] == [{"up_to": n} for n in (1, 2, 1, 2)]
    assert [one["attempt"] for one in shown] == [2, 1, 2, 1]
    assert (len(again["jobs"]), house.runner.submitted) == (4, [])


async def test_jobs_with_one_key_that_killed_instances_ran_go_on_in_the_database(
    tmp_path: Path, database: Database
) -> None:
    # Each keeps the key for itself alone, as instances with folders do.
    declaration = {"on_lost": "rerun", "exclusive": "up_to"}
    before, killed = [House(tmp_path / "a", name, **declaration) for name in "ab"], tmp_path / "b"
    accepted = []
    async with living(*before) as services:
        for house, service in zip(before, services, strict=True):
            accepted.append((await house.accept(service, {"up_to": 7}))["job"])
            task = await house.runner.next_task()
            house.runner.listener.on_started(task.job, 1)
            await house.published.until(accepted[-1], "running")
        shutil.copytree(tmp_path / "a", killed)
        for house in before:
            job = house.runner.submitted[0].job
            house.runner.on_stop = partial(house.runner.listener.on_lost, job, 1, "the service stopped")
    house = House(killed, "c", **declaration)
    house.options["database"] = PostgresJobs(database)
    async with living(house) as (service,):
        for number in (1, 2):
            task = await house.runner.next_task(number)
            assert len(house.runner.submitted) == number
            _finish(house, task.job, task.attempt)
        states = [await _wait(service, job) for job in accepted]

    assert states == ["done", "done"]
    assert [task.attempt for task in house.runner.submitted] == [2, 2]


async def test_own_folder_is_looked_into_until_nothing_is_left_there(
    new_house: Callable[..., House],
) -> None:
    house = new_house("a")
    async with living(house) as (service,):
        path = house.root / "counting" / service.instance
        registry = SqliteJobRegistry(path / "jobs.sqlite")
        registry.insert(job(1))
        registry.close()
        await service.housekeeping.take_over()

        assert house.runner.submitted == []
    assert peek(path, JobRegistry.open_jobs) == [job(1)]


async def test_orphan_that_is_seen_more_than_once_is_begun_once(
    new_house: Callable[..., House], database: Database
) -> None:
    house = new_house("a", on_lost="rerun")
    async with living(house) as (service,):
        registry = PostgresJobRegistry(database, "counting")
        registry.insert(job(1, state=JobState.RUNNING, holder="gone"))
        registry.close()
        assert service.housekeeping.shared_queue is not None
        async with anyio.create_task_group() as tasks:
            # The latter ones look before that is written which follows from the first.
            for _ in range(4):
                tasks.start_soon(service.housekeeping.shared_queue.beat)
        task = await house.runner.next_task()
        _finish(house, task.job, task.attempt)
        state = await _wait(service, f"counting/{task.job}")

    assert state == "done"
    assert [task.attempt for task in house.runner.submitted] == [2]


async def test_job_that_is_in_a_folder_and_in_the_database_after_a_crash_runs_once(
    tmp_path: Path, database: Database
) -> None:
    house = House(tmp_path, "a", on_lost="rerun")
    house.runner.max_running = 1
    async with living(house) as (service,):
        accepted = [(await house.accept(service))["job"] for _ in range(2)]
        task = await house.runner.next_task()
        house.runner.on_stop = partial(house.runner.listener.on_lost, task.job, 1, "the service stopped")
    folder = StateFolder.take("counting", str, tmp_path)
    with folder:
        orphans = Orphans.of(folder.path, folder, None)
        assert orphans is not None
        registry = PostgresJobRegistry(database, "counting")
        with registry.transaction():
            orphans.add_to(registry)
        # Killed here, before they are removed from the folder.
        registry.close()
        orphans.close()
    house.options["database"] = PostgresJobs(database)
    house.runner.max_running = 4
    async with living(house) as (service,):
        for number in (1, 2):
            task = await house.runner.next_task(number)
            _finish(house, task.job, task.attempt)
        assert {await _wait(service, job) for job in accepted} == {"done"}
        await service.housekeeping.take_over()

        assert len(house.runner.submitted) == 2
    assert peek(folder.path, JobRegistry.open_jobs) == []


async def test_job_whose_time_is_to_come_is_begun_then_by_an_instance_that_has_only_heard_of_it(
    new_house: Callable[..., House],
) -> None:
    first, second = new_house("a"), new_house("b")
    async with living(second) as (other,):
        async with living(first) as (one,):
            receipt = await first.accept(one, neb_job_not_before="1000000200")
            while not other._scheduler.queued:
                await anyio.sleep(0.01)
        second.time.seconds += 1.0
        task = await second.runner.next_task()

    assert receipt["job"] == f"counting/{task.job}"


async def test_job_whose_engine_is_broken_waits_for_an_instance_that_has_it_working(
    new_house: Callable[..., House],
) -> None:
    first, second = new_house("a"), new_house("b")
    second.runner.max_running = 0
    async with living(first, second) as (one, other):
        assert one.housekeeping.shared_queue is not None
        await one.housekeeping.shared_queue.beat()
        first.runner.is_broken = "the engine cannot start"
        receipt = await first.accept(one)
        status = await ask(one, "job.status", {"job": receipt["job"]})
        second.runner.max_running = 1
        other.advance()
        task = await second.runner.next_task()
        _finish(second, task.job)

        assert await _wait(one, receipt["job"]) == "done"
        assert first.runner.submitted == []
    assert status["note"] == "waits for another instance: the engine of this one is broken"


async def test_job_that_waits_for_its_time_outlives_a_long_break_of_its_engine(
    new_house: Callable[..., House], database: Database
) -> None:
    house, without = new_house("a"), new_house("b")
    without.verb_name = "tally"
    async with living(house, without) as (service, other):
        receipt = await house.accept(service, neb_job_not_before="9000000000000")
        house.runner.is_broken = "the engine cannot start"
        with psycopg.connect(database.url) as db:
            db.execute(
                'UPDATE "nebula-jobs-counting".verbs SET (seen_at, worked_at) = (to_timestamp(0), NULL)'
            )
        with all_logs() as logs:
            for one in (service, other):
                assert one.housekeeping.shared_queue is not None
                one.housekeeping.shared_queue._joined_at = float("-inf")
                await one.housekeeping.shared_queue.beat()
        status = await ask(other, "job.status", {"job": receipt["job"]})

    assert status["state"] == "queued"
    assert [line["event"] for line in logs if "taken over" in line["event"]] == []


async def test_job_whose_engine_nobody_has_working_is_handed_over_to_fail(
    new_house: Callable[..., House], database: Database
) -> None:
    house = new_house("a")
    async with living(house) as (service,):
        house.runner.is_broken = "the engine cannot start"
        receipt = await house.accept(service)
        assert house.runner.submitted == []
        # The others, and this one as long as it could run it, have not been heard of for a lease.
        with psycopg.connect(database.url) as db:
            db.execute('UPDATE "nebula-jobs-counting".verbs SET worked_at = to_timestamp(0)')
        assert service.housekeeping.shared_queue is not None
        await service.housekeeping.shared_queue.beat()
        task = await house.runner.next_task()

    assert receipt["job"] == f"counting/{task.job}"


# --- the database fails ---


def _cut(postgres: PostgresServer) -> None:
    """End every connection to every database but our own."""
    with psycopg.connect(postgres.url("postgres"), autocommit=True) as db:
        db.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname LIKE 'jobs_%'")


async def test_connections_that_are_cut_are_made_again(
    postgres: PostgresServer, new_house: Callable[..., House]
) -> None:
    first, second = new_house("a"), new_house("b")
    first.runner.max_running = 0
    async with living(first, second) as (one, _):
        before = await first.accept(one)
        task = await second.runner.next_task()
        await anyio.to_thread.run_sync(_cut, postgres)
        _finish(second, task.job)
        after = await first.accept(one)
        again = await second.runner.next_task(2)
        _finish(second, again.job)
        states = [await _wait(one, receipt["job"]) for receipt in (before, after)]

    assert states == ["done", "done"]
    assert [task.attempt for task in second.runner.submitted] == [1, 1]


async def test_server_that_is_killed_and_comes_back_loses_and_doubles_nothing(
    postgres: PostgresServer, new_house: Callable[..., House]
) -> None:
    first, second = new_house("a"), new_house("b")
    first.runner.max_running = 0
    async with living(first, second) as (one, _):
        running = await first.accept(one)
        task = await second.runner.next_task()
        postgres.kill()
        _finish(second, task.job)
        async with anyio.create_task_group() as tasks:
            receipts: list[dict[str, Any]] = []

            async def accept() -> None:
                receipts.append(await first.accept(one))

            tasks.start_soon(accept)
            await anyio.to_thread.run_sync(postgres.start)
        again = await second.runner.next_task(2)
        _finish(second, again.job)
        states = [await _wait(one, receipt["job"]) for receipt in (running, *receipts)]

    assert states == ["done", "done"]
    assert [(task.job, task.attempt) for task in second.runner.submitted] == [(task.job, 1), (again.job, 1)]


def _allow_writing(postgres: PostgresServer, database: Database, is_allowed: str) -> None:
    name = database.url.rpartition("/")[2]
    with psycopg.connect(postgres.url("postgres"), autocommit=True) as db:
        db.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = {is_allowed}".encode())


async def test_server_that_is_read_only_for_a_while_ends_nothing(
    postgres: PostgresServer, database: Database, new_house: Callable[..., House]
) -> None:
    house, met = new_house("a"), postgres.log().count("read-only transaction")
    async with living(house) as (service,):
        first = await house.accept(service)
        task = await house.runner.next_task()
        await anyio.to_thread.run_sync(_allow_writing, postgres, database, "on")
        await anyio.to_thread.run_sync(_cut, postgres)
        _finish(house, task.job)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(house.accept, service)
            while postgres.log().count("read-only transaction") == met:
                await anyio.sleep(0.02)
            await anyio.to_thread.run_sync(_allow_writing, postgres, database, "off")
        again = await house.runner.next_task(2)
        _finish(house, again.job)
        states = [await _wait(service, job) for job in (first["job"], f"counting/{again.job}")]

    assert states == ["done", "done"]
    assert [task.attempt for task in house.runner.submitted] == [1, 1]


async def test_instance_that_cannot_even_connect_ends_its_runs_in_time(
    postgres: PostgresServer, new_house: Callable[..., House]
) -> None:
    house, database = new_house("a"), SlowDatabase(postgres.new_database())
    house.options["database"], house.limits = PostgresJobs(database), JobLimits(lease=3.0)
    ended: list[bool] = []

    async def live() -> None:
        async with living(house) as (service,):
            await house.accept(service)
            await house.runner.next_task()
            house.runner.on_stop = lambda: ended.append(database.gate.is_set())
            database.shut()
            await anyio.to_thread.run_sync(_cut, postgres)
            await anyio.sleep_forever()

    try:
        with pytest.raises(BaseExceptionGroup) as caught:
            await live()
    finally:
        database.gate.set()

    assert caught.group_contains(RegistryLost, match=f"PostgreSQL at 127.0.0.1:{postgres.port}")
    assert ended == [False]


@pytest.mark.parametrize("fault", ["kill", "freeze"])
async def test_instance_whose_database_does_not_come_back_ends_its_runs_and_itself(
    postgres: PostgresServer, new_house: Callable[..., House], fault: str
) -> None:
    house = new_house("a")
    house.limits = JobLimits(lease=3.0)
    ended: list[str] = []

    async def live() -> None:
        async with living(house) as (service,):
            await house.accept(service)
            await house.runner.next_task()
            house.runner.on_stop = lambda: ended.append(fault)
            getattr(postgres, fault)()
            await anyio.sleep_forever()

    try:
        with pytest.raises(BaseExceptionGroup) as caught:
            await live()
    finally:
        postgres.start() if fault == "kill" else postgres.thaw()

    assert caught.group_contains(RegistryLost, match=f"PostgreSQL at 127.0.0.1:{postgres.port}")
    assert ended == [fault]
