"""Drains of queues: `keep-unacked` on UNSUBSCRIBE, for a consumer that finishes what it has begun.

Rules: G.drain.
"""

from __future__ import annotations

import pytest

from nebula.headers import DEAD_LETTER_QUEUE
from tests.broker.harness import BrokerHarness, Peer
from tests.broker.script import Received

QUEUE = "/queue/orders"
INDIVIDUAL = "ack:client-individual"
DRAIN = "UNSUBSCRIBE id:s; keep-unacked:true"


def consumer(broker: BrokerHarness, *headers: str, bodies: int = 2) -> tuple[Peer, list[Received]]:
    """A peer that has some messages of the queue, named 1 and up, and has settled none."""
    bob = broker.connect()
    bob.subscribe(QUEUE, INDIVIDUAL, *headers)
    broker.connect().publish(QUEUE, *map(str, range(1, bodies + 1)))
    return bob, [frame for frame in bob.received() if frame[0] == "MESSAGE"]


def results(peer: Peer) -> list[str | None]:
    """What became of frames, by their RECEIPTs."""
    return [frame[1].get("result") for frame in peer.received() if frame[0] == "RECEIPT"]


def test_who_drains_gets_nothing_more_and_the_others_all(broker: BrokerHarness) -> None:
    bob, _ = consumer(broker)
    carol = broker.connect()
    carol.subscribe(QUEUE, INDIVIDUAL)
    bob.say(DRAIN)
    broker.connect().publish(QUEUE, "3", "4", "5")

    assert bob.bodies() == []
    assert carol.bodies() == ["3", "4", "5"]


def test_who_drains_keeps_what_it_has_and_may_ack_it(broker: BrokerHarness) -> None:
    bob, messages = consumer(broker)
    bob.say(f"{DRAIN}; receipt:u")
    carol = broker.connect()
    carol.subscribe(QUEUE, INDIVIDUAL)
    for message in messages:
        bob.ack(message, "receipt:a")

    assert results(bob) == [None, None, None]
    assert carol.bodies() == []
    assert QUEUE in broker.broker.queues.by_name


def test_drained_subscription_ends_with_its_last_ack(broker: BrokerHarness) -> None:
    bob, (message,) = consumer(broker, bodies=1)
    bob.say(DRAIN)
    bob.ack(message)
    bob.ack(message, "receipt:again")

    assert results(bob) == ["ignored"]
    assert broker.broker.queues.by_name == {}
    bob.subscribe(QUEUE, INDIVIDUAL)
    broker.connect().publish(QUEUE, "3")
    assert bob.bodies() == ["3"]


def test_nack_of_a_drain_is_no_delivery_that_failed(broker: BrokerHarness) -> None:
    bob, messages = consumer(broker)
    carol = broker.connect()
    carol.subscribe(QUEUE, INDIVIDUAL)
    bob.say(DRAIN)
    for message in reversed(messages):
        bob.nack(message)

    again = carol.received()
    assert [frame[2:] for frame in again] == [("2",), ("1",)]
    assert all(frame[1]["redelivered"] == "true" for frame in again)
    assert not any("delivery-count" in frame[1] for frame in again)


def test_nack_of_a_drain_may_still_end_a_message(broker: BrokerHarness) -> None:
    bob, (message,) = consumer(broker, bodies=1)
    bob.say(DRAIN)
    bob.nack(message, "requeue:false")

    carol = broker.connect()
    carol.subscribe(DEAD_LETTER_QUEUE)
    assert carol.message()[0]["dead-letter-reason"] == "rejected"


@pytest.mark.parametrize("leave", [Peer.disconnect, Peer.lose, lambda peer: peer.say("UNSUBSCRIBE id:s")])
def test_what_is_left_of_a_drain_goes_back_in_order(broker: BrokerHarness, leave: object) -> None:
    bob, messages = consumer(broker, bodies=3)
    bob.say(DRAIN)
    bob.ack(messages[1])
    assert callable(leave)
    leave(bob)
    carol = broker.connect()
    carol.subscribe(QUEUE)

    assert carol.bodies() == ["1", "3"]


