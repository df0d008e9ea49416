"""Room for jobs: whose jobs are removed, which ones are refused, and what a full disk does."""

from __future__ import annotations

import os
import re
import sqlite3
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from nebula.cli.exits import unwrapped
from nebula.rpc.contract.job_context import Job
from nebula.rpc.contract.job_runner import JobOutput
from nebula.rpc.errors import VerbError
from nebula.rpc.jobs.model.limits import JobLimits
from nebula.rpc.jobs.model.record import LogLine
from nebula.rpc.jobs.registry.capacity import Wanted, share_out
from nebula.rpc.jobs.registry.errors import RegistryFull
from nebula.rpc.jobs.registry.job_filter import JobFilter
from nebula.rpc.jobs.registry.registry import OwnerBytes
from nebula.rpc.jobs.registry.rows import COLUMNS, row_of
from nebula.rpc.jobs.registry.sqlite import REGISTRY_FILE, SqliteJobRegistry
from nebula.rpc.jobs.registry.writer import RegistryWriter
from nebula.rpc.jobs.service.service import JobService
from tests.rpc.jobs.faults import FullDisk, filling_disk
from tests.rpc.jobs.harness import House, ask, request
from tests.rpc.jobs.registries import job

pytestmark = pytest.mark.anyio

_MB = 1_000_000


def count(ctx: Job, text: str = "") -> int:
    """A job whose parameters are as large as its caller likes."""
    return len(text)


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path, function=count)


def of(owner: str, size: int, held: int = 0) -> OwnerBytes:
    return OwnerBytes(owner, 1, size, held)


@pytest.mark.parametrize(
    ("owners", "wanted", "given"),
    [
        pytest.param([of("a", 600), of("b", 100)], Wanted("b", 10), {}, id="there is room"),
        pytest.param([of("a", 900), of("b", 100)], Wanted("b", 10), {"a": 25}, id="the largest gives"),
        pytest.param([of("a", 900), of("b", 100)], Wanted("a", 10), {"a": 25}, id="also to itself"),
        pytest.param(
            [of("a", 400), of("b", 350), of("c", 250)],
            Wanted("c", 50),
            {"a": 58, "b": 8},
            id="the largest ones come to the same",
        ),
        pytest.param(
            [of("a", 500, held=500), of("b", 450), of("c", 50)],
            Wanted("c", 10),
            {"b": 25},
            id="open jobs stay",
        ),
        pytest.param(
            [of("a", 500, held=500), of("b", 500)], Wanted("a", 10), {}, id="nobody gives to who has more"
        ),
        pytest.param([of("a", 1000, held=1000)], Wanted("b", 10), {}, id="nobody has anything to give"),
        pytest.param([of("a", 1500), of("b", 500)], None, {"a": 1000}, id="too much by now"),
        pytest.param(
            [of("a", 1000, held=1000), of("b", 500), of("c", 600)],
            None,
            {"b": 167, "c": 267},
            id="an equal share stays for each",
        ),
    ],
)
def test_the_owners_that_have_the_most_make_way(
    owners: list[OwnerBytes], wanted: Wanted | None, given: dict[str, int]
) -> None:
    assert share_out(owners, 1000, wanted) == given


async def _run(house: House, service: JobService, owner: str, size: int) -> str:
    """A job of this owner, from its request to its end."""
    number = len(house.runner.submitted) + 1
    accepted = await _ask(house, service, owner, size)
    task = await house.runner.next_task(number)
    house.runner.listener.on_started(task.job, task.attempt)
    house.runner.listener.on_done(task.job, task.attempt, JobOutput(value=1))
    await house.published.until(accepted["job"], "done")
    return str(accepted["job"].rpartition("/")[2])


async def _ask(house: House, service: JobService, owner: str, size: int) -> dict[str, Any]:
    parameters = {"text": "x" * size}
    asked = request(house.verb_name, parameters, principal=owner)
    return await service.accept(asked, house.verb, house.verb.signature.bind(parameters))


async def _kept(service: JobService) -> list[str]:
    listed = await service.read(lambda registry: registry.page(JobFilter(), 100))
    return [record.id for record in reversed(listed)]


