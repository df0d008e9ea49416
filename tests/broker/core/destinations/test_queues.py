"""Queues: order, turns, credit, what comes back, and what becomes of it (issue section 3, D.10, D.12)."""

from __future__ import annotations

import pytest

from nebula.broker.core.limits import Limits
from nebula.broker.core.policies import DestinationPolicy
from nebula.headers import DEAD_LETTER_QUEUE
from tests.broker.harness import BrokerHarness

QUEUE = "/queue/orders"
CLIENT = "ack:client"
INDIVIDUAL = "ack:client-individual"


def test_queue_keeps_what_is_sent_before_anybody_subscribes(broker: BrokerHarness) -> None:
    alice, bob = broker.connect(), broker.connect()
    alice.publish(QUEUE, "1", "2", "3")

    bob.subscribe(QUEUE)

    assert bob.bodies() == ["1", "2", "3"]


def test_queue_gives_messages_in_the_order_of_arrival_from_several_senders(broker: BrokerHarness) -> None:
    alice, bob, carol = broker.connect(), broker.connect(), broker.connect()
    for number in range(6):
        (alice, bob)[number % 2].publish(QUEUE, str(number))

    carol.subscribe(QUEUE, INDIVIDUAL)

    assert carol.bodies() == ["0", "1", "2", "3", "4", "5"]


def test_each_message_goes_to_one_consumer_only(broker: BrokerHarness) -> None:
    alice, bob, carol = broker.connect(), broker.connect(), broker.connect()
    bob.subscribe(QUEUE)
    carol.subscribe(QUEUE)
    alice.publish(QUEUE, *map(str, range(10)))

    assert sorted(bob.bodies() + carol.bodies()) == list(map(str, range(10)))


@pytest.mark.parametrize("ack", ["ack:auto", CLIENT, INDIVIDUAL])
def test_consumers_are_served_in_turn(broker: BrokerHarness, ack: str) -> None:
    alice, *consumers = [broker.connect() for _ in range(4)]
    for consumer in consumers:
        consumer.subscribe(QUEUE, ack)

    alice.publish(QUEUE, *map(str, range(7)))

    assert [consumer.bodies() for consumer in consumers] == [["0", "3", "6"], ["1", "4"], ["2", "5"]]


def test_turns_go_on_between_separate_sends(broker: BrokerHarness) -> None:
    alice, bob, carol = broker.connect(), broker.connect(), broker.connect()
    bob.subscribe(QUEUE)
    carol.subscribe(QUEUE)
    for number in range(4):
        alice.publish(QUEUE, str(number))

    assert (bob.bodies(), carol.bodies()) == (["0", "2"], ["1", "3"])


def test_two_subscriptions_of_one_connection_are_served_in_turn(broker: BrokerHarness) -> None:
    alice, bob = broker.connect(), broker.connect()
    bob.subscribe(QUEUE, id="x")
    bob.subscribe(QUEUE, id="y")
    alice.publish(QUEUE, "1", "2")

    assert [frame[1]["subscription"] for frame in bob.received()] == ["x", "y"]


def test_consumer_gets_no_more_than_its_prefetch_until_it_acks(broker: BrokerHarness) -> None:
    alice, bob = broker.connect(), broker.connect()
    bob.subscribe(QUEUE, INDIVIDUAL, "prefetch-count:2")
    alice.publish(QUEUE, "1", "2", "3", "4")
    first, second = bob.received()

    bob.ack(second)
    (third,) = bob.received()
    bob.ack(first)
    (fourth,) = bob.received()

    assert [frame[2:] for frame in (first, second, third, fourth)] == [("1",), ("2",), ("3",), ("4",)]


def test_consumer_without_credit_is_passed_over(broker: BrokerHarness) -> None:
    alice, bob, carol = broker.connect(), broker.connect(), broker.connect()
    bob.subscribe(QUEUE, INDIVIDUAL, "prefetch-count:1")
    carol.subscribe(QUEUE, INDIVIDUAL)
    alice.publish(QUEUE, *map(str, range(5)))

    assert (bob.bodies(), carol.bodies()) == (["0"], ["1", "2", "3", "4"])


def test_auto_consumer_is_not_bounded_by_its_prefetch(broker: BrokerHarness) -> None:
    alice, bob = broker.connect(), broker.connect()
    bob.subscribe(QUEUE, "prefetch-count:1")
    alice.publish(QUEUE, "1", "2", "3")

    assert bob.bodies() == ["1", "2", "3"]


