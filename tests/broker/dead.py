"""Dead letters: how tests make and read them."""

from __future__ import annotations

from collections.abc import Sequence

from nebula.headers import DEAD_LETTER_QUEUE
from tests.broker.harness import BrokerHarness, Peer


def reader(broker: BrokerHarness, *headers: str) -> Peer:
    peer = broker.connect()
    peer.subscribe(DEAD_LETTER_QUEUE, *headers)
    return peer


def reject(
    broker: BrokerHarness, *bodies: str, headers: Sequence[str] = (), queue: str = "/queue/orders"
) -> None:
    """Have these in the dead-letter queue."""
    alice, bob = broker.connect(), broker.connect()
    bob.subscribe(queue, "ack:client-individual")
    alice.publish(queue, *bodies, headers=headers)
    for frame in bob.received():
        bob.nack(frame, "requeue:false")
    alice.disconnect()
    bob.disconnect()


def dead_bodies(broker: BrokerHarness) -> list[str]:
    peer = reader(broker)
    bodies = peer.bodies()
    peer.disconnect()
    return bodies
