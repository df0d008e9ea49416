"""Who consumes is never held back, so that nobody waits for himself."""

from __future__ import annotations

from nebula.broker.core.limits import Limits
from tests.broker.harness import BrokerHarness, Peer

INBOX = "/queue/nebula.inbox.alice"
SERVICE = "/queue/prices"


def ask(peer: Peer, number: int, inbox: str = INBOX) -> None:
    peer.publish(SERVICE, str(number), headers=[f"neb-reply-to:{inbox}", f"neb-reply-id:{number}"])


def answer(service: Peer, inbox: str = INBOX) -> str:
    """Answer the request that came; what became of the answer."""
    headers, body = service.message()
    service.publish(inbox, body, headers=[f"neb-in-reply-to:{headers['neb-reply-id']}", "receipt:r"])
    (receipt,) = service.received()
    return receipt[1]["disposition"]


def test_full_inbox_loses_its_replies_and_not_the_service() -> None:
    broker = BrokerHarness(Limits(max_queue_messages=2))
    alice, bob, service = broker.connect(), broker.connect(), broker.connect()
    alice.subscribe(INBOX, "exclusive:true", "ack:client", "prefetch-count:1")
    bob.subscribe("/queue/nebula.inbox.bob", "exclusive:true")
    service.subscribe(SERVICE)
    outcomes = []
    for number in range(4):
        ask(alice, number)
        outcomes.append(answer(service))

    assert outcomes == ["accepted", "accepted", "rejected-full", "rejected-full"]
    assert not service.is_held_back
    ask(bob, 5, "/queue/nebula.inbox.bob")
    assert answer(service, "/queue/nebula.inbox.bob") == "accepted"
    assert bob.bodies() == ["5"]
    assert list(broker.broker.queues.by_name) == [INBOX, "/queue/nebula.inbox.bob", SERVICE]  # no dead letter


def test_who_publishes_and_consumes_is_told_at_once_and_goes_on() -> None:
    broker = BrokerHarness(Limits(max_queue_messages=2))
    alice = broker.connect()
    alice.subscribe("/queue/a", "ack:client-individual", "prefetch-count:1")
    alice.publish("/queue/a", "1", "2", "3", headers=["receipt:r"])

    frames = alice.received()
    outcomes = [frame[1]["disposition"] for frame in frames if frame[0] == "RECEIPT"]
    assert outcomes == ["accepted", "accepted", "rejected-full"]
    assert not alice.is_held_back
    (message,) = [frame for frame in frames if frame[0] == "MESSAGE"]
    alice.ack(message)
    assert alice.bodies() == ["2"]
