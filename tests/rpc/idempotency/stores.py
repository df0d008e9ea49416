"""Contract tests for stores of replies, run over each of them."""

from __future__ import annotations

from dataclasses import dataclass

import anyio
import pytest

from nebula.rpc.idempotency import Claim, IdempotencyStore

pytestmark = pytest.mark.anyio


@dataclass(slots=True)
class HandClock:
    """A clock that is moved by hand."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


class StoreSuite:
    """Tests over the fixture `store`, whose leases and windows are so long that none ends here."""

    async def test_free_key_is_taken_once(self, store: IdempotencyStore) -> None:
        assert await store.claim("k", "f", "a", 60) == Claim("f", is_mine=True)
        assert await store.claim("k", "g", "b", 60) == Claim("f")
        assert await store.claim("other", "g", "b", 60) == Claim("g", is_mine=True)

    async def test_kept_reply_is_found_with_the_parameters_it_was_for(self, store: IdempotencyStore) -> None:
        await store.claim("k", "f", "a", 60)
        await store.keep("k", "a", b"\x00answer", 60)

        assert await store.claim("k", "g", "b", 60) == Claim("f", reply=b"\x00answer")

    async def test_empty_answer_is_an_answer(self, store: IdempotencyStore) -> None:
        await store.claim("k", "f", "a", 60)
        await store.keep("k", "a", b"", 60)

        assert await store.claim("k", "f", "b", 60) == Claim("f", reply=b"")

    async def test_released_key_is_free(self, store: IdempotencyStore) -> None:
        await store.claim("k", "f", "a", 60)
        await store.release("k", "a")

        assert await store.claim("k", "g", "b", 60) == Claim("g", is_mine=True)

    async def test_only_the_owner_keeps_or_releases(self, store: IdempotencyStore) -> None:
        await store.claim("k", "f", "a", 60)
        await store.release("k", "b")
        await store.keep("k", "b", b"of another", 60)
        await store.renew([("k", "b"), ("unknown", "a")], 60)

        assert await store.claim("k", "f", "c", 60) == Claim("f")

    async def test_kept_answer_is_not_released_nor_replaced(self, store: IdempotencyStore) -> None:
        await store.claim("k", "f", "a", 60)
        await store.keep("k", "a", b"first", 60)
        await store.release("k", "a")
        await store.keep("k", "a", b"second", 60)

        assert await store.claim("k", "f", "b", 60) == Claim("f", reply=b"first")

    async def test_store_goes_on_after_it_was_closed(self, store: IdempotencyStore) -> None:
        await store.claim("k", "f", "a", 60)
        await store.keep("k", "a", b"answer", 60)
        await store.close()

        assert await store.claim("k", "f", "b", 60) == Claim("f", reply=b"answer")

    async def test_one_of_many_simultaneous_requests_gets_the_key(self, store: IdempotencyStore) -> None:
        claims: list[Claim] = []

        async def claim(owner: str) -> None:
            claims.append(await store.claim("k", "f", owner, 60))

        async with anyio.create_task_group() as tasks:
            for number in range(20):
                tasks.start_soon(claim, str(number))

        assert sum(one.is_mine for one in claims) == 1


class TimedStoreSuite:
    """Tests over the fixtures `store` and `clock`, which is the store's clock."""

    async def test_claim_that_is_not_renewed_ends(self, store: IdempotencyStore, clock: HandClock) -> None:
        await store.claim("k", "f", "a", 30)
        clock.now += 29
        assert not (await store.claim("k", "f", "b", 30)).is_mine
        clock.now += 1
        assert (await store.claim("k", "f", "b", 30)).is_mine

        # It is too late for the first one.
        await store.keep("k", "a", b"late", 60)
        await store.renew([("k", "a")], 30)
        assert await store.claim("k", "f", "c", 30) == Claim("f")

    async def test_renewed_claim_stays(self, store: IdempotencyStore, clock: HandClock) -> None:
        await store.claim("k", "f", "a", 30)
        clock.now += 29
        await store.renew([("k", "a")], 30)
        clock.now += 29

        assert not (await store.claim("k", "f", "b", 30)).is_mine

    async def test_answer_is_forgotten_after_its_window(
        self, store: IdempotencyStore, clock: HandClock
    ) -> None:
        await store.claim("k", "f", "a", 30)
        await store.keep("k", "a", b"answer", 600)
        await store.renew([("k", "a")], 30)
        clock.now += 599
        assert (await store.claim("k", "f", "b", 30)).reply == b"answer"
        clock.now += 1
        assert (await store.claim("k", "f", "b", 30)).is_mine
