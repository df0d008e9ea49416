"""Rejected SENDs without a receipt: the operator is told of them, as their sender is not."""

from __future__ import annotations

import pytest

from nebula.broker.core.account import Refusal
from nebula.broker.core.limits import Limits
from tests.broker.harness import BrokerHarness, Peer

UNKNOWN_INBOX = "/queue/nebula.inbox.gone"


@pytest.fixture
def broker() -> BrokerHarness:
    return BrokerHarness(Limits(max_queue_messages=1))


def unheard(broker: BrokerHarness) -> list[Refusal]:
    return broker.broker.account.take_unheard()


def refusal(peer: Peer, destination: str, verdict: str) -> Refusal:
    return Refusal("anonymous", peer.session.id, "SEND", destination, verdict)


def test_each_reason_is_told_once_for_a_connection(broker: BrokerHarness) -> None:
    alice = broker.connect()
    for _ in range(3):
        alice.say("SEND destination:/queue/a; persistent:yes | x")
        alice.say("SEND destination:/topic/b; persistent:maybe | x")
        alice.say("SEND destination:/queue/nebula.secret | x")
        alice.say(f"SEND destination:{UNKNOWN_INBOX} | x")

    assert unheard(broker) == [
        refusal(alice, "/queue/a", "rejected-invalid"),
        refusal(alice, "/queue/nebula.secret", "rejected-unauthorised"),
        refusal(alice, UNKNOWN_INBOX, "rejected-no-consumer"),
    ]
    alice.say("SEND destination:/queue/c; persistent:yes | x")
    assert unheard(broker) == []


def test_send_that_finds_no_room_is_told(broker: BrokerHarness) -> None:
    alice = broker.connect()
    alice.publish("/queue/a", "1", "2")

    assert unheard(broker) == [refusal(alice, "/queue/a", "rejected-full")]


def test_each_connection_is_told_of(broker: BrokerHarness) -> None:
    alice, bob = broker.connect(), broker.connect()
    for peer in (alice, bob):
        peer.say(f"SEND destination:{UNKNOWN_INBOX} | x")

    assert [each.session for each in unheard(broker)] == [alice.session.id, bob.session.id]


def test_send_with_a_receipt_is_not_told(broker: BrokerHarness) -> None:
    alice = broker.connect()
    alice.say("SEND destination:/queue/a; persistent:yes; receipt:r | x")

    assert unheard(broker) == []


def test_duplicate_is_no_rejection(broker: BrokerHarness) -> None:
    alice = broker.connect()
    alice.publish("/topic/a", "x", "x", headers=["dedup-id:1"])

    assert broker.broker.account.dropped["duplicate"] == 1
    assert unheard(broker) == []


def test_connection_that_was_one_too_many_at_a_time_is_told_of_later(broker: BrokerHarness) -> None:
    peers = [broker.connect() for _ in range(10)]
    told: set[str] = set()
    for _ in range(5):
        for peer in peers:
            peer.say(f"SEND destination:{UNKNOWN_INBOX} | x")
        some = unheard(broker)
        assert len(some) <= 4
        told |= {each.session for each in some}

    assert told == {peer.session.id for peer in peers}
