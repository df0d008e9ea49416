"""Messages, receipts, subscriptions in push form, and options of SUBSCRIBE.

A message knows its subscription: an ACK goes through it, because only the subscription knows whether it is
still open. An ACK after UNSUBSCRIBE would end the connection with an ERROR.
"""

# A subscription in push form is the only form that the connection knows: one function call for each
# message, in the server's order. `Subscription` (pull) is a function that appends to a deque and wakes a
# task. The queues of RPC are read in push form, since a task that waits for each message would
# double the switches between tasks.
#
# The end of a snapshot is marked on its last value (`snapshot:end`), or by an empty message if the last
# value went meanwhile (G.snapshot). `SnapshotFilter` takes the place of the function until then and puts it
# back itself, so that messages after the snapshot cost nothing extra.

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Final, Protocol, TypedDict

from nebula.errors import LocalProtocolError
from nebula.headers import ACCEPTED, CONTENT_DISPOSITION, DISPOSITION, PAUSED, REMOVED, SNAPSHOT

# The value of `snapshot` on the last MESSAGE of a snapshot (G.snapshot).
_END: Final = "end"


class AckMode(StrEnum):
    """When a server counts a message as consumed (A.10)."""

    AUTO = "auto"
    """When it was sent. Messages under way are lost with the connection."""

    CLIENT = "client"
    """At its ACK, or that of a later message of the same subscription."""

    CLIENT_INDIVIDUAL = "client-individual"
    """At its own ACK."""


class Receipt:
    """The server's RECEIPT of one frame.

    Attributes:
        headers: of the RECEIPT, among them `receipt-id`.
    """

    __slots__ = ("headers",)

    def __init__(self, headers: Mapping[str, str]) -> None:
        self.headers = headers

    @property
    def verdict(self) -> str:
        """The verdict on a SEND or COMMIT: `accepted` (the default), or one of `rejected-…`."""
        headers = self.headers
        # MaXaM's text uses the first name, its section on RECEIPT the other (D.4).
        return headers.get(DISPOSITION) or headers.get(CONTENT_DISPOSITION) or ACCEPTED

    def __repr__(self) -> str:
        return f"Receipt({dict(self.headers)!r})"


OnReceipt = Callable[[Receipt], None]
"""Called with a RECEIPT, at most once, synchronously. It must not raise."""


class Message:
    """One MESSAGE.

    Attributes:
        headers: as received; shared, so read-only.
        body: bytes.
        subscription: the one that received it.
    """

    __slots__ = ("body", "headers", "subscription")

    def __init__(self, headers: Mapping[str, str], body: bytes, subscription: PushSubscription) -> None:
        self.headers = headers
        self.body = body
        self.subscription = subscription

    @property
    def destination(self) -> str:
        """Where it was sent; for a subscription to a glob, the destination and not the glob."""
        return self.headers["destination"]

    @property
    def id(self) -> str:
        """The server's id of the message, unique on that server."""
        return self.headers["message-id"]

    @property
    def is_deletion(self) -> bool:
        """Whether the body is empty. On a last-value destination that means that its value was deleted
        (D.27).

        A deletion that is delivered as an Avro tombstone has a body, and is not recognised here.
        """
        return not self.body

    @property
    def ends_snapshot(self) -> bool:
        """Whether this message is the last one of a snapshot, see `Subscription.snapshot`.

        A snapshot can end without such a message: if it is empty, or ends with a deletion.
        """
        return self.headers.get(SNAPSHOT) == _END

    def ack(self, on_receipt: Callable[[Receipt], None] | None = None) -> None:
        """Tell the server that the message is consumed (in `client` mode: and all before it).

        Written at once, without waiting; lost with the connection. Does nothing when its subscription is
        closed, because the server has taken back messages that were not acked.

        Args:
            on_receipt: asks for a RECEIPT, and is called with it, synchronously: from then on the server does
                not deliver the message again. Called at most once, and never if the connection ends first. It
                must not raise.

        Raises:
            LocalProtocolError: the subscription's mode is `auto`.
            ConnectionLost: the connection has ended; the server delivers the message again.
        """
        self.subscription._ack(self, on_receipt)

    def nack(self, **headers: str) -> None:
        """Tell the server that the message was not consumed. The server puts it back, or follows its policy.

        Otherwise as `ack`. STOMP 1.0 has no NACK.

        Args:
            **headers: extensions of the server; Nebula's broker takes `requeue="false"`.
        """
        self.subscription._nack(self, headers)

    def __repr__(self) -> str:
        return f"Message({dict(self.headers)!r}, {len(self.body)} bytes)"


class SubscriptionConnection(Protocol):
    """The connection of a subscription; see `nebula.stomp.client.connection`."""

    def unsubscribe(self, subscription: PushSubscription) -> None:
        """UNSUBSCRIBE, unless the connection has ended."""

    def stop_delivery(self, subscription: PushSubscription) -> None:
        """Ask the server to send no more, unless the connection has ended."""

    async def leave(self, subscription: PushSubscription, wanted: str, timeout: float | None) -> None:
        """UNSUBSCRIBE a durable subscription and wait for the RECEIPT, whose `result` has to be `wanted`."""

    def ack(
        self, message: Message, *, transaction: str | None = None, on_receipt: OnReceipt | None = None
    ) -> None:
        """ACK in the version's form."""

    def nack(self, message: Message, headers: Mapping[str, str], *, transaction: str | None = None) -> None:
        """NACK in the version's form."""


