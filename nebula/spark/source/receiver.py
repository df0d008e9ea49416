"""Receiver of messages from the broker into the spool: receive, write, sync, then ACK with a receipt."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from time import monotonic, time
from typing import Final, Self

import anyio
import anyio.to_thread
from anyio.from_thread import start_blocking_portal

from nebula.errors import ConnectionLost, NebulaError, Refused, ServerError
from nebula.logs import get_logger
from nebula.record.disk import is_full
from nebula.record.identity import has_stable_ids, id_of
from nebula.record.message import encode_message
from nebula.record.spool import Spool, Synced
from nebula.rpc.client.reconnect import Connections
from nebula.rpc.wire.brokers import NEBULA, brand_of
from nebula.spark.source.options import StreamOptions
from nebula.stomp.client import AckMode, StompClient
from nebula.stomp.client.ambient import broker_address
from nebula.stomp.client.messages import Message, Receipt
from nebula.stomp.client.subscription import Subscription

_log = get_logger(__name__)

# In addition to what the broker may send ahead, bodies of at most this size wait for the spool.
_MAX_WAITING_BYTES: Final = 16 * 1024 * 1024

# How often a full spool or disk is looked at again.
_FULL_SECONDS: Final = 0.2

_SUBSCRIBE_SECONDS: Final = 30.0

# A query that follows at once waits a little longer for the spool.
_DISCONNECT_SECONDS: Final = 2.0


# Back-pressure reaches the broker by ACKs alone: a full spool is not acknowledged any further, the
# broker's credit runs out, and it sends no more. So memory holds little more than the prefetch, however
# slow Spark is.
# docs/decisions/0031: a spool, as Spark asks for the same offsets again and a broker gives a message once.
class Receiver:
    """Receives into a spool, from a thread of its own, and connects again for ever.

    A context manager. Its other methods may be called from any thread.

    Args:
        options: of the read.
        spool: its own for as long as it runs, except for `Spool.slices` and properties.
        now: seconds of a monotonic clock.
    """

    def __init__(self, options: StreamOptions, spool: Spool, *, now: Callable[[], float] = monotonic) -> None:
        # Connections, waits and ACKs run on a loop of their own thread (a portal), as Spark calls from
        # threads without one.
        self._options, self._spool, self._now = options, spool, now
        self._lock = threading.Lock()
        # After a restart Spark's first commit says how much of the spool it has.
        self._committed = self._tidied = spool.start
        # Files before this position may go; the spool keeps the ids of what is in doubt without them.
        self._acked = spool.end
        self._receipted: deque[Synced] = deque()
        self._waiting: deque[Message] = deque()
        self._waiting_bytes = 0
        self._last_arrival = 0.0
        self._is_connected = self._was_connected = self._is_full = self._is_busy = False
        self._began = now()
        self._failure: Exception | None = None
        self._brand = NEBULA
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            portal = stack.enter_context(start_blocking_portal())
            self._arrived = portal.call(anyio.Event)
            self._stored = portal.call(anyio.Event)
            broker = self._options.read.broker
            make = partial(StompClient, client_id=broker.client_id, disconnect_timeout=_DISCONNECT_SECONDS)
            make(broker.url)  # what is wrong with it for good is said now, not tried for ever
            connections = Connections(make, [broker.url], self._live, waits=True)
            self._running = portal.start_task_soon(connections.run)
            stack.callback(self._running.result)
            # Callbacks run in reverse: first the connections are told to leave, and then their end is
            # waited for.
            stack.callback(portal.call, connections.leave)
            self._connections = connections
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def check(self) -> None:
        """Raise what ended the receiving, if anything did: nothing comes any more.

        Raises:
            Refused: the broker is there, and has turned us down for its `timeout`, since the start. Later
                it is waited for: what once worked is expected to work again.
        """
        if self._failure is not None:
            raise self._failure
        # The task has ended: its result raises what ended it.
        if self._running.done():
            self._running.result()
        failure, broker = self._connections.last_failure, self._options.read.broker
        # Not at once: a broker that has not seen yet that a killed query has gone may refuse its successor.
        is_patient = self._was_connected or self._now() - self._began < broker.timeout
        if failure is not None and _is_refusal(failure) and not is_patient:
            why = f"{broker_address(broker.url).place} refuses {self._options.read.destination} ({failure})"
            raise Refused("refused", f"{why}: check the destination, the clientId, and the login's rights")

    def commit(self, position: int) -> None:
        """Everything before this position has been worked off, and may go. Idempotent."""
        # Spark commits in one thread, and groups are written in another.
        with self._lock:
            self._committed = max(self._committed, position)
            # First, since receipts of the broker decide what may be deleted.
            self._settle()
            # Not before the broker has said that it will not give it out again.
            done = min(self._committed, self._acked)
            if done > self._tidied:
                try:
                    self._spool.delete(done)
                    self._tidied = done
                except OSError as error:
                    _log.warning("spooled file not removed", reason=str(error))

    def wait_quiet(self, sleep: Callable[[float], None]) -> None:
        """Wait until nothing has come for `quiet_seconds`, or no more is taken as the spool is full.

        On a destination that is never quiet, `quiet_limit_seconds` after it was first connected.

        Raises:
            ConnectionLost: the broker could not be reached within its `timeout`.
        """
        away_since = self._now()
        patience = self._options.read.broker.timeout
        seconds, limit = self._options.quiet_seconds, self._options.quiet_limit_seconds
        # From the first connection on, so that a slow start is not counted.
        until: float | None = None
        while not self._is_full:
            self.check()
            now = self._now()
            if self._is_connected:
                away_since = now
                until = until or now + limit
                if now >= until or (not self._is_busy and now - self._last_arrival >= seconds):
                    return
            elif now - away_since > patience:
                place = broker_address(self._options.read.broker.url).place
                failure = self._connections.last_failure
                raise ConnectionLost(f"no broker at {place} for {patience:g} s: {failure}")
            sleep(min(0.05, seconds / 4))

    # --- on the loop ---

    @asynccontextmanager
    async def _live(self, client: StompClient) -> AsyncGenerator[None]:
        options = self._options
        self._brand = brand = brand_of(client.server)
        if not has_stable_ids(brand):
            _log.warning(
                "broker found to rename repeats",
                server=client.server,
                advice="without dedup-id some messages may come twice",
            )
        headers = {brand.prefetch_count: str(options.prefetch), **brand.durable_headers(options.durable)}
        # Receipts of an earlier connection never come: with a full spool we would wait for them for ever.
        # So all that is in the spool may go once Spark has committed it (docs/decisions/0031).
        self._acked = self._spool.end
        self._spool.reconnected()
        # What came by it and is not in the spool comes again.
        self._waiting.clear()
        self._waiting_bytes = 0
        self._is_busy = False
        async with (
            client.subscribe(
                options.read.destination,
                ack=AckMode.CLIENT,
                durable=options.durable,
                headers=headers,
                timeout=_SUBSCRIBE_SECONDS,
            ) as subscription,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(self._guarded, partial(self._take, subscription))
            tasks.start_soon(self._guarded, self._keep)
            self._last_arrival, self._is_connected, self._was_connected = self._now(), True, True
            try:
                yield
            finally:
                self._is_connected = False
                # Both tasks belong to the connection that ends.
                tasks.cancel_scope.cancel()

    async def _guarded(self, work: Callable[[], Awaitable[None]]) -> None:
        """What goes wrong is for the query to say, which asks; a lost connection is no fault."""
        try:
            await work()
        except (ConnectionLost, ServerError):
            return
        except Exception as error:  # whatever it is, nothing is received any more
            _log.exception("receiving failed")
            self._failure = error

    async def _take(self, subscription: Subscription) -> None:
        async for message in subscription:
            # The bytes that wait are bounded here; the number of messages is bounded by the broker's
            # prefetch.
            while self._waiting_bytes >= _MAX_WAITING_BYTES:
                self._stored = anyio.Event()
                await self._stored.wait()
            self._waiting.append(message)
            self._waiting_bytes += len(message.body)
            self._is_busy, self._last_arrival = True, self._now()
            self._arrived.set()

    async def _keep(self) -> None:
        """One group after the other: what arrives while one is written is the next."""
        while True:
            await self._arrived.wait()
            self._arrived = anyio.Event()
            while self._waiting:
                # A group is taken only when there is room, so that it is not held in memory for as long as
                # Spark needs.
                await self._until_room()
                group = list(self._waiting)
                self._waiting.clear()
                self._waiting_bytes = 0
                # `_take` goes on while the disk works.
                self._stored.set()
                synced = await self._write(group)
                # In this mode it is the ACK of all before it as well.
                group[-1].ack(partial(self._confirm, synced))
            # The broker could not send more before it had this ACK. In this order: another thread looks.
            self._last_arrival = self._now()
            self._is_busy = False

    async def _until_room(self) -> None:
        options, spool = self._options, self._spool
        while True:
            # Positions count rows, so the difference is what waits for Spark.
            rows = spool.end - self._committed
            if rows < options.max_spool_rows and spool.size_bytes < options.max_spool_bytes:
                self._tell_full(None)
                return
            self._tell_full(f"{rows} rows and {spool.size_bytes} bytes wait for Spark")
            await anyio.sleep(_FULL_SECONDS)

    async def _write(self, group: list[Message]) -> Synced:
        while True:
            try:
                # In a thread: a slow disk must not look like a dead peer.
                synced = await anyio.to_thread.run_sync(self._store, group)
            except OSError as error:
                if not is_full(error):
                    raise
                self._tell_full(f"the disk: {error.strerror}")
                await anyio.sleep(_FULL_SECONDS)
            else:
                self._tell_full(None)
                return synced

    def _tell_full(self, why: str | None) -> None:
        if why is None:
            if self._is_full:
                _log.info("receiving resumed", spool=str(self._spool.folder))
        elif not self._is_full:
            _log.warning("receiving paused", spool=str(self._spool.folder), why=why)
        self._is_full = why is not None

    def _confirm(self, synced: Synced, _receipt: Receipt) -> None:
        # On the loop's thread; a deque takes it without a lock, and `_settle` runs elsewhere.
        self._receipted.append(synced)

    # --- on whatever thread ---

    def _store(self, group: list[Message]) -> Synced:
        with self._lock:
            self._settle()
        now_ms = int(time() * 1000)
        for message in group:
            name = id_of(message.headers, self._brand)
            datum = encode_message(name, message.destination, now_ms, message.headers, message.body)
            self._spool.append(name, datum)
        return self._spool.sync()

    def _settle(self) -> None:
        """Tell the spool which ACKs were receipted since."""
        while self._receipted:
            synced = self._receipted.popleft()
            self._spool.acked(synced)
            self._acked = max(self._acked, synced.position)


def _is_refusal(failure: NebulaError) -> bool:
    """Whether a broker has answered, and turned down the login or the subscription."""
    return isinstance(failure, Refused) or isinstance(failure.__cause__, ServerError)
