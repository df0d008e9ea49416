"""ACK and NACK in three versions' forms (A.6, A.10, D.20 to D.22)."""

from __future__ import annotations

import pytest

from nebula.broker.core.profiles import MAXAM
from tests.broker.harness import BrokerHarness, Peer
from tests.broker.script import octets

QUEUE = "/queue/a"
VERSIONS = ["1.0", "1.1", "1.2"]
MODES_OF_1_1 = ["client", "client-individual"]


def consumer(broker: BrokerHarness, version: str, ack: str) -> Peer:
    peer = broker.connect(version)
    peer.subscribe(QUEUE, f"ack:{ack}")
    return peer


def left(broker: BrokerHarness) -> list[str]:
    """What the queue still holds: bodies, as the next consumer gets them."""
    peer = broker.connect()
    peer.subscribe(QUEUE)
    return peer.bodies()


@pytest.mark.parametrize("version", VERSIONS)
def test_ack_in_the_mode_client_is_cumulative(broker: BrokerHarness, version: str) -> None:
    bob = consumer(broker, version, "client")
    broker.connect().publish(QUEUE, "1", "2", "3")
    _, second, _ = bob.received()

    bob.ack(second)
    bob.lose()

    assert left(broker) == ["3"]


@pytest.mark.parametrize("version", VERSIONS)
def test_ack_in_the_mode_client_individual_settles_one_message(broker: BrokerHarness, version: str) -> None:
    bob = consumer(broker, version, "client-individual")
    broker.connect().publish(QUEUE, "1", "2", "3")
    _, second, _ = bob.received()

    bob.ack(second)
    bob.lose()

    assert left(broker) == ["1", "3"]


@pytest.mark.parametrize("version", VERSIONS)
def test_message_names_what_an_ack_needs(broker: BrokerHarness, version: str) -> None:
    bob = consumer(broker, version, "client")
    broker.connect().publish(QUEUE, "1")
    headers, _ = bob.message()

    assert headers["message-id"] == "m-1"
    assert headers["subscription"] == "s"
    assert headers.get("ack") == (None if version == "1.0" else "s m-1")


def test_auto_message_has_no_ack(broker: BrokerHarness) -> None:
    bob = consumer(broker, "1.2", "auto")
    broker.connect().publish(QUEUE, "1")

    assert "ack" not in bob.received()[0][1]


def test_1_1_may_name_the_id_alone(broker: BrokerHarness) -> None:
    bob = consumer(broker, "1.1", "client")
    broker.connect().publish(QUEUE, "1")
    bob.received()
    bob.say("ACK id:s m-1; receipt:r")

    assert bob.received() == [("RECEIPT", {"receipt-id": "r"})]


def test_1_0_ack_finds_the_message_among_subscriptions_without_id(broker: BrokerHarness) -> None:
    bob = broker.connect("1.0")
    bob.say("SUBSCRIBE destination:/queue/a; ack:client", "SUBSCRIBE destination:/queue/b; ack:client")
    alice = broker.connect()
    alice.publish("/queue/a", "1")
    alice.publish("/queue/b", "2")
    frames = bob.received()
    assert all("subscription" not in frame[1] for frame in frames)

    for frame in reversed(frames):
        bob.ack(frame)
    bob.lose()

    assert broker.destinations == {}


def test_ack_id_may_have_a_subscription_with_spaces_and_colons(broker: BrokerHarness) -> None:
    bob = broker.connect("1.2")
    bob.subscribe(QUEUE, "ack:client", id=r"my sub\c 1")
    broker.connect().publish(QUEUE, "1")
    headers, _ = bob.message()
    assert headers["ack"] == "my sub: 1 m-1"

    bob.say(r"ACK id:my sub\c 1 m-1; receipt:r")

    assert bob.received() == [("RECEIPT", {"receipt-id": "r"})]


@pytest.mark.parametrize("command", ["ACK", "NACK"])
@pytest.mark.parametrize("id_", ["s m-2", "s m-", "s x-1", "t m-1", "m-1", "s m-" + "9" * 30, "s m-¹"])
def test_unknown_ack_is_ignored(broker: BrokerHarness, command: str, id_: str) -> None:
    bob = consumer(broker, "1.2", "client")
    broker.connect().publish(QUEUE, "1")
    bob.received()
    bob.say(f"{command} id:{id_}; receipt:r")

    assert bob.received() == [("RECEIPT", {"receipt-id": "r", "result": "ignored"})]
    bob.lose()
    assert left(broker) == ["1"]


def test_second_ack_of_a_message_is_ignored(broker: BrokerHarness) -> None:
    bob = consumer(broker, "1.2", "client")
    broker.connect().publish(QUEUE, "1")
    (first,) = bob.received()
    bob.ack(first)
    bob.ack(first, "receipt:r")

    assert bob.received() == [("RECEIPT", {"receipt-id": "r", "result": "ignored"})]


