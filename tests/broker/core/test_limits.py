"""Every limit: at it, one under, one over. The test goes over the fields, so none can be forgotten.

Rules: G.identifiers.
"""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from nebula.broker.core import limits as core_limits
from nebula.broker.core.access import BROKERS_OWN
from nebula.broker.core.limits import Limits
from nebula.broker.core.messages import HEAD_COST_BYTES, HEADER_COST_BYTES, MESSAGE_COST_BYTES
from nebula.broker.core.transactions import HELD_COST_BYTES
from nebula.broker.limit_comments import limit_comments
from nebula.headers import BROKER_QUEUE, INBOX_PREFIX
from tests.broker.harness import WALL_OFFSET, BrokerHarness, Peer
from tests.broker.memory_store import MemoryDisk, MemoryStore

ROOT = Path(__file__).parents[3]
QUEUE = "/queue/a"
Case = tuple[Limits, Callable[[BrokerHarness, int], bool]]
"""A table of limits, and what tries so much of it in a broker: whether it was let pass."""


def is_fine(peer: Peer) -> bool:
    return not peer.is_closed and peer.octets.count(b"ERROR") == 0


def opening_frame(broker: BrokerHarness, size: int) -> bool:
    peer = broker.accept()
    start = b"CONNECT\naccept-version:1.2\nhost:"
    peer.feed(start + b"h" * (size - len(start) - 2) + b"\n\n\0")
    return is_fine(peer)


def headers(broker: BrokerHarness, count: int) -> bool:
    peer = broker.connect()
    peer.publish(QUEUE, "", headers=[f"h{number}:x" for number in range(count - 1)])
    return is_fine(peer)


def header_line(broker: BrokerHarness, size: int) -> bool:
    peer = broker.connect()
    peer.publish(QUEUE, "", headers=["h:" + "x" * (size - 2)])
    return is_fine(peer)


def head(broker: BrokerHarness, size: int) -> bool:
    peer = broker.connect()
    lines = f"SEND\ndestination:{QUEUE}\nh:{'x' * (size - 40)}\ni:"
    peer.feed(f"{lines}{'x' * (size - len(lines))}\n\n\0".encode())
    return is_fine(peer)


def body(broker: BrokerHarness, size: int) -> bool:
    peer = broker.connect()
    peer.publish(QUEUE, "x" * size)
    return is_fine(peer)


def seconds_until_connect(broker: BrokerHarness, quarters: int) -> bool:
    peer = broker.accept()
    broker.advance(quarters / 4 - 0.25)  # the last moment before it
    peer.feed(b"CONNECT\naccept-version:1.2\nhost:h\n\n\0")
    return is_fine(peer)


def seconds_of_a_frame(broker: BrokerHarness, quarters: int) -> bool:
    peer = broker.connect()
    # Others before it, and octets in between, make no difference.
    peer.feed(b"SEND\ndestination:/queue/a\n\nx\0SEND\ndestination:/queue/a\n\n")
    for _ in range(quarters - 1):  # the last moment before it
        broker.advance(0.25)
        peer.feed(b"x")
    peer.feed(b"\0")
    return is_fine(peer)


def subscriptions(broker: BrokerHarness, count: int) -> bool:
    peer = broker.connect()
    for number in range(count):
        peer.subscribe(QUEUE, id=str(number))
    return is_fine(peer)


def subscriptions_in_all(broker: BrokerHarness, count: int) -> bool:
    gone = broker.connect()
    gone.subscribe(QUEUE)
    gone.lose()
    peers = [broker.connect() for _ in range(count)]
    for peer in peers:
        peer.subscribe("/topic/a")
    return all(is_fine(peer) for peer in peers)


def globs(broker: BrokerHarness, count: int) -> bool:
    peers = [broker.connect() for _ in range(2)]
    for number in range(count):
        for peer in peers:  # the same one of another peer is no more
            peer.subscribe(("X/", "/topic/")[number % 2] + f"{number}*", id=str(number))
    return all(is_fine(peer) for peer in peers)


