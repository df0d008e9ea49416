"""The page about the store shows what a broker says; `python -m tests.docs.test_store_page` writes it.

Rules: G.persistent.
"""

from __future__ import annotations

import re
from pathlib import Path

from tests.broker.harness import BrokerHarness, Peer
from tests.broker.memory_store import MemoryDisk, MemoryStore

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "store.md"
BLOCK = re.compile(r"(?<=```text\n)connect alice.*?(?=```)", re.DOTALL)


def receipts(peer: Peer) -> list[str]:
    return [headers["receipt-id"] for command, headers, *_ in peer.received() if command == "RECEIPT"]


def transcript() -> str:
    """Of the broker in the diagram: it gets more messages while the store writes the first one."""
    disk = MemoryDisk()
    broker = BrokerHarness(store=MemoryStore(disk))
    alice = broker.connect(name="alice")
    send = "SEND destination:/queue/orders; persistent:true; receipt:{0} | order {0}"

    alice.say(send.format(1))
    assert receipts(alice) == []
    broker.begin_commit()
    alice.say(send.format(2), send.format(3))
    assert receipts(alice) == []

    broker.commit()
    assert receipts(alice) == ["1"]
    assert [message.body for message in disk.messages.values()] == [b"order 1"]
    assert receipts(alice) == []

    broker.commit()
    assert receipts(alice) == ["2", "3"]
    assert len(disk.messages) == 3
    return "".join(f"{line}\n" for line in broker.transcript)


def with_transcript(page: str) -> str:
    """The page with the block under its diagram as it is now."""
    text = transcript()
    page, count = BLOCK.subn(lambda _: text, page)
    assert count == 1
    return page


def test_page_shows_when_receipts_come() -> None:
    page = PAGE.read_text()

    assert page == with_transcript(page), "run: python -m tests.docs.test_store_page"


if __name__ == "__main__":
    PAGE.write_text(with_transcript(PAGE.read_text()))
