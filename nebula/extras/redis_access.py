"""Redis access from any event loop: connections, time limits, errors.

Needs the extra `redis`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic
from typing import Final, TypeVar

import anyio.to_thread

from nebula.errors import NebulaError, SettingsError
from nebula.threads import ThreadLimit

try:
    import redis
except ImportError as error:  # pragma: no cover
    raise SettingsError("Redis needs its client: pip install 'nebula-rpc[redis]'") from error

__all__ = ["RedisAccess"]

_T = TypeVar("_T")

# How long a Redis that did not reply in time is left alone: each request to it would occupy a thread.
_REST: Final = 5.0

# The number of threads of one loop that may wait for one Redis; and the number of all threads, since on
# asyncio the first does not include threads whose callers were cancelled.
_THREADS: Final = 40
_MOST_THREADS: Final = 80


class RedisAccess:
    """Has work done by Redis.

    A thread waits for it, as there is no client for trio. A cancelled caller does not wait for the thread.
    Connections are opened when they are needed, and again when they were lost. A Redis that did not reply in
    time gets no requests for the next 5 s: everything fails at once then.

    Args:
        url: `redis://[LOGIN:PASSCODE@]HOST[:PORT][/DATABASE]`, `rediss://…` for TLS, or `unix://…`.
        timeout: seconds to wait for a connection, and for each reply.
        failure: what is raised when it fails. It gets only the kind of the error: the texts of Redis may have
            the address, with a passcode, or the value.

    Raises:
        SettingsError: the address cannot be used.
    """

    def __init__(self, url: str, *, timeout: float, failure: type[NebulaError]) -> None:
        try:
            self._redis = redis.Redis.from_url(url, socket_timeout=timeout, socket_connect_timeout=timeout)
        except ValueError as error:
            # Its own words repeat the address.
            raise SettingsError("not an address of Redis: redis://host:port, rediss:// or unix://") from error
        self._failure = failure
        self._thread_limit = ThreadLimit(_THREADS)
        self._threads = threading.BoundedSemaphore(_MOST_THREADS)
        self._rests_until = 0.0

    async def do(
        self, work: Callable[[redis.Redis], _T], *, undo: Callable[[redis.Redis], object] | None = None
    ) -> _T:
        """What `work` gives, done in a thread.

        Args:
            work: asks Redis.
            undo: done after `work` where its caller was cancelled meanwhile, and so knows nothing of it.

        Raises:
            NebulaError: the `failure`; it may have been done all the same.
        """
        if monotonic() < self._rests_until:
            raise self._failure("Redis: it did not answer in time, and is left alone for some seconds")
        is_awaited = True

        def run() -> _T:
            done = self._try(work)
            if undo is not None and not is_awaited:
                self._try(undo)
            return done

        try:
            return await anyio.to_thread.run_sync(
                run, abandon_on_cancel=True, limiter=self._thread_limit.limiter
            )
        finally:
            is_awaited = False

    def close(self) -> None:
        """Close the connections. It may be used again afterwards."""
        self._redis.close()

    def _try(self, work: Callable[[redis.Redis], _T]) -> _T:
        if not self._threads.acquire(blocking=False):
            raise self._failure("Redis: too much waits for it already")
        try:
            return work(self._redis)
        except redis.TimeoutError as error:
            self._rests_until = monotonic() + _REST
            raise self._failure("Redis: no answer in time") from error
        except (redis.RedisError, OSError) as error:
            raise self._failure(f"Redis: {type(error).__name__}") from error
        finally:
            self._threads.release()