def destination_characters(broker: BrokerHarness, count: int) -> bool:
    alice, bob = broker.connect(), broker.connect()
    name = QUEUE + "a" * (count - len(QUEUE))
    alice.publish(name, "x")
    bob.subscribe(name)
    return is_fine(alice) and is_fine(bob)


def identifier_characters(broker: BrokerHarness, count: int) -> bool:
    id_ = "x" * count
    fine = []
    for peer in (broker.connect("1.2"), broker.connect("1.0")):
        peer.say(f"SUBSCRIBE destination:/topic/a; durable:true; id:{id_}")
        fine.append(is_fine(peer))
    alice = broker.connect()
    alice.say(f"BEGIN transaction:{id_}")
    fine.append(is_fine(alice))
    client = broker.accept()
    client.feed(f"CONNECT\naccept-version:1.2\nhost:h\nclient-id:{id_}\n\n\0".encode())
    fine.append(is_fine(client))
    bob = broker.connect()
    # The one that comes last is apart from the others, and a long one in the middle is not.
    names = ("dedup-id", "neb-reply-to", "neb-reply-id")
    bob.say(*(f"SEND destination:{QUEUE}; {name}:{id_}; receipt:r; a:b | x" for name in names))
    bob.say(*(f"SEND destination:{QUEUE}; {name}:{id_}; receipt:r | x" for name in names))
    bob.feed(f"SEND\ndestination:{QUEUE}\nreceipt:r\nneb-reply-to:a\nneb-reply-id:{id_}\n\n\0".encode())
    fine += [frame[1]["disposition"] == "accepted" for frame in bob.received()]
    # A receipt is kept until COMMIT.
    start = f"SEND destination:{QUEUE}; transaction:t; receipt:"
    bob.say("BEGIN transaction:t", f"{start}{id_} | x", "COMMIT transaction:t; receipt:c")
    fine.append("disposition" not in bob.received()[-1][1])
    assert len(set(fine)) == 1, fine
    return fine[0]


def unacked_by_default(broker: BrokerHarness, count: int) -> bool:
    return _unacked(broker, count)


def unacked_at_most(broker: BrokerHarness, count: int) -> bool:
    return _unacked(broker, count, "prefetch-count:1000000")


def _unacked(broker: BrokerHarness, count: int, *more: str) -> bool:
    peer = broker.connect()
    peer.subscribe(QUEUE, "ack:client", *more)
    broker.connect().publish(QUEUE, *map(str, range(count)))
    return len(peer.bodies()) == count


def outbox(broker: BrokerHarness, size: int) -> bool:
    peer = broker.connect()
    peer.subscribe("/topic/a")
    peer.block()
    broker.connect().publish("/topic/a", "x" * (size - _COST))
    return is_fine(peer)


def queue_messages(broker: BrokerHarness, count: int) -> bool:
    broker.connect().publish(QUEUE, *map(str, range(count)))
    return not broker.broker.account.dropped


