"""A reply queue that several requesters share, as seed 003 describes it: each takes its own answers only."""

from __future__ import annotations

import random
from collections.abc import Callable

import anyio

from nebula.rpc.brokers import brand_of
from nebula.rpc.envelope import BOO
from nebula.stomp.client import AckMode, Message, StompClient
from nebula.stomp.waiter import Waiter, new_waiter

# A stranger's answer is held so long at most, so that its owner loses a tenth of a second, not more.
# The jitter keeps two requesters from passing it to and fro in step.
_HELD_SECONDS = (0.05, 0.1)
_AWAY_SECONDS = (0.0, 0.05)

# Strangers' answers that nobody fetches must not stop ours from coming.
_PREFETCH = "1000"


class SharedReplies:
    """Reads a shared queue while answers are awaited, and leaves it alone otherwise.

    What is ours is acked, what is not goes back: by UNSUBSCRIBE, which no broker counts as a failed
    delivery, where NACK would end in a dead-letter queue after some rounds.

    Args:
        client: connected.
        destination: the queue.
        take: called with each message; returns whether it was ours.
    """

    def __init__(self, client: StompClient, destination: str, take: Callable[[Message], bool]) -> None:
        self._client = client
        self._destination = destination
        self._take = take
        self._is_wanted = False
        self._has_strangers = False
        self._change: Waiter[None] | None = None

    def want(self) -> None:
        """Somebody waits for an answer."""
        self._is_wanted = True
        self._wake()

    def rest(self) -> None:
        """Nobody waits any more."""
        self._is_wanted = False
        self._wake()

    async def run(self) -> None:
        """Read until cancelled.

        Raises:
            Refused, ConnectionLost, ServerError: the queue cannot be read.
        """
        while True:
            while not self._is_wanted:
                await self._changed()
            self._has_strangers = False
            listener = await self._client.listen(
                self._destination,
                self._on_message,
                ack=AckMode.CLIENT_INDIVIDUAL,
                headers={brand_of(self._client.server).prefetch_count: _PREFETCH},
            )
            while self._may_read_on():
                await self._changed()
            if self._is_wanted:
                await anyio.sleep(random.uniform(*_HELD_SECONDS))  # noqa: S311 - manners, not secrets
            listener.close()
            await anyio.sleep(random.uniform(*_AWAY_SECONDS))  # noqa: S311

    def _may_read_on(self) -> bool:
        return self._is_wanted and not self._has_strangers

    def _on_message(self, message: Message) -> None:
        if message.body == BOO or self._take(message):
            message.ack()
        else:
            self._has_strangers = True
            self._wake()

    async def _changed(self) -> None:
        self._change = new_waiter()
        await self._change.wait()

    def _wake(self) -> None:
        if self._change is not None:
            self._change.set(None)
