"""A service while it runs: one connection, its lanes, and an end without loss."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from time import monotonic
from typing import Final

import anyio
import structlog

from nebula import headers as names
from nebula.errors import NebulaError, Refused
from nebula.rpc.answering import Answerer, AnswerRules
from nebula.rpc.brokers import Brand, brand_of
from nebula.rpc.jobs.elsewhere import instance_queue
from nebula.rpc.jobs.service import JobService
from nebula.rpc.lane import Lane
from nebula.rpc.verbs import Endpoint
from nebula.stomp.client import AckMode, StompClient

_log = structlog.get_logger()


# Workers of an instance's own queue, where there are jobs. Enough for all that may wait in `job.wait` there,
# so that the other verbs of jobs never wait for a worker (DESIGN 5).
_INSTANCE_CONCURRENCY: Final = 64

# Brokers of MaXaM's profile do not answer the SUBSCRIBE that they do not permit: the service ends, and
# whoever started it hears why.
_LISTEN_SECONDS: Final = 30.0

# The same for what a service can do without.
_OPTIONAL_LISTEN_SECONDS: Final = 5.0


class Serving:
    """One run of a service, from connecting to the last ACK.

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

    Attributes:
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
    ) -> None:
        self.started_at = monotonic()
        self.entries = {one.name: one for one in [*entries, *(jobs.verbs() if jobs is not None else ())]}
        self.answerer = Answerer(self.entries, rules, anyio.CapacityLimiter(concurrency))
        self.lanes = {one: Lane(self.answerer.serve, concurrency) for one in destinations}
        self.instance = jobs.instance if jobs is not None else secrets.token_hex(4)
        self.instance_queue = instance_queue(name, self.instance)
        # The broker's own service is one alone.
        if names.BROKER_QUEUE not in self.lanes:
            workers = concurrency if jobs is None else max(concurrency, _INSTANCE_CONCURRENCY)
            self.lanes[self.instance_queue] = Lane(self.answerer.serve, workers)
        self._name = name
        self._jobs = jobs
        self._grace = grace
        self._shield = anyio.CancelScope(shield=True)
        self._until_stopped: anyio.CancelScope | None = None
        self._failure: NebulaError | None = None
        self._ended = anyio.Event()

    async def run(self, client: StompClient, started: anyio.Event | None) -> None:
        """Serve until cancelled or disconnected, over a client not entered; see `Responder.run`."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._live, client, started, name=f"service {self._name}")
            # This task takes the cancellation; the other one hears of it by `_stop`.
            try:
                await self._ended.wait()
            finally:
                self._stop()
        if self._failure is not None:
            raise self._failure

    def _stop(self) -> None:
        # Before it listens there is nothing to finish.
        (self._until_stopped or self._shield).cancel()

    async def _live(self, client: StompClient, started: anyio.Event | None) -> None:
        with self._shield:
            try:
                async with client, self._jobs_running(client):
                    await self._serve(client, started)
            except NebulaError as error:
                self._failure = error
        self._ended.set()

    @asynccontextmanager
    async def _jobs_running(self, client: StompClient) -> AsyncGenerator[None]:
        """Jobs begin before the first request for one, and end after the last."""
        if self._jobs is None:
            yield
            return
        async with anyio.create_task_group() as tasks:
            started = anyio.Event()
            brand = brand_of(client.server)
            tasks.start_soon(partial(self._jobs.run, client.post, brand=brand, started=started), name="jobs")
            await started.wait()
            yield
            tasks.cancel_scope.cancel()

    async def _serve(self, client: StompClient, started: anyio.Event | None) -> None:
        brand = brand_of(client.server)
        self.answerer.connect(client.post, brand, trusts_sender=client.is_nebula)
        async with anyio.create_task_group() as tasks:
            for lane in self.lanes.values():
                tasks.start_soon(lane.run, self._grace, name="lane")
            try:
                with anyio.CancelScope() as self._until_stopped:
                    await self._listen(client, brand)
                    if started is not None:
                        started.set()
                    self._failure = await client.wait_lost()
            except NebulaError as error:
                # Not through the task group: it would come out wrapped.
                self._failure = error
            finally:
                for lane in self.lanes.values():
                    lane.close()

    async def _listen(self, client: StompClient, brand: Brand) -> None:
        for destination, lane in self.lanes.items():
            # Enough for each worker to find its next request waiting when it has answered one.
            headers = {brand.prefetch_count: str(2 * lane.concurrency)}
            if destination == self.instance_queue and self._jobs is None:
                await self._listen_as_instance(client, lane, headers)
                continue
            await client.listen(
                destination,
                lane.put,
                ack=AckMode.CLIENT_INDIVIDUAL,
                headers=headers,
                timeout=_LISTEN_SECONDS,
            )
        if names.BROKER_QUEUE not in self.lanes:  # that a broker has its own verbs is no news
            _log.info("service started", service=self._name, queues=list(self.lanes))

    async def _listen_as_instance(self, client: StompClient, lane: Lane, headers: dict[str, str]) -> None:
        """Listen to the queue of this instance alone, which nobody else will ever read.

        With jobs the queue is there for the next process that takes the name; without, it goes with us.
        """
        try:
            await client.listen(
                self.instance_queue,
                lane.put,
                ack=AckMode.CLIENT_INDIVIDUAL,
                headers={**headers, names.AUTO_DELETE: "true"},
                timeout=_OPTIONAL_LISTEN_SECONDS,
            )
        except Refused:
            # Requests come by the other queues all the same.
            _log.warning("instance not reachable by itself", service=self._name, queue=self.instance_queue)
