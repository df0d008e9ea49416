"""What a message counts for is at least what it costs: else no limit of memory holds."""

from __future__ import annotations

import tracemalloc

import pytest

from nebula.broker.core.messages import QUEUE_KIND, Head, Message
from nebula.stomp import header_lines


@pytest.mark.parametrize(
    ("headers", "value", "body"),
    [(0, "", b""), (10, "v" * 30, b"x" * 200), (120, "v", b""), (5, "v" * 3000, b""), (5, "€" * 3000, b"")],
)
def test_message_with_its_own_head_counts_for_what_it_costs(headers: int, value: str, body: bytes) -> None:
    many = 100
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]

    messages = []
    for number in range(many):
        pairs = tuple((f"h{number}-{each}", f"{value}{number}") for each in range(headers))
        head = Head(QUEUE_KIND, "/queue/a", "anonymous", pairs)
        head.blocks[None] = "".join(name + text for name, text in pairs).encode()
        messages.append(Message(head, body + b"%d" % number, number + 1000, 0.0))

    costs = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    counted = sum(message.size_bytes for message in messages)
    assert costs <= counted


@pytest.mark.parametrize("text", ["i" * 16_000, "i" * 15_000 + "\N{FACE WITH MEDICAL MASK}"])
def test_message_counts_for_the_headers_that_are_passed_on_unread(text: str) -> None:
    many = 100
    head = Head(QUEUE_KIND, "/queue/a", "anonymous", ())
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]

    messages = [
        Message(head, b"", number + 1000, 0.0, header_lines.write([("neb-in-reply-to", f"{text}{number}")]))
        for number in range(many)
    ]

    costs = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert costs <= sum(message.size_bytes for message in messages)
