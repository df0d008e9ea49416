"""Cache of replies, so that the same question is not asked twice within some seconds (C.6, D.39).

The key is the question: destination, verb, parameters as JSON with sorted keys (or the Avro datum), and
last the partition: the broker and the principal. A reply to one principal is never given to another, unless
the cache is `shared`. As the partition comes last, `invalidate` can forget a prefix for all partitions at
once.

One flight per question. While a question is being asked, all others with the same question wait for that
reply, so an entry that expires under load costs one call and not a thousand. An error ends the flight for
all; a timeout only for the caller whose time it was. `invalidate` marks flights stale: their reply is
returned, but not kept.

The store may fail or be slow: a call gives it half of its time and goes on without it. Only `success` is
kept.
"""

# The life of a question, with its races:
#
#     miss -> flight begins -> store asked -> service asked -> followers released -> stored -> flight ends
#
# - Followers are released before the reply is stored: they need the reply, not the store.
# - The flight stays in the table until the reply is stored. A question that comes in between joins the
#   flight that has ended and has its reply at once; without this it would miss the store and ask again.
# - `invalidate` first takes matching flights out of the table, so that the next caller asks anew, marks
#   them stale, so that their replies are not stored, waits for those that are being stored already, and
#   only then drops the prefix. In any other order a reply from before could be stored after the drop.
# - A leader whose time is over raises for itself alone. Followers with more time find no flight in the
#   table, and the first of them becomes the leader.

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from time import monotonic
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

import anyio
from cachetools import TLRUCache
from pydantic_core import from_json

from nebula.destinations import queue_named
from nebula.errors import CallTimeout, NebulaError, fresh
from nebula.logs import get_logger
from nebula.rpc.wire.avro_bodies import AvroBody, read_message
from nebula.rpc.wire.envelope import content_type_of, dump_json
from nebula.rpc.wire.replies import Reply

_log = get_logger(__name__)

# Bytes of an entry besides its key and its reply, roughly.
_OVERHEAD_BYTES: Final = 500

_NOT_GIVEN: Final = object()

Ask: TypeAlias = Callable[[float], Awaitable[Reply]]
"""Sends a request and waits for its reply, at most that many seconds."""


class KeptReply(NamedTuple):
    """A reply from the cache."""

    headers: Mapping[str, str]
    body: bytes


class CacheFailed(NebulaError):
    """A store cannot be reached, or cannot read or write. Calls go on without it."""


class CacheStore(Protocol):
    """Keeps bytes by key for some seconds. Each method may raise `CacheFailed`.

    A task that waits for a method may be cancelled, and then does not wait longer; a value whose `put` was
    cancelled is not kept.
    """

    async def get(self, key: str) -> bytes | None:
        """What is kept under a key; None: nothing, or it has expired."""
        ...

    async def put(self, key: str, value: bytes, seconds: float) -> None:
        """Keep a value under a key, in place of the previous one. If there is no room, it may be dropped
        earlier."""

    async def drop(self, prefix: str) -> None:
        """Forget all keys with this prefix."""


class MemoryCache:
    """Keeps replies in this process; beyond `max_bytes` it drops the least recently used ones.

    Args:
        max_bytes: of keys and replies together. A single one that is larger is not kept.
    """

    def __init__(self, *, max_bytes: int = 64 * 1024 * 1024) -> None:
        # The value, its seconds and its size.
        self._kept: TLRUCache[str, tuple[bytes, float, int]] = TLRUCache(
            max_bytes,
            ttu=lambda _, entry, now: now + entry[1],
            timer=lambda: monotonic(),  # noqa: PLW0108  # looked up each time: tests move it
            getsizeof=lambda entry: entry[2],
        )

    async def get(self, key: str) -> bytes | None:
        """See `CacheStore`."""
        entry = self._kept.get(key)
        return None if entry is None else entry[0]

    async def put(self, key: str, value: bytes, seconds: float) -> None:
        """See `CacheStore`."""
        size = len(key) + len(value) + _OVERHEAD_BYTES
        if size <= self._kept.maxsize:
            self._kept[key] = (value, seconds, size)

    async def drop(self, prefix: str) -> None:
        """See `CacheStore`."""
        for key in [one for one in self._kept if one.startswith(prefix)]:
            self._kept.pop(key, None)