async def test_owner_that_fills_the_registry_makes_way_for_others(house: House) -> None:
    house.limits = JobLimits(max_stored_bytes=_MB)
    async with house.living() as service:
        theirs = [await _run(house, service, "mallory", 100_000) for _ in range(9)]
        ours = [await _run(house, service, "alice", 100_000) for _ in range(3)]

        kept = await _kept(service)

    assert kept[-3:] == ours
    assert kept[:-3] == theirs[-len(kept[:-3]) :], "the oldest went first"
    assert len(kept) in (8, 9)
    forgotten = {house.published.destination(job) for job in theirs if job not in kept}
    assert set(house.published.deleted) == forgotten


async def test_owner_that_fills_the_registry_takes_nothing_from_others(house: House) -> None:
    house.limits = JobLimits(max_stored_bytes=_MB)
    async with house.living() as service:
        ours = [await _run(house, service, "alice", 100_000) for _ in range(3)]
        for _ in range(20):
            await _run(house, service, "mallory", 100_000)

        kept = await _kept(service)
        stored = await service.read(lambda registry: registry.stored_bytes())

    assert kept[:3] == ours
    assert stored <= _MB


async def test_owner_of_very_many_small_jobs_takes_nothing_from_others(house: House) -> None:
    house.limits = JobLimits(keep_jobs=8)
    async with house.living() as service:
        ours = [await _run(house, service, "alice", 10) for _ in range(3)]
        theirs = [await _run(house, service, "mallory", 10) for _ in range(12)]
        await service.housekeeping.prune()

        assert await _kept(service) == [*ours, *theirs[-5:]]


async def test_single_owner_loses_nothing_before_the_registry_is_full(house: House) -> None:
    house.limits = JobLimits(max_stored_bytes=_MB)
    async with house.living() as service:
        ours = [await _run(house, service, "alice", 100_000) for _ in range(9)]

        assert await _kept(service) == ours


async def test_open_jobs_of_one_owner_take_their_share_and_no_more(house: House) -> None:
    house.limits = JobLimits(max_stored_bytes=_MB)
    async with house.living() as service:
        for _ in range(4):
            await _ask(house, service, "mallory", 100_000)
        with pytest.raises(VerbError, match="the open jobs of mallory take their share") as caught:
            await _ask(house, service, "mallory", 100_000)
        await _ask(house, service, "alice", 100_000)

        assert (caught.value.code, caught.value.retryable) == ("busy", True)
        assert len(await _kept(service)) == 5


async def test_waiting_jobs_of_one_owner_take_their_share_of_the_line_and_no_more(house: House) -> None:
    house.runner.max_running = 1
    house.limits = JobLimits(max_queued=6)
    async with house.living() as service:
        for _ in range(4):  # one of them runs
            await _ask(house, service, "mallory", 10)
        with pytest.raises(VerbError, match="3 jobs of mallory are queued, their share") as caught:
            await _ask(house, service, "mallory", 10)
        await _ask(house, service, "alice", 10)

        assert (caught.value.code, caught.value.retryable) == ("busy", True)
        assert len(await _kept(service)) == 5


async def test_owner_may_have_a_job_wait_however_short_the_line_is(house: House) -> None:
    house.runner.max_running = 1
    house.limits = JobLimits(max_queued=1)
    async with house.living() as service:
        for _ in range(2):
            await _ask(house, service, "alice", 10)

        assert len(await _kept(service)) == 2


async def test_job_is_busy_where_nothing_can_make_way_and_nothing_is_forgotten(house: House) -> None:
    house.limits = JobLimits(max_stored_bytes=_MB, owner_share=1.0)
    async with house.living() as service:
        for _ in range(9):
            await _ask(house, service, "mallory", 100_000)
        with pytest.raises(VerbError, match="take all of their room") as caught:
            await _ask(house, service, "alice", 100_000)

        assert (caught.value.code, caught.value.retryable) == ("busy", True)
        assert len(await _kept(service)) == 9


