"""A message that moved on the disk: who settles it in its new place is told when the store has both."""

from __future__ import annotations

from tests.broker.harness import BrokerHarness, Peer
from tests.broker.memory_store import MemoryDisk, MemoryStore

_RECEIPT = ("RECEIPT", {"receipt-id": "settled"})


def _settle(peer: Peer, broker: BrokerHarness) -> None:
    """ACK what comes when it has moved. The RECEIPT waits too: until then a crash brings the message back."""
    assert peer.received() == []
    broker.commit()
    (message,) = peer.received()
    peer.ack(message, "receipt:settled")
    assert peer.received() == []

    broker.commit()

    assert peer.received() == [_RECEIPT]


def test_delayed_message_that_was_due_is_settled_when_the_store_knows_that_it_left() -> None:
    disk = MemoryDisk()
    broker = BrokerHarness(store=MemoryStore(disk))
    broker.connect().publish("/queue/a", "x", headers=["persistent:true", "delay:1000"])
    broker.commit()
    reader = broker.connect()
    reader.subscribe("/queue/a", "ack:client")
    broker.advance(2)

    _settle(reader, broker)
    assert not disk.messages
    assert not disk.delayed


def test_dead_letter_is_settled_when_the_store_knows_where_it_was() -> None:
    disk = MemoryDisk()
    broker = BrokerHarness(store=MemoryStore(disk))
    broker.connect().publish("/queue/a", "x", headers=["persistent:true"])
    broker.commit()
    undertaker, reader = broker.connect(), broker.connect()
    undertaker.subscribe("/queue/DLQ", "ack:client")
    reader.subscribe("/queue/a", "ack:client")
    (message,) = reader.received()
    reader.nack(message, "requeue:false")

    _settle(undertaker, broker)
    assert not disk.messages
