"""Answers by key in Redis: known to all instances that ask it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from uuid import uuid4

import anyio
import pytest
import redis

from nebula.errors import SettingsError
from nebula.extras.redis_idempotency import RedisStore
from nebula.rpc.idempotency import Claim, Reach, StoreFailed
from tests.foreign.redis_server import RedisServer
from tests.ports import free_port
from tests.rpc.idempotency.stores import StoreSuite

# The first one waits for Redis to be installed.
pytestmark = [pytest.mark.anyio, pytest.mark.foreign, pytest.mark.timeout(300)]

_DEADLINE = 20.0


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    running = RedisServer()
    yield running
    running.stop()


@pytest.fixture
async def store(server: RedisServer) -> AsyncGenerator[RedisStore]:
    one = RedisStore(server.url, prefix=f"{uuid4().hex}:")
    yield one
    await one.close()


class TestRedis(StoreSuite):
    """What every store does."""


async def test_two_stores_on_one_redis_know_each_others_answers(server: RedisServer) -> None:
    prefix = f"{uuid4().hex}:"
    one, other = RedisStore(server.url, prefix=prefix), RedisStore(server.url, prefix=prefix)
    await one.claim("k", "f", "a", 30)
    await one.keep("k", "a", b"answer", 600)

    assert await other.claim("k", "f", "b", 30) == Claim("f", reply=b"answer")
    assert other.reach is Reach.SHARED

    await one.close()
    await other.close()


async def test_claim_and_answer_end_with_their_time(store: RedisStore) -> None:
    with anyio.fail_after(_DEADLINE):
        await store.claim("k", "f", "a", 0.02)
        while not (await store.claim("k", "f", "b", 60)).is_mine:
            await anyio.sleep(0.001)
        # Too late for the first one.
        await store.keep("k", "a", b"late", 60)
        assert await store.claim("k", "f", "c", 60) == Claim("f")

        await store.keep("k", "b", b"answer", 0.02)
        while not (await store.claim("k", "f", "c", 60)).is_mine:
            await anyio.sleep(0.001)


async def test_renewed_claim_outlives_its_first_time(store: RedisStore) -> None:
    with anyio.fail_after(_DEADLINE):
        await store.claim("k", "f", "a", 0.5)
        await store.renew([("k", "a")], 600)
        await store.claim("short", "f", "a", 0.5)  # ends after the other's first time
        while not (await store.claim("short", "f", "b", 60)).is_mine:
            await anyio.sleep(0.001)

        assert not (await store.claim("k", "f", "b", 60)).is_mine


async def test_claim_that_is_made_again_as_its_answer_was_lost_is_still_mine(store: RedisStore) -> None:
    for _ in range(2):
        assert (await store.claim("k", "f", "a", 60)).is_mine
    await store.keep("k", "a", b"answer", 60)

    assert await store.claim("k", "f", "a", 60) == Claim("f", reply=b"answer")


async def test_claim_of_who_has_gone_is_let_go(server: RedisServer, store: RedisStore) -> None:
    with redis.Redis.from_url(server.url) as admin, anyio.fail_after(_DEADLINE):
        await store.release("k", "a")  # a connection that is not slow to begin
        admin.client_pause(int(_DEADLINE * 1000), all=False)
        with anyio.move_on_after(0.05) as scope:
            await store.claim("k", "f", "a", 600)
        admin.client_unpause()
        while not (await store.claim("k", "f", "b", 600)).is_mine:
            await anyio.sleep(0.001)

    assert scope.cancelled_caught


async def test_redis_that_is_away_is_said_without_its_address() -> None:
    store = RedisStore(f"redis://user:hunter2@127.0.0.1:{free_port()}")

    with pytest.raises(StoreFailed) as caught:
        await store.claim("k", "f", "a", 30)

    assert "hunter2" not in str(caught.value)


def test_address_of_something_else_is_refused_without_its_password() -> None:
    with pytest.raises(SettingsError, match="redis://") as caught:
        RedisStore("http://user:hunter2@127.0.0.1")

    assert "hunter2" not in str(caught.value)
