"""Sessions: one peer as the core sees it, with what is to be written to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nebula.broker.messages import Message
    from nebula.broker.subscriptions import Subscription

Delivery = tuple["Subscription", "Message", int | None]
"""On its way: to whom, what, and its earlier attempts (None: this is the first). A plain
tuple, since one is made for every message."""


class Session:
    """What the broker knows of one connected peer.

    Attributes:
        id: unique, given by the shell.
        principal: who it is; stamped on what it sends.
        subscriptions: by id.
        outbox: what is to be written, in order: deliveries, and octets that the protocol has
            said itself in between.
        outbox_bytes: what the outbox counts for.
        high_water_bytes: from here on queues stop dispatching to this session.
        max_outbox_bytes: from here on it is too slow and is ended.
        is_choked: queues may not dispatch to it until its outbox has been written.
        is_too_slow: it has to be ended.
        dirty: the broker's list of sessions whose outbox is not empty.
        connection: for the shell: who writes the outbox.
    """

    __slots__ = (
        "connection",
        "dirty",
        "high_water_bytes",
        "id",
        "is_choked",
        "is_too_slow",
        "max_outbox_bytes",
        "outbox",
        "outbox_bytes",
        "principal",
        "subscriptions",
    )

    def __init__(
        self,
        id: str,  # noqa: A002
        principal: str,
        dirty: list[Session],
        *,
        high_water_bytes: int,
        max_outbox_bytes: int,
        connection: Any = None,
    ) -> None:
        self.id = id
        self.principal = principal
        self.subscriptions: dict[str, Subscription] = {}
        self.outbox: list[Delivery | bytes] = []
        self.outbox_bytes = 0
        self.high_water_bytes = high_water_bytes
        self.max_outbox_bytes = max_outbox_bytes
        self.is_choked = False
        self.is_too_slow = False
        self.dirty = dirty
        self.connection = connection

    def choke(self) -> None:
        """The high-water mark is reached: no more from queues, and an end to what is far above it."""
        self.is_choked = True
        if self.outbox_bytes > self.max_outbox_bytes:
            self.mark_too_slow()

    def mark_too_slow(self) -> None:
        """Let the shell know that this peer is to be ended. Idempotent."""
        if not self.is_too_slow:
            self.is_too_slow = True
            self.dirty.append(self)

    def say(self, octets: bytes) -> None:
        """Put what the protocol says between the deliveries."""
        if not self.outbox:
            self.dirty.append(self)
        self.outbox.append(octets)
        self.outbox_bytes += len(octets)
        if self.outbox_bytes > self.max_outbox_bytes:
            self.mark_too_slow()

    def take_outbox(self) -> list[Delivery | bytes]:
        """Empty the outbox. The session stays choked until `Broker.resume` is told."""
        outbox, self.outbox = self.outbox, []
        self.outbox_bytes = 0
        return outbox
