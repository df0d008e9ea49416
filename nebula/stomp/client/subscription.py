"""The subscriptions that messages come by, in push and in pull form."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

import anyio.lowlevel

from nebula.errors import LocalProtocolError
from nebula.headers import PAUSED, REMOVED
from nebula.stomp.client.messages import AckMode, Message, Receipt, SubscribeOptions
from nebula.waiter import Waiter, new_waiter

if TYPE_CHECKING:
    from nebula.stomp.client.connection import ClientConnection

# Beside its body a message costs its headers: a dict of ten short strings or so.
_MESSAGE_OVERHEAD_BYTES = 1024

# A loop over messages that are here already has to let others run, but not after each one.
_MESSAGES_PER_CHECKPOINT = 64


class Listener:
    """A subscription in push form: each of its messages is one call.

    Made by `StompClient.listen`. The calls come in the server's order, on the loop's thread,
    often outside of any task: the function must not wait, and what it raises is logged and
    has no other effect (the message stays unacked).

    Attributes:
        id: unique on this connection.
        destination: as subscribed.
        ack_mode: when a message counts as consumed.
        is_durable: the server keeps it when it is closed.
        is_closed: no more calls come.
    """

    __slots__ = (
        "_connection",
        "_last_acked",
        "_marker",
        "ack_mode",
        "destination",
        "id",
        "is_closed",
        "is_durable",
        "on_message",
    )

    def __init__(
        self,
        connection: ClientConnection,
        name: str,
        destination: str,
        ack_mode: AckMode,
        on_message: Callable[[Message], None],
        *,
        is_durable: bool = False,
    ) -> None:
        self._connection = connection
        self._last_acked: Mapping[str, str] | None = None
        self._marker: tuple[Mapping[str, str], Message] | None = None
        self.is_durable = is_durable
        self.id = name
        self.destination = destination
        self.ack_mode = ack_mode
        self.on_message = on_message
        self.is_closed = False

    def close(self) -> None:
        """UNSUBSCRIBE. Idempotent; on a connection that has ended, only the calls stop.

        What was delivered and not acked goes back to the server; what is under way is dropped.
        A durable one is paused.
        """
        if not self.is_closed:
            self.is_closed = True
            self._connection.unsubscribe(self)

    def drain(self) -> None:
        """Have the server send no more from a queue, and go on with what it has sent. Ours knows it alone.

        Calls still come for what is under way. All of it can be acked; what is nacked goes to others, and
        does not count as a delivery. Then `close`. On a connection that has ended nothing happens.
        """
        if not self.is_closed and not self._connection.ended.is_set():
            self._connection.write(self._connection.protocol.drain(self.id))

    async def pause(self, *, timeout: float | None = None) -> None:
        """Close a durable subscription; the server goes on keeping what comes for it.

        Nothing is to be done for one that is closed: it is paused already.

        Args:
            timeout: seconds to wait for the server's answer; None is for ever.

        Raises:
            LocalProtocolError: it is not durable.
            Refused: the server knows of no such subscription.
            TimeoutError: no answer in time; no more calls come all the same.
            ConnectionLost: the connection has ended; the server keeps the subscription.
        """
        self.check_durable()
        if not self.is_closed:
            await self._connection.leave(self, PAUSED, timeout)

    async def remove(self, *, timeout: float | None = None) -> None:
        """Close a durable subscription for good, with what the server keeps for it; also one that is paused.

        Arguments and errors as for `pause`; when the connection has ended first, the server may keep it.
        """
        self.check_durable()
        await self._connection.leave(self, REMOVED, timeout)

    def ack_marker(self, marker: Message, newest: Message | None) -> None:
        """Ack the empty message that ends a snapshot, which nobody is shown.

        In `client` mode that would ack all messages before it as well (D.7): then it is done with
        the ACK of the newest of them, or goes with one of a later one.
        """
        if self.ack_mode is AckMode.AUTO:
            return
        is_cumulative = self.ack_mode is AckMode.CLIENT
        if is_cumulative and newest is not None and newest.headers is not self._last_acked:
            self._marker = newest.headers, marker
        else:
            self._connection.ack(marker)

    def check_durable(self) -> None:
        """Raise `LocalProtocolError` if the server does not keep it."""
        if not self.is_durable:
            raise LocalProtocolError(f"the subscription to {self.destination} is not durable")

    def _ack(self, message: Message, on_receipt: Callable[[Receipt], None] | None) -> None:
        self._check_mode()
        if self.is_closed:
            return
        self._connection.ack(message, on_receipt=on_receipt)
        self._last_acked = message.headers
        if self._marker is not None and self._marker[0] is message.headers:
            self._connection.ack(self._marker[1])
            self._marker = None

    def _nack(self, message: Message, headers: Mapping[str, str]) -> None:
        self._check_mode()
        if not self.is_closed:
            self._connection.nack(message, headers)

    def _check_mode(self) -> None:
        if self.ack_mode is AckMode.AUTO:
            raise LocalProtocolError("messages of an auto subscription are consumed already")


class SnapshotGate:
    """Stands before an eager listener's `on_message` until its snapshot has ended, then steps aside.

    Args:
        listener: the eager one.
        on_end: called once, after the call for the snapshot's last message.
    """

    def __init__(self, listener: Listener, on_end: Callable[[], None] | None) -> None:
        self._listener = listener
        self._on_message = listener.on_message
        self._on_end = on_end
        self._newest: Message | None = None

    def __call__(self, message: Message) -> None:
        """A message came."""
        if not message.ends_snapshot:
            self._newest = message
            self._on_message(message)
            return
        self._listener.on_message = self._on_message
        try:
            # A value is not empty: an empty one says that there is no more, and of no destination.
            if message.body:
                self._on_message(message)
            else:
                self._listener.ack_marker(message, self._newest)
        finally:
            if self._on_end is not None:
                self._on_end()


class Subscription(AsyncIterator[Message]):
    """A subscription in pull form: `async for message in subscription`.

    Made by `StompClient.subscribe`. Messages come in the server's order; several tasks may take
    turns, each message goes to one of them. When the connection ends, what has come is still
    handed out, then `ConnectionLost` is raised (`ServerError` to a task that was waiting when
    the ERROR came). When the subscription is closed the loop ends.
    """

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self._listener: Listener | None = None
        self._messages: deque[Message] = deque()
        self._waiters: deque[Waiter[None]] = deque()
        self._taken = 0
        # How many of what waits belong to the snapshot; None: it has not ended.
        self._snapshot_left: int | None = None
        self._is_eager = False

    @property
    def listener(self) -> Listener:
        """Its push form: the id, the destination, the ack mode."""
        assert self._listener is not None
        return self._listener

    async def open(self, destination: str, options: SubscribeOptions) -> None:
        """SUBSCRIBE; called once, by the client."""
        self._listener = await self._listen(destination, options)

    async def _listen(self, destination: str, options: SubscribeOptions) -> Listener:
        self._is_eager = options.get("eager", False)
        return await self._connection.listen(destination, self._put, options, on_snapshot=self._end_snapshot)

    def close(self) -> None:
        """UNSUBSCRIBE; what has come and was not taken is dropped. A durable one is paused. Idempotent."""
        self.listener.close()
        self._drop()

    async def pause(self, *, timeout: float | None = None) -> None:
        """Close a durable subscription, and wait until the server has it so; see `Listener.pause`."""
        self.listener.check_durable()
        self._drop()
        await self.listener.pause(timeout=timeout)

    async def remove(self, *, timeout: float | None = None) -> None:
        """Close a durable subscription for good; see `Listener.remove`."""
        self.listener.check_durable()
        self._drop()
        await self.listener.remove(timeout=timeout)

    async def snapshot(self) -> AsyncGenerator[Message]:
        """The messages of an eager subscription until all that was there when it began has come.

        Changes that happen meanwhile are among them; what is deleted before its turn is not. Then
        `async for message in subscription` goes on with what changes. A broker that knows no
        such snapshot never ends it: put a scope around it where the broker may not be ours.

        Raises:
            LocalProtocolError: the subscription is not eager.
            ConnectionLost, ServerError: as when messages are awaited.
        """
        if not self._is_eager:
            raise LocalProtocolError(f"the subscription to {self.listener.destination} is not eager")
        while True:
            if self._taken == _MESSAGES_PER_CHECKPOINT:
                self._taken = 0
                await anyio.lowlevel.checkpoint()
            if self._snapshot_left == 0:
                return
            if self._messages:
                yield self._take()
            elif self.listener.is_closed:
                return
            else:
                await self._wait()

    async def __anext__(self) -> Message:
        if self._taken == _MESSAGES_PER_CHECKPOINT:
            self._taken = 0
            await anyio.lowlevel.checkpoint()
        while not self._messages:
            if self.listener.is_closed:
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
        """The connection has ended, and another will come: see `attach`. Acks of what came do nothing now.

        Args:
            drops: what waits here comes again, and is not to be handed out twice.
        """
        # A stand-in that is not closed, so that the loop waits; what came by the old one finds it closed.
        old = self.listener
        old.is_closed = True
        self._listener = Listener(
            self._connection, old.id, old.destination, old.ack_mode, self._put, is_durable=old.is_durable
        )
        self._snapshot_left = None
        for message in self._messages:
            message.subscription.is_closed = True  # also what came by one whose answer was still awaited
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
                # Woken and cancelled at once: the message is for another one.
                self._wake_next()
            raise

    def _put(self, message: Message) -> None:
        self._messages.append(message)
        self._connection.count_buffered(_cost(message))
        self._wake_next()

    def _end_snapshot(self) -> None:
        self._snapshot_left = len(self._messages)
        # It may end without a message for those who wait for one.
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