def test_ack_of_an_auto_message_is_ignored(broker: BrokerHarness) -> None:
    bob = consumer(broker, "1.2", "auto")
    broker.connect().publish(QUEUE, "1")
    bob.received()
    bob.say("ACK id:s m-1; receipt:r")

    assert bob.received() == [("RECEIPT", {"receipt-id": "r", "result": "ignored"})]


def test_ack_after_unsubscribe_is_ignored(broker: BrokerHarness) -> None:
    bob = consumer(broker, "1.2", "client")
    broker.connect().publish(QUEUE, "1")
    (first,) = bob.received()
    bob.say("UNSUBSCRIBE id:s")
    bob.ack(first, "receipt:r")

    assert bob.received() == [("RECEIPT", {"receipt-id": "r", "result": "ignored"})]


def test_one_consumer_cannot_ack_what_another_one_has(broker: BrokerHarness) -> None:
    bob, carol = consumer(broker, "1.2", "client"), consumer(broker, "1.2", "client")
    broker.connect().publish(QUEUE, "1", "2")
    (first,) = bob.received()
    carol.ack(first, "receipt:r")

    assert carol.received()[1:] == [("RECEIPT", {"receipt-id": "r", "result": "ignored"})]
    bob.lose()
    assert [frame[2:] for frame in carol.received()] == [("1",)]


@pytest.mark.parametrize(
    ("version", "line"),
    [
        ("1.2", "ACK message-id:m-1; subscription:s"),
        ("1.1", "ACK message-id:m-1; subscription:"),
        ("1.1", "ACK subscription:s"),
        ("1.0", "ACK subscription:s"),
        ("1.2", "NACK message-id:m-1; subscription:s"),
        ("1.1", "NACK subscription:s"),
    ],
)
def test_ack_without_what_its_version_requires_is_an_error(
    broker: BrokerHarness, version: str, line: str
) -> None:
    bob = broker.connect(version)
    bob.say(f"{line}; receipt:r")

    ((command, headers, *_),) = bob.received()
    assert (command, headers["receipt-id"]) == ("ERROR", "r")
    assert bob.is_closed


@pytest.mark.parametrize("command", ["ACK", "NACK"])
def test_1_1_may_leave_out_the_subscription_in_standard(broker: BrokerHarness, command: str) -> None:
    bob = consumer(broker, "1.1", "client-individual")
    bob.subscribe("/queue/other", "ack:client", id="t")
    broker.connect().publish(QUEUE, "1", "2")
    assert len(bob.received()) == 2
    bob.say(f"{command} message-id:m-1; requeue:false; receipt:r")

    assert bob.received() == [("RECEIPT", {"receipt-id": "r"})]
    bob.lose()
    assert left(broker) == ["2"]


@pytest.mark.parametrize("command", ["ACK", "NACK"])
def test_1_1_without_the_subscription_is_ignored_where_none_has_the_message(
    broker: BrokerHarness, command: str
) -> None:
    bob = consumer(broker, "1.1", "client")
    bob.say(f"{command} message-id:m-1; receipt:r")

    assert bob.received() == [("RECEIPT", {"receipt-id": "r", "result": "ignored"})]


@pytest.mark.parametrize("command", ["ACK", "NACK"])
def test_1_1_without_the_subscription_is_an_error_where_two_have_the_message(
    broker: BrokerHarness, command: str
) -> None:
    bob = broker.connect("1.1")
    for number in "12":
        bob.subscribe("/topic/t", "ack:client", id=number)
    broker.connect().publish("/topic/t", "x")
    assert len({frame[1]["message-id"] for frame in bob.received()}) == 1
    bob.say(f"{command} message-id:m-1; receipt:r")

    ((answer, headers, *_),) = bob.received()
    assert (answer, headers["receipt-id"]) == ("ERROR", "r")
    assert headers["message"] == f"{command} needs the header subscription: 2 subscriptions have the message"


@pytest.mark.parametrize("command", ["ACK", "NACK"])
def test_1_1_needs_the_subscription_in_maxam(broker: BrokerHarness, command: str) -> None:
    bob = broker.connect("1.1", profile=MAXAM)
    bob.subscribe(QUEUE, "ack:client")
    broker.connect().publish(QUEUE, "1")
    bob.received()
    bob.say(f"{command} message-id:m-1; receipt:r")

    ((answer, headers, *_),) = bob.received()
    assert (answer, headers["receipt-id"]) == ("ERROR", "r")


@pytest.mark.parametrize("version", ["1.1", "1.2"])
@pytest.mark.parametrize("mode", MODES_OF_1_1)
def test_nack_requeues_with_the_scope_of_its_mode(broker: BrokerHarness, version: str, mode: str) -> None:
    bob = consumer(broker, version, mode)
    broker.connect().publish(QUEUE, "1", "2", "3")
    _, second, _ = bob.received()
    bob.nack(second)

    assert bob.bodies() == (["1", "2"] if mode == "client" else ["2"])


