"""Messages, and the verdicts on them."""

from __future__ import annotations

from enum import Enum
from typing import Any

from nebula import headers


class Verdict(Enum):
    """What became of a SEND. Values are the `disposition` of its RECEIPT."""

    ACCEPTED = headers.ACCEPTED
    INVALID = headers.REJECTED_INVALID
    UNAUTHORISED = headers.REJECTED_UNAUTHORISED
    FULL = headers.REJECTED_FULL
    NO_CONSUMER = headers.REJECTED_NO_CONSUMER
    WAIT = "wait"
    """Nothing happened yet: the sender is to be read no further until the broker says so."""

    # Members are compared by identity all over the hot path, and hashed in the RECEIPT table.
    __hash__ = object.__hash__


# What keeping a message costs beside its body, a head beside its headers, and a header beside its
# text: the objects of CPython around them. Counting a little too much is safe, too little is not.
MESSAGE_COST_BYTES = 320
HEAD_COST_BYTES = 1000
EXCHANGE_COST_BYTES = 200
HEADER_COST_BYTES = 180


class Head:
    """What all messages of one header block have in common. Read-only, shared.

    Attributes:
        destination: where the SEND goes.
        headers: what is passed on to receivers, in order; nothing of it belongs to one
            delivery.
        requires_consumers: refuse the message when nobody listens (D.49).
        time_to_live: seconds from arrival, or None.
        cost_bytes: what the head costs to keep. Its first message counts for it and sets it to
            0, as the others share it.
        blocks: for the protocol: the headers encoded, by dialect.
    """

    __slots__ = (
        "blocks",
        "cost_bytes",
        "destination",
        "headers",
        "requires_consumers",
        "time_to_live",
    )

    def __init__(
        self,
        destination: str,
        passed_on: tuple[tuple[str, str], ...],
        *,
        requires_consumers: bool = False,
        time_to_live: float | None = None,
    ) -> None:
        self.destination = destination
        self.headers = passed_on
        self.requires_consumers = requires_consumers
        self.time_to_live = time_to_live
        # Twice: as text and as an encoded block. One rare character makes a text four times as wide.
        text = "".join(map("".join, passed_on))
        text_bytes = len(text) * (2 if text.isascii() else 8)
        self.cost_bytes = HEAD_COST_BYTES + HEADER_COST_BYTES * len(passed_on) + text_bytes
        self.blocks: dict[Any, bytes] = {}


class Message:
    """Content that was sent once, on its way to one receiver or to many.

    Attributes:
        head: what it shares with its like.
        body: octets.
        number: its place in the order of arrival, unique in a broker's life.
        exchange: a header that the messages of one head do not share, or None.
        expires_at: when it is no longer worth delivering, or None.
        size_bytes: what it counts for against the limits.
        shared: for the protocol: the octets that receivers who do not acknowledge have in common,
            by dialect; None where there is one receiver at most.
    """

    __slots__ = ("body", "exchange", "expires_at", "head", "number", "shared", "size_bytes")

    def __init__(
        self, head: Head, body: bytes, number: int, now: float, exchange: tuple[str, str] | None = None
    ) -> None:
        self.head = head
        self.body = body
        self.number = number
        self.exchange = exchange
        self.size_bytes = MESSAGE_COST_BYTES + head.cost_bytes + len(body)
        head.cost_bytes = 0
        if exchange is not None:
            self.size_bytes += EXCHANGE_COST_BYTES + len(exchange[1])
        self.expires_at = None if head.time_to_live is None else now + head.time_to_live
        self.shared: dict[Any, bytes] | None = None

    def has_expired(self, now: float) -> bool:
        """Whether its time to live is over."""
        return self.expires_at is not None and self.expires_at <= now
