"""Subscriptions: who gets what, how much of it is on its way, and how it is settled."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from nebula.broker.core.messages import Message
    from nebula.broker.core.session import Session


class AckMode(Enum):
    """STOMP 1.2, "SUBSCRIBE ack Header"."""

    AUTO = "auto"
    CLIENT = "client"
    INDIVIDUAL = "client-individual"


@dataclass(frozen=True, slots=True)
class Nack:
    """What a NACK asks for.

    Attributes:
        requeue: the messages go back to their queue; False: to the dead-letter queue.
        delay: seconds until they are delivered again; 0: as soon as may be.
        failure: headers that say why, for the dead letter that may come of it.
    """

    requeue: bool = True
    delay: float = 0.0
    failure: tuple[tuple[str, str], ...] = ()


PLAIN_NACK: Final = Nack()


class Source(Protocol):
    """What feeds a subscription and takes back what it does not settle: a queue, topics, or last values.

    No method raises for anything a peer may do, and none waits.

    Attributes:
        takes_globs: what is subscribed to may be a glob.
        subscriber_cost_bytes: memory that it costs for each of its subscriptions, which pay for it.
    """

    @property
    def takes_globs(self) -> bool: ...

    @property
    def subscriber_cost_bytes(self) -> int: ...

    def attach(self, subscription: Subscription, now: float) -> None:
        """Feed `subscription` from now on."""
        ...

    def detach(
        self,
        subscription: Subscription,
        now: float,
        *,
        lost: bool,
        kept: Collection[int] = (),
        removes: bool = False,
    ) -> bool:
        """Stop feeding it and take back what it did not settle.

        Args:
            lost: its connection broke, so that each delivery counts as an attempt.
            kept: numbers of un-ACKed messages that open transactions have settled. Where messages outlive the
                subscription, these stay with it.
            removes: a durable subscription goes for good.

        Returns:
            Whether some messages stay with it. Call it again when their transactions have ended.
        """
        ...

    def drain(self, subscription: Subscription) -> bool:
        """Stop feeding it, and leave with it what is un-ACKed, until that is settled. Idempotent.

        Returns:
            False, and nothing done: nothing would stay with it. `detach` it.
        """
        ...

    def acknowledge(self, subscription: Subscription, number: int, now: float) -> bool:
        """An ACK: the messages that it covers are consumed. False: none is un-ACKed."""
        ...

    def give_back(self, subscription: Subscription, number: int, now: float, nack: Nack) -> bool:
        """A NACK. False, and nothing done: no message is un-ACKed, or a NACK means nothing here (D.23)."""
        ...

    def resume(self, subscription: Subscription, now: float) -> None:
        """Its session can take deliveries again."""
        ...

    def review(self, subscription: Subscription, now: float) -> None:
        """The rights of its principal have changed: what it gets from now on is judged by the new ones."""
        ...


class Subscription:
    """One subscription of one session.

    Attributes:
        id: unique in its session.
        session: whose it is.
        pattern: the destination or glob that it asked for.
        destination: what feeds it and takes back what it does not settle.
        ack_mode: how its messages are settled.
        prefetch: how many of them may be un-ACKed; 0 while its principal may not receive them, and
            `window` otherwise.
        began_at: for an inbox, a message number: messages that were sent later have higher ones.
        exclusive: no other one may be beside it.
        feed: for its source: the `ValueFeed` of a subscription to last values, else None.
        in_turn: for its queue: whether it stands in line for the next message.
        is_drained: it gets nothing any more, and ends when the last of what it has is settled.
        unacked: delivered and not settled, by number, in the order of delivery. Empty in the
            mode auto.
        label: for the protocol: the octets that all its MESSAGEs begin with.
    """

    __slots__ = (
        "ack_mode",
        "began_at",
        "destination",
        "exclusive",
        "feed",
        "id",
        "in_turn",
        "is_drained",
        "label",
        "pattern",
        "prefetch",
        "session",
        "unacked",
        "window",
    )

    def __init__(
        self,
        id: str,  # noqa: A002  # STOMP's own word
        session: Session,
        pattern: str,
        destination: Source,
        ack_mode: AckMode,
        *,
        prefetch: int,
        exclusive: bool = False,
    ) -> None:
        self.id = id
        self.session = session
        self.pattern = pattern
        self.destination = destination
        self.ack_mode = ack_mode
        self.prefetch = self.window = prefetch
        self.exclusive = exclusive
        self.began_at = 0
        self.feed: Any = None
        self.in_turn = False
        self.is_drained = False
        self.unacked: dict[int, Message] = {}
        self.label: Any = None

    @property
    def has_credit(self) -> bool:
        """Whether one more message may be delivered now."""
        return len(self.unacked) < self.prefetch and not self.session.is_choked

    def deliver(self, message: Message, attempts: int | None = None) -> None:
        """Put `message` into the session's outbox. The caller has looked at the credit.

        Args:
            attempts: None for a first delivery, else how many ended by NACK or a lost
                connection.
        """
        session = self.session
        outbox = session.outbox
        if not outbox:
            session.dirty.append(session)
        outbox.append((self, message, attempts))
        session.outbox_bytes += message.size_bytes
        if session.outbox_bytes >= session.high_water_bytes:
            session.choke()

    def scope(self, numbers: Collection[int]) -> set[int]:
        """The un-ACKed messages that ACKs or NACKs of these numbers cover; see `settle`."""
        if self.ack_mode is AckMode.INDIVIDUAL:
            return {number for number in numbers if number in self.unacked}
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
        if self.ack_mode is AckMode.INDIVIDUAL:
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
