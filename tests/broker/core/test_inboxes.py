"""Inboxes and requests that need a consumer (D.48, D.49, G.rights)."""

from __future__ import annotations

import sys

import pytest

from nebula.broker.core.destinations import queues
from nebula.headers import INBOX_PREFIX
from tests.broker.harness import BrokerHarness, Peer
from tests.broker.script import Received

INBOX = "/queue/nebula.inbox.1"
IGNORED: Received = ("RECEIPT", {"receipt-id": "r", "result": "ignored"})
NO_CONSUMER: Received = (
    "RECEIPT",
    {"receipt-id": "r", "disposition": "rejected-no-consumer", "consumers": "0"},
)


def test_inbox_works_while_its_subscription_lives(broker: BrokerHarness) -> None:
    alice = broker.connect()
    alice.subscribe(INBOX, "exclusive:true", "auto-delete:true", "receipt:r")
    alice.publish(INBOX, "to myself")

    frames = alice.received()
    assert frames[0] == ("RECEIPT", {"receipt-id": "r"})
    assert frames[1][2:] == ("to myself",)


def test_send_to_an_absent_inbox_is_refused_and_counted(broker: BrokerHarness) -> None:
    bob = broker.connect()
    bob.say(f"SEND destination:{INBOX}; receipt:r | x")

    assert bob.received() == [NO_CONSUMER]
    assert broker.broker.account.dropped["rejected-no-consumer"] == 1


@pytest.mark.parametrize("header", ["auto-delete:true", "auto-delete:false"])
def test_inbox_goes_with_its_subscription_and_what_it_held(broker: BrokerHarness, header: str) -> None:
    alice, bob = broker.connect(), broker.connect()
    alice.subscribe(INBOX, "exclusive:true", header, "ack:client")
    alice.publish(INBOX, "held")
    assert broker.broker.queues.by_name[INBOX].store.depth == 1
    alice.lose()
    bob.say(f"SEND destination:{INBOX}; receipt:r | late")

    assert bob.received() == [NO_CONSUMER]
    assert broker.destinations == {}


def test_inbox_that_is_not_exclusive_is_ignored(broker: BrokerHarness) -> None:
    alice = broker.connect()
    alice.subscribe(INBOX, "receipt:r")

    assert alice.received() == [IGNORED]
    assert broker.destinations == {}


def test_second_subscription_to_an_inbox_is_ignored(broker: BrokerHarness) -> None:
    alice, bob = broker.connect(), broker.connect()
    alice.subscribe(INBOX, "exclusive:true")
    bob.subscribe(INBOX, "exclusive:true", "receipt:r")

    assert bob.received() == [IGNORED]
    assert not bob.is_closed


def test_name_of_an_inbox_is_not_given_out_again_for_an_hour(broker: BrokerHarness) -> None:
    alice, bob = broker.connect(), broker.connect()
    alice.subscribe(INBOX, "exclusive:true")
    alice.lose()
    bob.subscribe(INBOX, "exclusive:true", "receipt:r")
    assert bob.received() == [IGNORED]

    broker.now += 3600
    broker.advance(0.25)
    bob.subscribe(INBOX, "exclusive:true", "receipt:r")

    assert bob.received() == [("RECEIPT", {"receipt-id": "r"})]


def come_and_go(peer: Peer, count: int, name: str = "hog") -> None:
    """Subscribe to so many inboxes, one after the other."""
    for number in range(count):
        peer.subscribe(f"{INBOX_PREFIX}{name}.{number}", "exclusive:true")
        peer.say("UNSUBSCRIBE id:s")


@pytest.mark.interpreted
def test_names_of_inboxes_that_are_gone_push_out_those_of_whoever_has_most(
    broker: BrokerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queues, "MAX_RETIRED_INBOXES", 10)
    alice, hog = broker.connect(principal="alice"), broker.connect(principal="hog")
    alice.subscribe(INBOX, "exclusive:true")
    alice.lose()
    come_and_go(hog, 30)
    hog.subscribe(INBOX, "exclusive:true", "receipt:r")

    assert hog.received() == [IGNORED]
    hog.subscribe(f"{INBOX_PREFIX}hog.0", "exclusive:true", "receipt:r", id="t")
    assert hog.received() == [("RECEIPT", {"receipt-id": "r"})]


