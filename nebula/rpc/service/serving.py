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
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import asdict
from functools import cached_property, partial
from time import monotonic, time
from typing import Any, Final, Protocol, TypeAlias

import anyio
from anyio.abc import TaskGroup
from pydantic import PydanticUserError

from nebula import headers as names
from nebula.errors import NebulaError
from nebula.logs import get_logger
from nebula.rpc.client.reconnect import Connections
from nebula.rpc.contract.context import Surroundings
from nebula.rpc.contract.verbs import Endpoint
from nebula.rpc.discovery.instances import Instance, hash_of
from nebula.rpc.discovery.other_contracts import OtherContracts
from nebula.rpc.discovery.registration import Registration
from nebula.rpc.idempotency.replays import Replays
from nebula.rpc.jobs.service.service import JobService
from nebula.rpc.jobs.service.verbs import management_verbs
from nebula.rpc.middleware.chain import Middleware
from nebula.rpc.service.handler_runner import RUNNING
from nebula.rpc.service.loop_watch import LoopWatch
from nebula.rpc.service.message_consumer import MessageConsumers
from nebula.rpc.service.request_consumer import RequestConsumer
from nebula.rpc.service.request_handler import RequestHandler, RequestRules
from nebula.rpc.service.shared_client import SharedClient
from nebula.rpc.service.statistics import Statistics
from nebula.rpc.service.subscribers import Subscriber
from nebula.rpc.service.worker_pool import WorkerPool
from nebula.rpc.wire.brokers import Brand, brand_of, instance_queue
from nebula.stomp.client import StompClient

_log = get_logger(__name__)

Lifespan: TypeAlias = Callable[[], AbstractAsyncContextManager[Any]]
"""What a service has for as long as it runs: opened before it connects, closed after its last reply."""

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


