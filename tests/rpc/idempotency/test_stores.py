"""The stores of replies that need no other program: memory, and a file."""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing, nullcontext
from pathlib import Path
from typing import Any

import anyio
import pytest

from nebula.rpc.idempotency import Claim, MemoryStore, Reach, SqliteStore, StoreFailed
from nebula.rpc.idempotency.sqlite import write_ahead
from tests.own_logs import own_logs
from tests.rpc.idempotency.stores import HandClock, StoreSuite, TimedStoreSuite

pytestmark = pytest.mark.anyio


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


class TestMemory(StoreSuite, TimedStoreSuite):
    @pytest.fixture
    def store(self, clock: HandClock) -> MemoryStore:
        return MemoryStore(clock=clock)


class TestSqlite(StoreSuite, TimedStoreSuite):
    @pytest.fixture
    async def store(self, tmp_path: Path, clock: HandClock) -> AsyncGenerator[SqliteStore]:
        store = SqliteStore(tmp_path / "new" / "answers.db", clock=clock)
        yield store
        await store.close()


async def keep(store: MemoryStore | SqliteStore, key: str, answer: bytes = b"answer") -> None:
    await store.claim(key, "f", "a", 30)
    await store.keep(key, "a", answer, 600)


async def knows(store: MemoryStore | SqliteStore, key: str) -> bool:
    claim = await store.claim(key, "f", "b", 30)
    await store.release(key, "b")
    return claim.reply is not None


async def test_memory_keeps_a_number_of_bytes_and_forgets_the_oldest() -> None:
    store = MemoryStore(max_bytes=10_000)
    for key in ("one", "two", "three"):
        await keep(store, key, b"x" * 4000)
        assert store.size_bytes <= 10_000

    assert [await knows(store, key) for key in ("one", "two", "three")] == [False, True, True]


async def test_memory_does_not_keep_an_answer_that_is_larger_than_all_may_be() -> None:
    store = MemoryStore(max_bytes=10_000)
    await keep(store, "small")
    await keep(store, "large", b"x" * 10_000)

    assert await knows(store, "small")
    assert not await knows(store, "large")


async def test_memory_counts_what_it_has_forgotten_no_longer(clock: HandClock) -> None:
    store = MemoryStore(clock=clock)
    await keep(store, "one")
    clock.now += 600
    await keep(store, "one")
    await keep(store, "two")

    assert len(store) == 2
    assert store.size_bytes == 2 * (800 + len(b"answer"))


async def test_two_stores_on_one_file_know_each_others_answers(tmp_path: Path) -> None:
    one, other = SqliteStore(tmp_path / "answers.db"), SqliteStore(tmp_path / "answers.db")
    await keep(one, "k")

    assert await other.claim("k", "f", "b", 30) == Claim("f", reply=b"answer")

    await one.close()
    await other.close()


@asynccontextmanager
async def file(path: Path, clock: HandClock, **options: Any) -> AsyncGenerator[SqliteStore]:
    store = SqliteStore(path, clock=clock, **options)
    yield store
    await store.close()


def small(
    kind: str, folder: Path, clock: HandClock
) -> AbstractAsyncContextManager[MemoryStore | SqliteStore]:
    """A store that has no room for more than some ten replies of 10,000 bytes."""
    if kind == "memory":
        return nullcontext(MemoryStore(max_bytes=150_000, clock=clock))
    return file(folder / "answers.db", clock, max_bytes=150_000)


@pytest.mark.parametrize("kind", ["memory", "file"])
async def test_full_store_forgets_the_oldest_and_says_so_once(
    kind: str, tmp_path: Path, clock: HandClock
) -> None:
    async with small(kind, tmp_path, clock) as store:
        with own_logs() as logs:
            for number in range(40):
                await keep(store, f"{'sender':16}{number}", b"x" * 10_000)
                clock.now += 0.001
        kept = [number for number in range(40) if await knows(store, f"{'sender':16}{number}")]

    assert kept == list(range(40 - len(kept), 40))
    assert 5 < len(kept) < 15
    assert [entry["event"] for entry in logs] == ["replies dropped before their time"]


