"""Topics: everybody gets everything, and who acknowledges has a queue of its own."""

from __future__ import annotations

import pytest

from nebula.broker.core.limits import Limits
from tests.broker.harness import BrokerHarness

TOPIC = "/topic/news"


def test_each_subscriber_gets_each_message_in_order(broker: BrokerHarness) -> None:
    alice = broker.connect()
    subscribers = [broker.connect(version) for version in ("1.0", "1.1", "1.2")]
    for subscriber in subscribers:
        subscriber.subscribe(TOPIC)
    alice.publish(TOPIC, "1", "2")
    alice.publish(TOPIC, "3")

    assert [subscriber.bodies() for subscriber in subscribers] == [["1", "2", "3"]] * 3


def test_topic_keeps_nothing_for_later(broker: BrokerHarness) -> None:
    alice, bob = broker.connect(), broker.connect()
    alice.say(f"SEND destination:{TOPIC}; receipt:r | 1")
    bob.subscribe(TOPIC)

    assert alice.received() == [
        ("RECEIPT", {"receipt-id": "r", "disposition": "accepted", "durable": "false"})
    ]
    assert bob.received() == []


def test_sender_that_is_subscribed_gets_its_own_message(broker: BrokerHarness) -> None:
    alice = broker.connect()
    alice.subscribe(TOPIC)
    alice.publish(TOPIC, "1")

    assert alice.bodies() == ["1"]


def test_two_subscriptions_of_one_connection_get_a_message_each(broker: BrokerHarness) -> None:
    alice = broker.connect()
    alice.subscribe(TOPIC, id="x")
    alice.subscribe(TOPIC, id="y")
    alice.publish(TOPIC, "1")

    assert [frame[1]["subscription"] for frame in alice.received()] == ["x", "y"]


def test_each_version_reads_the_message_in_its_own_form(broker: BrokerHarness) -> None:
    alice = broker.connect("1.2")
    old, middle, new = (broker.connect(version) for version in ("1.0", "1.1", "1.2"))
    for subscriber in (old, middle, new):
        subscriber.subscribe(TOPIC)
    alice.say(rf"SEND destination:{TOPIC}; k\c1:a\cb\\c\rd\ne | x")

    assert old.received()[0][1]["k 1"] == r"a:b\c d e"
    assert middle.received()[0][1]["k:1"] == "a:b\\c d\ne"
    assert new.received()[0][1]["k:1"] == "a:b\\c\rd\ne"


# Subscriptions that acknowledge


@pytest.mark.parametrize("ack", ["client", "client-individual"])
def test_acknowledging_subscriber_gets_no_more_than_its_prefetch(broker: BrokerHarness, ack: str) -> None:
    alice, bob = broker.connect(), broker.connect()
    bob.subscribe(TOPIC, f"ack:{ack}", "prefetch-count:2")
    alice.publish(TOPIC, "1", "2", "3")
    first, second = bob.received()
    bob.ack(first)
    (third,) = bob.received()

    assert [frame[2:] for frame in (first, second, third)] == [("1",), ("2",), ("3",)]


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_nacked_message_of_a_topic_comes_again_to_the_one_who_gave_it_back(
    broker: BrokerHarness, version: str
) -> None:
    alice, bob, carol = broker.connect(), broker.connect(version), broker.connect(version)
    bob.subscribe(TOPIC, "ack:client-individual")
    carol.subscribe(TOPIC)
    alice.publish(TOPIC, "1")
    (first,) = bob.received()
    bob.nack(first)

    headers, body = bob.message()
    assert (body, headers["redelivered"], headers["delivery-count"]) == ("1", "true", "1")
    assert carol.bodies() == ["1"]


def test_what_an_acknowledging_subscriber_leaves_behind_is_forgotten(broker: BrokerHarness) -> None:
    alice, bob, carol = broker.connect(), broker.connect(), broker.connect()
    bob.subscribe(TOPIC, "ack:client", "prefetch-count:1")
    carol.subscribe(TOPIC, "ack:client")
    alice.publish(TOPIC, "1", "2", "3")
    bob.lose()

    assert carol.bodies() == ["1", "2", "3"]
    carol.say("UNSUBSCRIBE id:s")
    assert broker.broker.account.stored_bytes == 0
    assert broker.destinations == {}


def test_slow_subscriber_of_a_topic_is_ended_and_the_others_go_on() -> None:
    limits = Limits(max_body_bytes=1000, outbox_high_water_bytes=2000, max_outbox_bytes=20_000)
    broker = BrokerHarness(limits)
    alice, bob, carol = broker.connect(), broker.connect(), broker.connect()
    bob.subscribe(TOPIC)
    carol.subscribe(TOPIC)
    bob.block()
    bodies = [f"{number:0900}" for number in range(40)]
    for body in bodies:
        alice.publish(TOPIC, body)

    assert bob.is_closed
    assert bob.received()[-1][:2][0] == "ERROR"
    assert carol.bodies() == bodies


def test_subscriber_that_is_slow_for_a_moment_loses_nothing(broker: BrokerHarness) -> None:
    alice, bob = broker.connect(), broker.connect()
    bob.subscribe(TOPIC)
    bob.block()
    alice.publish(TOPIC, *map(str, range(100)))
    assert bob.received() == []

    bob.unblock()

    assert bob.bodies() == list(map(str, range(100)))


def test_subscriber_whose_own_queue_is_full_is_ended() -> None:
    broker = BrokerHarness(Limits(max_queue_messages=3))
    alice, bob = broker.connect(), broker.connect()
    bob.subscribe(TOPIC, "ack:client", "prefetch-count:1")
    alice.publish(TOPIC, "1", "2", "3")
    assert bob.bodies() == ["1"]

    alice.publish(TOPIC, "4")

    assert bob.is_closed
    assert not alice.is_closed


@pytest.mark.parametrize("name", ["/topic/a*", "/topic/a?", "/topic/[ab]"])
def test_send_to_a_glob_is_rejected(broker: BrokerHarness, name: str) -> None:
    alice = broker.connect()
    alice.say(f"SEND destination:{name}; receipt:r | 1")

    assert alice.received() == [("RECEIPT", {"receipt-id": "r", "disposition": "rejected-invalid"})]


def test_large_headers_count_against_a_slow_subscriber_too() -> None:
    limits = Limits(max_body_bytes=1000, outbox_high_water_bytes=2000, max_outbox_bytes=100_000)
    broker = BrokerHarness(limits)
    alice, bob = broker.connect(), broker.connect()
    bob.subscribe(TOPIC)
    bob.block()
    for number in range(12):
        alice.publish(TOPIC, "", headers=[f"n:{number}", f"large:{'x' * 10_000}"])

    assert bob.is_closed