class Serving:
    """One run of a service, from connecting to the last ACK.

    Args:
        name: of the service.
        destinations: the queues; each gets workers of its own.
        entries: its verbs.
        rules: how it handles requests.
        jobs: takes the jobs among the verbs, if there are any.
        concurrency: workers per queue.
        grace: seconds that requests under way have when it is stopped.
        replays: replies again to requests with a key.
        version: of the service, for discovery.
        subscribers: its `on` functions.
        around: the service, for its requests and jobs.
        lifespan: what it yields is the state of the service.
        middleware: around each request.
        client: for its handlers, and for schemas of messages.
        is_exclusive: do not start while an instance with another contract runs.

    Attributes:
        client_of_handlers: as it was given.
        requests: the subscriptions of its request queues.
        messages: the subscriptions of its `on` functions.
        is_taking: requests are being taken.
        instance: the name of this instance of the service.
        instance_queue: the queue of this instance alone.
    """

    def __init__(
        self,
        name: str,
        destinations: Sequence[str],
        entries: Iterable[Endpoint],
        rules: RequestRules,
        *,
        jobs: JobService | None,
        concurrency: int,
        grace: float,
        replays: Replays,
        version: str = "",
        around: Surroundings,
        lifespan: Lifespan | None = None,
        middleware: Sequence[Middleware] = (),
        subscribers: Sequence[Subscriber] = (),
        client: SharedClient,
        is_exclusive: bool = False,
    ) -> None:
        self.started_at = monotonic()
        self.client_of_handlers = client
        self.is_taking = False
        self._began = time()
        self._version = version
        self._registration: Registration | None = None
        self.entries = {
            one.name: one for one in [*entries, *(management_verbs(jobs) if jobs is not None else ())]
        }
        self._lifespan = lifespan
        self._around = around
        self._handler = RequestHandler(self.entries, rules, replays, self._around, middleware)
        self.instance = jobs.instance if jobs is not None else secrets.token_hex(4)
        self.instance_queue = instance_queue(name, self.instance)
        self.requests = RequestConsumer(
            name,
            destinations,
            self.instance_queue,
            self._handler,
            concurrency=concurrency,
            max_waiting=rules.max_waiting,
            has_jobs=jobs is not None,
        )
        self.messages = MessageConsumers(subscribers, rules.message_retry, around, client.get)
        self._watch = LoopWatch(name, (RUNNING,))
        self._name = name
        self._destinations = destinations
        self._replays = replays
        self._jobs = jobs
        self._grace = grace
        self._shield = anyio.CancelScope(shield=True)
        # The same for the lifespan; None once that is open.
        self._opening: anyio.CancelScope | None = anyio.CancelScope(shield=True)
        self._connections: Connections | None = None
        self._client: StompClient | None = None
        self._is_lost = False
        self._others, self._is_exclusive = OtherContracts(), is_exclusive
        # While requests begin to be taken over a connection; None without one.
        self._entering: anyio.CancelScope | None = None
        self._drained_pools = 0
        self._drained = anyio.Event()
        self._jobs_scope: anyio.CancelScope | None = None
        self._jobs_ended = anyio.Event()
        self._failure: Exception | None = None
        self._ended = anyio.Event()

    async def run(self, connect: Connect, started: anyio.Event | None) -> None:
        """Serve until cancelled, or until there is no connection any more; see `Responder.run`.

        Args:
            connect: what it is served over, not begun.
            started: set when requests are taken for the first time.
        """
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._live, connect, started, name=f"service {self._name}")
            # This task takes the cancellation; the other one is told by `_stop`.
            try:
                await self._ended.wait()
            finally:
                self._stop()
        if self._failure is not None:
            raise self._failure

    def _stop(self) -> None:
        if self._entering is not None and self._connections is not None:
            # Some queues are subscribed to at least: what came by them is replied to.
            self._entering.cancel()
            self._connections.leave()
        else:
            # No reply could be sent.
            self._shield.cancel()
            if self._opening is not None:
                self._opening.cancel()

    async def _live(self, connect: Connect, started: anyio.Event | None) -> None:
        # Shielded as all within it is. The client is there for the lifespan, too.
        with anyio.CancelScope(shield=True):
            async with self.client_of_handlers.opened():
                if self._lifespan is None:
                    await self._live_in(connect, started)
                else:
                    await self._live_with(self._lifespan, connect, started)
        self._ended.set()

    async def _live_with(self, lifespan: Lifespan, connect: Connect, started: anyio.Event | None) -> None:
        assert self._opening is not None
        with self._opening:
            try:
                async with lifespan() as self._around.state:
                    # From here on it is closed in peace, however the service ends.
                    self._opening = None
                    await self._live_in(connect, started)
            except Exception as error:
                # As it is, see `_connect`.
                self._failure = error

    async def _live_in(self, connect: Connect, started: anyio.Event | None) -> None:
        with self._shield, self._watch.watching():
            async with anyio.create_task_group() as background:
                background.start_soon(self._handler.cancellation.run, name="request deadlines")
                background.start_soon(self._handler.streams.run, name="streams")
                background.start_soon(self._replays.run, name="idempotency keys")
                background.start_soon(self.messages.delayed.run, name="retries")
                async with anyio.create_task_group() as tasks:
                    for pool in self._pools:
                        tasks.start_soon(self._run_pool, pool, name="worker pool")
                    await self._connect(
                        connect(partial(self._taking, background, started), on_lost=self._lose)
                    )
                background.cancel_scope.cancel()

    async def _run_pool(self, pool: WorkerPool) -> None:
        await pool.run(self._grace)
        self._drained_pools += 1
        if self._drained_pools == len(self._pools):
            self._drained.set()

    async def _connect(self, connections: Connections) -> None:
        self._connections = connections
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
        self, background: TaskGroup, started: anyio.Event | None, client: StompClient
    ) -> AsyncGenerator[None]:
        """Take requests over a connection; at the end, unless it is lost, no more are begun."""
        brand = brand_of(client.server)
        self._is_lost = False
        is_first, self._client = self._client is None, client
        self._handler.connect(client.connection.post, brand, trusts_sender=client.is_nebula)
        self._handler.streams.connect(
            client.post_with_receipt, brand.reply_to(self.instance_queue), trusts_sender=client.is_nebula
        )
        if is_first and self._jobs is not None:
            await self._begin_jobs(self._jobs, background, brand)
        try:
            try:
                await self._enter(client, brand, background, started, is_first=is_first)
                yield
            finally:
                self.is_taking = False
                self._entering = None
                if self._registration is not None:  # first of all, so that no more requests are sent
                    self._registration.leave()
            if not self._is_lost:
                await self._finish(client)
        finally:
            # Also if one of the queues could not be subscribed to.
            self._drop()

    async def _enter(
        self,
        client: StompClient,
        brand: Brand,
        background: TaskGroup,
        started: anyio.Event | None,
        *,
        is_first: bool,
    ) -> None:
        """Take requests. `_stop` ends it early; what is begun by then is still finished."""
        assert self._connections is not None
        with anyio.CancelScope() as self._entering:
            self._connections.hold()
            if is_first and self._is_exclusive:
                # Before the first request, and again when all see us: another one may start at the same time.
                await self._others.refuse(client, self._describe(brand))
            await self.requests.listen(client, brand.prefetch_count)
            await self.messages.listen(client)
            if names.BROKER_QUEUE not in self.requests.pools:  # every broker has its own service
                self._registration = Registration(client, brand, partial(self._describe, brand), self.load)
                background.start_soon(self._registration.keep, name="discovery")
                await self._registration.enter()
                if is_first and self._is_exclusive:
                    await self._others.refuse(client, self._describe(brand))
                elif brand.has_last_values:
                    # Elsewhere all would have to be asked, by a queue that some brokers keep for good.
                    background.start_soon(
                        self._others.warn, client, self._describe(brand), name="other contracts"
                    )
                event = "service started" if is_first else "service came back"
                place = {} if self._jobs is None else {"state": str(self._jobs.folder)}
                _log.info(event, service=self._name, queues=list(self.requests.pools), **place)
            if started is not None:
                started.set()
            if self._jobs is not None and not is_first:
                self._jobs.republish()
            self.is_taking = True

    async def _finish(self, client: StompClient) -> None:
        """Reply to what is under way, while there is a connection, and have jobs tell how they ended."""
        self.requests.stop(may_drain=client.is_nebula)
        self.messages.stop(may_drain=client.is_nebula)
        if self._jobs is not None:
            # Their workers would be waited for.
            self._jobs.queries.waiters.dismiss()
        await self._drained.wait()
        if self._jobs_scope is not None:
            self._jobs_scope.cancel()
            await self._jobs_ended.wait()

    async def _begin_jobs(self, jobs: JobService, background: TaskGroup, brand: Brand) -> None:
        """Jobs begin before the first request for one, and end after the last."""
        are_taken = anyio.Event()
        background.start_soon(self._run_jobs, jobs, brand, are_taken, name="jobs")
        await are_taken.wait()

    async def _run_jobs(self, jobs: JobService, brand: Brand, are_taken: anyio.Event) -> None:
        with anyio.CancelScope() as self._jobs_scope:
            await jobs.run(self._post, deliver=self._deliver, brand=brand, started=are_taken)
        self._jobs_ended.set()

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

    @cached_property
    def _schemas(self) -> str:
        # Made once: it takes a while, on the loop.
        entries = sorted(self.entries.values(), key=lambda one: one.name)
        try:
            return hash_of(one.describe() for one in entries)
        except PydanticUserError:
            # Some contract has no JSON Schema: `describe` fails then, and nothing else does.
            return ""

    def _describe(self, brand: Brand) -> Instance:
        return Instance(
            service=self._name,
            name=self.instance,
            queue=brand.reply_to(self.instance_queue) if self.requests.is_reachable else None,
            queues=tuple(self._destinations),
            verbs=tuple(sorted(self.entries)),
            schemas=self._schemas,
            version=self._version,
            started_at=self._began,
        )
