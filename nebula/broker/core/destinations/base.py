"""What the broker asks of every kind of destination."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from nebula.broker.core.messages import Message
from nebula.broker.core.subscription import Nack, Subscription


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
        self, subscription: Subscription, messages: Sequence[Message], now: float, nack: Nack
    ) -> None:
        """These were NACKed."""
        ...

    def resume(self, subscription: Subscription, now: float) -> None:
        """Its session can take deliveries again, or its rights have changed."""
        ...
