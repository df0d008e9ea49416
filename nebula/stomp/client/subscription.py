"""Subscriptions in pull form: messages wait until a task takes them."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable

import anyio.lowlevel

from nebula.errors import LocalProtocolError
from nebula.stomp.client.connection import ClientConnection
from nebula.stomp.client.messages import Message, PushSubscription, SubscribeOptions
from nebula.waiter import Waiter, new_waiter

# In addition to its body a message costs its headers: a dict of about ten short strings.
_MESSAGE_OVERHEAD_BYTES = 1024

# A loop over messages that have arrived must let other tasks run, but not after each message.
_MESSAGES_PER_CHECKPOINT = 64


class Subscription(AsyncIterator[Message]):
    """A subscription in pull form: `async for message in subscription`.

    Made by `StompClient.subscribe`. Messages come in the server's order. Several tasks may iterate; each
    message goes to one of them. When the connection ends, messages that have arrived are still handed out,
    then `ConnectionLost` is raised (`ServerError` in a task that was waiting when the ERROR arrived). When
    the subscription is closed the loop ends.
    """

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self._push: PushSubscription | None = None
        self._messages: deque[Message] = deque()
        self._waiters: deque[Waiter[None]] = deque()
        self._taken = 0
        # How many waiting messages belong to the snapshot; None: it has not ended.
        self._snapshot_left: int | None = None
        self._is_eager = False

    @property
    def push(self) -> PushSubscription:
        """The subscription in push form: its id, destination and ack mode."""
        assert self._push is not None
        return self._push

    async def open(self, destination: str, options: SubscribeOptions) -> None:
        """SUBSCRIBE; called once, by the client."""
        self._push = await self._listen(destination, options)

    async def _listen(self, destination: str, options: SubscribeOptions) -> PushSubscription:
        self._is_eager = options.get("eager", False)
        return await self._connection.listen(destination, self._put, options, on_snapshot=self._end_snapshot)

    def close(self) -> None:
        """UNSUBSCRIBE; messages that were not taken are dropped. A durable one is paused. Idempotent."""
        self.push.close()
        self._drop()

    async def pause(self, *, timeout: float | None = None) -> None:
        """Close a durable subscription, and wait for the server's RECEIPT; see `PushSubscription.pause`."""
        self.push.check_durable()
        self._drop()
        await self.push.pause(timeout=timeout)

    async def remove(self, *, timeout: float | None = None) -> None:
        """Remove a durable subscription; see `PushSubscription.remove`."""
        self.push.check_durable()
        self._drop()
        await self.push.remove(timeout=timeout)

    async def snapshot(self) -> AsyncGenerator[Message]:
        """Iterate over the snapshot of an eager subscription: the values that exist when it begins.

        Changes that happen meanwhile are included; values that are deleted before their turn are not.
        Afterwards `async for message in subscription` goes on with changes. A broker without snapshots never
        ends the
        iteration: put a timeout around it if the broker may not be Nebula's.

        Raises:
            LocalProtocolError: the subscription is not eager.
            ConnectionLost, ServerError: as when messages are awaited.
        """
        if not self._is_eager:
            raise LocalProtocolError(f"the subscription to {self.push.destination} is not eager")
        while True:
            if self._taken == _MESSAGES_PER_CHECKPOINT:
                self._taken = 0
                await anyio.lowlevel.checkpoint()
            if self._snapshot_left == 0:
                return
            if self._messages:
                yield self._take()
            elif self.push.is_closed:
                return
            else:
                await self._wait()

    async def __anext__(self) -> Message:
        if self._taken == _MESSAGES_PER_CHECKPOINT:
            self._taken = 0
            await anyio.lowlevel.checkpoint()
        while not self._messages:
            if self.push.is_closed:
                raise StopAsyncIteration
            self._taken = 0
            await self._wait()
        return self._take()

    def _take(self) -> Message:
        self._taken += 1
        message = self._messages.popleft()
        if self._snapshot_left:
            self._snapshot_left -= 1
        self._connection.count_buffered(-_cost(message))
        return message

    def detach(self, *, drops: bool) -> None:
        """The connection has ended, and another will follow: see `attach`. Acks of old messages do nothing
        now.

        Args:
            drops: drop the messages that wait here, because the server delivers them again.
        """
        # A stand-in that is not closed, so that the loop waits. Messages of the old one find it closed.
        old = self.push
        old.is_closed = True
        self._push = PushSubscription(
            self._connection, old.id, old.destination, old.ack_mode, self._put, is_durable=old.is_durable
        )
        self._snapshot_left = None
        for message in self._messages:
            message.subscription.is_closed = True  # also of a subscription whose RECEIPT had not arrived
        if drops:
            self._messages.clear()

    def attach(self, connection: ClientConnection) -> None:
        """Go on with another connection; `_listen` is next."""
        self._connection = connection
        connection.count_buffered(sum(map(_cost, self._messages)))

    async def _wait(self) -> None:
        waiter: Waiter[None] = new_waiter()
        await self._wait_with(waiter, self._connection.wait(waiter))

    async def _wait_with(self, waiter: Waiter[None], waiting: Awaitable[None]) -> None:
        self._waiters.append(waiter)
        try:
            await waiting
        except BaseException:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
            elif self._messages:
                # Woken and cancelled at the same time: another task takes the message.
                self._wake_next()
            raise

    def _put(self, message: Message) -> None:
        self._messages.append(message)
        self._connection.count_buffered(_cost(message))
        self._wake_next()

    def _end_snapshot(self) -> None:
        self._snapshot_left = len(self._messages)
        # The snapshot may end without a message for the tasks that wait for one.
        self._wake_all()

    def _drop(self) -> None:
        self._connection.count_buffered(-sum(map(_cost, self._messages)))
        self._messages.clear()
        self._wake_all()

    def _wake_all(self) -> None:
        while self._waiters:
            self._wake_next()

    def _wake_next(self) -> None:
        if self._waiters:
            self._waiters.popleft().set(None)


def _cost(message: Message) -> int:
    return len(message.body) + _MESSAGE_OVERHEAD_BYTES
