"""Cache of replies in Redis, shared by clients. Needs the extra `redis`."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Final

from nebula.extras.redis_access import RedisAccess
from nebula.rpc.client.cache import CacheFailed

if TYPE_CHECKING:
    from redis import Redis

# A cache that is slower than that is none.
_TIMEOUT: Final = 1.0

# Keys that one look at the server's table goes through.
_SCAN_COUNT: Final = 1000


class RedisCache:
    """Keeps replies in Redis, which drops them when their time is over.

    A thread waits for it, so that it works on asyncio and trio. If it does not answer in time, calls go on
    without it for 5 s.

    Args:
        url: `redis://[LOGIN:PASSCODE@]HOST[:PORT][/DATABASE]`, or `rediss://…` for TLS.
        namespace: the prefix of all keys, so that others may use the same database.
        timeout: seconds after which a call goes on without the cache.

    Raises:
        SettingsError: the address cannot be used, or the extra is not installed.
    """

    def __init__(self, url: str, *, namespace: str = "nebula:cache:", timeout: float = _TIMEOUT) -> None:
        self._access = RedisAccess(url, timeout=timeout, failure=CacheFailed)
        self._namespace = namespace

    async def get(self, key: str) -> bytes | None:
        """See `CacheStore`."""
        value = await self._access.do(lambda redis: redis.get(self._namespace + key))
        assert value is None or isinstance(value, bytes)  # decoding was not asked for
        return value

    async def put(self, key: str, value: bytes, seconds: float) -> None:
        """See `CacheStore`."""
        name, milliseconds = self._namespace + key, math.ceil(seconds * 1000)
        await self._access.do(
            lambda redis: redis.set(name, value, px=milliseconds),
            # By then the value may be stale, and the call that dropped it has ended.
            undo=lambda redis: redis.unlink(name),
        )

    async def drop(self, prefix: str) -> None:
        """See `CacheStore`. Looks at every key of the database: for occasional use."""
        pattern = _literally(self._namespace + prefix) + "*"
        await self._access.do(lambda redis: _drop(redis, pattern))

    def close(self) -> None:
        """Close the connections. What was kept stays; it may be used again afterwards."""
        self._access.close()


def _drop(client: Redis, pattern: str) -> None:
    batch: list[bytes] = []
    for key in client.scan_iter(match=pattern, count=_SCAN_COUNT):
        batch.append(key)
        if len(batch) == _SCAN_COUNT:
            client.unlink(*batch)
            batch.clear()
    if batch:
        client.unlink(*batch)


def _literally(text: str) -> str:
    """A text as a pattern of Redis that matches it alone."""
    return re.sub(r"([\\*?\[\]])", r"\\\1", text)