async def test_registry_above_a_lowered_limit_loses_ended_jobs_at_the_start(house: House) -> None:
    async with house.living() as service:
        for _ in range(5):
            await _run(house, service, "mallory", 100_000)
        ours = await _run(house, service, "alice", 100_000)
    house.limits = JobLimits(max_stored_bytes=400_000)
    async with house.living() as service:
        kept = await _kept(service)

    assert (len(kept), kept[-1]) == (3, ours)


async def test_jobs_are_busy_while_the_disk_is_nearly_full(house: House) -> None:
    free = 1024**3
    house.options["free_bytes"] = lambda _folder: free
    async with house.living() as service:
        first = await _run(house, service, "alice", 1000)
        free = 255 * 1024**2
        with pytest.raises(VerbError, match="the disk of counting is nearly full") as caught:
            await _ask(house, service, "alice", 1000)
        still_kept = await _kept(service)
        free = 1024**3
        await _ask(house, service, "alice", 1000)

    assert (caught.value.code, caught.value.retryable) == ("busy", True)
    assert still_kept == [first]


async def test_registry_grows_no_more_when_the_disk_comes_near_the_floor(house: House) -> None:
    free = 1024**3
    house.options["free_bytes"] = lambda _folder: free
    async with house.living() as service:
        ours = [await _run(house, service, "alice", 10_000) for _ in range(3)]
        for _ in range(10):
            await _run(house, service, "mallory", 10_000)
        before = await service.read(lambda registry: registry.stored_bytes())
        free = 300 * 1024**2
        for _ in range(20):
            await _run(house, service, "mallory", 10_000)
        kept = await _kept(service)
        after = await service.read(lambda registry: registry.stored_bytes())

    assert kept[:3] == ours
    assert after <= before


async def test_new_registry_takes_no_jobs_on_a_disk_that_is_near_the_floor(house: House) -> None:
    house.options["free_bytes"] = lambda _folder: 300 * 1024**2
    async with house.living() as service:
        with pytest.raises(VerbError, match="take all of their room") as caught:
            await _ask(house, service, "alice", 1000)

    assert (caught.value.code, caught.value.retryable) == ("busy", True)


async def test_owners_are_listed_with_their_jobs_and_bytes(house: House) -> None:
    house.limits = JobLimits(max_stored_bytes=_MB)
    async with house.living() as service:
        await _run(house, service, "mallory", 100_000)
        await _ask(house, service, "alice", 10_000)
        told = await ask(service, "job.owners")
        first = await ask(service, "job.owners", {"limit": 1})

    assert [(one["owner"], one["jobs"]) for one in told["owners"]] == [("mallory", 1), ("alice", 1)]
    assert [one["held_bytes"] > 10_000 for one in told["owners"]] == [False, True]
    assert told["stored_bytes"] == sum(one["bytes"] for one in told["owners"]) > 110_000
    assert told["max_stored_bytes"] == _MB
    assert [one["owner"] for one in first["owners"]] == ["mallory"]


async def _live_until_the_disk_is_full(house: House, disk: type[FullDisk]) -> tuple[VerbError, Exception]:
    """The error that a caller got, and the one that ended the service."""
    answers: list[VerbError] = []

    async def live() -> None:
        async with house.living() as service:
            await house.accept(service, {"text": "kept"})
            disk.is_full = True
            with pytest.raises(VerbError) as caught:
                await house.accept(service, {"text": "refused"})
            answers.append(caught.value)
            await anyio.sleep_forever()

    with pytest.raises(ExceptionGroup) as caught:
        await live()
    return answers[0], caught.value


async def test_service_ends_on_a_full_disk_and_says_what_to_do(house: House) -> None:
    disk = filling_disk()
    house.options["connect"] = partial(sqlite3.connect, factory=disk)

    answer, ended = await _live_until_the_disk_is_full(house, disk)

    assert (answer.code, answer.retryable) == ("busy", True)
    assert re.search(
        r"jobs.sqlite: the disk is full \([\d,]+ bytes are free\).*make room", str(unwrapped(ended))
    )


