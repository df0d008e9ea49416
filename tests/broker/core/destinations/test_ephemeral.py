"""Values that go with their publisher (G.ephemeral)."""

from __future__ import annotations

import pytest

from tests.broker.harness import BrokerHarness, Peer
from tests.broker.memory_store import MemoryDisk, MemoryStore

EPHEMERAL = ["ephemeral:true"]
DURABLE = ("ack:client", "durable:true")


def told(peer: Peer) -> list[tuple[str, str]]:
    """Destination and body of each MESSAGE since the last call, all of them ACKed."""
    frames = [frame for frame in peer.received() if frame[0] == "MESSAGE"]
    for frame in frames:
        if "ack" in frame[1]:
            peer.ack(frame)
    return [(headers["destination"], "".join(body)) for _, headers, *body in frames]


def came_back(broker: BrokerHarness, *headers: str) -> list[tuple[str, str]]:
    """What the durable subscription of `reader` is told when its session resumes."""
    reader = broker.connect(client_id="reader")
    reader.subscribe("X/*", *DURABLE, *headers)
    return told(reader)


def away(broker: BrokerHarness) -> None:
    """Make that subscription, and leave."""
    reader = broker.connect(client_id="reader")
    reader.subscribe("X/*", *DURABLE)
    reader.lose()


@pytest.mark.parametrize("ending", ["lose", "disconnect"])
def test_value_ends_with_the_connection_that_published_it(broker: BrokerHarness, ending: str) -> None:
    alice, bob = broker.connect(), broker.connect()
    alice.subscribe("X/*")
    bob.publish("X/a", "v", headers=EPHEMERAL)
    getattr(bob, ending)()

    assert told(alice) == [("X/a", "v"), ("X/a", "")]
    assert broker.broker.values.topics == {}


def test_it_is_a_value_like_any_while_it_lives(broker: BrokerHarness) -> None:
    alice, bob = broker.connect(), broker.connect()
    bob.publish("X/a", "v", headers=EPHEMERAL)
    alice.subscribe("X/*", "eager:true", "snapshot:true")
    headers, body = alice.message()

    assert (body, headers["snapshot"]) == ("v", "end")
    assert "ephemeral" not in headers


def test_old_connection_that_dies_after_the_new_one_published_takes_nothing(broker: BrokerHarness) -> None:
    alice, old = broker.connect(), broker.connect()
    alice.subscribe("X/*")
    old.publish("X/a", "old", headers=EPHEMERAL)
    new = broker.connect()
    new.publish("X/a", "new", headers=EPHEMERAL)
    old.lose()
    assert told(alice) == [("X/a", "old"), ("X/a", "new")]
    new.lose()

    assert told(alice) == [("X/a", "")]


def test_session_that_is_taken_over_takes_its_values_along(broker: BrokerHarness) -> None:
    alice, old = broker.connect(), broker.connect(client_id="bob")
    alice.subscribe("X/*")
    old.publish("X/a", "v", headers=EPHEMERAL)
    broker.connect(client_id="bob")

    assert told(alice) == [("X/a", "v"), ("X/a", "")]


def test_it_replaces_a_stored_value_for_good(broker: BrokerHarness) -> None:
    alice, bob = broker.connect(), broker.connect()
    alice.publish("X/a", "stored")
    bob.publish("X/a", "passing", headers=EPHEMERAL)
    bob.lose()
    alice.subscribe("X/*", "eager:true")

    assert told(alice) == []


def test_ordinary_send_makes_it_ordinary_again(broker: BrokerHarness) -> None:
    alice, bob = broker.connect(), broker.connect()
    bob.publish("X/a", "passing", headers=EPHEMERAL)
    bob.publish("X/a", "staying")
    bob.lose()
    alice.subscribe("X/*", "eager:true")

    assert told(alice) == [("X/a", "staying")]


def test_deletion_ends_it_once(broker: BrokerHarness) -> None:
    alice, bob = broker.connect(), broker.connect()
    alice.subscribe("X/*")
    bob.publish("X/a", "v", headers=EPHEMERAL)
    bob.publish("X/a", "", headers=EPHEMERAL)
    bob.lose()

    assert told(alice) == [("X/a", "v"), ("X/a", "")]


def test_publisher_that_leaves_does_not_hear_of_its_own_values(broker: BrokerHarness) -> None:
    alice = broker.connect()
    alice.subscribe("X/*")
    alice.publish("X/a", "v", headers=EPHEMERAL)
    alice.disconnect()

    assert told(alice) == [("X/a", "v")]


def test_it_means_nothing_elsewhere(broker: BrokerHarness) -> None:
    alice = broker.connect()
    alice.publish("/queue/a", "v", headers=EPHEMERAL)
    alice.lose()
    bob = broker.connect()
    bob.subscribe("/queue/a")

    assert bob.bodies() == ["v"]


