"""What the tests of transactions share."""

from __future__ import annotations

from tests.broker.harness import BrokerHarness, Peer
from tests.broker.script import Received

QUEUE = "/queue/a"
IN = "transaction:t"
BEGIN, COMMIT, ABORT = "BEGIN transaction:t", "COMMIT transaction:t", "ABORT transaction:t"
INDIVIDUAL = "ack:client-individual"


def receipt(name: str, **fields: str) -> Received:
    return "RECEIPT", {"receipt-id": name, **{key.replace("_", "-"): fields[key] for key in fields}}


def left(broker: BrokerHarness, queue: str = QUEUE) -> list[str]:
    """What the queue still holds: bodies, as the next consumer gets them."""
    peer = broker.connect()
    peer.subscribe(queue)
    bodies = peer.bodies()
    peer.disconnect()
    return bodies


def holder(broker: BrokerHarness, *bodies: str, ack: str = INDIVIDUAL) -> tuple[Peer, list[Received]]:
    """A consumer in a transaction that has these bodies, none of them ACKed."""
    bob = broker.connect()
    bob.subscribe(QUEUE, ack)
    broker.connect().publish(QUEUE, *bodies)
    bob.say(BEGIN)
    return bob, bob.received()
