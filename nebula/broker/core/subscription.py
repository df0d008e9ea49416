"""Subscriptions, what feeds them, and the side of a session that receives what they deliver.

A subscription belongs to one session, and puts its deliveries straight into the session's outbox. Two bounds
limit them: the subscription's credit (un-ACKed messages up to its `prefetch`), and the session's high-water
mark. At the mark the session is throttled: nothing is dispatched to it until the shell
has written its outbox. A peer that is far above the mark all the same reads too slowly, and is ended.

Destinations know this module and no session: all that they need of one is its `Receiver`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Collection
from dataclasses import KW_ONLY, dataclass, field
from enum import Enum
from typing import Any, Final, Self, TypeAlias

from nebula.broker.core.access import Rights
from nebula.broker.core.journal import Batch
from nebula.broker.core.messages import Message
from nebula.broker.core.reply_rights import ReplyRights
from nebula.broker.core.shares import Usage
from nebula.broker.core.value_feed import ValueFeed


class AckMode(Enum):
    """STOMP 1.2, "SUBSCRIBE ack Header" (A.10)."""

    AUTO = "auto"
    CLIENT = "client"
    INDIVIDUAL = "client-individual"


# Constants, because looking up members of an enum costs time for each message.
AUTO: Final = AckMode.AUTO
_INDIVIDUAL: Final = AckMode.INDIVIDUAL


@dataclass(frozen=True, slots=True)
class Nack:
    """What a NACK asks for (G.retry).

    Attributes:
        requeue: the messages go back to their queue; False: to the dead-letter queue.
        delay: seconds until they are delivered again; 0: as soon as may be.
        failure: headers that say why, for the dead letter that may come of it.
    """

    requeue: bool = True
    delay: float = 0.0
    failure: tuple[tuple[str, str], ...] = ()


PLAIN_NACK: Final = Nack()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a subscription ends.

    Attributes:
        lost: its connection broke, so that each delivery counts as an attempt.
        removes: a durable one goes for good; otherwise it is paused (D.3).
        kept: numbers of un-ACKed messages that open transactions have settled. Where messages outlive the
            subscription, these stay with it.
    """

    lost: bool = False
    removes: bool = False
    kept: Collection[int] = ()


class Source:
    """What feeds a subscription and takes back what it does not settle: a queue, topics, or last values.

    No method raises for anything a peer may do, and none waits. Where a method is not overridden, nothing is
    ever un-ACKed, and nothing waits.
    """

    __slots__ = ()

    @property
    def subscriber_cost_bytes(self) -> int:
        """Memory that it costs for each of its subscriptions, which pay for it."""
        return 0

    @abstractmethod
    def attach(self, subscription: Subscription, now: float) -> None:
        """Feed `subscription` from now on."""

    @abstractmethod
    def detach(self, subscription: Subscription, now: float, ending: Ending) -> bool:
        """Stop feeding it and take back what it did not settle.

        Returns:
            Whether some messages stay with it. Call it again when their transactions have ended.
        """

    def drain(self, subscription: Subscription) -> bool:  # noqa: ARG002
        """Stop feeding it, and leave with it what is un-ACKed, until that is settled. Idempotent.

        Returns:
            False, and nothing done: nothing would stay with it. `detach` it.
        """
        return False

    def ack(self, subscription: Subscription, number: int, now: float) -> bool:  # noqa: ARG002
        """An ACK: the messages that it covers are consumed. False: none is un-ACKed."""
        return False

    def give_back(self, subscription: Subscription, number: int, now: float, nack: Nack) -> bool:  # noqa: ARG002
        """A NACK. False, and nothing done: no message is un-ACKed, or a NACK means nothing here (D.23)."""
        return False

    def resume(self, subscription: Subscription, now: float) -> None:
        """Its session can take deliveries again."""

    def review(self, subscription: Subscription, now: float) -> None:
        """The rights of its principal have changed: what it gets from now on is judged by the new ones."""


@dataclass(slots=True, eq=False, repr=False)
class Subscription:
    """One subscription of one session.

    Attributes:
        id: unique in its session.
        session: whose it is, as far as destinations know it.
        pattern: the destination or glob that it asked for.
        destination: feeds it, and takes back what it does not settle.
        ack_mode: how its messages are settled.
        prefetch: how many of them may be un-ACKed; 0 while its principal may not receive them, and
            `window` otherwise.
        began_at: for an inbox, a message number: messages that were sent later have higher ones.
        exclusive: its queue has no other subscription.
        feed: for last-value destinations, which alone look into it: the values that it has not had.
        in_turn: for its queue: whether it is among the consumers with credit.
        is_drained: it gets nothing any more, and ends when its last message is settled.
        unacked: delivered and not settled, by number, in the order of delivery. Empty in the
            mode auto.
        label: for the protocol: the bytes that all its MESSAGEs begin with.
    """

    id: str
    session: Receiver
    pattern: str
    destination: Source
    ack_mode: AckMode
    prefetch: int
    exclusive: bool = False
    began_at: int = 0
    feed: Feed | None = None
    in_turn: bool = False
    is_drained: bool = False
    unacked: dict[int, Message] = field(default_factory=dict)
    # Any: the protocol has its own, and the core hands it back unread.
    label: Any = None
    window: int = field(init=False)

    def __post_init__(self) -> None:
        self.window = self.prefetch

    @property
    def has_credit(self) -> bool:
        """Whether one more message may be delivered now."""
        return len(self.unacked) < self.prefetch and not self.session.is_throttled

    def deliver(self, message: Message, attempts: int | None = None) -> None:
        """Put `message` into the session's outbox. The caller has looked at the credit.

        Args:
            attempts: None for a first delivery, else how many ended by NACK or a lost
                connection.
        """
        session = self.session
        outbox = session.outbox
        # With the first entry alone: then the shell knows that there is something to write.
        if not outbox:
            session.dirty.append(session)
        outbox.append((self, message, attempts))
        session.outbox_bytes += message.size_bytes
        if session.outbox_bytes >= session.high_water_bytes:
            session.throttle()

    def scope(self, numbers: Collection[int]) -> set[int]:
        """The un-ACKed messages that ACKs or NACKs of these numbers cover; see `settle`."""
        if self.ack_mode is _INDIVIDUAL:
            return {number for number in numbers if number in self.unacked}
        # In the order of delivery, not of number: a message that was given back and came again stands later.
        found: list[int] = []
        end = 0
        for number in self.unacked:
            found.append(number)
            if number in numbers:
                end = len(found)
        return set(found[:end])

    def settle(self, number: int) -> list[Message]:
        """Take out what an ACK or NACK of `number` speaks of; empty when it is not known.

        STOMP 1.2, "ACK": cumulative in the mode client, one message in client-individual.
        """
        unacked = self.unacked
        if number not in unacked:
            return []
        if self.ack_mode is _INDIVIDUAL:
            return [unacked.pop(number)]
        # Only as far as the ACK goes: a window may be wide, and each of its messages ACKed alone.
        settled = []
        for message in unacked.values():
            settled.append(message)
            if message.number == number:
                break
        for message in settled:
            del unacked[message.number]
        return settled


