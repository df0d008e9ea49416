"""Transactions: what a peer holds back until its COMMIT (STOMP 1.2, "BEGIN"; D.24)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from nebula.broker.messages import Head, Verdict
from nebula.broker.subscriptions import Subscription

# What an action costs beside its body.
_ACTION_COST_BYTES = 500


@dataclass(frozen=True, slots=True)
class HeldSend:
    """A SEND, or the verdict that all with its headers get. Its receipt is kept to be named if this
    one is refused."""

    head: Head | Verdict
    body: bytes
    exchange: tuple[str, str] | None
    receipt: str | None


@dataclass(frozen=True, slots=True)
class HeldSettlement:
    """An ACK, or a NACK (`requeue` is what it says; None: an ACK); of what is not known: None."""

    target: tuple[Subscription, int] | None
    requeue: bool | None


Action: TypeAlias = HeldSend | HeldSettlement


class Transaction:
    """The actions of one transaction, in order."""

    __slots__ = ("actions", "size_bytes")

    def __init__(self) -> None:
        self.actions: list[Action] = []
        self.size_bytes = 0

    @staticmethod
    def cost_bytes(action: Action) -> int:
        """What holding it costs."""
        return _ACTION_COST_BYTES + (len(action.body) if isinstance(action, HeldSend) else 0)

    def add(self, action: Action) -> None:
        """Hold one more."""
        self.actions.append(action)
        self.size_bytes += self.cost_bytes(action)
