"""What a client hands out: messages, receipts, and the subscriptions they come by."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

import anyio.lowlevel

from nebula.errors import LocalProtocolError
from nebula.headers import ACCEPTED, DISPOSITION
from nebula.stomp.waiter import Waiter, new_waiter

if TYPE_CHECKING:
    from nebula.stomp.client_connection import ClientConnection

# `disposition` in MaXaM's text, `content-disposition` in its RECEIPT section (D.4).
_DISPOSITION_OF_MAXAM: Final = "content-disposition"

# Beside its body a message costs its headers: a dict of ten short strings or so.
_MESSAGE_OVERHEAD_BYTES = 1024

# A loop over messages that are here already has to let others run, but not after each one.
_MESSAGES_PER_CHECKPOINT = 64


class AckMode(StrEnum):
    """When a server counts a message as consumed (STOMP 1.2, "SUBSCRIBE")."""

    AUTO = "auto"
    """When it was sent: what is under way at a loss is lost."""

    CLIENT = "client"
    """At the ACK of it or of a later one of its subscription."""

    CLIENT_INDIVIDUAL = "client-individual"
    """At its own ACK."""


class Receipt:
    """The server's answer to one frame.

    Attributes:
        headers: of the RECEIPT, among them `receipt-id`.
    """

    __slots__ = ("headers",)

    def __init__(self, headers: Mapping[str, str]) -> None:
        self.headers = headers

    @property
    def verdict(self) -> str:
        """What became of a SEND or COMMIT: `accepted` (also where the server says nothing), or why not."""
        headers = self.headers
        return headers.get(DISPOSITION) or headers.get(_DISPOSITION_OF_MAXAM) or ACCEPTED

    def __repr__(self) -> str:
        return f"Receipt({dict(self.headers)!r})"


class Message:
    """One MESSAGE.

    Attributes:
        headers: as they came; shared, so read-only.
        body: octets.
        subscription: the listener that it came to.
    """

    __slots__ = ("body", "headers", "subscription")

    def __init__(self, headers: Mapping[str, str], body: bytes, subscription: Listener) -> None:
        self.headers = headers
        self.body = body
        self.subscription = subscription

    @property
    def destination(self) -> str:
        """Where it was sent to; under a pattern, not what was subscribed to."""
        return self.headers["destination"]

    @property
    def id(self) -> str:
        """The server's name for it."""
        return self.headers["message-id"]

    def ack(self) -> None:
        """Tell the server that it is consumed (in `client` mode: and all before it).

        Written at once, without waiting; lost with the connection. Does nothing when its
        subscription is closed: the server has taken back what was not acked.

        Raises:
            LocalProtocolError: the subscription's mode is `auto`.
            ConnectionLost: the connection has ended; the server gives it to someone again.
        """
        self.subscription._ack(self)

    def nack(self, **headers: str) -> None:
        """Tell the server that it is not consumed: put back, or whatever its policy is.

        As `ack` otherwise. STOMP 1.0 has no NACK.

        Args:
            **headers: the server's extensions; ours takes `requeue="false"`.
        """
        self.subscription._nack(self, headers)

    def __repr__(self) -> str:
        return f"Message({dict(self.headers)!r}, {len(self.body)} bytes)"


class SubscribeOptions(NamedTuple):
    """How to SUBSCRIBE: the server's extensions, and whether and how long to wait for its answer."""

    headers: Mapping[str, str]
    receipt: bool
    timeout: float | None


class Listener:
    """A subscription in push form: each of its messages is one call.

    Made by `StompClient.listen`. The calls come in the server's order, on the loop's thread,
    often outside of any task: the function must not wait, and what it raises is logged and
    has no other effect (the message stays unacked).

    Attributes:
        id: unique on this connection.
        destination: as subscribed.
        ack_mode: when a message counts as consumed.
        is_closed: no more calls come.
    """

    __slots__ = ("_connection", "ack_mode", "destination", "id", "is_closed", "on_message")

    def __init__(
        self,
        connection: ClientConnection,
        name: str,
        destination: str,
        ack_mode: AckMode,
        on_message: Callable[[Message], None],
    ) -> None:
        self._connection = connection
        self.id = name
        self.destination = destination
        self.ack_mode = ack_mode
        self.on_message = on_message
        self.is_closed = False

    def close(self) -> None:
        """UNSUBSCRIBE. Idempotent; on a connection that has ended, only the calls stop.

        What was delivered and not acked goes back to the server; what is under way is dropped.
        """
        if not self.is_closed:
            self.is_closed = True
            self._connection.unsubscribe(self)

    def _ack(self, message: Message) -> None:
        self._check_mode()
        if not self.is_closed:
            self._connection.ack(message)

    def _nack(self, message: Message, headers: Mapping[str, str]) -> None:
        self._check_mode()
        if not self.is_closed:
            self._connection.nack(message, headers)

    def _check_mode(self) -> None:
        if self.ack_mode is AckMode.AUTO:
            raise LocalProtocolError("messages of an auto subscription are consumed already")


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

    @property
    def listener(self) -> Listener:
        """Its push form: the id, the destination, the ack mode."""
        assert self._listener is not None
        return self._listener

    async def open(self, destination: str, ack: AckMode, options: SubscribeOptions) -> None:
        """SUBSCRIBE; called once, by the client."""
        self._listener = await self._connection.listen(destination, self._put, ack, options)

    def close(self) -> None:
        """UNSUBSCRIBE; what has come and was not taken is dropped. Idempotent."""
        self.listener.close()
        self._connection.count_buffered(-sum(map(_cost, self._messages)))
        self._messages.clear()
        while self._waiters:
            self._wake_next()

    async def __anext__(self) -> Message:
        if self._taken == _MESSAGES_PER_CHECKPOINT:
            self._taken = 0
            await anyio.lowlevel.checkpoint()
        while not self._messages:
            if self.listener.is_closed:
                raise StopAsyncIteration
            self._taken = 0
            await self._wait()
        self._taken += 1
        message = self._messages.popleft()
        self._connection.count_buffered(-_cost(message))
        return message

    async def _wait(self) -> None:
        waiter: Waiter[None] = new_waiter()
        self._waiters.append(waiter)
        try:
            await self._connection.wait(waiter)
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

    def _wake_next(self) -> None:
        if self._waiters:
            self._waiters.popleft().set(None)


def _cost(message: Message) -> int:
    return len(message.body) + _MESSAGE_OVERHEAD_BYTES