def test_prefetch_above_the_limit_is_capped() -> None:
    broker = BrokerHarness(Limits(default_prefetch=2, max_prefetch=3))
    alice, bob = broker.connect(), broker.connect()
    bob.subscribe(QUEUE, INDIVIDUAL, "prefetch-count:99")
    alice.publish(QUEUE, *map(str, range(9)))

    assert bob.bodies() == ["0", "1", "2"]


@pytest.mark.parametrize("value", ["0", "-1", "x", "1.5", "+1", "1 ", "9" * 40])
def test_prefetch_that_is_no_number_above_0_is_an_error(broker: BrokerHarness, value: str) -> None:
    bob = broker.connect()
    bob.subscribe(QUEUE, f"prefetch-count:{value}", "receipt:r")

    ((command, headers, *_),) = bob.received()
    assert (command, headers["receipt-id"]) == ("ERROR", "r")
    assert "prefetch-count" in headers["message"]
    assert bob.is_closed


# What comes back


def test_unacked_messages_of_a_lost_consumer_go_to_the_next_one_in_order(broker: BrokerHarness) -> None:
    alice, bob, carol = broker.connect(), broker.connect(), broker.connect()
    bob.subscribe(QUEUE, INDIVIDUAL, "prefetch-count:2")
    alice.publish(QUEUE, "1", "2", "3")
    carol.subscribe(QUEUE, INDIVIDUAL, "prefetch-count:1")
    assert carol.bodies() == ["3"]

    bob.lose()
    dave = broker.connect()
    dave.subscribe(QUEUE, INDIVIDUAL)

    assert dave.bodies() == ["1", "2"]


def test_messages_of_several_consumers_come_back_in_order_of_arrival(broker: BrokerHarness) -> None:
    alice, bob, carol = broker.connect(), broker.connect(), broker.connect()
    bob.subscribe(QUEUE, INDIVIDUAL)
    carol.subscribe(QUEUE, INDIVIDUAL)
    alice.publish(QUEUE, *map(str, range(8)))
    held = {frame[2]: (peer, frame) for peer in (bob, carol) for frame in peer.received() if len(frame) == 3}
    for peer in (bob, carol):
        peer.block()  # so that what comes back waits
    for body in ("5", "0", "7", "2", "3"):
        peer, frame = held[body]
        peer.nack(frame)
    alice.publish(QUEUE, "8")

    dave = broker.connect()
    dave.subscribe(QUEUE, INDIVIDUAL)

    assert dave.bodies() == ["0", "2", "3", "5", "7", "8"]


def test_nacked_message_goes_to_the_front(broker: BrokerHarness) -> None:
    alice, bob = broker.connect(), broker.connect()
    bob.subscribe(QUEUE, INDIVIDUAL, "prefetch-count:1")
    alice.publish(QUEUE, "1", "2")
    (first,) = bob.received()

    bob.nack(first)

    headers, body = bob.message()
    assert body == "1"
    assert headers["redelivered"] == "true"
    assert headers["delivery-count"] == "1"


def test_cumulative_nack_gives_all_before_it_back(broker: BrokerHarness) -> None:
    alice, bob, carol = broker.connect(), broker.connect(), broker.connect()
    bob.subscribe(QUEUE, CLIENT)
    alice.publish(QUEUE, "1", "2", "3")
    _, second, _ = bob.received()
    bob.block()

    bob.nack(second)
    carol.subscribe(QUEUE)

    assert carol.bodies() == ["1", "2"]


def test_redelivered_message_keeps_its_message_id(broker: BrokerHarness) -> None:
    alice, bob = broker.connect(), broker.connect()
    bob.subscribe(QUEUE, INDIVIDUAL)
    alice.publish(QUEUE, "1")
    (first,) = bob.received()
    bob.nack(first)
    (again,) = bob.received()

    assert again[1]["message-id"] == first[1]["message-id"]
    assert "redelivered" not in first[1]


def test_unsubscribe_gives_back_without_counting_an_attempt(broker: BrokerHarness) -> None:
    alice, bob, carol = broker.connect(), broker.connect(), broker.connect()
    bob.subscribe(QUEUE, INDIVIDUAL)
    alice.publish(QUEUE, "1")
    bob.say("UNSUBSCRIBE id:s")

    carol.subscribe(QUEUE)

    headers, _ = carol.message()
    assert headers["redelivered"] == "true"
    assert "delivery-count" not in headers