Feed: TypeAlias = ValueFeed[Subscription]

Delivery = tuple[Subscription, Message, int | None]
"""On its way: to whom, what, and its earlier attempts (None: this is the first; SNAPSHOT_END: it
is the last of a snapshot). A plain tuple, since one is made for every message."""

SNAPSHOT_END = -1


@dataclass(slots=True, eq=False, repr=False)
class Receiver:
    """One peer as destinations see it: what it may receive, and what is on its way to it.

    Attributes:
        id: unique among the connected; what a durable subscription is found by later.
        dirty: the broker's list of sessions whose outbox is not empty, or that have to be ended.
        rights: its principal, and what that may do; see `Session.identify`.
        usage: of its principal, which pays for what the session holds.
        reply_rights: the requests that it may reply to.
        origin: identifies this connection among all others, even of the same principal.
        subscriptions: by id.
        parted: ended subscriptions of which open transactions have ACKed or NACKed messages.
        inbox_count: the number of its inboxes.
        ephemerals: last-value destinations whose present value goes with this session.
        value_feeds: feeds of its last-value subscriptions with something to send, next one first.
        value_credit: how many more last values may be un-ACKed (D.8).
        outbox: to be written, in order: deliveries, and bytes of the protocol's own frames.
        outbox_bytes: what the outbox counts for.
        held: RECEIPTs that wait for the store, each with the batch that it waits for; and last-value
            subscriptions whose RECEIPT waits (D.43). The last may be the ERROR for a faulty frame. See
            `receipts`.
        held_bytes: what the RECEIPTs in `held` count for.
        high_water_bytes: from here on queues stop dispatching to this session.
        max_outbox_bytes: from here on it is too slow and is ended.
        is_throttled: queues may not dispatch to it until its outbox has been written.
        ending: why the broker ends it, or None.
    """

    id: str
    dirty: list[Self]
    _: KW_ONLY
    rights: Rights = field(init=False)
    usage: Usage = field(init=False)
    reply_rights: ReplyRights = field(init=False)
    origin: Any = field(default_factory=object)
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    parted: dict[Subscription, None] = field(default_factory=dict)
    inbox_count: int = 0
    ephemerals: dict[str, None] = field(default_factory=dict)
    value_feeds: deque[Feed] = field(default_factory=deque)
    value_credit: int = field(init=False)
    outbox: list[Delivery | bytes] = field(default_factory=list)
    outbox_bytes: int = 0
    held: deque[tuple[Batch, bytes | Subscription]] = field(default_factory=deque)
    held_bytes: int = 0
    high_water_bytes: int = field(init=False)
    max_outbox_bytes: int = field(init=False)
    is_throttled: bool = False
    ending: str | None = None

    @property
    def principal(self) -> str:
        """Who it is; stamped on what it sends."""
        return self.rights.principal

    @property
    def takes_values(self) -> bool:
        """Last values may be sent. None waits then, as they are sent as soon as they may be."""
        return not self.is_throttled and self.value_credit > 0

    def throttle(self) -> None:
        """The high-water mark is reached: no more from queues, and an end to what is far above it."""
        self.is_throttled = True
        # Queues heed the mark, but topics deliver without credit: so it can be exceeded by far.
        if self.outbox_bytes > self.max_outbox_bytes:
            self.mark_too_slow()

    def mark_too_slow(self) -> None:
        """Let the shell know that this peer has to be ended. Idempotent."""
        self.end("too slow: more waits for you than may wait")

    def end(self: Self, reason: str) -> None:
        """Let the shell know that this peer has to be ended, and why. The first reason counts."""
        if self.ending is None:
            self.ending = reason
            self.dirty.append(self)

    def say(self: Self, data: bytes) -> None:
        """Put a frame of the protocol's own behind the deliveries so far."""
        if not self.outbox:
            self.dirty.append(self)
        self.outbox.append(data)
        self.outbox_bytes += len(data)
        if self.outbox_bytes > self.max_outbox_bytes:
            self.mark_too_slow()

    def take_outbox(self) -> list[Delivery | bytes]:
        """Empty the outbox. The session stays throttled until `Broker.resume` is told."""
        # Swapped, not cleared: the list that was taken is the shell's.
        outbox, self.outbox = self.outbox, []
        self.outbox_bytes = 0
        return outbox