def test_lost_connection_counts_as_a_delivery_after_a_drain_too(broker: BrokerHarness) -> None:
    bob, _ = consumer(broker, bodies=1)
    bob.say(DRAIN)
    bob.lose()
    carol = broker.connect()
    carol.subscribe(QUEUE)

    assert carol.message()[0]["delivery-count"] == "1"


def test_who_drains_is_no_consumer_any_more(broker: BrokerHarness) -> None:
    bob, _ = consumer(broker, "exclusive:true")
    bob.say(DRAIN)
    alice = broker.connect()
    alice.publish(QUEUE, "x", headers=("require-consumers:true", "receipt:r"))
    carol = broker.connect()
    carol.subscribe(QUEUE, "exclusive:true", "receipt:s")

    (receipt,) = alice.received()
    assert (receipt[1]["disposition"], receipt[1]["consumers"]) == ("rejected-no-consumer", "0")
    assert results(carol) == [None]


def test_who_drains_gets_nothing_more_when_rights_change_either(broker: BrokerHarness) -> None:
    bob, _ = consumer(broker)
    bob.say(DRAIN)
    broker.broker.review(None, broker.now)
    broker.connect().publish(QUEUE, "3")

    assert bob.bodies() == []


def test_drain_of_an_inbox_is_an_unsubscribe(broker: BrokerHarness) -> None:
    inbox = "/queue/nebula.inbox.1"
    bob = broker.connect()
    bob.subscribe(inbox, "exclusive:true", INDIVIDUAL)
    bob.publish(inbox, "1")
    (message,) = bob.received()
    bob.say(DRAIN)
    bob.ack(message, "receipt:a")

    assert results(bob) == ["ignored"]


def test_auto_delete_queue_stays_until_its_drain_has_ended(broker: BrokerHarness) -> None:
    bob, (message,) = consumer(broker, "auto-delete:true", bodies=1)
    bob.say(DRAIN)
    broker.connect().publish(QUEUE, "2")
    assert QUEUE in broker.broker.queues.by_name
    bob.ack(message)

    assert broker.broker.queues.by_name == {}


def test_drain_with_nothing_to_settle_is_an_unsubscribe(broker: BrokerHarness) -> None:
    bob, _ = consumer(broker, bodies=0)
    bob.say(f"{DRAIN}; receipt:u", f"{DRAIN}; receipt:again")

    assert results(bob) == [None, "ignored"]
    assert broker.broker.queues.by_name == {}


def test_second_drain_changes_nothing(broker: BrokerHarness) -> None:
    bob, messages = consumer(broker)
    bob.say(DRAIN, f"{DRAIN}; receipt:u")
    for message in messages:
        bob.ack(message, "receipt:a")

    assert results(bob) == [None, None, None]


def test_ack_held_by_a_transaction_ends_the_drain_at_its_commit(broker: BrokerHarness) -> None:
    bob, (message,) = consumer(broker, bodies=1)
    bob.say("BEGIN transaction:t")
    bob.ack(message, "transaction:t")
    bob.say(DRAIN)
    assert QUEUE in broker.broker.queues.by_name
    bob.say("COMMIT transaction:t")

    assert broker.broker.queues.by_name == {}


@pytest.mark.parametrize("destination", ["/topic/prices", "X/EGM.limit"])
def test_topics_and_last_values_know_no_drain(broker: BrokerHarness, destination: str) -> None:
    bob = broker.connect()
    bob.subscribe(destination, INDIVIDUAL)
    broker.connect().publish(destination, "1")
    (message,) = bob.received()
    bob.say(DRAIN)
    bob.ack(message, "receipt:a")

    assert results(bob) == ["ignored"]


def test_keep_unacked_that_is_no_flag_ends_the_connection(broker: BrokerHarness) -> None:
    bob, _ = consumer(broker)
    bob.say("UNSUBSCRIBE id:s; keep-unacked:some")

    assert bob.received()[0][0] == "ERROR"
