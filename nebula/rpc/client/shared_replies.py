"""Reply queues that several requesters share: each takes its own replies only (C.3)."""

from __future__ import annotations

import random
from collections.abc import Callable

import anyio

from nebula.rpc.wire.brokers import brand_of
from nebula.rpc.wire.envelope import BOO
from nebula.stomp.client import AckMode, Message, PushSubscription, StompClient
from nebula.waiter import Waiter, new_waiter

# Another client's reply is held this long at most, so that its owner loses a tenth of a second, not more.
# The jitter keeps two requesters from passing it to and fro in step.
_HELD_SECONDS = (0.05, 0.1)
_AWAY_SECONDS = (0.0, 0.05)

# Replies that no client fetches must not stop ours from coming.
_PREFETCH = "1000"


class SharedReplies:
    """Reads a shared queue while replies are awaited.

    What is ours is acked, what is not goes back after a moment. Where the broker gives back at
    UNSUBSCRIBE, that is how: it does not count as a failed delivery, as a NACK would, and the queue can be
    left alone while nothing is awaited.

    Args:
        client: connected.
        destination: the queue.
        take: called with each message; returns whether it was ours.
    """

    def __init__(self, client: StompClient, destination: str, take: Callable[[Message], bool]) -> None:
        self._client = client
        self._destination = destination
        self._take = take
        self._brand = brand_of(client.server)
        self._is_wanted = False
        self._strangers: list[Message] = []
        self._change: Waiter[None] | None = None

    def want(self) -> None:
        """A call waits for a reply."""
        self._is_wanted = True
        self._wake()

    def rest(self) -> None:
        """No call waits any more."""
        self._is_wanted = False
        self._wake()

    async def run(self) -> None:
        """Read until cancelled.

        Raises:
            Refused, ConnectionLost, ServerError: the queue cannot be read.
        """
        if self._brand.requeues_on_unsubscribe:
            while True:
                await self._read_for_a_while()
        # Left alone, the queue would leave the replies for others with this connection: read it all the time.
        await self._listen()
        while True:
            await self._until(lambda: bool(self._strangers))
            await anyio.sleep(random.uniform(*_HELD_SECONDS))  # noqa: S311 - manners, not secrets
            for message in self._strangers:
                message.nack()
            self._strangers.clear()

    async def _read_for_a_while(self) -> None:
        await self._until(lambda: self._is_wanted)
        subscription = await self._listen()
        await self._until(lambda: not self._is_wanted or bool(self._strangers))
        if self._is_wanted:
            await anyio.sleep(random.uniform(*_HELD_SECONDS))  # noqa: S311
        subscription.close()
        self._strangers.clear()
        await anyio.sleep(random.uniform(*_AWAY_SECONDS))  # noqa: S311

    async def _listen(self) -> PushSubscription:
        headers = {self._brand.prefetch_count: _PREFETCH}
        return await self._client.listen(
            self._destination, self._on_message, ack=AckMode.CLIENT_INDIVIDUAL, headers=headers
        )

    def _on_message(self, message: Message) -> None:
        if message.body == BOO or self._take(message):
            message.ack()
        else:
            self._strangers.append(message)
            self._wake()

    async def _until(self, is_so: Callable[[], bool]) -> None:
        while not is_so():
            self._change = new_waiter()
            await self._change.wait()

    def _wake(self) -> None:
        if self._change is not None:
            self._change.set(None)
