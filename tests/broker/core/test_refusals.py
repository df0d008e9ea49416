"""What a refused SUBSCRIBE or SEND is told: which one was wrong, in words of what the peer sent."""

from __future__ import annotations

import pytest

from nebula.broker.core.messages import Content
from nebula.broker.core.policies import DestinationPolicy
from tests.broker.harness import BrokerHarness

QUEUE = "/queue/a"


def test_second_subscription_of_one_id_is_named_by_it(broker: BrokerHarness) -> None:
    alice = broker.connect("1.2")
    alice.say("SUBSCRIBE id:s; destination:/queue/a", "SUBSCRIBE id:s; destination:/queue/b")

    assert alice.received()[0][1]["message"] == "the subscription id 's' is there already"


def test_second_subscription_of_1_0_without_an_id_is_named_by_its_destination(broker: BrokerHarness) -> None:
    alice = broker.connect("1.0")
    alice.say("SUBSCRIBE destination:/queue/a", "SUBSCRIBE destination:/queue/a")

    message = alice.received()[0][1]["message"]
    assert message == "the subscription to /queue/a, unnamed, is there already"


@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [
        ("exclusive:true", "exclusive:false", "/queue/a has an exclusive subscription"),
        (
            "exclusive:false",
            "exclusive:true",
            "/queue/a has a subscription, so there can be no exclusive one",
        ),
    ],
)
def test_exclusive_subscription_says_what_is_in_its_way(
    broker: BrokerHarness, first: str, second: str, reason: str
) -> None:
    alice, bob = broker.connect(), broker.connect()
    alice.subscribe(QUEUE, first)
    bob.subscribe(QUEUE, second)

    assert bob.received()[0][1]["message"] == reason


def no_empty_body(body: bytes) -> Content:
    return Content.VALID if body else Content.INVALID


@pytest.mark.parametrize(
    ("destination", "verdict"),
    [("/queue/a", "rejected-invalid"), ("/topic/a", "rejected-invalid"), ("X/a", "accepted")],
)
def test_empty_body_is_checked_where_it_does_not_delete(destination: str, verdict: str) -> None:
    broker = BrokerHarness(policies=[DestinationPolicy(pattern="**", check=no_empty_body)])
    alice = broker.connect()
    alice.say(f"SEND destination:{destination}; receipt:r")

    assert [headers["disposition"] for _, headers, *_ in alice.received()] == [verdict]
