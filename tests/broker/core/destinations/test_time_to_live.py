"""`neb-timeout`: a message's time to live, reduced by its waiting (G.timeout)."""

from __future__ import annotations

import pytest

from tests.broker.harness import BrokerHarness

QUEUE = "/queue/a"


def test_message_that_need_not_wait_has_all_its_time(broker: BrokerHarness) -> None:
    alice, bob = broker.connect(), broker.connect()
    bob.subscribe(QUEUE)
    alice.publish(QUEUE, "x", headers=["neb-timeout:5000"])

    assert bob.received()[0][1]["neb-timeout"] == "5000"


def test_waiting_is_taken_off(broker: BrokerHarness) -> None:
    alice, bob = broker.connect(), broker.connect()
    alice.publish(QUEUE, "x", headers=["neb-timeout:5000"])
    broker.advance(1.5)
    bob.subscribe(QUEUE)

    assert bob.received()[0][1]["neb-timeout"] == "3500"


def test_second_delivery_has_the_time_that_is_left(broker: BrokerHarness) -> None:
    alice, bob = broker.connect(), broker.connect()
    bob.subscribe(QUEUE, "ack:client")
    alice.publish(QUEUE, "x", headers=["neb-timeout:5000"])
    (first,) = bob.received()
    broker.advance(2)
    bob.nack(first)

    headers, _ = bob.message()
    assert (headers["neb-timeout"], headers["redelivered"]) == ("3000", "true")


def test_expired_message_is_dropped_and_counted_without_anybody_asking(broker: BrokerHarness) -> None:
    alice = broker.connect()
    alice.publish(QUEUE, "x", headers=["neb-timeout:5000"])
    broker.advance(4.75)
    assert broker.broker.account.dropped["expired"] == 0

    broker.advance(0.25)

    assert broker.broker.account.dropped["expired"] == 1
    assert broker.destinations == {}
    assert broker.broker.account.stored_bytes == 0


def test_expired_message_is_not_delivered_between_two_sweeps(broker: BrokerHarness) -> None:
    alice, bob = broker.connect(), broker.connect()
    alice.publish(QUEUE, "x", headers=["neb-timeout:100"])
    alice.publish(QUEUE, "y")
    broker.now += 0.2
    bob.subscribe(QUEUE)

    assert bob.bodies() == ["y"]
    assert broker.broker.account.dropped["expired"] == 1


def test_only_what_has_expired_is_dropped(broker: BrokerHarness) -> None:
    alice, bob = broker.connect(), broker.connect()
    for body, timeout in (("1", 3000), ("2", 1000), ("3", 2000), ("4", 9000)):
        alice.publish(QUEUE, body, headers=[f"neb-timeout:{timeout}"])
    alice.publish(QUEUE, "5")
    broker.advance(2)
    assert broker.broker.account.dropped["expired"] == 2
    broker.advance(1)
    bob.subscribe(QUEUE)

    assert bob.bodies() == ["4", "5"]
    assert broker.broker.account.dropped["expired"] == 3


def test_unacked_message_does_not_expire_until_it_comes_back(broker: BrokerHarness) -> None:
    alice, bob = broker.connect(), broker.connect()
    bob.subscribe(QUEUE, "ack:client")
    alice.publish(QUEUE, "x", headers=["neb-timeout:1000"])
    (first,) = bob.received()
    broker.advance(5)
    assert broker.broker.account.dropped["expired"] == 0

    bob.nack(first)

    assert bob.received() == []
    assert broker.broker.account.dropped["expired"] == 1


def test_topic_passes_the_timeout_and_counts_nothing(broker: BrokerHarness) -> None:
    alice, bob = broker.connect(), broker.connect()
    bob.subscribe("/topic/t", "ack:client", "prefetch-count:1")
    alice.publish("/topic/t", "1", "2", headers=["neb-timeout:5000"])
    (first,) = bob.received()
    broker.advance(60)
    bob.ack(first)

    headers, body = bob.message()
    assert (body, headers["neb-timeout"]) == ("2", "5000")


@pytest.mark.parametrize("value", ["", "-1", "1.5", "soon", "1" * 16])
def test_timeout_outside_its_form_is_rejected(broker: BrokerHarness, value: str) -> None:
    alice = broker.connect()
    alice.say(f"SEND destination:{QUEUE}; neb-timeout:{value}; receipt:r | x")

    assert alice.received()[0][1]["disposition"] == "rejected-invalid"
    assert broker.destinations == {}