async def test_service_that_ended_on_a_full_disk_starts_again_when_there_is_room(house: House) -> None:
    disk = filling_disk()
    house.options["connect"] = partial(sqlite3.connect, factory=disk)
    await _live_until_the_disk_is_full(house, disk)

    with pytest.raises(ExceptionGroup) as caught:
        async with house.living():
            await anyio.sleep_forever()
    disk.is_full = False
    async with house.living() as service:
        known = await service.read(lambda registry: registry.page(JobFilter(), 10))

    assert "the disk is full" in str(unwrapped(caught.value))
    assert [(one.parameters["text"], one.state) for one in known] == [("kept", "lost")]


def test_parts_after_one_that_ended_the_transaction_are_not_written(tmp_path: Path) -> None:
    disk = filling_disk()
    registry = SqliteJobRegistry(tmp_path / REGISTRY_FILE, connect=partial(sqlite3.connect, factory=disk))

    def write() -> None:
        with registry.transaction():
            with registry.part():
                registry.insert(job(1))
            disk.is_full = True
            with registry.part():
                registry.insert(job(2))

    with pytest.raises(RegistryFull):
        write()
    disk.is_full = False

    assert registry.open_jobs() == []
    registry.close()


async def test_writer_says_that_the_disk_is_full_and_not_what_followed(tmp_path: Path) -> None:
    disk = filling_disk()
    registry = SqliteJobRegistry(tmp_path / REGISTRY_FILE, connect=partial(sqlite3.connect, factory=disk))
    writer = RegistryWriter(registry)
    errors: list[Exception] = []

    async def write(number: int) -> None:
        try:
            await writer.do(lambda each: each.insert(job(number)))
        except Exception as error:
            errors.append(error)

    disk.is_full = True
    with suppress(BaseExceptionGroup):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(write, 1)
            tasks.start_soon(write, 2)
            await anyio.wait_all_tasks_blocked()
            tasks.start_soon(writer.run)

    assert [type(error) for error in errors] == [RegistryFull, RegistryFull]


_VERSION_4 = """
CREATE TABLE jobs (number INTEGER PRIMARY KEY, {columns});
CREATE UNIQUE INDEX job_ids ON jobs (id);
CREATE TABLE lines (job TEXT NOT NULL, number INTEGER NOT NULL, at REAL NOT NULL, text TEXT NOT NULL,
    PRIMARY KEY (job, number)) WITHOUT ROWID;
PRAGMA user_version = 4;
"""


def test_jobs_of_an_earlier_version_are_counted(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / REGISTRY_FILE)) as db, db:
        db.executescript(_VERSION_4.format(columns=", ".join(COLUMNS)))
        sign = ", ".join("?" * len(COLUMNS))
        for number, owner in enumerate(["alice", "bob", "alice"], 1):
            record = job(number, owner=owner, parameters="x" * 1000)
            db.execute(f"INSERT INTO jobs ({', '.join(COLUMNS)}) VALUES ({sign})", row_of(record))
        db.execute("INSERT INTO lines VALUES (?, 1, 1.0, ?)", (job(3).id, "y" * 100))

    upgraded = SqliteJobRegistry(tmp_path / REGISTRY_FILE)
    fresh = SqliteJobRegistry(tmp_path / "fresh.sqlite")
    for number, owner in enumerate(["alice", "bob", "alice"], 1):
        fresh.insert(job(number, owner=owner, parameters="x" * 1000))
    fresh.add_lines(job(3).id, [LogLine(1.0, "y" * 100)])

    assert upgraded.owners() == fresh.owners()
    assert upgraded.stored_bytes() == fresh.stored_bytes() > 3 * 1400
    upgraded.close()
    fresh.close()


@pytest.mark.parametrize("umask", [0o000, 0o022], ids=oct)
def test_registry_is_for_its_owner_alone_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    file = tmp_path / REGISTRY_FILE
    before = os.umask(umask)
    try:
        SqliteJobRegistry(file).close()
        file.chmod(0o666)
        registry = SqliteJobRegistry(file)
        registry.insert(job())
    finally:
        os.umask(before)

    assert {path.name: oct(path.stat().st_mode & 0o777) for path in tmp_path.iterdir()} == dict.fromkeys(
        [REGISTRY_FILE, f"{REGISTRY_FILE}-wal", f"{REGISTRY_FILE}-shm"], "0o600"
    )
    registry.close()
