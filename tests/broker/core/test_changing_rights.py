"""Rights that change while somebody is subscribed, or away (D.36): never retro-delivered."""

from __future__ import annotations

import pytest

from nebula.broker.core.access import Capability, Grants
from tests.broker.guarded import (
    ACCEPTED,
    CAPABILITIES,
    IGNORED,
    INBOX,
    PRIVATE,
    UNAUTHORISED,
    connect,
    grants,
    review,
    verdict,
)
from tests.broker.harness import BrokerHarness


@pytest.fixture
def broker() -> BrokerHarness:
    """A broker with rights."""
    return BrokerHarness(grants=grants())


def test_durable_subscription_is_not_resumed_after_its_right_was_withdrawn(broker: BrokerHarness) -> None:
    writer = connect(broker, "alice")
    reader = connect(broker, "mallory", client_id="m")
    reader.subscribe("/topic/public.1", "durable:true")
    reader.lose()
    writer.publish("/topic/public.1", "while it was permitted")
    review(broker, mallory=("own",))
    writer.publish("/topic/public.1", "while it was not")
    again = connect(broker, "mallory", client_id="m")
    again.subscribe("/topic/public.1", "durable:true", "receipt:r")
    assert again.received() == [IGNORED]

    review(broker)
    again.subscribe("/topic/public.1", "durable:true")

    assert again.bodies() == ["while it was permitted"]


def test_durable_glob_that_is_resumed_shows_nothing_that_was_withdrawn(broker: BrokerHarness) -> None:
    writer = connect(broker, "alice")
    reader = connect(broker, "mallory", client_id="m")
    for id_, pattern in (("t", "/topic/*"), ("x", "X/*")):
        reader.subscribe(pattern, "durable:true", id=id_)
    reader.lose()
    for destination in ("/topic/public.1", "X/public.1"):
        writer.publish(destination, "withdrawn")
    review(broker, mallory=("own",))
    again = connect(broker, "mallory", client_id="m")
    for id_, pattern in (("t", "/topic/*"), ("x", "X/*")):
        again.subscribe(pattern, "durable:true", id=id_)

    assert again.bodies() == []


@pytest.mark.parametrize("ack", ["ack:auto", "ack:client"])
@pytest.mark.parametrize("destination", ["/queue/alice.1", "/topic/alice.1", "X/alice.1"])
def test_withdrawn_right_ends_the_flow_and_what_it_gives_back_begins_it_again(
    broker: BrokerHarness, destination: str, ack: str
) -> None:
    broker.broker.review(
        Grants(
            {**CAPABILITIES, "reader": Capability(subscribe=(destination,))},
            {"alice": ("own",), "bob": ("reader",)},
        ),
        broker.now,
    )
    alice, bob = connect(broker, "alice"), connect(broker, "bob")
    bob.subscribe(destination, ack)
    alice.publish(destination, "before")
    (frame,) = bob.received()
    if ack == "ack:client":
        bob.ack(frame)
    with_reader = broker.broker.access.grants

    broker.broker.review(Grants(CAPABILITIES, {"alice": ("own",)}), broker.now)
    alice.publish(destination, "meanwhile")
    assert bob.received() == []

    broker.broker.review(with_reader, broker.now)
    broker.settle()
    alice.publish(destination, "after")

    # A queue keeps what nobody took; the others never deliver what was sent meanwhile.
    kept = ["meanwhile"] if destination.startswith("/queue/") else []
    assert bob.bodies() == [*kept, "after"]


def test_suspended_consumer_leaves_the_queue_to_others(broker: BrokerHarness) -> None:
    alice, bob, carol = connect(broker, "alice"), connect(broker, "bob"), connect(broker, "carol")
    bob.subscribe("/queue/prices", "ack:client")
    review(broker, bob=(), carol=("is prices",))
    carol.subscribe("/queue/prices")
    alice.publish("/queue/prices", "1", "2", "3")

    assert carol.bodies() == ["1", "2", "3"]
    assert bob.received() == []


def test_suspended_consumer_may_still_settle_what_it_has(broker: BrokerHarness) -> None:
    alice, bob = connect(broker, "alice"), connect(broker, "bob")
    bob.subscribe("/queue/prices", "ack:client-individual")
    alice.publish("/queue/prices", "1", "2")
    one, two = bob.received()
    review(broker, bob=())
    bob.ack(one)
    bob.nack(two)

    assert bob.received() == []
    assert broker.broker.queues.by_name["/queue/prices"].store.depth == 1


def test_own_inbox_is_never_suspended(broker: BrokerHarness) -> None:
    alice = connect(broker, "alice")
    alice.subscribe(INBOX, "exclusive:true")
    review(broker, alice=())
    alice.publish(INBOX, "to myself")

    assert alice.bodies() == ["to myself"]


@pytest.mark.parametrize("destination", PRIVATE)
def test_right_to_publish_that_is_withdrawn_holds_for_headers_that_were_seen_before(
    broker: BrokerHarness, destination: str
) -> None:
    alice = connect(broker, "alice")
    assert verdict(alice, destination) == ACCEPTED
    review(broker, alice=())
    assert verdict(alice, destination) == UNAUTHORISED
    review(broker)

    assert verdict(alice, destination) == ACCEPTED


def test_rights_that_come_later_hold_for_who_is_there_already() -> None:
    broker = BrokerHarness()
    alice, mallory = connect(broker, "alice"), connect(broker, "mallory")
    for id_, destination in enumerate(PRIVATE):
        mallory.subscribe(destination, id=str(id_))
        alice.publish(destination, "open")
    assert mallory.bodies() == ["open"] * 3

    review(broker)
    for destination in PRIVATE:
        alice.publish(destination, "secret")

    assert mallory.received() == []
