"""Sessions: one peer as the core sees it, with what is to be written to it."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from nebula.broker.core.reply_rights import ReplyRights
from nebula.broker.core.shared_heads import SharedHeads

if TYPE_CHECKING:
    from nebula.broker.core.access import Rights
    from nebula.broker.core.account import Account
    from nebula.broker.core.messages import Message
    from nebula.broker.core.profiles import Profile
    from nebula.broker.core.shares import Usage
    from nebula.broker.core.subscription import Subscription
    from nebula.broker.core.transaction import Transaction

Delivery = tuple["Subscription", "Message", int | None]
"""On its way: to whom, what, and its earlier attempts (None: this is the first; SNAPSHOT_END: it
is the last of a snapshot). A plain tuple, since one is made for every message."""

SNAPSHOT_END = -1


class Session:
    """What the broker knows of one connected peer.

    Attributes:
        id: unique among the connected; what a durable subscription is found by later.
        rights: who it is, and what it may do.
        place: the address of the peer, or empty.
        usage: of its principal, which pays for what the session holds.
        inbox_count: the number of its inboxes.
        has_entered: it has sent CONNECT, and its connection is counted.
        profile: how its listener behaves.
        subscriptions: by id.
        origin: identifies this connection among all others, even of the same principal.
        parted: ended subscriptions of which open transactions have ACKed or NACKed messages.
        transactions: those that were begun and not ended, by name.
        reply_rights: what it may answer.
        heads: that messages of it share.
        ephemerals: last-value destinations whose present value goes with this session.
        value_feeds: its last-value subscriptions that have something to be sent, next one first.
        value_credit: how many more last values may be un-ACKed (D.8).
        outbox: what is to be written, in order: deliveries, and octets that the protocol has
            said itself in between.
        outbox_bytes: what the outbox counts for.
        own_requests: what it asked of the broker itself and may not be taken up yet: numbers and sizes.
        held: RECEIPTs that wait for the store, each with the batch that it waits for; and
            subscriptions to last values that wait for theirs (D.43). The last may be the ERROR for a faulty
            frame.
        held_bytes: what the RECEIPTs in `held` count for.
        high_water_bytes: from here on queues stop dispatching to this session.
        max_outbox_bytes: from here on it is too slow and is ended.
        is_backlogged: the store is behind with what it has sent, so that it is not read.
        waited_until: the deadline of the SEND with which it was last held back.
        is_choked: queues may not dispatch to it until its outbox has been written.
        ending: why the broker ends it, or None.
        dirty: the broker's list of sessions whose outbox is not empty, or who are to be ended.
        connection: for the shell: who writes the outbox.
    """

    __slots__ = (
        "connection",
        "dirty",
        "ending",
        "ephemerals",
        "has_entered",
        "heads",
        "held",
        "held_bytes",
        "high_water_bytes",
        "id",
        "inbox_count",
        "is_backlogged",
        "is_choked",
        "max_outbox_bytes",
        "origin",
        "outbox",
        "outbox_bytes",
        "own_requests",
        "parted",
        "place",
        "profile",
        "reply_rights",
        "rights",
        "subscriptions",
        "transactions",
        "usage",
        "value_credit",
        "value_feeds",
        "waited_until",
    )

    def __init__(
        self,
        id: str,  # noqa: A002
        rights: Rights,
        profile: Profile,
        dirty: list[Session],
        *,
        high_water_bytes: int,
        max_outbox_bytes: int,
        value_credit: int,
        account: Account,
        usage: Usage,
        place: str = "",
        connection: Any = None,
    ) -> None:
        self.id = id
        self.rights = rights
        self.place = place
        self.usage = usage
        self.inbox_count = 0
        self.has_entered = False
        self.profile = profile
        self.origin = object()
        self.subscriptions: dict[str, Subscription] = {}
        self.parted: dict[Subscription, None] = {}
        self.transactions: dict[str, Transaction] = {}
        self.reply_rights = ReplyRights(account, usage)
        self.heads = SharedHeads(account, usage)
        self.ephemerals: dict[str, None] = {}
        self.value_feeds: deque[Any] = deque()
        self.value_credit = value_credit
        self.outbox: list[Delivery | bytes] = []
        self.outbox_bytes = 0
        self.own_requests: deque[tuple[int, int]] = deque()
        self.held: deque[tuple[int, bytes | Subscription]] = deque()
        self.held_bytes = 0
        self.high_water_bytes = high_water_bytes
        self.max_outbox_bytes = max_outbox_bytes
        self.waited_until = 0.0
        self.is_choked = False
        self.is_backlogged = False
        self.ending: str | None = None
        self.dirty = dirty
        self.connection = connection

    @property
    def principal(self) -> str:
        """Who it is; stamped on what it sends."""
        return self.rights.principal

    @property
    def takes_values(self) -> bool:
        """Last values may be sent. None waits then, as they are sent as soon as they may be."""
        return not self.is_choked and self.value_credit > 0

    @property
    def is_ahead_of_store(self) -> bool:
        """So much of it waits for the store that it is to be read no further (DESIGN 4).

        Not who consumes: its ACKs come by the same stream.
        """
        return (self.held_bytes >= self.high_water_bytes and not self.subscriptions) or self.is_backlogged

    def choke(self) -> None:
        """The high-water mark is reached: no more from queues, and an end to what is far above it."""
        self.is_choked = True
        if self.outbox_bytes > self.max_outbox_bytes:
            self.mark_too_slow()

    def mark_too_slow(self) -> None:
        """Let the shell know that this peer is to be ended. Idempotent."""
        self.end("too slow: more waits for you than may wait")

    def end(self, reason: str) -> None:
        """Let the shell know that this peer is to be ended, and why. The first reason counts."""
        if self.ending is None:
            self.ending = reason
            self.dirty.append(self)

    def say(self, octets: bytes) -> None:
        """Put what the protocol says between the deliveries."""
        if not self.outbox:
            self.dirty.append(self)
        self.outbox.append(octets)
        self.outbox_bytes += len(octets)
        if self.outbox_bytes > self.max_outbox_bytes:
            self.mark_too_slow()

    def hold(self, octets: bytes, batch: int) -> None:
        """Put a RECEIPT behind those that wait for the store."""
        self.held.append((batch, octets))
        self.held_bytes += len(octets)
        if self.held_bytes > self.max_outbox_bytes:
            self.mark_too_slow()

    def take_outbox(self) -> list[Delivery | bytes]:
        """Empty the outbox. The session stays choked until `Broker.resume` is told."""
        outbox, self.outbox = self.outbox, []
        self.outbox_bytes = 0
        return outbox
