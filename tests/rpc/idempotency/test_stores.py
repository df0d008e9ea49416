"""The stores of answers that need nothing beside: memory, and a file."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from nebula.rpc.idempotency import Claim, MemoryStore, Reach, SqliteStore, StoreFailed
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
    return claim.answer is not None


async def test_memory_keeps_so_many_answers_and_forgets_the_oldest() -> None:
    store = MemoryStore(max_answers=2)
    for key in ("one", "two", "three"):
        await keep(store, key)

    assert [await knows(store, key) for key in ("one", "two", "three")] == [False, True, True]


async def test_memory_keeps_so_many_octets_and_forgets_the_oldest() -> None:
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
    assert store.size_bytes == 2 * (500 + len(b"answer"))


async def test_two_stores_on_one_file_know_each_others_answers(tmp_path: Path) -> None:
    one, other = SqliteStore(tmp_path / "answers.db"), SqliteStore(tmp_path / "answers.db")
    await keep(one, "k")

    assert await other.claim("k", "f", "b", 30) == Claim("f", answer=b"answer")

    await one.close()
    await other.close()


async def test_file_keeps_so_many_answers_and_no_dead_ones(tmp_path: Path, clock: HandClock) -> None:
    store = SqliteStore(tmp_path / "answers.db", max_answers=5, clock=clock)
    await keep(store, "dead")
    clock.now += 600
    # They are counted now and then.
    for number in range(200):
        await keep(store, str(number))
        clock.now += 0.001

    kept = [number for number in range(200) if await knows(store, str(number))]
    assert kept[-5:] == [195, 196, 197, 198, 199]
    assert len(kept) <= 105
    await store.close()


async def test_file_that_cannot_be_had_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for path in (tmp_path / "file" / "answers.db", tmp_path):
        with pytest.raises(StoreFailed, match=str(tmp_path)):
            await SqliteStore(path).claim("k", "f", "a", 30)


def test_stores_say_who_shares_them(tmp_path: Path) -> None:
    assert MemoryStore().reach is Reach.INSTANCE
    assert SqliteStore(tmp_path / "answers.db").reach is Reach.MACHINE
