"""Subscriptions of a service to its request queues, made anew with each connection.

A stopping service must lose nothing that was fetched and not begun. A Nebula broker takes it back at once
(DRAIN) and gives it to other instances. Other brokers give nothing to another instance as long as the
connection lasts: there the caller is told `busy`, so that it asks again. The instance's own queue has no
other reader: a request that comes by it is always told `busy`, or dropped if it wants no reply.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from nebula import headers as names
from nebula.errors import ConnectionLost, Refused
from nebula.logs import get_logger
from nebula.rpc.service.declaration import ServiceDeclaration
from nebula.rpc.service.request_handler import RequestHandler
from nebula.rpc.service.worker_pool import GiveBack, WorkerPool, give_back
from nebula.rpc.wire.cancel import cancel_topics
from nebula.rpc.wire.envelope import BOO
from nebula.stomp.client import AckMode, Message, PushSubscription, StompClient

__all__ = ["RequestConsumer"]

_log = get_logger(__name__)

# Workers of an instance's own queue, if it has jobs. Enough for all callers that may wait in `job.wait`, so
# that the other verbs of jobs never wait for a worker.
_INSTANCE_CONCURRENCY: Final = 64

# Brokers of MaXaM's profile are silent about a SUBSCRIBE that they do not permit: then the service ends with
# an error.
_LISTEN_SECONDS: Final = 30.0

# The same for subscriptions that a service can do without.
_OPTIONAL_LISTEN_SECONDS: Final = 5.0


class RequestConsumer:
    """The request queues of a service, each with workers of its own.

    Args:
        declared: the service.
        own: the queue of this instance alone.
        handler: handles the requests.
        has_jobs: the instance's own queue stays when it ends, for the next process that takes its name.

    Attributes:
        pools: by queue.
        is_reachable: requests can be sent to this instance alone.
    """

    def __init__(
        self,
        declared: ServiceDeclaration,
        own: str,
        handler: RequestHandler,
        *,
        has_jobs: bool,
    ) -> None:
        self._service, self._destinations, self._own = declared.name, declared.destinations, own
        concurrency, max_waiting = declared.concurrency, declared.rules.max_waiting
        self._handler = handler
        self._max_waiting = max_waiting or 0
        self._has_jobs = has_jobs
        self._subscriptions: list[PushSubscription] = []
        self.is_reachable = True
        self.pools = {
            one: WorkerPool(handler.handle, concurrency, max_waiting=max_waiting, refuse=handler.refuse)
            for one in declared.destinations
        }
        # The broker's own service has a single instance.
        self._is_alone = names.BROKER_QUEUE in self.pools
        if not self._is_alone:
            workers = max(concurrency, _INSTANCE_CONCURRENCY) if has_jobs else concurrency
            self.pools[own] = WorkerPool(handler.handle, workers)
        handler.cancellation.watch(self.pools.values())

    def load(self) -> tuple[int, int]:
        """How many requests are being handled, and how many came and are not begun."""
        pools = self.pools.values()
        waiting = sum(pool.waiting for pool in pools) + self._handler.limits.waiting
        return sum(pool.busy for pool in pools), waiting

    async def listen(self, client: StompClient, prefetch_count: str) -> None:
        """SUBSCRIBE to all queues, and to the topics where callers withdraw requests.

        Args:
            client: connected.
            prefetch_count: what its broker calls that header.

        Raises:
            Refused: the broker does not permit it, or is silent.
            ConnectionLost, ServerError: the connection ended.
        """
        for destination, pool in self.pools.items():
            # Enough for each worker to find its next request waiting when it is done with one; and more
            # than may wait, so that the broker's queue does not hide an overload.
            count = 2 * pool.concurrency + self._max_waiting + self._handler.limits.max_set_aside
            headers = {prefetch_count: str(count)}
            if destination == self._own and not self._has_jobs:
                await self._listen_to_own(client, headers)
            else:
                await self._listen_to(client, destination, headers, _LISTEN_SECONDS)
        if not self._is_alone:
            await self._listen_for_cancels(client)

    async def _listen_to(
        self, client: StompClient, destination: str, headers: dict[str, str], seconds: float
    ) -> None:
        is_own = destination == self._own
        subscription = await client.listen(
            destination,
            self._put_own if is_own else self.pools[destination].put,
            ack=AckMode.CLIENT_INDIVIDUAL,
            headers=headers,
            timeout=seconds,
        )
        self._subscriptions.append(subscription)

    def _put_own(self, message: Message) -> None:
        # Credit never waits for a worker: all of them may be waiting for credit. Nor does "boo", which is
        # sent to see whether a service listens: it must not keep credit from coming, see `_turn_away`.
        if message.body == BOO or self._handler.streams.take_credit(message):
            message.ack()
        else:
            self.pools[self._own].put(message)

    async def _listen_to_own(self, client: StompClient, headers: dict[str, str]) -> None:
        """Listen to the queue of this instance alone, which ends with it."""
        headers = {**headers, names.AUTO_DELETE: "true"}
        try:
            await self._listen_to(client, self._own, headers, _OPTIONAL_LISTEN_SECONDS)
            self.is_reachable = True
        except Refused:
            # Requests still come by the other queues.
            self.is_reachable = False
            _log.warning("instance queue not subscribed", service=self._service, queue=self._own)

    async def _listen_for_cancels(self, client: StompClient) -> None:
        for topic in cancel_topics(self._service, self._destinations):
            try:
                await client.listen(
                    topic, self._handler.withdraw, ack=AckMode.AUTO, timeout=_OPTIONAL_LISTEN_SECONDS
                )
            except Refused:
                # Withdrawn requests are handled until their time is over.
                _log.warning("cancel topic not subscribed", service=self._service, topic=topic)

    def stop(self, *, may_drain: bool) -> None:
        """Take no more requests, and give back those that are not begun. The others are still replied to.

        Args:
            may_drain: the broker is ours, and takes them back at once. To those of others callers are told
                to ask again.
        """
        if may_drain:
            for subscription in self._subscriptions:
                # Credit for what is being handled comes by our own queue.
                if subscription.destination != self._own:
                    subscription.drain()
        for destination, pool in self.pools.items():
            pool.close(self._give_back(may_drain=may_drain, is_own=destination == self._own))
        self._handler.limits.empty()

    def _give_back(self, *, may_drain: bool, is_own: bool) -> GiveBack | None:
        if is_own and self._has_jobs:
            # The next process of this name replies to it.
            return None
        if is_own:
            return self._turn_away
        # What wants no reply stays unacked: others get it when the connection ends.
        return give_back if may_drain else self._handler.turn_away

    def _turn_away(self, message: Message, arrived: float) -> None:
        """Settle a message of our own queue, which has no other reader."""
        if not self._handler.turn_away(message, arrived):
            # Unacked ones would use up what the broker sends ahead, and no more credit would come.
            _log.info("request dropped, the service is stopping", queue=self._own)
            with suppress(ConnectionLost):
                message.ack()

    def close(self) -> None:
        """The connection is over: begin nothing more."""
        for pool in self.pools.values():
            pool.close()

    def lose(self) -> None:
        """Forget what came by the connection: it comes again. The next one has no right to reply to it."""
        for subscription in self._subscriptions:
            subscription.is_closed = True
        self._subscriptions.clear()
        for pool in self.pools.values():
            pool.lose()
        self._handler.lose()
