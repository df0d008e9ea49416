"""Idempotency keys in Redis, shared by all instances of a service. Needs the extra `redis`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

import anyio.to_thread

from nebula.rpc.idempotency.store import Claim, Reach, StoreFailed

if TYPE_CHECKING:
    from redis import Redis

# Seconds to wait for Redis.
_PATIENCE: Final = 5.0

# Each script is one step for Redis, whatever other clients do. A key is a hash: f, fingerprint; o, owner;
# a, reply.
# An owner claims its own key again if it did not get the reply to its first claim: connections get lost.
_CLAIM: Final = """
local found = redis.call('HMGET', KEYS[1], 'f', 'a', 'o')
if found[1] and (found[2] or found[3] ~= ARGV[2]) then return found end
redis.call('HSET', KEYS[1], 'f', ARGV[1], 'o', ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return {}
"""
_IF_OWNED: Final = """
local found = redis.call('HMGET', KEYS[1], 'o', 'a')
if found[1] ~= ARGV[1] or found[2] then return 0 end
"""
_RENEW: Final = _IF_OWNED + "return redis.call('PEXPIRE', KEYS[1], ARGV[2])"
_KEEP: Final = _IF_OWNED + (
    "redis.call('HSET', KEYS[1], 'a', ARGV[2]) return redis.call('PEXPIRE', KEYS[1], ARGV[3])"
)
_RELEASE: Final = _IF_OWNED + "return redis.call('DEL', KEYS[1])"


class RedisStore:
    """Keeps replies in Redis, which forgets them by itself when their window is over.

    How much it keeps is Redis' own setting (`maxmemory`); what it evicts early may run again.

    Args:
        url: `redis://[user:password@]host[:port][/db]`, `rediss://` for TLS.
        prefix: before each key, to share a database with others.

    Raises:
        SettingsError: the address cannot be used, or the extra is not installed.
    """

    def __init__(self, url: str, *, prefix: str = "nebula:idempotency:") -> None:
        # Not at the top: the extra is only needed by users of this class.
        from nebula.extras.redis_access import RedisAccess

        self._access = RedisAccess(url, timeout=_PATIENCE, failure=StoreFailed)
        self._prefix = prefix

    @property
    def reach(self) -> Reach:
        """All instances that ask the same Redis."""
        return Reach.SHARED

    async def claim(self, key: str, fingerprint: str, owner: str, lease: float) -> Claim:
        """Claim a key, or return what it stands for; see `IdempotencyStore`."""
        found = await self._access.do(
            lambda redis: self._eval(redis, _CLAIM, key, fingerprint, owner, _milliseconds(lease)),
            # The caller that claimed the key has gone, and would not release it.
            undo=lambda redis: self._eval(redis, _RELEASE, key, owner),
        )
        if not found:
            return Claim(fingerprint, is_mine=True)
        return Claim(found[0].decode(), reply=found[1])

    async def renew(self, claims: Iterable[tuple[str, str]], lease: float) -> None:
        """Extend claims."""
        for key, owner in claims:
            await self._do(_RENEW, key, owner, _milliseconds(lease))

    async def keep(self, key: str, owner: str, reply: bytes, window: float) -> None:
        """Keep a reply."""
        await self._do(_KEEP, key, owner, reply, _milliseconds(window))

    async def release(self, key: str, owner: str) -> None:
        """Give up a claim."""
        await self._do(_RELEASE, key, owner)

    async def close(self) -> None:
        """Close the connections."""
        await anyio.to_thread.run_sync(self._access.close)

    async def _do(self, script: str, key: str, *words: str | bytes | int) -> Any:
        return await self._access.do(lambda redis: self._eval(redis, script, key, *words))

    def _eval(self, redis: Redis, script: str, key: str, *words: str | bytes | int) -> Any:
        return redis.eval(script, 1, self._prefix + key, *words)


def _milliseconds(seconds: float) -> int:
    # PEXPIRE with 0 deletes the key.
    return max(1, int(seconds * 1000))
