"""A service while it runs: its connections, one after the other, its lanes, and an end without loss."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
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
from nebula.rpc.idempotency.replaying import Replays
from nebula.rpc.jobs.service.service import JobService
from nebula.rpc.middleware.chain import Middleware
from nebula.rpc.service.answering import ANSWERING, Answerer
from nebula.rpc.service.blocking import LoopWatch
from nebula.rpc.service.consuming import LISTENING, Consumers
from nebula.rpc.service.intake import Intake
from nebula.rpc.service.listening import Subscriber
from nebula.rpc.service.rules import AnswerRules
from nebula.rpc.service.shared_client import SharedClient
from nebula.rpc.service.statistics import Statistics
from nebula.rpc.service.workers import Lane
from nebula.rpc.wire.brokers import Brand, brand_of, instance_queue
from nebula.stomp.client import StompClient

_log = get_logger(__name__)

Lifespan: TypeAlias = Callable[[], AbstractAsyncContextManager[Any]]
"""What a service has for as long as it runs: opened before it connects, closed after its last answer."""


# For a broker's disk. Who does not hear in time sends again.
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

    Workers, jobs and counts go on over a lost connection. What came by it and is being handled is finished,
    and not answered: it was not acked, so it comes again, to one of the instances.

    It lives in a task that is shielded: when the caller is cancelled, connection and workers have to
    outlive that, so that what was begun can be answered.

    Args:
        name: of the service.
        destinations: the queues; each gets workers of its own.
        entries: what it answers to.
        rules: how it answers.
        jobs: takes the jobs among the entries, if there are any.
        concurrency: workers per queue.
        grace: seconds that begun requests have when it is stopped.
        replays: answers again what was asked for with the same key.
        version: of the service, for those who look who is there.
        subscribers: what it listens to beside its requests.
        around: the service, for its requests and jobs.
        lifespan: what it yields is the state of the service.
        middleware: around each request.
        client: for its handlers.
        is_exclusive: do not start while an instance with another contract runs.

    Attributes:
        client_of_handlers: as it was given.
        intake: where it takes its requests from.
        consumers: what it listens to beside its requests.
        is_taking: requests are taken now.
        instance: the name of this one among the instances of the service.
        instance_queue: where it alone is asked.
    """

    def __init__(
        self,
        name: str,
        destinations: Sequence[str],
        entries: Iterable[Endpoint],
        rules: AnswerRules,
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
        self.entries = {one.name: one for one in [*entries, *(jobs.verbs() if jobs is not None else ())]}
        self._lifespan = lifespan
        self._around = around
        self.answerer = Answerer(self.entries, rules, replays, self._around, middleware)
        self.instance = jobs.instance if jobs is not None else secrets.token_hex(4)
        self.instance_queue = instance_queue(name, self.instance)
        self.intake = Intake(
            name,
            destinations,
            self.instance_queue,
            self.answerer,
            concurrency=concurrency,
            max_waiting=rules.max_waiting,
            has_jobs=jobs is not None,
        )
        self.consumers = Consumers(subscribers, rules.message_retry, around)
        self._watch = LoopWatch(name, (ANSWERING, LISTENING))
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
        # In it requests begin to be taken over a connection; None as long as there is none to take them from.
        self._entering: anyio.CancelScope | None = None
        self._idle_lanes = 0
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
            # This task takes the cancellation; the other one hears of it by `_stop`.
            try:
                await self._ended.wait()
            finally:
                self._stop()
        if self._failure is not None:
            raise self._failure

    def _stop(self) -> None:
        if self._entering is not None and self._connections is not None:
            # Some queues are listened to at least: what came by them is answered.
            self._entering.cancel()
            self._connections.leave()
        else:
            # There is nobody who could be answered.
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
            async with anyio.create_task_group() as beside:
                beside.start_soon(self.answerer.running.run, name="request deadlines")
                beside.start_soon(self.answerer.streams.run, name="streams")
                beside.start_soon(self._replays.run, name="idempotency keys")
                beside.start_soon(self.consumers.later.run, name="retries")
                async with anyio.create_task_group() as tasks:
                    for lane in self._all_lanes:
                        tasks.start_soon(self._run_lane, lane, name="lane")
                    await self._connect(connect(partial(self._taking, beside, started), on_lost=self._lose))
                beside.cancel_scope.cancel()

    async def _run_lane(self, lane: Lane) -> None:
        await lane.run(self._grace)
        self._idle_lanes += 1
        if self._idle_lanes == len(self._all_lanes):
            self._drained.set()

    async def _connect(self, connections: Connections) -> None:
        self._connections = connections
        try:
            await connections.run()
        except NebulaError as error:
            # Not through a task group: it would come out wrapped.
            self._failure = error
        finally:
            self.intake.close()
            self.consumers.close()

    @property
    def _all_lanes(self) -> list[Lane]:
        return [*self.intake.lanes.values(), *self.consumers.lanes]

    def _lose(self, _error: NebulaError) -> None:
        self._is_lost = True
        self.is_taking = False
        self._drop()

    def _drop(self) -> None:
        self.intake.lose()
        self.consumers.lose()

    @asynccontextmanager
    async def _taking(
        self, beside: TaskGroup, started: anyio.Event | None, client: StompClient
    ) -> AsyncGenerator[None]:
        """Take requests over a connection; at the end, unless it is lost, no more are begun."""
        brand = brand_of(client.server)
        self._is_lost = False
        is_first, self._client = self._client is None, client
        self.answerer.connect(client.post, brand, trusts_sender=client.is_nebula)
        self.answerer.streams.connect(
            client.post_with_receipt, brand.reply_to(self.instance_queue), trusts_sender=client.is_nebula
        )
        if is_first and self._jobs is not None:
            await self._begin_jobs(self._jobs, beside, brand)
        try:
            try:
                await self._enter(client, brand, beside, started, is_first=is_first)
                yield
            finally:
                self.is_taking = False
                self._entering = None
                if self._registration is not None:  # first of all, so that nobody comes any more
                    self._registration.leave()
            if not self._is_lost:
                await self._finish(client)
        finally:
            # Also where it was never taken from, as one of the queues could not be listened to.
            self._drop()

    async def _enter(
        self,
        client: StompClient,
        brand: Brand,
        beside: TaskGroup,
        started: anyio.Event | None,
        *,
        is_first: bool,
    ) -> None:
        """Take requests; `_stop` ends it early, and what was begun by then is finished all the same."""
        assert self._connections is not None
        with anyio.CancelScope() as self._entering:
            self._connections.hold()
            if is_first and self._is_exclusive:
                # Before the first request; and again when all see us, as another one may start just now.
                await self._others.refuse(client, self._describe(brand))
            await self.intake.listen(client, brand.prefetch_count)
            await self.consumers.listen(client)
            if names.BROKER_QUEUE not in self.intake.lanes:  # everybody knows of the broker's own
                self._registration = Registration(client, brand, partial(self._describe, brand), self.load)
                beside.start_soon(self._registration.keep, name="discovery")
                await self._registration.enter()
                if is_first and self._is_exclusive:
                    await self._others.refuse(client, self._describe(brand))
                elif brand.has_last_values:
                    # Elsewhere all would have to be asked, by a queue that some brokers keep for good.
                    beside.start_soon(
                        self._others.warn, client, self._describe(brand), name="other contracts"
                    )
                event = "service started" if is_first else "service came back"
                place = {} if self._jobs is None else {"state": str(self._jobs.folder)}
                _log.info(event, service=self._name, queues=list(self.intake.lanes), **place)
            if started is not None:
                started.set()
            if self._jobs is not None and not is_first:
                self._jobs.republish()
            self.is_taking = True

    async def _finish(self, client: StompClient) -> None:
        """Answer what was begun, while there is a connection, and have jobs tell how they ended."""
        self.intake.stop(may_drain=client.is_nebula)
        self.consumers.stop(may_drain=client.is_nebula)
        if self._jobs is not None:
            # They would be waited for.
            self._jobs.inquiries.callers.dismiss()
        await self._drained.wait()
        if self._jobs_scope is not None:
            self._jobs_scope.cancel()
            await self._jobs_ended.wait()

    async def _begin_jobs(self, jobs: JobService, beside: TaskGroup, brand: Brand) -> None:
        """Jobs begin before the first request for one, and end after the last."""
        are_taken = anyio.Event()
        beside.start_soon(self._run_jobs, jobs, brand, are_taken, name="jobs")
        await are_taken.wait()

    async def _run_jobs(self, jobs: JobService, brand: Brand, are_taken: anyio.Event) -> None:
        with anyio.CancelScope() as self._jobs_scope:
            await jobs.run(self._post, deliver=self._deliver, brand=brand, started=are_taken)
        self._jobs_ended.set()

    def _post(self, destination: str, body: bytes, headers: Mapping[str, str]) -> None:
        # By the connection of now: jobs go on over the loss of one.
        assert self._client is not None
        self._client.post(destination, body, headers)

    async def _deliver(self, destination: str, body: bytes, headers: Mapping[str, str]) -> None:
        assert self._client is not None
        await self._client.send(destination, body, headers, receipt=True, timeout=_DELIVER_SECONDS)

    @property
    def client(self) -> StompClient | None:
        """The connection of now, or the last one; None as long as there was none."""
        return self._client

    def load(self) -> tuple[int, int]:
        """Requests that are being handled, and those that came and are not begun."""
        return self.intake.load()

    def statistics(self) -> Statistics:
        """What it did since it started."""
        reasons = ("expired", "cancelled", "overloaded", "skipped", "refused")
        unanswered = {reason: getattr(self.answerer, reason) for reason in reasons}
        uptime = monotonic() - self.started_at
        return Statistics(uptime, *self.load(), unanswered, self.answerer.tallies)

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
            queue=brand.reply_to(self.instance_queue) if self.intake.is_reachable else None,
            queues=tuple(self._destinations),
            verbs=tuple(sorted(self.entries)),
            schemas=self._schemas,
            version=self._version,
            started_at=self._began,
        )