@pytest.mark.parametrize("kind", ["memory", "file"])
@pytest.mark.parametrize("size", [10, 10_000])
async def test_flood_of_one_sender_pushes_out_its_own_answers_alone(
    size: int, kind: str, tmp_path: Path, clock: HandClock
) -> None:
    async with small(kind, tmp_path, clock) as store:
        for number in range(5):
            await keep(store, f"{'careful':16}{number}", b"x" * 5000)
        for number in range(4_000_000 // (size + 10_000)):
            await keep(store, f"{'flooding':16}{number}", b"x" * size)
        known = [await knows(store, f"{'careful':16}{number}") for number in range(5)]

    assert known == [True] * 5


async def test_file_stays_as_small_as_it_is_told_and_keeps_no_dead_ones(
    tmp_path: Path, clock: HandClock
) -> None:
    async with file(tmp_path / "answers.db", clock, max_bytes=1_000_000) as store:
        await keep(store, "dead", b"x" * 900_000)
        clock.now += 600
        with own_logs() as logs:
            await keep(store, "new", b"x" * 900_000)
        assert logs == []
        for number in range(20):
            await keep(store, str(number), b"x" * 300_000)
    assert (tmp_path / "answers.db").stat().st_size < 2_500_000


async def test_file_grows_no_more_on_a_disk_that_is_nearly_full_and_spares_the_others(
    tmp_path: Path, clock: HandClock
) -> None:
    path, free = tmp_path / "answers.db", 1024**3
    async with file(path, clock, min_free_disk_bytes=256 * 1024**2, free_bytes=lambda _: free) as store:
        for number in range(5):
            await keep(store, f"{'careful':16}{number}", b"x" * 5000)
        for number in range(50):
            await keep(store, f"{'flooding':16}{number}", b"x" * 5000)
        size = _pages(path)
        free = 200 * 1024**2
        for number in range(50, 200):
            await keep(store, f"{'flooding':16}{number}", b"x" * 5000)
        known = [await knows(store, f"{'careful':16}{number}") for number in range(5)]

        assert _pages(path) <= size + 4
    assert known == [True] * 5


def _pages(path: Path) -> int:
    with closing(sqlite3.connect(path)) as db:
        return int(db.execute("PRAGMA page_count").fetchone()[0])


@pytest.mark.parametrize("umask", [0o000, 0o022], ids=oct)
async def test_file_of_an_earlier_version_is_closed_to_others(
    tmp_path: Path, clock: HandClock, umask: int
) -> None:
    path = tmp_path / "deep" / "new" / "answers.db"
    before = os.umask(umask)
    try:
        async with file(path, clock) as store:
            await keep(store, "one")
        path.chmod(0o666)
        async with file(path, clock) as store:
            await keep(store, "two")
            modes = [oct(each.stat().st_mode & 0o777) for each in sorted(path.parent.iterdir())]
    finally:
        os.umask(before)

    assert modes == ["0o600"] * 3
    assert [oct(each.stat().st_mode & 0o777) for each in path.parents[:2]] == ["0o700"] * 2


async def test_file_is_readable_by_its_user_alone(tmp_path: Path, clock: HandClock) -> None:
    before = os.umask(0)
    try:
        async with file(tmp_path / "new" / "answers.db", clock) as store:
            await keep(store, "k")
            modes = {one.name: stat.S_IMODE(one.stat().st_mode) for one in (tmp_path / "new").iterdir()}
    finally:
        os.umask(before)

    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700
    assert "answers.db" in modes
    assert set(modes.values()) == {0o600}


async def test_store_that_one_service_closes_serves_the_other(tmp_path: Path, clock: HandClock) -> None:
    async with file(tmp_path / "answers.db", clock) as store, anyio.create_task_group() as tasks:
        for number in range(50):
            tasks.start_soon(keep, store, str(number))
            tasks.start_soon(store.close)


def test_store_serves_two_loops_at_once(tmp_path: Path, clock: HandClock) -> None:
    store = SqliteStore(tmp_path / "answers.db", clock=clock)

    async def work(name: str) -> None:
        for number in range(100):
            await keep(store, f"{name}{number}")
        assert all([await knows(store, f"{name}{number}") for number in range(100)])
        await store.close()

    with ThreadPoolExecutor(2) as threads:
        loops = [threads.submit(anyio.run, work, name) for name in ("one", "two")]
        for one in loops:
            one.result(30)


async def test_file_that_cannot_be_had_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for path in (tmp_path / "file" / "answers.db", tmp_path):
        with pytest.raises(StoreFailed, match=str(tmp_path)):
            await SqliteStore(path).claim("k", "f", "a", 30)


def test_stores_say_who_shares_them(tmp_path: Path) -> None:
    assert MemoryStore().reach is Reach.INSTANCE
    assert SqliteStore(tmp_path / "answers.db").reach is Reach.MACHINE


class _Locked(sqlite3.Connection):
    """Says, as SQLite may without waiting, that another one is making the file write-ahead."""

    refusals = 2

    def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
        if "journal_mode" in sql and self.refusals:
            self.refusals -= 1
            raise sqlite3.OperationalError("database is locked")
        return super().execute(sql, *values)


def test_file_that_another_one_makes_at_the_same_moment_is_waited_for(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "answers.db", factory=_Locked)) as db:
        write_ahead(db)

        assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
