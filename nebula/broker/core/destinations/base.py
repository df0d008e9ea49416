"""The interface of a destination: what the broker asks of queues, topics and last values."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from nebula.broker.core.messages import DestinationKind, Message, Verdict
from nebula.broker.core.session import Source, Subscription


class Destination(Source, Protocol):
    """Takes messages and feeds subscriptions with them: one queue, all topics, or all last values.

    Topics and last values are one destination each, since a subscription to them may be a glob. Messages
    handed over belong to the destination until it has delivered, dropped or refused them.
    """

    def send(self, message: Message, now: float) -> Verdict:
        """Take a message that was judged. Not ACCEPTED: there is no room for it, and nothing has happened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What an operator sees of a topic or of a last value.

    Attributes:
        consumers: subscriptions, those that are away too; None for a last value, which a glob may reach.
        waiting: messages that its subscribers have still to get, or subscribers that have to receive it.
        stored_bytes: what those messages, or the value, count for in memory.
        subscriptions: those that are fed by it alone.
        value: the last one, also that of a deletion; None: it is a topic.
        is_live: there is a value.
        owner: the session that the value goes with, if there is one.
    """

    kind: DestinationKind
    consumers: int | None
    waiting: int
    stored_bytes: int
    subscriptions: Iterable[Subscription] = ()
    value: Message | None = None
    is_live: bool = False
    owner: str | None = None
