"""The interface of a destination: what the broker asks of queues, topics and last values."""

from __future__ import annotations

from typing import Protocol

from nebula.broker.core.messages import Message, Verdict
from nebula.broker.core.session import Source


class Destination(Source, Protocol):
    """Takes messages and feeds subscriptions with them: one queue, all topics, or all last values.

    Topics and last values are one destination each, since a subscription to them may be a glob. Messages
    handed over belong to the destination until it has delivered, dropped or refused them.
    """

    def send(self, message: Message, now: float) -> Verdict:
        """Take a message that was judged. Not ACCEPTED: there is no room for it, and nothing has happened."""