def own_requests(broker: BrokerHarness, count: int, peers: int = 1) -> bool:
    own = broker.connect(principal=BROKERS_OWN)
    own.subscribe(BROKER_QUEUE, "ack:client-individual", "prefetch-count:1")
    broker.connect().publish(BROKER_QUEUE, "is being answered")
    for peer in [broker.connect() for _ in range(peers)]:
        peer.publish(BROKER_QUEUE, *map(str, range(count // peers)))
    return not broker.broker.account.dropped


def own_requests_of_many(broker: BrokerHarness, count: int) -> bool:
    return own_requests(broker, count, peers=count)


def queue_bytes(broker: BrokerHarness, size: int) -> bool:
    broker.connect().publish(QUEUE, "x" * (size - _COST))
    return not broker.broker.account.dropped


def memory(broker: BrokerHarness, size: int) -> bool:
    peer = broker.connect()
    broker.connect().publish("/queue/b", "x" * 5000)
    broker.connect().subscribe(QUEUE, "ack:client")
    left = size - broker.broker.account.stored_bytes
    peer.publish(QUEUE, "x" * (left - _COST))
    return not peer.is_held_back


def inboxes(broker: BrokerHarness, count: int) -> bool:
    peer = broker.connect()
    gone = INBOX_PREFIX + "gone"
    peer.subscribe(gone, "exclusive:true", id="gone")
    peer.say("UNSUBSCRIBE id:gone")
    for number in range(count):
        peer.subscribe(f"{INBOX_PREFIX}{number}", "exclusive:true", id=str(number))
    return is_fine(peer)


def seconds_of_delay(broker: BrokerHarness, seconds: int) -> bool:
    broker.connect().publish(QUEUE, "x", headers=[f"delay:{seconds * 1000}"])
    at = (WALL_OFFSET + broker.now + seconds) * 1000
    broker.connect().publish(QUEUE, "x", headers=[f"deliver-at:{at:.0f}"])
    assert len(broker.broker.routing.delayed) in (0, 2)
    return len(broker.broker.routing.delayed) > 0


def queue_memory(broker: BrokerHarness, size: int) -> bool:
    return queue_bytes(broker, size)


def queue_window(broker: BrokerHarness, size: int) -> bool:
    """One message stays in memory, and the other where both are within the window."""
    stored = BrokerHarness(broker.broker.limits, store=MemoryStore(MemoryDisk()))
    alice = stored.connect()
    alice.publish(QUEUE, "first", headers=["persistent:true"])
    queue = stored.broker.queues.get(QUEUE)
    assert queue is not None
    more = size - queue.store.stored_bytes - MESSAGE_COST_BYTES
    alice.publish(QUEUE, "x" * more, headers=["persistent:true"])
    stored.commit()
    return not queue.store.paging.paged_bytes


def delayed(broker: BrokerHarness, count: int) -> bool:
    broker.connect().publish(QUEUE, *map(str, range(count)), headers=["delay:5000"])
    return not broker.broker.account.dropped


def dedup_ids(broker: BrokerHarness, count: int) -> bool:
    alice = broker.connect()
    for number in (*range(count), 0):
        alice.publish(QUEUE, str(number), headers=[f"dedup-id:{number}"])
    return broker.broker.account.dropped["duplicate"] == 1


def quarters_of_an_id(broker: BrokerHarness, quarters: int) -> bool:
    alice = broker.connect()
    alice.publish(QUEUE, "x", headers=["dedup-id:a"])
    broker.advance(quarters / 4 - 0.25)  # the last moment before it
    alice.publish(QUEUE, "x", headers=["dedup-id:a"])
    return broker.broker.account.dropped["duplicate"] == 1


def pause(broker: BrokerHarness, quarters: int) -> bool:
    broker.connect().subscribe(QUEUE, "ack:client", "prefetch-count:1")
    peer = broker.connect()
    peer.publish(QUEUE, *map(str, range(broker.broker.limits.max_queue_messages + 1)))
    broker.advance(quarters / 4 - 0.25)
    return peer.is_held_back


def deliveries(broker: BrokerHarness, count: int) -> bool:
    peer = broker.connect()
    peer.subscribe(QUEUE, "ack:client")
    broker.connect().publish(QUEUE, "x")
    for _ in range(count - 1):
        peer.nack(peer.received()[0])
    return len(peer.received()) == 1


def destinations(broker: BrokerHarness, count: int) -> bool:
    peer = broker.connect()
    for number in range(count):
        peer.subscribe(f"/queue/{number}", id=str(number))
    return is_fine(peer)


def transactions(broker: BrokerHarness, count: int) -> bool:
    peer = broker.connect()
    peer.say(*(f"BEGIN transaction:{number}" for number in range(count)))
    return is_fine(peer)


def transaction_frames(broker: BrokerHarness, count: int) -> bool:
    peer = broker.connect()
    # Of all kinds, and also those that come to nothing.
    kinds = [f"SEND destination:{QUEUE}; transaction:t | x", "ACK id:s m-1; transaction:t"]
    peer.say("BEGIN transaction:t", *(kinds[number % 2] for number in range(count)))
    return is_fine(peer)


def transaction_bytes(broker: BrokerHarness, size: int) -> bool:
    peer = broker.connect()
    start = f"SEND destination:{QUEUE}; transaction:t | "
    # All that are open count together.
    peer.say("BEGIN transaction:u", f"SEND destination:{QUEUE}; transaction:u | x")
    peer.say("BEGIN transaction:t", f"{start}{'x' * 1000}")
    costs = sum(each.size_bytes for each in broker.broker.transactions.of(peer.session).values())
    # The second one has the first one's headers, which are held once.
    peer.say(start + "x" * (size - costs - HELD_COST_BYTES))
    return is_fine(peer)


def unacked_values(broker: BrokerHarness, count: int) -> bool:
    peer = broker.connect()
    peer.subscribe("X/*", "ack:client")
    alice = broker.connect()
    for number in range(count):
        alice.publish(f"X/{number}", "x")
    return len(peer.bodies()) == count


def durable_sessions(broker: BrokerHarness, count: int) -> bool:
    peers = [broker.connect(client_id=f"client-{number}") for number in range(count)]
    for peer in peers:
        peer.subscribe("/topic/a", "durable:true")
    return all(is_fine(peer) for peer in peers)


def durable_subscriptions(broker: BrokerHarness, count: int) -> bool:
    peers = [broker.connect(client_id=f"client-{number}") for number in range(2)]
    for number in range(count):
        peers[number % 2].subscribe("/topic/a", "durable:true", id=f"s{number}")
        if peers[number % 2].is_closed:
            return False
    return all(is_fine(peer) for peer in peers)


def quarters_of_absence(broker: BrokerHarness, quarters: int) -> bool:
    peer = broker.connect(client_id="c")
    peer.subscribe("/topic/a", "durable:true")
    peer.lose()
    broker.connect().publish("/topic/a", "missed")
    broker.advance(quarters / 4 - 0.25)  # the last moment before it
    back = broker.connect(client_id="c")
    back.subscribe("/topic/a", "durable:true")
    return back.bodies() == ["missed"]


# Of a message to /queue/a or /topic/a, without its body.
_COST = (
    MESSAGE_COST_BYTES
    + HEAD_COST_BYTES
    + 2 * HEADER_COST_BYTES
    + 2 * len(f"destination{QUEUE}senderanonymous")
)

CASES: dict[str, Case] = {
    "max_opening_frame_bytes": (Limits(max_opening_frame_bytes=200), opening_frame),
    "max_headers": (Limits(max_headers=5), headers),
    "max_header_line_bytes": (Limits(max_header_line_bytes=100), header_line),
    "max_head_bytes": (Limits(max_head_bytes=100), head),
    "max_body_bytes": (Limits(max_body_bytes=100), body),
    "connect_timeout": (Limits(connect_timeout=5), seconds_until_connect),
    "frame_timeout": (Limits(frame_timeout=5), seconds_of_a_frame),
    "max_subscriptions": (Limits(max_subscriptions=5), subscriptions),
    "max_subscriptions_in_all": (Limits(max_subscriptions_in_all=5), subscriptions_in_all),
    "max_globs": (Limits(max_globs=5), globs),
    "max_destination_characters": (Limits(max_destination_characters=50), destination_characters),
    "max_identifier_characters": (Limits(max_identifier_characters=50), identifier_characters),
    "default_prefetch": (Limits(default_prefetch=5), unacked_by_default),
    "max_prefetch": (Limits(default_prefetch=2, max_prefetch=5), unacked_at_most),
    "max_outbox_bytes": (
        Limits(max_body_bytes=9000, outbox_high_water_bytes=3000, max_outbox_bytes=10_000),
        outbox,
    ),
    "max_queue_messages": (Limits(max_queue_messages=5), queue_messages),
    "max_own_requests": (Limits(max_own_requests=5, max_own_requests_per_session=1), own_requests_of_many),
    "max_own_requests_per_session": (Limits(max_own_requests_per_session=5), own_requests),
    "max_queue_bytes": (Limits(max_body_bytes=9000, max_queue_bytes=10_000), queue_bytes),
    "max_queue_memory_bytes": (Limits(max_body_bytes=9000, max_queue_memory_bytes=10_000), queue_memory),
    "queue_window_bytes": (Limits(queue_window_bytes=10_000), queue_window),
    "max_delayed_messages": (Limits(max_delayed_messages=5), delayed),
    "max_dedup_ids": (Limits(max_dedup_ids=5), dedup_ids),
    "dedup_seconds": (Limits(dedup_seconds=5), quarters_of_an_id),
    "max_memory_bytes": (
        Limits(max_body_bytes=9000, max_queue_bytes=20_000, max_memory_bytes=20_000),
        memory,
    ),
    "max_inboxes": (Limits(max_inboxes=5), inboxes),
    "max_delay_seconds": (Limits(max_delay_seconds=5), seconds_of_delay),
    "max_pause_seconds": (Limits(max_pause_seconds=5, max_queue_messages=2), pause),
    "max_deliveries": (Limits(max_deliveries=5), deliveries),
    "max_transactions": (Limits(max_transactions=5), transactions),
    "max_transaction_frames": (Limits(max_transaction_frames=5), transaction_frames),
    "max_transaction_bytes": (Limits(max_transaction_bytes=10_000), transaction_bytes),
    "max_unacked_values": (Limits(max_unacked_values=5), unacked_values),
    "max_durable_sessions": (Limits(max_durable_sessions=5), durable_sessions),
    "max_durable_subscriptions": (Limits(max_durable_subscriptions=5), durable_subscriptions),
    "session_expiry_seconds": (Limits(session_expiry_seconds=5), quarters_of_absence),
    "max_destinations": (Limits(max_destinations=5), destinations),
}

ELSEWHERE = {
    "max_commit_backlog_bytes": "tests/faults/test_waiting_receipts.py::"
    "test_publisher_is_not_read_while_the_store_is_too_far_behind",
    "drain_seconds": "tests/faults/test_drain.py::"
    "test_peer_that_reads_nothing_holds_up_the_end_for_a_while_only",
    "max_transit_bytes": "tests/faults/test_transit.py::"
    "test_what_they_have_not_read_who_have_said_goodbye_counts_too",
    "principal_share": "tests/broker/core/test_shares.py::"
    "test_principal_that_is_alone_gets_the_share_that_the_limits_say",
    "operator_reserve": "tests/broker/core/test_shares.py::test_reserve_is_left_for_operators",
    "min_free_disk_bytes": "tests/faults/test_disk_watch.py::test_broker_leaves_the_least_free_space_alone",
    "keepalive_seconds": "tests/faults/test_peers_at_the_door.py::"
    "test_system_asks_silent_peers_whether_they_are_there",
    "max_connections": "tests/faults/test_server.py::test_peer_above_the_number_of_connections_is_told_so",
    "max_connections_per_address": "tests/faults/test_peers_at_the_door.py::"
    "test_flood_from_one_address_leaves_room_for_others",
    "max_http_body_bytes": "tests/broker/server/test_http_posts.py::test_largest_body_that_may_be_is_taken",
    "max_http_calls": "tests/broker/server/test_http_posts.py::"
    "test_principal_has_half_of_the_places_for_calls_from_wherever_it_comes",
    "max_http_requests": "tests/broker/server/test_websocket.py::"
    "test_many_who_ask_nothing_are_not_waited_for",
    "max_http_unread_bytes": "tests/broker/server/test_http_posts.py::"
    "test_who_holds_most_of_what_is_not_read_gives_way",
    "outbox_high_water_bytes": "tests/broker/core/test_limits.py::"
    "test_queue_stops_dispatching_at_the_high_water_mark",
}
"""The tests of limits that the shell holds, that set a pace, or that are fractions of all others."""

FIELDS = {field.name: field for field in dataclasses.fields(Limits)}
IN_QUARTERS = {
    "connect_timeout",
    "dedup_seconds",
    "frame_timeout",
    "max_pause_seconds",
    "session_expiry_seconds",
}


def test_each_limit_has_one_test() -> None:
    assert CASES.keys() | ELSEWHERE.keys() == FIELDS.keys()
    assert CASES.keys().isdisjoint(ELSEWHERE)


@pytest.mark.parametrize("limit", ELSEWHERE)
def test_test_of_a_limit_presses_it(limit: str) -> None:
    file, _, name = ELSEWHERE[limit].partition("::")
    source = (ROOT / file).read_text()
    found = [
        ast.unparse(node)
        for node in ast.parse(source).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name
    ]

    assert len(found) == 1
    assert re.search(rf"\b{limit}\b", found[0])


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("difference", [-1, 0, 1])
def test_limit_holds(name: str, difference: int) -> None:
    limits, attempt = CASES[name]
    limit = getattr(limits, name)

    # Time has no "one over": the broker looks at it every quarter of a second.
    steps = round(limit * 4) if name in IN_QUARTERS else limit
    assert attempt(BrokerHarness(limits), steps + difference) == (difference <= 0)


@pytest.mark.parametrize(("size", "in_one_write"), [(5000, 1), (4999, 2)])
def test_queue_stops_dispatching_at_the_high_water_mark(size: int, in_one_write: int) -> None:
    broker = BrokerHarness(Limits(max_body_bytes=9000, outbox_high_water_bytes=5000))
    bob = broker.connect()
    broker.connect().publish(QUEUE, "x" * (size - _COST), "more")
    bob.subscribe(QUEUE)

    assert len(bob.bodies()) == 2
    assert bob.last_write.count(b"MESSAGE") == in_one_write


@pytest.mark.parametrize("name", FIELDS)
def test_limit_says_why_and_what_happens_at_it(name: str) -> None:
    comment = limit_comments(core_limits)[name]

    assert comment.why
    assert comment.at_it


@pytest.mark.parametrize("name", FIELDS)
@pytest.mark.parametrize("value", [0, -1])
def test_limit_must_be_above_0(name: str, value: int) -> None:
    with pytest.raises(ValueError, match=f"{name} must be above 0"):
        Limits(**{name: value})


@pytest.mark.parametrize(
    "contradiction",
    [
        {"outbox_high_water_bytes": 2 << 30},
        {"max_body_bytes": 17 << 20},
        {"max_outbox_bytes": 513 << 20},
        {"max_body_bytes": 9 << 20, "max_queue_bytes": 8 << 20},
        {"max_body_bytes": 9 << 20, "max_memory_bytes": 8 << 20},
        {"default_prefetch": 1_000_000},
    ],
)
def test_limits_that_contradict_each_other_are_refused(contradiction: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="must not be above"):
        Limits(**contradiction)


def test_refused_subscription_leaves_nothing_behind() -> None:
    broker = BrokerHarness(Limits(max_destinations=1))
    alice, bob = broker.connect(), broker.connect()
    alice.publish("/queue/a", "x")
    bob.subscribe("/queue/b", "receipt:r")

    assert bob.received()[0][1]["receipt-id"] == "r"
    assert list(broker.destinations) == ["/queue/a"]


def test_send_above_the_number_of_destinations_is_rejected_as_full() -> None:
    broker = BrokerHarness(Limits(max_destinations=1))
    alice = broker.connect()
    alice.say("SEND destination:/queue/a; receipt:r | x", "SEND destination:/queue/b; receipt:r | x")

    assert [frame[1]["disposition"] for frame in alice.received()] == ["accepted", "rejected-full"]
