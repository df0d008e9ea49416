"""Redis that does not reply: no caller waits longer than it wants to."""

from __future__ import annotations

import importlib
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

import anyio
import pytest
import redis

from nebula.errors import NebulaError, SettingsError
from nebula.extras import redis_access
from nebula.extras.redis_access import RedisAccess
from nebula.extras.redis_cache import RedisCache
from nebula.extras.redis_idempotency import RedisStore
from nebula.rpc.client.cache import CacheFailed

pytestmark = pytest.mark.anyio

_DEADLINE = 10.0


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a server that takes connections and says nothing, until the test is over."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"redis://127.0.0.1:{server.getsockname()[1]}"


async def test_who_is_cancelled_does_not_wait_for_a_redis_that_hangs(silent: str) -> None:
    access = RedisAccess(silent, timeout=600, failure=CacheFailed)
    with anyio.fail_after(_DEADLINE):
        with anyio.move_on_after(0.01) as scope:
            await access.do(lambda redis: redis.get("a"))

        assert scope.cancelled_caught


async def test_redis_that_did_not_answer_in_time_is_left_alone_for_a_while(
    silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(redis_access, "monotonic", lambda: now)
    access = RedisAccess(silent, timeout=0.01, failure=CacheFailed)
    asked = 0

    def ask(client: redis.Redis) -> object:
        nonlocal asked
        asked += 1
        return client.get("a")

    with anyio.fail_after(_DEADLINE):
        with pytest.raises(CacheFailed, match="no answer in time"):
            await access.do(ask)
        with pytest.raises(CacheFailed, match="left alone"):
            await access.do(ask)
        assert asked == 1
        now += 5
        with pytest.raises(CacheFailed, match="no answer in time"):
            await access.do(ask)
    assert asked == 2


async def test_threads_that_nobody_waits_for_are_bounded(silent: str) -> None:
    access = RedisAccess(silent, timeout=600, failure=CacheFailed)
    waiting = 0

    def ask(client: redis.Redis) -> object:
        nonlocal waiting
        waiting += 1
        return client.get("a")

    with anyio.fail_after(_DEADLINE):
        for _ in range(redis_access._MOST_THREADS + 20):
            with anyio.move_on_after(0.01), suppress(CacheFailed):
                await access.do(ask)

    assert 0 < waiting <= redis_access._MOST_THREADS


@pytest.mark.parametrize("url", ["http://user:hunter2@127.0.0.1", "redis://user:hunter2@127.0.0.1:port"])
def test_address_of_something_else_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(SettingsError, match="redis://") as caught:
        RedisCache(url)

    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "use",
    [
        partial(importlib.import_module, "nebula.extras.redis_cache"),
        partial(RedisStore, "redis://127.0.0.1"),
    ],
)
def test_without_the_extra_it_says_what_to_install(
    use: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "redis", None)
    for name in ("nebula.extras.redis_access", "nebula.extras.redis_cache"):
        monkeypatch.delitem(sys.modules, name)

    with pytest.raises(SettingsError, match=r"pip install 'nebula-rpc\[redis\]'"):
        use()


class Failed(NebulaError):
    """Said by whoever asks."""


async def test_failure_is_said_by_its_kind_alone() -> None:
    with socket.socket() as taken:  # it does not listen, and nobody else can
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        access = RedisAccess(f"redis://user:hunter2@127.0.0.1:{port}", timeout=5, failure=Failed)
        with pytest.raises(Failed) as caught, anyio.fail_after(_DEADLINE):
            await access.do(lambda redis: redis.get("a"))

    assert str(caught.value) == "Redis: ConnectionError"
