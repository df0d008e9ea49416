"""Headers that several messages share are paid for as long as one of these is held."""

from __future__ import annotations

import gc

from nebula.broker.core.messages import HEAD_COST_BYTES
from tests.broker.harness import BrokerHarness

HEADS = 200
MARGIN = 64 * 1024


def test_messages_whose_first_is_gone_count_for_their_headers() -> None:
    broker = BrokerHarness()
    alice, bob = broker.connect(), broker.connect()
    bob.subscribe("/queue/a", "ack:client-individual", "prefetch-count:1000")
    for number in range(HEADS):
        alice.say(
            f"SEND destination:/queue/a; neb-timeout:{60_000 + number} | x",
            f"SEND destination:/queue/a; neb-timeout:{60_000 + number} | x",
        )
    messages = [frame[1] for frame in bob.received()]
    for headers in messages[::2]:
        bob.say(f"ACK id:{headers['ack']}")

    assert broker.broker.account.stored_bytes > HEADS * HEAD_COST_BYTES - MARGIN

    for headers in messages[1::2]:
        bob.say(f"ACK id:{headers['ack']}")
    assert broker.broker.account.stored_bytes < MARGIN


def test_headers_are_paid_for_when_their_connection_has_ended() -> None:
    broker = BrokerHarness()
    bob = broker.connect()
    bob.subscribe("/queue/a", "ack:client-individual", "prefetch-count:1000")
    before_bytes = broker.broker.account.stored_bytes
    alice = broker.connect()
    alice.say("SEND destination:/queue/a; h:1 | x", "SEND destination:/queue/a; h:1 | x")
    one, other = [frame[1] for frame in bob.received()]
    bob.say(f"ACK id:{one['ack']}")
    alice.say("DISCONNECT")

    assert broker.broker.account.stored_bytes > before_bytes + HEAD_COST_BYTES
    bob.say(f"ACK id:{other['ack']}")
    assert broker.broker.account.stored_bytes == before_bytes


def test_messages_that_a_lost_peer_had_still_to_be_sent_are_freed_at_once() -> None:
    broker = BrokerHarness()
    alice, slow = broker.connect(), broker.connect()
    slow.subscribe("/topic/t")
    slow.block()
    alice.say("SEND destination:/topic/t; h:1 | x")
    is_collecting = gc.isenabled()
    gc.disable()  # it would free them, some time
    try:
        slow.lose()
        alice.say("SEND destination:/topic/t; h:1 | x", "DISCONNECT")

        assert broker.broker.account.stored_bytes == 0
    finally:
        if is_collecting:
            gc.enable()
