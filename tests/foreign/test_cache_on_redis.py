"""The response cache in Redis: shared by clients of several processes, and dispensable."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from uuid import uuid4

import anyio
import pytest
import redis

from nebula.extras.redis_cache import RedisCache
from nebula.rpc.client.cache import Cache, CacheFailed
from nebula.rpc.client.client import Client
from nebula.testing import TestClient, fake
from tests.foreign.redis_server import DEADLINE, RedisServer

# The first one waits for Redis to be installed.
pytestmark = [pytest.mark.anyio, pytest.mark.foreign, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    running = RedisServer()
    yield running
    running.stop()


@pytest.fixture
async def store(server: RedisServer) -> AsyncGenerator[RedisCache]:
    """A namespace of its own, with the characters that patterns of Redis have."""
    kept = RedisCache(server.url, namespace=f"[a*]?{uuid4().hex}:")
    yield kept
    kept.close()


async def test_what_is_put_is_got_until_its_time_is_over(store: RedisCache) -> None:
    with anyio.fail_after(DEADLINE):
        await store.put("a", b"\0octets\xff", 60)
        assert await store.get("a") == b"\0octets\xff"
        assert await store.get("b") is None
        await store.put("short", b"", 0.001)
        while await store.get("short") is not None:
            await anyio.sleep(0.001)


async def test_keys_are_dropped_by_how_they_begin_and_no_others(
    store: RedisCache, server: RedisServer
) -> None:
    other = RedisCache(server.url, namespace=f"ax{uuid4().hex}:")
    with anyio.fail_after(DEADLINE):
        await other.put('["/queue/a","b",1]', b"other", 60)
        for number in range(2500):
            await store.put(f'["/queue/a","b",{number}]', b"x", 60)
        await store.put('["/queue/a","c",1]', b"y", 60)
        await store.drop('["/queue/a","b",')

        assert await store.get('["/queue/a","b",7]') is None
        assert await store.get('["/queue/a","c",1]') == b"y"
        assert await other.get('["/queue/a","b",1]') == b"other"


async def test_answer_that_nobody_waits_for_any_more_is_not_kept(
    store: RedisCache, server: RedisServer
) -> None:
    with redis.Redis.from_url(server.url) as admin, anyio.fail_after(DEADLINE):
        await store.get("a")  # a connection that is not slow to begin
        admin.config_resetstat()
        admin.client_pause(int(DEADLINE * 1000), all=False)
        with anyio.move_on_after(0.05) as scope:
            await store.put("a", b"stale", 60)
        admin.client_unpause()
        while "cmdstat_unlink" not in admin.info("commandstats"):
            await anyio.sleep(0.001)

        assert scope.cancelled_caught
        assert await store.get("a") is None


async def test_clients_with_a_cache_each_share_the_answers(store: RedisCache, server: RedisServer) -> None:
    price = fake("prices", "quote", side_effect=[1, 2])
    verbs = {"prices.quote": 60.0}
    with anyio.fail_after(DEADLINE):
        async with (
            TestClient(price, cache=Cache(verbs, store=store)) as client,
            Client(client.url, cache=Cache(verbs, store=store)) as other,
        ):
            assert await client.call("prices", "quote", {"b": 1, "a": 2}) == 1
            assert await other.call("prices", "quote", {"a": 2, "b": 1}) == 1
            await Cache(store=store).invalidate("prices", "quote")
            assert await other.call("prices", "quote", {"a": 2, "b": 1}) == 2

    assert len(price.calls) == 2


async def test_hundred_callers_of_a_cold_key_make_one_request(store: RedisCache) -> None:
    price = fake("prices", "quote", returns=1)
    with anyio.fail_after(DEADLINE):
        async with (
            TestClient(price, cache=Cache({"prices.quote": 60.0}, store=store)) as client,
            anyio.create_task_group() as tasks,
        ):
            for _ in range(100):
                tasks.start_soon(client.call, "prices", "quote")

    assert len(price.calls) == 1


async def test_calls_go_on_while_redis_is_away_and_use_it_again(
    store: RedisCache, server: RedisServer
) -> None:
    price = fake("prices", "quote", returns=1)
    cache = Cache({"prices.quote": 60.0}, store=store)
    with anyio.fail_after(DEADLINE):
        async with TestClient(price, cache=cache) as client:
            await client.call("prices", "quote")
            server.stop()
            try:
                for _ in range(2):
                    assert await client.call("prices", "quote") == 1
                with pytest.raises(CacheFailed, match="Redis"):
                    await cache.invalidate("prices")
            finally:
                await anyio.to_thread.run_sync(server.start)
            assert len(price.calls) == 3
            for _ in range(2):
                await client.call("prices", "quote")

    assert len(price.calls) == 4
