"""Jobs that run in the service itself: threads and tasks."""

from __future__ import annotations

import math
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.from_thread
import pytest
from pydantic import BaseModel, ConfigDict

from nebula.errors import JobError
from nebula.rpc.contract.job_context import Job, JobCancelled
from nebula.rpc.jobs.model.limits import JobLimits
from nebula.rpc.jobs.service.clock import Clock
from nebula.rpc.jobs.service.service import JobService
from nebula.rpc.jobs.verb import JobVerb
from tests.rpc.jobs.harness import House, ask

pytestmark = pytest.mark.anyio


class Gate:
    """Opens once, for threads and tasks."""

    def __init__(self) -> None:
        self._opened = threading.Event()

    def open(self) -> None:
        self._opened.set()

    def pass_through(self) -> None:
        assert self._opened.wait(10)

    async def passed(self) -> None:
        await anyio.to_thread.run_sync(self.pass_through)


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.open()


@asynccontextmanager
async def living(
    tmp_path: Path, function: Callable[..., Any], *, clock: Clock | None = None, **options: Any
) -> AsyncIterator[Any]:
    """A service with this job: a function that starts it and gives its id, the house, the service."""
    house = House(tmp_path, function=function, engine=None, **options)
    house.clock = clock or house.clock
    house.limits = JobLimits(cancel_grace=5.0)

    async with house.living() as service:

        async def start(parameters: Any = None) -> str:
            return str((await house.accept(service, parameters, neb_job_progress_every="100"))["job"])

        yield start, house, service


async def _result(service: JobService, job: str) -> Any:
    return (await ask(service, "job.result", {"job": job})).get("value")


async def test_plain_function_runs_in_a_thread_and_coroutine_function_as_a_task(tmp_path: Path) -> None:
    def plain(up_to: int) -> dict[str, Any]:
        return {"sum": sum(range(up_to)), "here": threading.current_thread() is threading.main_thread()}

    async def task(up_to: int) -> dict[str, Any]:
        await anyio.lowlevel.checkpoint()
        return {"sum": sum(range(up_to)), "here": threading.current_thread() is threading.main_thread()}

    for function, here in ((plain, False), (task, True)):
        async with living(tmp_path / function.__name__, function) as (start, house, service):
            job = await start({"up_to": 5})
            await house.published.until(job, "done")

            assert await _result(service, job) == {"sum": 10, "here": here}
        assert house.published.states(job) == ["queued", "starting", "running", "done"]


async def test_job_reports_steps_progress_and_lines(tmp_path: Path, gate: Gate) -> None:
    def work(ctx: Job) -> tuple[str, int, str]:
        with ctx.step(1, 2, "read"):
            ctx.progress(1, 4, "a quarter")
        with ctx.step(2, 2, "write"):
            ctx.progress(5, 10, "half")
        ctx.log("nearly there")
        gate.pass_through()
        return ctx.id, ctx.attempt, ctx.verb

    async with living(tmp_path, work, clock=Clock()) as (start, house, service):
        job = await start()
        status = await house.published.until(job, "running", 0.75)
        log = await ask(service, "job.log", {"job": job})
        gate.open()
        await house.published.until(job, "done")

        assert await _result(service, job) == [job.rpartition("/")[2], 1, "count"]
    assert (status.note, status.step) == ("half", (2, 2, "write"))
    assert [line["text"] for line in log["lines"]] == ["nearly there"]


async def test_cancellation_from_inside_fails_its_job_alone(tmp_path: Path) -> None:
    async def work() -> None:
        # Like awaiting a cancelled asyncio future. Trio has no such thing: a TypeError.
        raise anyio.get_cancelled_exc_class()

    async with living(tmp_path, work) as (start, house, _):
        # The second one shows that the first did not take the runner with it.
        for job in (await start(), await start()):
            await house.published.until(job, "failed")


