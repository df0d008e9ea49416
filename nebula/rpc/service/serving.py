"""One run of a service: its connections, one after the other, and an end without loss.

**Reconnects.** Workers, jobs and counts outlive a connection; subscriptions do not. When a connection is
lost, what came by it is either not begun, and forgotten, or under way: then it is finished, and not replied
to. It was not acknowledged, so the broker gives it out again, to this instance or another. Every message
knows its subscription, and a closed one is the sign not to reply.

**The end.** `run` has two tasks. The caller's task takes the cancellation; all work is done in a shielded
one, which outlives it and is told by `_stop`. Then, in this order:

1. The instance leaves discovery, so that no more requests are sent to it.
2. Nothing more is begun. What is not begun goes back to the broker (`RequestConsumer.stop`).
3. What is under way has `grace` seconds to be replied to; then its worker is cancelled.
4. Jobs tell how they ended, the connection is closed, the lifespan ends, and the client of the handlers last.

Without a connection no reply can be sent: then all of it is cancelled at once, except for the lifespan.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import asdict, dataclass
from time import monotonic
from typing import Final, Protocol

import anyio
from anyio.abc import TaskGroup

from nebula import headers as names
from nebula.errors import NebulaError
from nebula.logs import get_logger
from nebula.rpc.client.reconnect import Connections
from nebula.rpc.jobs.service.service import JobService
from nebula.rpc.jobs.service.verbs import management_verbs
from nebula.rpc.service.announcement import Announcement
from nebula.rpc.service.declaration import Lifespan, ServiceDeclaration
from nebula.rpc.service.loop_watch import LoopWatch
from nebula.rpc.service.message_receiver import HANDLES_MESSAGE, MessageReceivers
from nebula.rpc.service.request_consumer import RequestConsumer
from nebula.rpc.service.request_handler import HANDLES_REQUEST, RequestHandler
from nebula.rpc.service.running_jobs import RunningJobs
from nebula.rpc.service.shared_client import SharedClient
from nebula.rpc.service.statistics import Statistics
from nebula.rpc.service.worker_pool import WorkerPool
from nebula.rpc.wire.brokers import Brand, brand_of, instance_queue
from nebula.stomp.client import StompClient

_log = get_logger(__name__)

# For the broker's disk. Jobs send again what was not confirmed in time.
_DELIVER_SECONDS: Final = 10.0


class Connect(Protocol):
    """Makes the connections of a service, not begun; see `Connections` for the arguments."""

    def __call__(
        self,
        live: Callable[[StompClient], AbstractAsyncContextManager[None]],
        *,
        on_lost: Callable[[NebulaError], None],
    ) -> Connections: ...


@dataclass(frozen=True, slots=True)
class _Taken:
    """Requests that are taken over the current connection, from the first SUBSCRIBE on."""

    connections: Connections
    entering: anyio.CancelScope

    def stop(self) -> None:
        """Subscribe to nothing more, and end the connection once all that came by it was replied to."""
        self.entering.cancel()
        self.connections.leave()


class Serving:
    """One run of a service, from connecting to the last ACK.

    Args:
        declared: the service.
        jobs: takes the jobs among its verbs, if there are any.
        client: for its handlers, and for schemas of messages.
        grace: seconds that requests under way have when it is stopped.
        is_exclusive: do not start while an instance with another contract runs.

    Attributes:
        client_of_handlers: as it was given.
        entries: the verbs by name, those that manage jobs among them.
        requests: the subscriptions of its request queues.
        messages: the subscriptions of its `on` functions.
        is_taking: requests are being taken.
        instance: the name of this instance of the service.
        instance_queue: the queue of this instance alone.
    """

    def __init__(
        self,
        declared: ServiceDeclaration,
        *,
        jobs: JobService | None,
        client: SharedClient,
        grace: float,
        is_exclusive: bool,
    ) -> None:
        self.started_at = monotonic()
        self.client_of_handlers = client
        self.is_taking = False
        self._declared, self._grace = declared, grace
        managing = () if jobs is None else management_verbs(jobs)
        self.entries = {one.name: one for one in [*declared.verbs, *managing]}
        self.instance = secrets.token_hex(4) if jobs is None else jobs.instance
        self.instance_queue = instance_queue(declared.name, self.instance)
        self._jobs = None if jobs is None else RunningJobs(jobs, self._post, self._deliver)
        self._handler = RequestHandler(declared, self.entries)
        own, has_jobs = self.instance_queue, jobs is not None
        self.requests = RequestConsumer(declared, own, self._handler, has_jobs=has_jobs)
        self.messages = MessageReceivers(
            declared.subscribers, declared.rules.message_retry, declared.around, client.get
        )
        self._announcement = Announcement(
            declared, self.entries.values(), self.instance, own, self.requests, is_exclusive=is_exclusive
        )
        self._watch = LoopWatch(declared.name, (HANDLES_REQUEST, HANDLES_MESSAGE))
        # All work is done in this scope: the caller's cancellation does not reach it, only `_stop` does.
        self._shield = anyio.CancelScope(shield=True)
        # The same for the lifespan; None once that is open.
        self._opening: anyio.CancelScope | None = anyio.CancelScope(shield=True)
        self._taken: _Taken | None = None
        self._client: StompClient | None = None
        self._is_lost = False
        self._drained_pools = 0
        self._drained = anyio.Event()
        self._failure: Exception | None = None
        self._ended = anyio.Event()

    async def run(self, connect: Connect, started: anyio.Event | None) -> None:
        """Serve until cancelled, or until there is no connection any more; see `Responder.run`.

        Args:
            connect: what it is served over, not begun.
            started: set when requests are taken for the first time.
        """
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._live, connect, started, name=f"service {self._declared.name}")
            # This task takes the cancellation; the other one is told by `_stop`.
            try:
                await self._ended.wait()
            finally:
                self._stop()
        if self._failure is not None:
            raise self._failure

    def _stop(self) -> None:
        if self._taken is not None:
            # Some queues are subscribed to at least: what came by them is replied to.
            self._taken.stop()
        else:
            # No reply could be sent.
            self._shield.cancel()
            if self._opening is not None:
                self._opening.cancel()

    async def _live(self, connect: Connect, started: anyio.Event | None) -> None:
        # Shielded as all within it is. The client is there for the lifespan, too.
        with anyio.CancelScope(shield=True):
            async with self.client_of_handlers.opened():
                if self._declared.lifespan is None:
                    await self._live_in(connect, started)
                else:
                    await self._live_with(self._declared.lifespan, connect, started)
        self._ended.set()

    async def _live_with(self, lifespan: Lifespan, connect: Connect, started: anyio.Event | None) -> None:
        assert self._opening is not None
        with self._opening:
            try:
                async with lifespan() as self._declared.around.state:
                    # From here on it is closed in peace, however the service ends.
                    self._opening = None
                    await self._live_in(connect, started)
            except Exception as error:
                # As it is, see `_connect`.
                self._failure = error

    async def _live_in(self, connect: Connect, started: anyio.Event | None) -> None:
        with self._shield, self._watch.watching():
            async with anyio.create_task_group() as background:
                # These outlive the workers: while requests are finished, deadlines still end them, and
                # replies are still sent in parts. They are cancelled when the last worker has ended.
                background.start_soon(self._handler.cancellation.run, name="request deadlines")
                background.start_soon(self._handler.streams.run, name="streams")
                background.start_soon(self._declared.replays.run, name="idempotency keys")
                background.start_soon(self.messages.delayed.run, name="retries")
                async with anyio.create_task_group() as tasks:
                    for pool in self._pools:
                        tasks.start_soon(self._run_pool, pool, name="worker pool")
                    await self._connect(connect, background, started)
                background.cancel_scope.cancel()

    async def _run_pool(self, pool: WorkerPool) -> None:
        await pool.run(self._grace)
        self._drained_pools += 1
        if self._drained_pools == len(self._pools):
            self._drained.set()

    async def _connect(self, connect: Connect, background: TaskGroup, started: anyio.Event | None) -> None:
        def live(client: StompClient) -> AbstractAsyncContextManager[None]:
            return self._taking(connections, background, started, client)

        connections = connect(live, on_lost=self._lose)
        try:
            await connections.run()
        except NebulaError as error:
            # Not through a task group: it would come out wrapped.
            self._failure = error
        finally:
            self.requests.close()
            self.messages.close()

    @property
    def _pools(self) -> list[WorkerPool]:
        return [*self.requests.pools.values(), *self.messages.pools]

    def _lose(self, _error: NebulaError) -> None:
        self._is_lost = True
        self.is_taking = False
        self._drop()

    def _drop(self) -> None:
        self.requests.lose()
        self.messages.lose()

    @asynccontextmanager
    async def _taking(
        self,
        connections: Connections,
        background: TaskGroup,
        started: anyio.Event | None,
        client: StompClient,
    ) -> AsyncGenerator[None]:
        """Take requests over a connection; at the end, unless it is lost, no more are begun."""
        brand = brand_of(client.server)
        self._is_lost = False
        is_first, self._client = self._client is None, client
        # Before the first SUBSCRIBE: a request may come before the next line runs.
        self._handler.connect(client.connection.post_shared, brand, trusts_sender=client.is_nebula)
        self._handler.streams.connect(
            client.post_with_receipt, brand.reply_to(self.instance_queue), trusts_sender=client.is_nebula
        )
        if is_first and self._jobs is not None:
            # Before the first request for one.
            await self._jobs.begin(background, brand)
        try:
            try:
                # `_stop` ends this scope early; what is begun by then is still finished.
                with anyio.CancelScope() as entering:
                    self._taken = _Taken(connections, entering)
                    connections.hold()
                    await self._enter(client, brand, background, is_first=is_first)
                    if started is not None:
                        started.set()
                    if self._jobs is not None and not is_first:
                        self._jobs.service.republish()
                    self.is_taking = True
                yield
            finally:
                self.is_taking = False
                self._taken = None
                # First of all, so that no more requests are sent.
                self._announcement.leave()
            if not self._is_lost:
                await self._finish(client)
        finally:
            # Also if one of the queues could not be subscribed to.
            self._drop()

    async def _enter(
        self, client: StompClient, brand: Brand, background: TaskGroup, *, is_first: bool
    ) -> None:
        # Before the first request, and again in `enter`: another instance may start at the same time.
        await self._announcement.require_same_contract(client, brand, is_first=is_first)
        await self.requests.listen(client, brand.prefetch_count)
        await self.messages.listen(client)
        if names.BROKER_QUEUE in self.requests.pools:
            # Every broker has its own service: there is nothing to find, or to log.
            return
        await self._announcement.enter(client, brand, background, is_first=is_first)
        place = {} if self._jobs is None else {"state": str(self._jobs.service.folder)}
        facts = {"service": self._declared.name, "queues": list(self.requests.pools), **place}
        if is_first:
            _log.info("service started", **facts)
        else:
            _log.info("service came back", **facts)

    async def _finish(self, client: StompClient) -> None:
        """Reply to what is under way, while there is a connection, and have jobs tell how they ended."""
        self.requests.stop(may_drain=client.is_nebula)
        self.messages.stop(may_drain=client.is_nebula)
        if self._jobs is not None:
            # Calls of `job.wait` may last for minutes: they are told now how their jobs are.
            # Their workers would be waited for.
            self._jobs.service.queries.waiters.dismiss()
        await self._drained.wait()
        if self._jobs is not None:
            await self._jobs.end()

    def _post(self, destination: str, body: bytes, headers: Mapping[str, str]) -> None:
        # By the current connection: jobs outlive a connection.
        assert self._client is not None
        self._client.post(destination, body, headers)

    async def _deliver(self, destination: str, body: bytes, headers: Mapping[str, str]) -> None:
        assert self._client is not None
        await self._client.send(destination, body, headers, receipt=True, timeout=_DELIVER_SECONDS)

    @property
    def client(self) -> StompClient | None:
        """The current connection, or the last one; None as long as there was none."""
        return self._client

    def load(self) -> tuple[int, int]:
        """How many requests are being handled, and how many came and are not begun."""
        return self.requests.load()

    def statistics(self) -> Statistics:
        """Statistics since it started."""
        uptime = monotonic() - self.started_at
        unhandled = asdict(self._handler.reader.unhandled)
        return Statistics(uptime, *self.load(), unhandled, self._handler.tallies)
