"""A service while it runs: one connection, its lanes, and an end without loss."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from time import monotonic

import anyio
import structlog

from nebula.errors import NebulaError
from nebula.headers import PREFETCH_COUNT
from nebula.rpc.answering import Answerer, AnswerRules
from nebula.rpc.lane import Lane
from nebula.rpc.verbs import Verb
from nebula.stomp.client import AckMode, StompClient
from nebula.stomp.link import Link

_log = structlog.get_logger()


class Serving:
    """One run of a service, from connecting to the last ACK.

    It lives in a task that is shielded: when the caller is cancelled, connection and workers have to
    outlive that, so that what was begun can be answered.

    Args:
        name: of the service.
        destinations: the queues; each gets workers of its own.
        verbs: what it answers.
        rules: how it answers.
        concurrency: workers per queue.
        grace: seconds that begun requests have when it is stopped.
    """

    def __init__(
        self,
        name: str,
        destinations: Sequence[str],
        verbs: Sequence[Verb],
        rules: AnswerRules,
        *,
        concurrency: int,
        grace: float,
    ) -> None:
        self.started_at = monotonic()
        self.answerer = Answerer({one.name: one for one in verbs}, rules, anyio.CapacityLimiter(concurrency))
        self.lanes = [Lane(self.answerer.serve, concurrency) for _ in destinations]
        self._name = name
        self._destinations = destinations
        self._concurrency = concurrency
        self._grace = grace
        self._shield = anyio.CancelScope(shield=True)
        self._until_stopped: anyio.CancelScope | None = None
        self._failure: NebulaError | None = None
        self._ended = anyio.Event()

    async def run(
        self,
        url: str | None,
        link: Callable[[], Awaitable[Link]] | None,
        started: anyio.Event | None,
    ) -> None:
        """Serve until cancelled or disconnected; see `Responder.run`."""
        client = StompClient(url, link=link)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._live, client, started, name=f"service {self._name}")
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
                async with client:
                    await self._serve(client, started)
            except NebulaError as error:
                self._failure = error
        self._ended.set()

    async def _serve(self, client: StompClient, started: anyio.Event | None) -> None:
        self.answerer.connect(client.post, trusts_sender=client.is_nebula)
        async with anyio.create_task_group() as tasks:
            for lane in self.lanes:
                tasks.start_soon(lane.run, self._grace, name="lane")
            try:
                with anyio.CancelScope() as self._until_stopped:
                    await self._listen(client)
                    if started is not None:
                        started.set()
                    self._failure = await client.wait_lost()
            except NebulaError as error:
                # Not through the task group: it would come out wrapped.
                self._failure = error
            finally:
                for lane in self.lanes:
                    lane.close()

    async def _listen(self, client: StompClient) -> None:
        # Enough for each worker to find its next request waiting when it has answered one.
        headers = {PREFETCH_COUNT: str(2 * self._concurrency)}
        for destination, lane in zip(self._destinations, self.lanes, strict=True):
            await client.listen(destination, lane.put, ack=AckMode.CLIENT_INDIVIDUAL, headers=headers)
        _log.info("service started", service=self._name, queues=list(self._destinations))
