"""Messages, receipts, and subscriptions in push form: what a client hands out, and how it asks for them.

A message and the listener that it came to belong together: to ACK a message is to ask its listener, and
whether that still means anything is the listener's to know.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Final, Protocol, TypedDict

from nebula.errors import LocalProtocolError
from nebula.headers import ACCEPTED, CONTENT_DISPOSITION, DISPOSITION, PAUSED, REMOVED, SNAPSHOT

# What `snapshot` says on the MESSAGE that is the last of it (PROTOCOL G, "Snapshot").
_END: Final = "end"


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
        # MaXaM's text names the one, its RECEIPT section the other (D.4).
        return headers.get(DISPOSITION) or headers.get(CONTENT_DISPOSITION) or ACCEPTED

    def __repr__(self) -> str:
        return f"Receipt({dict(self.headers)!r})"


OnReceipt = Callable[[Receipt], None]
"""Called with a RECEIPT, at most once, synchronously. It must not raise."""


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

    @property
    def is_deletion(self) -> bool:
        """On a last-value destination: its value is gone (D.27). Elsewhere: just an empty body.

        One that is delivered as an Avro tombstone has a body, and is not seen here.
        """
        return not self.body

    @property
    def ends_snapshot(self) -> bool:
        """With it the subscriber has all that was there when it subscribed, see `Subscription.snapshot`.

        There may be none: a snapshot can be empty, or end with a deletion.
        """
        return self.headers.get(SNAPSHOT) == _END

    def ack(self, on_receipt: Callable[[Receipt], None] | None = None) -> None:
        """Tell the server that it is consumed (in `client` mode: and all before it).

        Written at once, without waiting; lost with the connection. Does nothing when its
        subscription is closed: the server has taken back what was not acked.

        Args:
            on_receipt: asks for a RECEIPT, and is called with it, synchronously: from then on the server does
                not give the message out again. At most once, and never if the connection ends first. It must
                not raise.

        Raises:
            LocalProtocolError: the subscription's mode is `auto`.
            ConnectionLost: the connection has ended; the server gives it to someone again.
        """
        self.subscription._ack(self, on_receipt)

    def nack(self, **headers: str) -> None:
        """Tell the server that it is not consumed: put back, or whatever its policy is.

        As `ack` otherwise. STOMP 1.0 has no NACK.

        Args:
            **headers: the server's extensions; ours takes `requeue="false"`.
        """
        self.subscription._nack(self, headers)

    def __repr__(self) -> str:
        return f"Message({dict(self.headers)!r}, {len(self.body)} bytes)"


class ListenerConnection(Protocol):
    """What a listener asks of its connection; see `nebula.stomp.client.connection`."""

    def unsubscribe(self, listener: Listener) -> None:
        """UNSUBSCRIBE if there is still someone to tell."""

    def drain_listener(self, listener: Listener) -> None:
        """Have the server send no more, if there is still someone to tell."""

    async def leave(self, listener: Listener, wanted: str, timeout: float | None) -> None:
        """UNSUBSCRIBE a durable one and wait for the reply, which has to be `wanted`."""

    def ack(
        self, message: Message, *, transaction: str | None = None, on_receipt: OnReceipt | None = None
    ) -> None:
        """ACK in the version's form."""

    def nack(self, message: Message, headers: Mapping[str, str], *, transaction: str | None = None) -> None:
        """NACK in the version's form."""


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
        connection: ListenerConnection,
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
        if not self.is_closed:
            self._connection.drain_listener(self)

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


class SubscribeOptions(TypedDict, total=False):
    """How to SUBSCRIBE, by name; each may be left out.

    Attributes:
        ack: when a message counts as consumed; by default `auto`. In the client modes call `message.ack()`.
        eager: on last-value destinations: begin with what is there, see `Subscription.snapshot`.
        durable: a name for it, by which the server keeps it while nobody is there: a client with the same
            `client_id` that subscribes to the same destination by the same name goes on with it. Its messages
            want a client mode: what was sent as `auto` and never read is gone. The name is not a number.
        headers: the server's extensions.
        receipt: wait for the server's answer, as by default.
        timeout: seconds to wait for it; None, the default, is for ever.
    """

    ack: AckMode
    eager: bool
    durable: str | None
    headers: Mapping[str, str] | None
    receipt: bool
    timeout: float | None
