"""Registry writer: work in order, in batches, each piece with its own outcome."""

from __future__ import annotations

import math
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from nebula.rpc.jobs.model.record import JobRecord
from nebula.rpc.jobs.registry.errors import RegistryAway, RegistryClosed, RegistryLost
from nebula.rpc.jobs.registry.registry import JobRegistry
from nebula.rpc.jobs.registry.sqlite import SqliteJobRegistry
from nebula.rpc.jobs.registry.writer import RegistryWriter
from tests.rpc.jobs.faults import failing_at

pytestmark = pytest.mark.anyio


def job(number: int) -> JobRecord:
    return JobRecord(id=f"{number:026}", verb="count", parameters=None, accepted_at=float(number))


def insert(number: int) -> partial[None]:
    return partial(lambda registry, record: registry.insert(record), record=job(number))


@asynccontextmanager
async def writing(registry: JobRegistry) -> AsyncIterator[RegistryWriter]:
    writer = RegistryWriter(registry)
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(writer.run)
            try:
                yield writer
            finally:
                writer.close()


async def test_work_is_done_in_the_order_in_which_it_came(tmp_path: Path) -> None:
    registry = SqliteJobRegistry(tmp_path / "jobs.sqlite")
    told: list[int] = []
    async with writing(registry) as writer:
        for number in range(20):
            writer.post(insert(number), lambda _none, number=number: told.append(number))  # type: ignore[misc]
        seen = await writer.do(JobRegistry.open_jobs)

    assert told == list(range(20))
    assert [int(one.id) for one in seen] == list(range(20))


async def test_work_is_done_in_one_thread_which_ends_with_the_writer(tmp_path: Path) -> None:
    threads: set[threading.Thread] = set()
    async with writing(SqliteJobRegistry(tmp_path / "jobs.sqlite")) as writer:
        for _ in range(3):
            await writer.do(lambda _registry: threads.add(threading.current_thread()))
    (thread,) = threads
    await anyio.to_thread.run_sync(thread.join, 10)

    assert not thread.is_alive()
    assert thread.daemon


async def test_what_comes_during_a_commit_shares_the_next_one(tmp_path: Path) -> None:
    statements: list[str] = []

    def connect(*args: Any, **settings: Any) -> sqlite3.Connection:
        opened: sqlite3.Connection = sqlite3.connect(*args, **settings)
        opened.set_trace_callback(statements.append)
        return opened

    is_writing, may_go_on = threading.Event(), threading.Event()

    def hold(_registry: JobRegistry) -> None:
        is_writing.set()
        may_go_on.wait(10)

    registry = SqliteJobRegistry(tmp_path / "jobs.sqlite", connect=connect)
    async with writing(registry) as writer:
        writer.post(hold)
        await anyio.to_thread.run_sync(is_writing.wait, 10)
        statements.clear()
        for number in range(20):
            writer.post(insert(number))
        may_go_on.set()
        seen = await writer.do(JobRegistry.open_jobs)

    assert len(seen) == 20
    # That of `hold`, and one for all the others.
    assert statements.count("COMMIT") == 2


async def test_work_that_fails_spoils_no_other(tmp_path: Path) -> None:
    registry = SqliteJobRegistry(tmp_path / "jobs.sqlite")
    async with writing(registry) as writer:
        writer.post(insert(1))
        with pytest.raises(sqlite3.IntegrityError):
            await writer.do(insert(1))
        await writer.do(insert(2))
        seen = await writer.do(JobRegistry.open_jobs)

    assert [int(one.id) for one in seen] == [1, 2]


async def test_work_before_the_end_is_still_written(tmp_path: Path) -> None:
    registry = SqliteJobRegistry(tmp_path / "jobs.sqlite")
    async with writing(registry) as writer:
        for number in range(5):
            writer.post(insert(number))

    assert len(registry.open_jobs()) == 5


async def test_cancellation_does_not_lose_what_was_decided(tmp_path: Path) -> None:
    registry = SqliteJobRegistry(tmp_path / "jobs.sqlite")
    with anyio.CancelScope() as scope:
        async with writing(registry) as writer:
            writer.post(insert(1))
            scope.cancel()
            await anyio.sleep_forever()

    assert len(registry.open_jobs()) == 1


async def test_work_after_the_end_is_refused(tmp_path: Path) -> None:
    registry = SqliteJobRegistry(tmp_path / "jobs.sqlite")
    async with writing(registry) as writer:
        pass
    with pytest.raises(RegistryClosed):
        await writer.do(insert(1))