async def test_thread_learns_of_a_cancel_when_it_reports(tmp_path: Path) -> None:
    caught: list[type[BaseException]] = []
    entered = threading.Event()

    def work(ctx: Job) -> None:
        entered.set()
        try:
            while True:
                ctx.progress(1, 2)
        except Exception as error:
            caught.append(type(error))
        except BaseException as error:
            caught.append(type(error))
            raise

    async with living(tmp_path, work) as (start, house, service):
        job = await start()
        await anyio.to_thread.run_sync(entered.wait)
        status = await ask(service, "job.cancel", {"job": job})
        await house.published.until(job, "cancelled")

    assert status["state"] == "cancelling"
    assert caught == [JobCancelled]


async def test_task_is_cancelled(tmp_path: Path) -> None:
    entered = anyio.Event()

    async def work() -> None:
        entered.set()
        await anyio.sleep_forever()

    async with living(tmp_path, work) as (start, house, service):
        job = await start()
        await entered.wait()
        await ask(service, "job.cancel", {"job": job})
        await house.published.until(job, "cancelled")


async def test_result_that_comes_after_the_cancel_is_dropped(tmp_path: Path, gate: Gate) -> None:
    target = tmp_path / "target"

    def work(ctx: Job) -> int:
        ctx.output(target).write_text("late")
        gate.pass_through()
        return 1

    async with living(tmp_path, work) as (start, house, service):
        job = await start()
        await house.published.until(job, "running")
        await ask(service, "job.cancel", {"job": job})
        gate.open()
        await house.published.until(job, "cancelled")

    assert list(tmp_path.glob("target*")) == []


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (ValueError("meter is stuck"), "job", "ValueError: meter is stuck"),
        (JobError("no readings", code="empty"), "empty", "no readings"),
        (SystemExit(3), "job", "SystemExit: 3"),
    ],
)
async def test_exception_of_a_job_ends_it_as_failed_and_nothing_else(
    tmp_path: Path, error: BaseException, code: str, message: str, is_async: bool
) -> None:
    def plain(ctx: Job) -> None:
        ctx.output(tmp_path / "half").mkdir()
        raise error

    async def task(ctx: Job) -> None:
        plain(ctx)

    async with living(tmp_path, task if is_async else plain) as (start, house, service):
        job = await start()
        end = await house.published.until(job, "failed")
        log = await ask(service, "job.log", {"job": job})

    assert end.error is not None
    assert (end.error.code, end.error.message) == (code, message)
    assert "Traceback" in log["lines"][-1]["text"]
    assert list(tmp_path.glob("half*")) == []


async def test_output_appears_at_the_end_and_replaces_what_was_there(tmp_path: Path, gate: Gate) -> None:
    table, note = tmp_path / "table", tmp_path / "note"
    table.mkdir()
    (table / "old").write_text("old")

    def work(ctx: Job) -> None:
        folder = ctx.output(table)
        folder.mkdir()
        (folder / "new").write_text("new")
        ctx.output(str(note)).write_text("read me")
        gate.pass_through()

    async with living(tmp_path, work) as (start, house, _service):
        job = await start()
        await house.published.until(job, "running")
        assert ([one.name for one in table.iterdir()], note.exists()) == (["old"], False)
        gate.open()
        await house.published.until(job, "done")

    assert [one.name for one in table.iterdir()] == ["new"]
    assert note.read_text() == "read me"
    assert not list(tmp_path.glob("*.__*"))


@pytest.mark.parametrize(
    ("result", "code"),
    [
        (object(), "bad-result"),
        (10**5000, "bad-result"),
        ("x" * 70_000, "result-too-large"),
        # What is not kept need not be read.
        (["x" * 70_000, 10**5000], "result-too-large"),
    ],
    ids=["no JSON", "no number", "large", "large with no number"],
)
async def test_result_that_cannot_travel_fails_the_job(tmp_path: Path, result: Any, code: str) -> None:
    def work() -> Any:
        return result

    async with living(tmp_path, work) as (start, house, _service):
        end = await house.published.until(await start(), "failed")

    assert end.error is not None
    assert end.error.code == code