def test_disconnect_gives_back_without_counting_an_attempt(broker: BrokerHarness) -> None:
    alice, bob, carol = broker.connect(), broker.connect(), broker.connect()
    bob.subscribe(QUEUE, INDIVIDUAL)
    alice.publish(QUEUE, "1")
    bob.disconnect()

    carol.subscribe(QUEUE)

    headers, _ = carol.message()
    assert headers["redelivered"] == "true"
    assert "delivery-count" not in headers


def test_lost_connection_counts_as_one_attempt(broker: BrokerHarness) -> None:
    alice, bob, carol = broker.connect(), broker.connect(), broker.connect()
    bob.subscribe(QUEUE, INDIVIDUAL)
    alice.publish(QUEUE, "1")
    bob.lose()

    carol.subscribe(QUEUE)

    headers, _ = carol.message()
    assert headers["delivery-count"] == "1"


def test_connection_ended_by_an_error_counts_as_one_attempt(broker: BrokerHarness) -> None:
    alice, bob, carol = broker.connect(), broker.connect(), broker.connect()
    bob.subscribe(QUEUE, INDIVIDUAL)
    alice.publish(QUEUE, "1")
    bob.say("COMMIT transaction:t")

    carol.subscribe(QUEUE)

    headers, _ = carol.message()
    assert headers["delivery-count"] == "1"


def test_lost_connection_with_two_subscriptions_on_a_queue_counts_one_attempt(broker: BrokerHarness) -> None:
    alice, bob, carol = broker.connect(), broker.connect(), broker.connect()
    bob.subscribe(QUEUE, INDIVIDUAL, id="x")
    bob.subscribe(QUEUE, INDIVIDUAL, id="y")
    alice.publish(QUEUE, "1", "2")
    bob.lose()

    carol.subscribe(QUEUE)

    assert [frame[1]["delivery-count"] for frame in carol.received()] == ["1", "1"]


@pytest.mark.parametrize("ending", ["lose", "disconnect"])
def test_message_is_not_given_to_another_subscription_of_a_connection_that_ends(
    broker: BrokerHarness, ending: str
) -> None:
    alice, bob, carol = broker.connect(), broker.connect(), broker.connect()
    bob.subscribe(QUEUE, INDIVIDUAL, id="x")
    alice.publish(QUEUE, "1")
    bob.subscribe(QUEUE, "ack:auto", id="y")  # it would consume the message
    bob.received()
    getattr(bob, ending)()

    carol.subscribe(QUEUE)

    assert carol.bodies() == ["1"]
    assert bob.received() == []


def test_message_is_delivered_10_times_at_most(broker: BrokerHarness) -> None:
    alice, bob = broker.connect(), broker.connect()
    alice.publish(QUEUE, "poison", "good")
    counts = []
    for _ in range(5):
        mallory = broker.connect()
        mallory.subscribe(QUEUE, INDIVIDUAL, "prefetch-count:1")
        for _ in range(2):  # NACK once, then go
            (frame,) = mallory.received()
            counts.append(frame[1].get("delivery-count", "0"))
            if len(counts) % 2:
                mallory.nack(frame)
        mallory.lose()

    bob.subscribe(QUEUE)

    assert counts == [str(number) for number in range(10)]
    assert bob.bodies() == ["good"]
    assert list(broker.destinations) == [QUEUE, DEAD_LETTER_QUEUE]


def test_number_of_deliveries_is_a_setting_of_the_destination() -> None:
    broker = BrokerHarness(policies=[DestinationPolicy(pattern="/queue/or*", max_deliveries=1)])
    alice, bob = broker.connect(), broker.connect()
    bob.subscribe(QUEUE, INDIVIDUAL)
    alice.publish(QUEUE, "1")
    (frame,) = bob.received()
    bob.nack(frame)

    assert bob.received() == []
    assert len(broker.broker.queues.by_name[QUEUE].consumers.subscriptions) == 1
    assert broker.broker.queues.by_name[QUEUE].store.depth == 0


def test_nack_without_requeue_takes_the_message_from_the_queue(broker: BrokerHarness) -> None:
    alice, bob = broker.connect(), broker.connect()
    bob.subscribe(QUEUE, INDIVIDUAL)
    alice.publish(QUEUE, "1", "2")
    first, _ = bob.received()
    bob.nack(first, "requeue:false", "receipt:n")
    bob.lose()
    carol = broker.connect()
    carol.subscribe(QUEUE)

    assert bob.received() == [("RECEIPT", {"receipt-id": "n"})]
    assert carol.bodies() == ["2"]


