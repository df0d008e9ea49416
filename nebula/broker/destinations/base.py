"""What the broker asks of every kind of destination."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from nebula.broker.messages import Head, Message
from nebula.broker.notes import MESSAGES_DROPPED, Notes
from nebula.broker.subscriptions import Subscription

if TYPE_CHECKING:
    from nebula.broker.destinations.holding import Holding
    from nebula.broker.store import PageRequest

# What is refused between two looks of the operator's log, beyond which it is only counted.
_MAX_REFUSALS = 4


@dataclass(frozen=True, slots=True)
class Refusal:
    """What was turned down, for the operator alone: the peer is not told why (D.5)."""

    principal: str
    session: str
    what: str
    destination: str
    verdict: str


class Account:
    """What all destinations of a broker hold together, what they lost, and what was refused.

    Attributes:
        stored_bytes: held by all queues, last values and transactions.
        dropped: messages that were not delivered, by reason.
        is_disk_low: nothing more is to be written, save what ends things.
        large: queues that hold much in memory: what the store has may leave it.
        expiring: queues with messages that will expire.
        pages: of deep queues, to be read now.
        notes: what the operator's log is to tell.
    """

    __slots__ = (
        "_refusals",
        "_uncounted",
        "_unheard",
        "dropped",
        "expiring",
        "is_disk_low",
        "large",
        "max_bytes",
        "notes",
        "pages",
        "stored_bytes",
    )

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.stored_bytes = 0
        self.dropped: Counter[str] = Counter()
        self.is_disk_low = False
        self.large: dict[Holding, None] = {}
        self.expiring: dict[Holding, None] = {}
        self.pages: list[PageRequest] = []
        self.notes = Notes()
        self._refusals: list[Refusal] = []
        self._uncounted = 0
        self._unheard: list[Refusal] = []

    def drop(self, head: Head, reason: str, session: str = "") -> None:
        """Count a message that comes to nothing, and note it down.

        Args:
            session: of its sender, where it is known.
        """
        self.dropped[reason] += 1
        self.notes.add(
            MESSAGES_DROPPED,
            reason,
            principal=head.sender,
            session=session,
            destination=head.destination,
        )

    def refuse(self, refusal: Refusal) -> None:
        """Remember a refusal until it is taken; of many at once only how many there were."""
        if len(self._refusals) < _MAX_REFUSALS:
            self._refusals.append(refusal)
        else:
            self._uncounted += 1

    def take_refusals(self) -> tuple[list[Refusal], int]:
        """What was refused since the last call, and how many more there were."""
        taken = self._refusals, self._uncounted
        self._refusals, self._uncounted = [], 0
        return taken

    def note_unheard(self, refusal: Refusal) -> bool:
        """Remember a rejected SEND whose sender asked for no RECEIPT, for the log.

        Returns:
            False where too many are remembered already: note the sender's next one.
        """
        if len(self._unheard) >= _MAX_REFUSALS:
            return False
        self._unheard.append(refusal)
        return True

    def take_unheard(self) -> list[Refusal]:
        """What `note_unheard` has remembered since the last call."""
        taken, self._unheard = self._unheard, []
        return taken

    @property
    def is_nearly_full(self) -> bool:
        """So much is held that nobody who waits for room goes on."""
        return self.stored_bytes * 8 >= self.max_bytes * 7

    def has_room_for(self, size_bytes: int) -> bool:
        """Whether so much more may be held."""
        return self.stored_bytes + size_bytes <= self.max_bytes


class Destination(Protocol):
    """What feeds a subscription, and takes back what it does not settle.

    No method raises for anything a peer may do, and none waits. Messages handed over belong to
    the destination until it has delivered, dropped or refused them.
    """

    @property
    def takes_nacks(self) -> bool:
        """Whether a NACK means anything here (D.23)."""
        ...

    def attach(self, subscription: Subscription, now: float) -> None:
        """Feed `subscription` from now on."""
        ...

    def detach(self, subscription: Subscription, now: float, *, lost: bool) -> None:
        """Stop feeding it and take back what it did not settle.

        Args:
            lost: its connection broke, so that each delivery counts as an attempt.
        """
        ...

    def acknowledge(self, subscription: Subscription, messages: Sequence[Message], now: float) -> None:
        """These are consumed: they were un-ACKed on `subscription`."""
        ...

    def give_back(
        self, subscription: Subscription, messages: Sequence[Message], now: float, *, requeue: bool
    ) -> None:
        """These were NACKed."""
        ...

    def resume(self, subscription: Subscription, now: float) -> None:
        """Its session can take deliveries again, or its rights have changed."""
        ...