class Writer(BaseModel):
    """A model that serializes to something that is not JSON."""

    model_config = ConfigDict(ser_json_inf_nan="constants")
    mean: float


@pytest.mark.parametrize("result", [{"mean": math.nan}, {"mean": -math.inf}, Writer(mean=math.nan)])
async def test_number_that_json_has_not_fails_the_job(tmp_path: Path, result: Any) -> None:
    def work() -> Any:
        return result

    async with living(tmp_path, work) as (start, house, _service):
        end = await house.published.until(await start(), "failed")

    assert end.error is not None
    assert end.error.code == "bad-result"
    assert "mean" in end.error.message


async def test_spark_is_not_to_be_had_and_the_error_says_why(tmp_path: Path) -> None:
    def work(ctx: Job) -> None:
        ctx.spark.range(3)

    async with living(tmp_path, work) as (start, house, _service):
        end = await house.published.until(await start(), "failed")

    assert end.error is not None
    assert "engine=None" in end.error.message


async def test_run_that_takes_too_long_times_out(tmp_path: Path) -> None:
    async def work() -> None:
        await anyio.sleep_forever()

    async with living(tmp_path, work, timeout=60.0) as (start, house, service):
        job = await start()
        await house.published.until(job, "running")
        house.pass_time(service, 60.0)
        await house.published.until(job, "timed_out")


@pytest.mark.parametrize("is_async", [False, True])
async def test_end_of_the_service_loses_what_runs(tmp_path: Path, is_async: bool) -> None:
    def plain(ctx: Job) -> None:
        while True:
            ctx.raise_if_cancelled()

    async def task() -> None:
        await anyio.sleep_forever()

    async with living(tmp_path, task if is_async else plain) as (start, house, _service):
        job = await start()
        await house.published.until(job, "running")

    assert house.published.states(job)[-1] == "lost"


@pytest.mark.parametrize("is_async", [False, True])
async def test_restart_loses_what_runs_and_goes_on(tmp_path: Path, is_async: bool) -> None:
    def plain(ctx: Job) -> None:
        while True:
            ctx.raise_if_cancelled()

    async def task() -> None:
        await anyio.sleep_forever()

    async with living(tmp_path, task if is_async else plain) as (start, house, service):
        job = await start()
        await house.published.until(job, "running")
        service.runners[None].restart()
        await house.published.until(job, "lost")
        again = await start()
        await house.published.until(again, "running")


async def test_thread_that_ends_while_the_service_stops_has_its_result(tmp_path: Path) -> None:
    def work(ctx: Job) -> int:
        while not ctx.is_cancelled:
            pass
        return 7

    async with living(tmp_path, work) as (start, house, _service):
        job = await start()
        await house.published.until(job, "running")

    assert house.published.states(job)[-1] == "done"


async def test_jobs_run_concurrently_up_to_the_verbs_own_limit(tmp_path: Path, gate: Gate) -> None:
    running: list[str] = []

    def work(ctx: Job) -> None:
        running.append(ctx.id)
        gate.pass_through()

    async with living(tmp_path, work, max_running=2) as (start, house, service):
        jobs = [await start() for _ in range(3)]
        for job in jobs[:2]:
            await house.published.until(job, "running")
        status = await ask(service, "job.status", {"job": jobs[2]})
        gate.open()
        for job in jobs:
            await house.published.until(job, "done")

    assert (status["state"], status["position"]) == ("queued", 1)
    assert len(running) == 3


def test_generator_is_no_job() -> None:
    def work() -> Iterator[int]:
        yield 1

    with pytest.raises(TypeError, match="yields"):
        JobVerb("work", work)


@pytest.mark.parametrize(
    "options", [{"timeout": 0}, {"max_running": 0}, {"expires": -1}, {"retries": -1}, {"on_lost": "maybe"}]
)
def test_numbers_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="job 'work'"):
        JobVerb("work", lambda: None, **options)
