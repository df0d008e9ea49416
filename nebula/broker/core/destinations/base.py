"""The base of every kind of destination: what the broker asks of queues, topics and last values."""

from __future__ import annotations

from abc import abstractmethod

from nebula.broker.core.messages import Message, Verdict
from nebula.broker.core.subscription import Source


class Destination(Source):
    """Takes messages and feeds subscriptions with them: one queue, all topics, or all last values.

    Topics and last values are one destination each, since a subscription to them may be a glob. Messages
    handed over belong to the destination until it has delivered, dropped or refused them.
    """

    __slots__ = ()

    @abstractmethod
    def send(self, message: Message, now: float) -> Verdict:
        """Take a message that was judged. Not ACCEPTED: there is no room for it, and nothing has happened."""