def test_nack_without_requeue_has_the_scope_of_the_ack_mode(broker: BrokerHarness) -> None:
    alice, bob = broker.connect(), broker.connect()
    bob.subscribe(QUEUE, CLIENT)
    alice.publish(QUEUE, "1", "2", "3")
    _, second, _ = bob.received()
    bob.nack(second, "requeue:false")
    bob.lose()
    carol = broker.connect()
    carol.subscribe(QUEUE)

    assert carol.bodies() == ["3"]
    assert broker.broker.queues.by_name[DEAD_LETTER_QUEUE].store.depth == 2


def test_nack_with_a_requeue_that_is_no_flag_is_an_error(broker: BrokerHarness) -> None:
    alice, bob = broker.connect(), broker.connect()
    bob.subscribe(QUEUE, INDIVIDUAL)
    alice.publish(QUEUE, "1")
    (first,) = bob.received()
    bob.nack(first, "requeue:perhaps")

    assert bob.received()[0][0] == "ERROR"


# Exclusive, auto-delete


def test_second_subscription_beside_an_exclusive_one_is_an_error(broker: BrokerHarness) -> None:
    alice, bob = broker.connect(), broker.connect()
    alice.subscribe(QUEUE, "exclusive:true")
    bob.subscribe(QUEUE, "receipt:r")

    ((command, headers, *_),) = bob.received()
    assert (command, headers["receipt-id"]) == ("ERROR", "r")
    assert not alice.is_closed


def test_exclusive_subscription_beside_another_is_an_error(broker: BrokerHarness) -> None:
    alice, bob = broker.connect(), broker.connect()
    alice.subscribe(QUEUE)
    bob.subscribe(QUEUE, "exclusive:true")

    assert bob.received()[0][0] == "ERROR"


def test_exclusive_subscription_is_free_again_after_it_ended(broker: BrokerHarness) -> None:
    alice, bob = broker.connect(), broker.connect()
    alice.subscribe(QUEUE, "exclusive:true")
    alice.say("UNSUBSCRIBE id:s")
    bob.subscribe(QUEUE, "exclusive:true", "receipt:r")

    assert bob.received() == [("RECEIPT", {"receipt-id": "r"})]


@pytest.mark.parametrize("value", ["false", ""])
def test_flag_that_is_false_or_empty_is_no_flag(broker: BrokerHarness, value: str) -> None:
    alice, bob = broker.connect(), broker.connect()
    alice.subscribe(QUEUE, f"exclusive:{value}", f"auto-delete:{value}")
    bob.subscribe(QUEUE, f"exclusive:{value}")

    assert bob.received() == []


@pytest.mark.parametrize("header", ["exclusive", "auto-delete"])
def test_flag_outside_its_form_is_an_error(broker: BrokerHarness, header: str) -> None:
    alice = broker.connect()
    alice.subscribe(QUEUE, f"{header}:yes")

    ((command, headers, *_),) = alice.received()
    assert command == "ERROR"
    assert header in headers["message"]


def test_auto_delete_queue_goes_with_its_last_subscription(broker: BrokerHarness) -> None:
    alice, bob, carol = broker.connect(), broker.connect(), broker.connect()
    bob.subscribe(QUEUE, INDIVIDUAL, "auto-delete:true", "prefetch-count:1")
    carol.subscribe(QUEUE, INDIVIDUAL, "prefetch-count:1")
    alice.publish(QUEUE, "1", "2", "3")
    bob.say("UNSUBSCRIBE id:s")
    assert QUEUE in broker.destinations

    carol.lose()

    assert QUEUE not in broker.destinations
    assert broker.broker.account.stored_bytes == 0
    assert broker.broker.account.dropped["deleted"] == 3


def test_auto_delete_means_nothing_on_a_queue_that_exists(broker: BrokerHarness) -> None:
    alice, bob, carol = broker.connect(), broker.connect(), broker.connect()
    alice.publish(QUEUE, "1")
    bob.subscribe(QUEUE, INDIVIDUAL, "auto-delete:true")
    bob.lose()

    carol.subscribe(QUEUE)

    assert carol.bodies() == ["1"]


def test_empty_queue_is_forgotten_with_its_last_subscription(broker: BrokerHarness) -> None:
    alice = broker.connect()
    alice.subscribe(QUEUE)
    alice.subscribe("/topic/t", id="t")
    alice.disconnect()

    assert broker.destinations == {}