class _Flight:
    """One question that is being asked, and the callers that wait for its reply."""

    def __init__(self) -> None:
        self.has_ended = anyio.Event()
        # The reply is being kept; set when it is, or will not be.
        self.is_kept: anyio.Event | None = None
        self.reply: Reply | None = None
        self.error: NebulaError | None = None
        self.is_stale = False


class Cache:
    """Replies of verbs, kept for clients: `Client(cache=Cache({"prices.quote": 60.0}))`.

    Calls are the same if their target, verb and parameters are equal, whatever the order of keys in an
    object. While the first such call is under way, all others wait for its reply (and an error is an error
    for all of them; but a call with more time than the first one asks again). Errors are not kept.

    Several clients on one event loop may share a cache, and any number of clients its store. Replies are
    shared only by callers that ask the same broker as the same principal: the same addresses with the same
    logins, tokens and certificates.

    Args:
        verbs: seconds to keep replies, by `SERVICE.VERB`; calls of other verbs are always sent, unless a call
            says `cache=SECONDS`.
        store: where replies are kept, by default a `MemoryCache`. A call waits for the store for at most half
            of its time.
        shared: replies are for all users of the store, whatever their principal or machine: for clients of
            one broker with the same rights.

    Attributes:
        hits: calls whose reply came from the cache, or from another task's call.
        misses: calls that were sent.

    Raises:
        ValueError: seconds that cannot be used, or a name that is not SERVICE.VERB.
    """

    def __init__(
        self,
        verbs: Mapping[str, float] | None = None,
        *,
        store: CacheStore | None = None,
        shared: bool = False,
    ) -> None:
        self._is_shared = shared
        self._seconds = {_target(name): _checked(seconds, name) for name, seconds in (verbs or {}).items()}
        self._store: CacheStore = MemoryCache() if store is None else store
        # Then nothing is waited for, and a scope costs more than to look.
        self._is_at_hand = type(self._store) is MemoryCache
        self._flights: dict[str, _Flight] = {}
        self._is_down = False
        self.hits = 0
        self.misses = 0

    async def ask(
        self,
        destination: str,
        request: bytes,
        ask: Ask,
        *,
        partition: str = "",
        keep: float | bool = True,
        timeout: float,
    ) -> Reply:
        """Reply to a request from the cache, or send it. Called by clients.

        Args:
            destination: where the request would go.
            request: its body, JSON or Avro.
            ask: sends the request, given the seconds that are left; it raises errors, which are not kept.
            partition: of the cache: broker and principal, see `cache_partition_of`.
            keep: seconds to keep the reply; True: those of the cache for the verb; False: do not use the
                cache.
            timeout: seconds, for another task's call and our own.

        Raises:
            CallTimeout: another task's call got no reply in that time.
            NebulaError: as `ask`.
        """
        if keep is False:
            return await ask(timeout)
        verb, question = _read(request)
        seconds = self._seconds.get((destination, verb)) if keep is True else _checked(keep, verb)
        if seconds is None:
            return await ask(timeout)
        # The partition comes last, so that `invalidate` reaches the replies of all principals by a prefix.
        key = _json([destination, verb, *question, "" if self._is_shared else partition])
        if key in self._flights:
            until = monotonic() + timeout
            reply = None
            with anyio.move_on_after(timeout) as in_time:
                reply = await self._follow(key)
            if reply is not None:
                self.hits += 1
                return reply
            timeout = until - monotonic()
            # Also where the other call ended in the last moment: the store cannot be asked in no time.
            if in_time.cancelled_caught or timeout <= 0:
                raise CallTimeout(f"{destination} did not reply in time to the call that this one shares")
        return await self._lead(key, seconds, ask, timeout)

    async def _follow(self, key: str) -> Reply | None:
        """The reply to another task's call; None: all callers have given up."""
        while (flight := self._flights.get(key)) is not None:
            await flight.has_ended.wait()
            if flight.error is not None:
                raise fresh(flight.error)
            if flight.reply is not None:
                return flight.reply
        return None

    async def _lead(self, key: str, seconds: float, ask: Ask, timeout: float) -> Reply:
        flight = self._flights[key] = _Flight()
        until = monotonic() + timeout
        try:
            # The rest is for the service, if the store does not reply.
            flight.reply = await self._get(key, timeout / 2)
            if flight.reply is not None:
                self.hits += 1
                return flight.reply
            self.misses += 1
            flight.reply = await ask(until - monotonic())
            flight.has_ended.set()  # followers need not wait for the store
            # It was forgotten meanwhile: the next call must ask again.
            if not flight.is_stale:
                flight.is_kept = anyio.Event()
                await self._put(key, flight.reply, seconds, until - monotonic())
        except CallTimeout:
            raise  # that was our time; others may have more
        except NebulaError as error:
            flight.error = error
            raise
        finally:
            if self._flights.get(key) is flight:
                del self._flights[key]
            flight.has_ended.set()
            if flight.is_kept is not None:
                flight.is_kept.set()
        return flight.reply

    async def invalidate(self, service: str, verb: str | None = None, parameters: Any = _NOT_GIVEN) -> None:
        """Forget the replies of all callers, and do not keep those that this cache still waits for.

        When it returns, no earlier reply is kept, except replies to calls that another process is making with
        a cache of its own on the same store.

        Args:
            service: forget all replies of this service (or destination),
            verb: or only those of this verb,
            parameters: or only those to these parameters, unless they were sent in Avro; None: to no
                parameters.

        Raises:
            CacheFailed: the store cannot be reached; stale replies stay in it.
        """
        if parameters is not _NOT_GIVEN and verb is not None:
            value = None if parameters is None else from_json(dump_json(parameters))
            prefix = _open(_json([queue_named(service), verb, value]))
        else:
            prefix = _prefix(queue_named(service), verb)
        under_way = [self._flights.pop(key) for key in list(self._flights) if key.startswith(prefix)]
        for flight in under_way:
            flight.is_stale = True
        for flight in under_way:
            if flight.is_kept is not None:
                await flight.is_kept.wait()  # and is dropped then
        try:
            await self._store.drop(prefix)
        except CacheFailed as error:
            raise CacheFailed(f"{service}: what was kept could not be dropped: {error}") from error

    # --- the store, which calls can do without ---

    async def _get(self, key: str, within: float) -> Reply | None:
        kept = None
        try:
            with self._in(within):
                kept = await self._store.get(key)
            self._is_down = False
        except TimeoutError:
            self._tell_down("it did not answer in half of a call's time")
        except CacheFailed as error:
            self._tell_down(str(error))
        if kept is None:
            return None
        content_type, _, body = kept.partition(b"\n")
        return KeptReply({"content-type": content_type.decode()}, body)

    async def _put(self, key: str, reply: Reply, seconds: float, within: float) -> None:
        content_type = content_type_of(reply.headers) or ""
        try:
            with self._in(within):
                await self._store.put(key, content_type.encode() + b"\n" + reply.body, seconds)
        except TimeoutError:
            self._tell_down("it did not answer in the rest of a call's time")
        except CacheFailed as error:
            self._tell_down(str(error))

    def _in(self, seconds: float) -> AbstractContextManager[object]:
        return nullcontext() if self._is_at_hand else anyio.fail_after(seconds)

    def _tell_down(self, reason: str) -> None:
        # Once, and not for each call that goes without it.
        if not self._is_down:
            self._is_down = True
            _log.warning("cache failed", error=reason)


