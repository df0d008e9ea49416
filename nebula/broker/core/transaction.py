"""Transactions: what a peer holds back until its COMMIT (STOMP 1.2, "BEGIN"; D.24)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from nebula.broker.core.messages import Head, Verdict
from nebula.broker.core.subscription import Nack, Subscription

# What an action costs beside its texts and its head: the objects of CPython around them.
HELD_COST_BYTES = 500


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a COMMIT: the verdict, and the receipt of the first SEND that was refused."""

    verdict: Verdict
    failed_receipt: str | None = None


@dataclass(frozen=True, slots=True)
class HeldSend:
    """A SEND. The receipt is kept, to be named if the SEND is refused."""

    head: Head
    body: bytes
    exchange: tuple[str, str] | None
    receipt: str | None


@dataclass(frozen=True, slots=True)
class HeldSettlement:
    """An ACK, or a NACK (`nack` is what it says; None: an ACK); of what is not known: None."""

    target: tuple[Subscription, int] | None
    nack: Nack | None


Action: TypeAlias = HeldSend | HeldSettlement


class Transaction:
    """The actions of one transaction, in order.

    Attributes:
        size_bytes: what holding them costs.
        failure: the result of its COMMIT, because a SEND was refused; None: none was. A failed transaction
            holds no actions.
    """

    __slots__ = ("_heads", "actions", "failure", "size_bytes")

    def __init__(self) -> None:
        self.actions: list[Action] = []
        self.size_bytes = 0
        self.failure: Outcome | None = None
        # Headers are held once for all SENDs that have the same.
        self._heads: set[Head] = set()

    def cost_bytes(self, action: Action) -> int:
        """What holding one more would cost."""
        if not isinstance(action, HeldSend):
            failure = () if action.nack is None else action.nack.failure
            return HELD_COST_BYTES + sum(len(value) for _, value in failure)
        cost = HELD_COST_BYTES + len(action.body) + len(action.receipt or "")
        if action.exchange is not None:
            cost += len(action.exchange[1])
        if action.head not in self._heads:
            cost += action.head.cost_bytes
        return cost

    def add(self, action: Action) -> None:
        """Hold one more."""
        self.size_bytes += self.cost_bytes(action)
        self.actions.append(action)
        if isinstance(action, HeldSend):
            self._heads.add(action.head)

    def fail(self, failure: Outcome) -> None:
        """Have it fail: drop its actions and keep the reason."""
        self.failure = failure
        self.actions = []
        self._heads.clear()
        self.size_bytes = HELD_COST_BYTES + len(failure.failed_receipt or "")