def test_names_of_inboxes_that_are_gone_take_little_memory_however_long_they_are(
    broker: BrokerHarness,
) -> None:
    hog = broker.connect()
    come_and_go(hog, 1, name="x" * 900)
    before = retained_bytes(broker)
    come_and_go(hog, 100, name="x" * 900)

    assert retained_bytes(broker) - before < 100 * 300


def retained_bytes(broker: BrokerHarness) -> int:
    """What is remembered of the names of inboxes that are gone."""
    names = broker.broker.queues._retired_inboxes
    return sys.getsizeof(names) + sum(map(sys.getsizeof, names))


def test_name_of_an_inbox_that_is_used_again_after_its_hour_is_remembered_again(
    broker: BrokerHarness,
) -> None:
    alice = broker.connect()
    for _ in range(3):
        alice.subscribe(INBOX, "exclusive:true", "receipt:r")
        assert alice.received() == [("RECEIPT", {"receipt-id": "r"})]
        alice.say("UNSUBSCRIBE id:s")
        broker.now += 3600  # nobody has looked at the clock meanwhile
    broker.advance(1)

    assert not broker.broker.queues._retired_by


def test_other_reserved_queues_are_nobodys(broker: BrokerHarness) -> None:
    alice = broker.connect()
    alice.subscribe("/queue/nebula.secret", "receipt:r")
    alice.say("SEND destination:/queue/nebula.secret; receipt:r | x")

    ignored, refused = alice.received()
    assert ignored == IGNORED
    assert refused[1]["disposition"] == "rejected-unauthorised"
    assert broker.destinations == {}


# require-consumers


def test_message_that_requires_consumers_is_not_stored_without_one(broker: BrokerHarness) -> None:
    alice, bob = broker.connect(), broker.connect()
    alice.say("SEND destination:/queue/a; require-consumers:true; receipt:r | x")
    bob.subscribe("/queue/a")

    assert alice.received() == [NO_CONSUMER]
    assert bob.received() == []


def test_message_that_requires_consumers_is_not_stored_on_a_queue_that_waits(broker: BrokerHarness) -> None:
    alice, bob = broker.connect(), broker.connect()
    alice.publish("/queue/a", "1")
    alice.say("SEND destination:/queue/a; require-consumers:true; receipt:r | 2")
    bob.subscribe("/queue/a")

    assert alice.received() == [NO_CONSUMER]
    assert bob.bodies() == ["1"]


def test_message_that_requires_consumers_is_taken_when_there_is_one(broker: BrokerHarness) -> None:
    alice, bob = broker.connect(), broker.connect()
    bob.subscribe("/queue/a")
    alice.say("SEND destination:/queue/a; require-consumers:true; receipt:r | x")

    assert alice.received()[0][1]["disposition"] == "accepted"
    headers, body = bob.message()
    assert body == "x"
    assert "require-consumers" not in headers


def test_consumer_without_credit_is_a_consumer(broker: BrokerHarness) -> None:
    alice, bob = broker.connect(), broker.connect()
    bob.subscribe("/queue/a", "ack:client", "prefetch-count:1")
    alice.publish("/queue/a", "1")
    alice.say("SEND destination:/queue/a; require-consumers:true; receipt:r | 2")

    assert alice.received()[0][1] == {
        "receipt-id": "r",
        "disposition": "accepted",
        "durable": "false",
        "consumers": "1",
    }


def test_topic_does_not_look_at_require_consumers(broker: BrokerHarness) -> None:
    alice = broker.connect()
    alice.say("SEND destination:/topic/t; require-consumers:true; receipt:r | x")

    assert alice.received()[0][1]["disposition"] == "accepted"


def test_require_consumers_outside_its_form_is_rejected(broker: BrokerHarness) -> None:
    alice = broker.connect()
    alice.say("SEND destination:/queue/a; require-consumers:yes; receipt:r | x")

    assert alice.received()[0][1]["disposition"] == "rejected-invalid"
    assert broker.destinations == {}