class PushSubscription:
    """A subscription in push form: each of its messages is one call.

    Made by `StompClient.listen`. The calls come in the server's order, on the loop's thread, often outside of
    any task: the function must not wait. An exception that it raises is logged and has no other effect: the
    message stays unacked.

    Attributes:
        id: unique on this connection.
        destination: as subscribed to.
        ack_mode: when a message counts as consumed.
        is_durable: the server keeps the subscription when it is closed.
        is_closed: there are no more calls.
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
        connection: SubscriptionConnection,
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

        Messages that were delivered and not acked go back to the server; those under way are dropped. A
        durable subscription is paused.
        """
        if not self.is_closed:
            self.is_closed = True
            self._connection.unsubscribe(self)

    def drain(self) -> None:
        """Ask the server to send no more from a queue (G.drain), and go on with messages that it has sent.
        Only Nebula's broker knows it.

        There are still calls for messages under way, and all messages can be acked. A NACK gives a message to
        another consumer, and does not count as a delivery. Call `close` afterwards. On a connection that has
        ended nothing happens.
        """
        if not self.is_closed:
            self._connection.stop_delivery(self)

    async def pause(self, *, timeout: float | None = None) -> None:
        """Close a durable subscription; the server goes on collecting messages for it (D.3).

        Does nothing if it is closed, because it is paused then.

        Args:
            timeout: seconds to wait for the server's RECEIPT; None waits for ever.

        Raises:
            LocalProtocolError: the subscription is not durable.
            Refused: the server has no such subscription.
            TimeoutError: no RECEIPT in time; there are no more calls nevertheless.
            ConnectionLost: the connection has ended; the server keeps the subscription.
        """
        self.check_durable()
        if not self.is_closed:
            await self._connection.leave(self, PAUSED, timeout)

    async def remove(self, *, timeout: float | None = None) -> None:
        """Remove a durable subscription, also a paused one, with everything that the server keeps for it.

        Arguments and errors as for `pause`; if the connection ends first, the server may keep it.
        """
        self.check_durable()
        await self._connection.leave(self, REMOVED, timeout)

    def ack_marker(self, marker: Message, newest: Message | None) -> None:
        """Ack the empty message that ends a snapshot and is not handed out (G.snapshot).

        In `client` mode that would ack all messages before it as well (D.7). So it is acked together with the
        newest of them, or covered by the ACK of a later one.
        """
        if self.ack_mode is AckMode.AUTO:
            return
        is_cumulative = self.ack_mode is AckMode.CLIENT
        if is_cumulative and newest is not None and newest.headers is not self._last_acked:
            self._marker = newest.headers, marker
        else:
            self._connection.ack(marker)

    def check_durable(self) -> None:
        """Raise `LocalProtocolError` if the subscription is not durable."""
        if not self.is_durable:
            raise LocalProtocolError(f"the subscription to {self.destination} is not durable")

    def _ack(self, message: Message, on_receipt: Callable[[Receipt], None] | None) -> None:
        if self.ack_mode is AckMode.AUTO:
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


class SnapshotFilter:
    """Replaces the `on_message` of an eager subscription until its snapshot has ended, and then restores it.

    Args:
        subscription: the eager one.
        on_end: called once, after the call for the snapshot's last message.
    """

    def __init__(self, subscription: PushSubscription, on_end: Callable[[], None] | None) -> None:
        self._subscription = subscription
        self._on_message = subscription.on_message
        self._on_end = on_end
        self._newest: Message | None = None

    def __call__(self, message: Message) -> None:
        """Handle a message."""
        if not message.ends_snapshot:
            self._newest = message
            self._on_message(message)
            return
        self._subscription.on_message = self._on_message
        try:
            # A value is not empty. An empty message only marks the end, and belongs to no destination.
            if message.body:
                self._on_message(message)
            else:
                self._subscription.ack_marker(message, self._newest)
        finally:
            if self._on_end is not None:
                self._on_end()


class SubscribeOptions(TypedDict, total=False):
    """Options of SUBSCRIBE, by name; all are optional.

    Attributes:
        ack: when a message counts as consumed; by default `auto`. In the client modes call `message.ack()`.
        eager: on last-value destinations: begin with the present values, see `Subscription.snapshot`.
        durable: a name under which the server keeps the subscription while the client is away. A client with
            the same `client_id` that subscribes to the same destination under the same name goes on with it.
            Use a client mode: with `auto`, messages that were sent and never read are lost. The name must not
            be a number.
        headers: extensions of the server.
        receipt: wait for the server's RECEIPT, the default.
        timeout: seconds to wait for it; None, the default, waits for ever.
    """

    ack: AckMode
    eager: bool
    durable: str | None
    headers: Mapping[str, str] | None
    receipt: bool
    timeout: float | None