@pytest.mark.parametrize("command", ["ACK", "NACK"])
def test_ack_in_a_transaction_that_never_began_is_an_error(broker: BrokerHarness, command: str) -> None:
    bob = broker.connect()
    bob.say(f"{command} id:s m-1; transaction:t; receipt:r")

    ((answer, headers, *_),) = bob.received()
    assert (answer, headers["receipt-id"]) == ("ERROR", "r")
    assert headers["message"] == "there is no transaction 't'"


def test_e55_only_the_unacked_message_goes_to_the_next_client(broker: BrokerHarness) -> None:
    bob = consumer(broker, "1.2", "client-individual")
    broker.connect().publish(QUEUE, "m1", "m2")
    _, second = bob.received()
    bob.ack(second)
    bob.say("UNSUBSCRIBE id:s")
    carol = broker.connect()
    carol.subscribe(QUEUE)

    headers, body = carol.message()
    assert (body, headers["redelivered"]) == ("m1", "true")


# Several messages in one ACK (G.message-ids)


@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_ack_settles_the_messages_that_it_names(broker: BrokerHarness, version: str) -> None:
    bob = consumer(broker, version, "client-individual")
    broker.connect().publish(QUEUE, "1", "2", "3", "4")
    bob.received()
    bob.say("ACK id:s m-2; message-ids:m-1,m-4; receipt:r")

    assert bob.received() == [("RECEIPT", {"receipt-id": "r"})]
    bob.lose()
    assert left(broker) == ["3"]


def test_ids_that_name_nothing_are_passed_over(broker: BrokerHarness) -> None:
    bob = consumer(broker, "1.2", "client-individual")
    broker.connect().publish(QUEUE, "1", "2")
    bob.received()
    bob.say("ACK id:s m-9; message-ids:,m-8,x-1,s m-1,m-2,m-2; receipt:r")

    assert bob.received() == [("RECEIPT", {"receipt-id": "r"})]
    bob.lose()
    assert left(broker) == ["1"]


@pytest.mark.parametrize("id_", ["s m-8", "t m-1", "s x-1"])
def test_ack_of_several_is_ignored_if_none_is_known(broker: BrokerHarness, id_: str) -> None:
    bob = consumer(broker, "1.2", "client-individual")
    broker.connect().publish(QUEUE, "1")
    bob.received()
    bob.say(f"ACK id:{id_}; message-ids:m-7; receipt:r")

    assert bob.received() == [("RECEIPT", {"receipt-id": "r", "result": "ignored"})]
    bob.lose()
    assert left(broker) == ["1"]


@pytest.mark.parametrize(("end", "expected"), [("COMMIT", ["3"]), ("ABORT", ["1", "2", "3"])])
def test_ack_of_several_waits_for_its_transaction(
    broker: BrokerHarness, end: str, expected: list[str]
) -> None:
    bob = consumer(broker, "1.2", "client-individual")
    broker.connect().publish(QUEUE, "1", "2", "3")
    bob.received()
    bob.say("BEGIN transaction:t", "ACK id:s m-1; message-ids:m-2; transaction:t", f"{end} transaction:t")
    bob.lose()

    assert left(broker) == expected


def test_nack_gives_back_one_message_whatever_it_names(broker: BrokerHarness) -> None:
    bob = consumer(broker, "1.2", "client-individual")
    broker.connect().publish(QUEUE, "1", "2")
    bob.received()
    bob.say("NACK id:s m-2; message-ids:m-1; requeue:false", "ACK id:s m-1; receipt:r")

    assert bob.received() == [("RECEIPT", {"receipt-id": "r"})]


@pytest.mark.parametrize(("number", "is_much"), [(99, False), (100, True)])
def test_other_connections_are_served_after_an_ack_of_many(
    broker: BrokerHarness, number: int, *, is_much: bool
) -> None:
    bob = consumer(broker, "1.2", "client-individual")
    ids = ",".join(["m-9"] * number)

    bob.protocol.receive_data(octets(f"ACK id:s m-1; message-ids:{ids}"), broker.now)

    assert bob.protocol.is_resting == is_much
    broker.settle()


def test_drained_subscription_ends_with_an_ack_of_all_that_it_has(broker: BrokerHarness) -> None:
    bob = consumer(broker, "1.2", "client-individual")
    broker.connect().publish(QUEUE, "1", "2")
    bob.received()
    bob.say("UNSUBSCRIBE id:s; keep-unacked:true", "ACK id:s m-1; message-ids:m-2,m-3; receipt:r")

    assert bob.received() == [("RECEIPT", {"receipt-id": "r"})]
    assert broker.destinations == {}
