"""What a client hands out: messages and receipts; and how it asks for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Final, TypedDict

from nebula.headers import ACCEPTED, CONTENT_DISPOSITION, DISPOSITION, SNAPSHOT

if TYPE_CHECKING:
    from nebula.stomp.client.subscription import Listener

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
