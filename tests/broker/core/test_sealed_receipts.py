"""A RECEIPT for what is stored can only be had from a committed batch (`nebula.broker.core.receipts`)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import nebula.broker
from tests.broker.harness import BrokerHarness, Peer
from tests.broker.memory_store import MemoryDisk, MemoryStore

FOLDER = Path(nebula.broker.__file__).parent

STORING = [
    "SEND destination:/queue/a; persistent:true; receipt:1 | v",
    "SEND destination:/queue/a; persistent:true; dedup-id:x; receipt:2 | v",
    "SEND destination:/queue/late; persistent:true; delay:60000; receipt:3 | v",
    "SEND destination:X/a; receipt:4 | v",
    "SUBSCRIBE id:d; destination:/topic/*; durable:true; receipt:5",
    "UNSUBSCRIBE id:d; durable:true; receipt:6",
    "BEGIN transaction:t; receipt:7",
    "SEND destination:/queue/a; persistent:true; transaction:t; receipt:8 | v",
    "COMMIT transaction:t; receipt:9",
    "DISCONNECT receipt:10",
]


def receipts(peer: Peer) -> list[str]:
    return [frame[1]["receipt-id"] for frame in peer.received() if frame[0] == "RECEIPT"]


def test_store_that_never_commits_gives_no_receipt() -> None:
    broker = BrokerHarness(store=MemoryStore(MemoryDisk()))
    alice = broker.connect(client_id="alice")
    alice.say(*STORING)
    broker.advance(600.0)

    assert receipts(alice) == []


@pytest.mark.parametrize("frame", [frame for frame in STORING if "transaction" not in frame])
def test_receipt_comes_with_the_commit_of_its_batch(frame: str) -> None:
    broker = BrokerHarness(store=MemoryStore(MemoryDisk()))
    alice = broker.connect(client_id="alice")
    alice.say("SUBSCRIBE id:d; destination:/topic/*; durable:true")
    broker.commit()
    alice.say(frame.replace("id:d; destination", "id:e; destination"))
    assert receipts(alice) == []
    broker.commit()

    assert len(receipts(alice)) == 1


def test_receipt_does_not_wait_for_what_another_frame_told_the_store() -> None:
    broker = BrokerHarness(store=MemoryStore(MemoryDisk()))
    alice = broker.connect()
    alice.say("SEND destination:X/a | v", "SEND destination:/topic/a; receipt:r | v")

    assert receipts(alice) == ["r"]


def test_receipts_are_made_and_opened_in_one_place_each() -> None:
    sources = {path: path.read_text() for path in FOLDER.rglob("*.py")}
    made = [path.name for path, text in sources.items() for _ in re.findall(r"RECEIPT\\n", text)]
    opened = [path.name for path, text in sources.items() for _ in re.findall(r"say\(receipt\)", text)]

    assert made == ["encoding.py"]
    assert opened == ["receipts.py"]


def test_nothing_looks_at_the_journal_before_and_after() -> None:
    sources = "".join(path.read_text() for path in FOLDER.rglob("*.py"))

    assert "journal.count" not in sources
