"""Answers kept in Redis, for all who share it. Needs the extra `redis`."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

import anyio.to_thread

from nebula.errors import SettingsError
from nebula.rpc.cache import CacheFailed

try:
    import redis
except ImportError as error:  # pragma: no cover
    raise SettingsError("the cache in Redis needs redis-py: pip install 'nebula-rpc[redis]'") from error

T = TypeVar("T")

# A cache that is slower than that is none.
_TIMEOUT: Final = 1.0

# Keys that one look at the server's table goes through.
_SCAN_COUNT: Final = 1000


class RedisCache:
    """Keeps answers in Redis, which drops them when their time is over.

    A thread waits for it, so that it serves asyncio and trio alike. Connections are opened when they are
    needed, and again when they were lost.

    Args:
        url: `redis://[LOGIN:PASSCODE@]HOST[:PORT][/DATABASE]`, or `rediss://…` for TLS.
        namespace: how all keys begin, so that others may use the same database.
        timeout: seconds after which a call goes on without the cache.
    """

    def __init__(self, url: str, *, namespace: str = "nebula:cache:", timeout: float = _TIMEOUT) -> None:
        self._redis = redis.Redis.from_url(url, socket_timeout=timeout, socket_connect_timeout=timeout)
        self._namespace = namespace

    async def get(self, key: str) -> bytes | None:
        """See `CacheStore`."""
        value = await _in_thread(partial(self._redis.get, self._namespace + key))
        assert value is None or isinstance(value, bytes)  # decoding was not asked for
        return value

    async def put(self, key: str, value: bytes, seconds: float) -> None:
        """See `CacheStore`."""
        milliseconds = math.ceil(seconds * 1000)
        await _in_thread(partial(self._redis.set, self._namespace + key, value, px=milliseconds))

    async def drop(self, prefix: str) -> None:
        """See `CacheStore`. Looks at every key of the database: for now and then."""
        await _in_thread(partial(self._drop, _literally(self._namespace + prefix) + "*"))

    def close(self) -> None:
        """Close the connections. What was kept stays; it may be used again afterwards."""
        self._redis.close()

    def _drop(self, pattern: str) -> None:
        batch: list[bytes] = []
        for key in self._redis.scan_iter(match=pattern, count=_SCAN_COUNT):
            batch.append(key)
            if len(batch) == _SCAN_COUNT:
                self._redis.unlink(*batch)
                batch.clear()
        if batch:
            self._redis.unlink(*batch)


async def _in_thread(work: Callable[[], T]) -> T:
    try:
        # Whoever is cancelled does not wait for a server that hangs.
        return await anyio.to_thread.run_sync(work, abandon_on_cancel=True)
    except (redis.RedisError, OSError) as error:
        raise CacheFailed(f"Redis: {error}") from error


def _literally(text: str) -> str:
    """A text as a pattern of Redis that matches it alone."""
    return re.sub(r"([\\*?\[\]])", r"\\\1", text)
