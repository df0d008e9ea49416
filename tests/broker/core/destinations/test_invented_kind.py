"""A fourth kind of destination is one class and a row in each of two tables: by prefix, and by kind."""

from __future__ import annotations

from collections import deque

import pytest

from nebula.broker.core.destinations.base import Destination
from nebula.broker.core.messages import ACCEPTED, DestinationKind, Message, Verdict
from nebula.broker.core.subscription import Ending, Subscription
from tests.broker.harness import BrokerHarness

pytestmark = pytest.mark.interpreted

LATEST = DestinationKind("latest")


class Latest(Destination):
    """Topics under `/latest/` that tell a new subscriber the last messages first.

    Invariant: a destination holds `count` messages at most.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._messages: dict[str, deque[Message]] = {}
        self._subscriptions: dict[str, list[Subscription]] = {}

    def send(self, message: Message, now: float) -> Verdict:
        name = message.head.destination
        self._messages.setdefault(name, deque(maxlen=self._count)).append(message)
        for subscription in self._subscriptions.get(name, ()):
            subscription.deliver(message)
        return ACCEPTED

    def attach(self, subscription: Subscription, now: float) -> None:
        self._subscriptions.setdefault(subscription.pattern, []).append(subscription)
        for message in self._messages.get(subscription.pattern, ()):
            subscription.deliver(message)

    def detach(self, subscription: Subscription, now: float, ending: Ending) -> bool:
        self._subscriptions[subscription.pattern].remove(subscription)
        return False


@pytest.fixture
def broker() -> BrokerHarness:
    harness = BrokerHarness()
    harness.broker.context.kinds["/latest/"] = LATEST
    harness.broker.routing.by_kind[LATEST] = Latest(2)
    return harness


def test_subscriber_of_an_invented_kind_gets_what_it_holds_and_what_comes(
    broker: BrokerHarness,
) -> None:
    sender, reader = broker.connect(), broker.connect()
    for body in "abc":
        sender.say(f"SEND destination:/latest/news | {body}")

    reader.subscribe("/latest/news")
    sender.say("SEND destination:/latest/news | d", "SEND destination:/topic/news | e")

    assert reader.bodies() == ["b", "c", "d"]


def test_subscription_to_an_invented_kind_ends(broker: BrokerHarness) -> None:
    sender, reader = broker.connect(), broker.connect()
    reader.subscribe("/latest/news")

    reader.say("UNSUBSCRIBE id:s")
    sender.say("SEND destination:/latest/news; receipt:r | a")

    assert reader.bodies() == []
    assert [command for command, *_ in sender.received()] == ["RECEIPT"]


def test_transaction_and_expiry_reach_an_invented_kind(broker: BrokerHarness) -> None:
    sender, reader = broker.connect(), broker.connect()
    reader.subscribe("/latest/news")

    sender.say(
        "BEGIN transaction:t", "SEND destination:/latest/news; transaction:t | a", "COMMIT transaction:t"
    )
    sender.say("SEND destination:/latest/news; expires:1 | late")

    assert reader.bodies() == ["a"]