def _read(request: bytes) -> tuple[str, tuple[Any, ...]]:
    """The verb of a request, and what makes a question of it."""
    if not isinstance(request, AvroBody):
        fields = from_json(request)
        return fields["verb"], (fields.get("parameters"),)
    verb, value, _ = read_message(request)
    if value.fingerprint is None:
        return verb, (value.plain,)
    # Two entries, as no question in JSON has. A value has one form under its schema.
    return verb, (value.fingerprint, value.datum.hex())


def _prefix(destination: str, verb: str | None) -> str:
    """How all keys of a target or verb begin."""
    return _open(_json([destination] if verb is None else [destination, verb]))


def _open(entries: str) -> str:
    """A list in JSON that goes on, so that nothing else begins like its last entry."""
    return entries.removesuffix("]") + ","


def _json(value: Any) -> str:
    """One text for one question. D.39: with the target, and keys in order."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _target(name: str) -> tuple[str, str]:
    service, dot, verb = name.partition(".")
    if not (service and dot and verb):
        raise ValueError(f"cache: {name!r} is not SERVICE.VERB")
    return queue_named(service), verb


def _checked(seconds: float, name: str) -> float:
    if not seconds > 0:
        raise ValueError(f"cache: {name}: {seconds!r} s is no time to keep an answer; cache=False asks anew")
    return float(seconds)