def test_other_values_of_the_flag_are_invalid(broker: BrokerHarness) -> None:
    alice = broker.connect()
    alice.say("SEND destination:X/a; ephemeral:yes; receipt:r | v")

    assert alice.received()[0][1]["disposition"] == "rejected-invalid"


def test_in_a_transaction_it_lives_from_the_commit_on(broker: BrokerHarness) -> None:
    alice, bob = broker.connect(), broker.connect()
    alice.subscribe("X/*")
    bob.say("BEGIN transaction:t", "SEND destination:X/a; ephemeral:true; transaction:t | v")
    assert told(alice) == []
    bob.say("COMMIT transaction:t")
    bob.lose()

    assert told(alice) == [("X/a", "v"), ("X/a", "")]


def test_it_is_not_kept_for_who_is_away_unless_asked_for(broker: BrokerHarness) -> None:
    away(broker)
    broker.connect().publish("X/a", "v", headers=EPHEMERAL)

    assert came_back(broker) == []
    assert came_back(broker, "eager:true") == [("X/a", "v")]


def test_ordinary_value_that_it_replaced_has_changed_for_who_is_away(broker: BrokerHarness) -> None:
    bob = broker.connect()
    bob.publish("X/a", "stored")
    away(broker)
    bob.publish("X/a", "passing", headers=EPHEMERAL)

    assert came_back(broker) == [("X/a", "passing")]


def test_its_end_is_kept_for_who_knew_of_it(broker: BrokerHarness) -> None:
    reader, bob = broker.connect(client_id="reader"), broker.connect()
    reader.subscribe("X/*", *DURABLE)
    bob.publish("X/a", "v", headers=EPHEMERAL)
    assert told(reader) == [("X/a", "v")]
    reader.lose()
    bob.lose()

    assert came_back(broker) == [("X/a", "")]


def test_its_end_is_kept_for_who_knew_of_it_before_it_changed(broker: BrokerHarness) -> None:
    reader, bob = broker.connect(client_id="reader"), broker.connect()
    reader.subscribe("X/*", *DURABLE)
    bob.publish("X/a", "1", headers=EPHEMERAL)
    assert told(reader) == [("X/a", "1")]
    reader.lose()
    bob.publish("X/a", "2", headers=EPHEMERAL)
    bob.lose()

    assert came_back(broker) == [("X/a", "")]


def test_what_came_and_went_meanwhile_is_not_told(broker: BrokerHarness) -> None:
    away(broker)
    bob = broker.connect()
    bob.publish("X/a", "v", headers=EPHEMERAL)
    bob.lose()

    assert came_back(broker) == []
    assert broker.broker.values.topics == {}


def test_restart_ends_it() -> None:
    disk = MemoryDisk()
    broker = BrokerHarness(store=MemoryStore(disk))
    bob = broker.connect()
    bob.publish("X/a", "passing", headers=EPHEMERAL)
    bob.publish("X/b", "staying")
    broker.commit()
    assert set(disk.values) == {"X/b"}
    broker.stop()
    broker = BrokerHarness(store=MemoryStore(disk))
    alice = broker.connect()
    alice.subscribe("X/*", "eager:true")

    assert told(alice) == [("X/b", "staying")]


@pytest.mark.parametrize("is_clean", [True, False])
def test_restart_does_not_bring_back_what_it_replaced(*, is_clean: bool) -> None:
    disk = MemoryDisk()
    broker = BrokerHarness(store=MemoryStore(disk))
    bob = broker.connect()
    bob.publish("X/a", "stored")
    bob.publish("X/a", "passing", headers=EPHEMERAL)
    broker.commit()
    if is_clean:
        broker.stop()
    alice = BrokerHarness(store=MemoryStore(disk)).connect()
    alice.subscribe("X/*", "eager:true")

    assert told(alice) == []


def test_end_of_a_value_that_one_knew_is_kept_over_a_clean_restart() -> None:
    disk = MemoryDisk()
    broker = BrokerHarness(store=MemoryStore(disk))
    bob = broker.connect()
    bob.publish("X/a", "stored")
    away(broker)
    bob.publish("X/a", "passing", headers=EPHEMERAL)
    bob.lose()
    broker.stop()

    assert came_back(BrokerHarness(store=MemoryStore(disk))) == [("X/a", "")]


@pytest.mark.parametrize("former", ["", "stored"])
def test_receipt_says_that_it_is_not_kept(former: str) -> None:
    broker = BrokerHarness(store=MemoryStore(MemoryDisk()))
    bob = broker.connect()
    if former:
        bob.publish("X/a", former)
    bob.say("SEND destination:X/a; ephemeral:true; receipt:r | v")
    broker.commit()

    assert bob.received() == [("RECEIPT", {"receipt-id": "r", "disposition": "accepted", "durable": "false"})]