async def test_disk_failure_ends_the_writer_and_reaches_the_waiting_callers(tmp_path: Path) -> None:
    disk = failing_at("COMMIT")
    registry = SqliteJobRegistry(tmp_path / "jobs.sqlite", connect=partial(sqlite3.connect, factory=disk))
    told: list[object] = []

    async def write() -> None:
        async with writing(registry) as writer:
            with pytest.raises(sqlite3.OperationalError):
                await writer.do(insert(1), told.append)

    with pytest.raises(BaseExceptionGroup) as caught:
        await write()

    assert caught.group_contains(sqlite3.OperationalError)
    assert told == []


async def test_work_without_a_caller_that_fails_ends_the_writer(tmp_path: Path) -> None:
    registry = SqliteJobRegistry(tmp_path / "jobs.sqlite")

    async def write() -> None:
        async with writing(registry) as writer:
            writer.post(insert(1))
            writer.post(insert(1))
            await anyio.sleep_forever()

    with pytest.raises(BaseExceptionGroup) as caught:
        await write()

    assert caught.group_contains(sqlite3.IntegrityError)
    assert len(registry.open_jobs()) == 1


class Away(SqliteJobRegistry):
    """A database that loses some transactions just before their end."""

    times = 2
    at_last: Callable[[], None] = staticmethod(lambda: None)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with super().transaction():
            yield
            if self.times > 0:
                self.times -= 1
                if self.times == 0:
                    self.at_last()
                raise RegistryAway("PostgreSQL at nowhere: gone")


async def test_what_was_lost_with_a_connection_is_done_again_once_and_in_order(tmp_path: Path) -> None:
    registry = Away(tmp_path / "jobs.sqlite")
    told: list[int] = []
    async with writing(registry) as writer:
        writer.deadline = anyio.current_time() + 60.0
        for number in (1, 2):
            writer.post(insert(number), lambda _none, number=number: told.append(number))  # type: ignore[misc]
        seen = await writer.do(JobRegistry.open_jobs)

    assert told == [int(one.id) for one in seen] == [1, 2]


async def test_database_that_stays_away_beyond_the_deadline_ends_the_writer(tmp_path: Path) -> None:
    registry = Away(tmp_path / "jobs.sqlite")

    async def write() -> None:
        async with writing(registry) as writer:
            registry.at_last = lambda: setattr(writer, "deadline", -math.inf)
            writer.post(insert(1))
            await anyio.sleep_forever()

    with pytest.raises(BaseExceptionGroup) as caught:
        await write()

    assert caught.group_contains(RegistryLost, match="PostgreSQL at nowhere: gone")
    assert registry.open_jobs() == []


class Hanging(SqliteJobRegistry):
    """A database whose connection hangs, as in a look-up of a host's name."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.may_go_on, self.is_over = threading.Event(), threading.Event()
        self.is_aborted, self.tries = False, 0

    def reconnect(self) -> None:
        self.tries += 1
        self.may_go_on.wait(5)
        self.is_over.set()
        if self.is_aborted:
            raise RegistryAway("it is used no more")

    def abort(self) -> None:
        self.is_aborted = True


async def test_connection_that_does_not_come_about_is_not_waited_for_beyond_the_deadline(
    tmp_path: Path,
) -> None:
    registry = Hanging(tmp_path / "jobs.sqlite")

    async def write() -> None:
        async with writing(registry) as writer:
            writer.deadline = anyio.current_time() + 0.3
            writer.post(insert(1))
            await anyio.sleep_forever()

    with pytest.raises(BaseExceptionGroup) as caught:
        await write()

    assert caught.group_contains(RegistryLost, match="does not answer: .*jobs.sqlite")
    assert not registry.is_over.is_set()
    registry.may_go_on.set()
    assert await anyio.to_thread.run_sync(registry.is_over.wait, 5)
    assert registry.open_jobs() == []


async def test_batch_that_hangs_is_not_begun_again_although_the_deadline_is_a_later_one_by_now(
    tmp_path: Path,
) -> None:
    registry = Hanging(tmp_path / "jobs.sqlite")

    async def write() -> None:
        async with writing(registry) as writer:
            writer.deadline = anyio.current_time() + 0.5
            writer.post(insert(1))
            while registry.tries == 0:
                await anyio.sleep(0.001)
            writer.deadline = anyio.current_time() + 5
            await anyio.sleep_forever()

    with pytest.raises(BaseExceptionGroup) as caught:
        await write()
    tries = registry.tries
    registry.may_go_on.set()

    assert caught.group_contains(RegistryLost)
    assert tries == 1
