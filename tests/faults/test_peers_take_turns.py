"""Much work of one peer is done in portions: the others have their turn in between, and nothing is lost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from nebula.broker.core.limits import Limits
from nebula.broker.server.connection import Connection
from nebula.broker.server.fairness import FairScheduler
from nebula.broker.server.server import Server
from tests.broker.harness import BrokerHarness, Peer
from tests.broker.script import octets
from tests.faults.transports import CONNECT, FakeTransport, connected

VALUES = 5000
"""More than one portion of a snapshot."""


def said(*lines: str) -> bytes:
    return b"".join(octets(line) for line in lines)


def portions(much: bytes, count: Callable[[Server, Any], int]) -> list[int]:
    """How far the broker is after each turn of the loop, when one peer says all that at once."""

    async def run() -> list[int]:
        server = Server([])
        await server.start()
        connection, transport = connected(server)
        connection.data_received(much)
        seen = [count(server, connection)]
        while not transport.is_read:
            await asyncio.sleep(0)
            seen.append(count(server, connection))
        await server.stop()
        return seen

    return asyncio.run(run())


def depth(server: Server, _: Any) -> int:
    queue = server.broker.queues.get("/queue/a")
    return 0 if queue is None else queue.store.depth


def subscription_count(_: Server, connection: Any) -> int:
    return len(connection._protocol.session.subscriptions)


def test_very_many_frames_of_one_read_take_several_turns() -> None:
    seen = portions(said(*["SEND destination:/queue/a | x"] * 4000), depth)

    assert 0 < seen[0] < 3000
    assert seen == sorted(seen)
    assert seen[-1] == 4000


def test_large_heads_of_one_message_of_a_websocket_take_several_turns() -> None:
    large = "; ".join(f"{number}:{'x' * 15_000}" for number in range(4))
    seen = portions(said(*[f"SEND destination:/queue/a; {large} | x"] * 40), depth)

    assert max(now - before for before, now in pairwise([0, *seen])) < 10
    assert seen[-1] == 40


def test_who_is_read_beside_others_has_short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = 0.0
    monkeypatch.setattr(time, "perf_counter", lambda: seconds)
    loop = asyncio.new_event_loop()
    turns: FairScheduler[Connection] = FairScheduler(loop, lambda *_: None, lambda: None)
    loop.close()
    one, other = Connection.__new__(Connection), Connection.__new__(Connection)
    monkeypatch.setattr(Connection, "payer", "somebody")
    turns.begin(one, 0.0)
    assert turns.begin(one, 1.0) is None
    turns.begin(other, 1.0)
    is_over = turns.begin(one, 1.0)

    assert is_over is not None
    assert not is_over()
    seconds = 0.001
    assert is_over()
    assert turns.begin(one, 1.05) is not None
    assert turns.begin(one, 2.0) is None


def test_turn_that_is_over_ends_after_few_frames() -> None:
    broker = BrokerHarness()
    alice = broker.connect()
    alice.protocol.is_turn_over = lambda: True
    alice.protocol.receive_data(said(*["SEND destination:/queue/a | x"] * 1000), broker.now)

    assert 0 < broker.broker.queues.by_name["/queue/a"].store.depth < 200


def test_who_is_refused_more_than_its_share_is_not_read_for_a_while() -> None:
    async def run() -> tuple[bool, bool]:
        server = Server([], limits=Limits(max_destinations=10))
        await server.start()
        connection, transport = connected(server)
        other = Connection(server.runtime, "somebody else")
        other.connection_made(FakeTransport())
        other.data_received(CONNECT)
        connection.data_received(said(*[f"SEND destination:/queue/{number} | x" for number in range(5)]))
        was_read = transport.is_read
        connection.data_received(said(*[f"SEND destination:/queue/{number} | x" for number in range(5, 30)]))
        rested = not transport.is_read
        while not transport.is_read:
            await asyncio.sleep(0.001)
        await server.stop()
        return was_read, rested

    assert asyncio.run(run()) == (True, True)


def test_globs_take_a_turn_each() -> None:
    lines = [f"SUBSCRIBE id:{number}; destination:/topic/*{number}" for number in range(20)]

    seen = portions(said(*lines), subscription_count)
    assert seen[0] == 1
    assert max(now - before for before, now in pairwise(seen)) == 1
    assert seen[-1] == 20


@pytest.mark.parametrize(
    ("much", "lines"),
    [
        ("BEGIN transaction:t", ["SEND destination:/queue/b; transaction:t | x"] * 200),
        ("SUBSCRIBE id:s; destination:/queue/b; ack:client", ["SEND destination:/queue/b | x"] * 150),
    ],
)
def test_one_frame_that_is_much_work_is_followed_by_a_rest(much: str, lines: list[str]) -> None:
    broker = BrokerHarness()
    alice, bob = broker.connect(), broker.connect()
    alice.say(much, *lines)
    last = "COMMIT transaction:t" if "BEGIN" in much else "UNSUBSCRIBE id:s"

    alice.protocol.receive_data(said(last, "SEND destination:/queue/a | after"), broker.now)
    assert alice.protocol.is_resting
    bob.subscribe("/queue/a")  # and all have had their turn

    assert bob.bodies() == ["after"]


@pytest.mark.parametrize(
    "last",
    [
        "ABORT transaction:t",
        "COMMIT transaction:t",
        "SEND destination:/queue/b; transaction:t; expires:soon | x",
    ],
)
def test_end_of_a_transaction_that_others_are_looked_through_for_is_followed_by_a_rest(last: str) -> None:
    broker = BrokerHarness()
    alice, bob = broker.connect(), broker.connect()
    for much in ("much", "more"):  # together
        alice.say(f"BEGIN transaction:{much}", *[f"SEND destination:/queue/b; transaction:{much} | x"] * 75)
    alice.subscribe("/queue/c", "ack:client-individual")
    alice.publish("/queue/c", "x")
    (message,) = (frame for frame in alice.received() if frame[0] == "MESSAGE")
    alice.say("BEGIN transaction:t")
    alice.ack(message, "transaction:t")
    alice.say("UNSUBSCRIBE id:s")

    alice.protocol.receive_data(said(last, "SEND destination:/queue/a | after"), broker.now)
    assert alice.protocol.is_resting
    bob.subscribe("/queue/a")  # and all have had their turn

    assert bob.bodies() == ["after"]


def test_nack_is_followed_by_a_rest() -> None:
    broker = BrokerHarness()
    alice = broker.connect()
    alice.subscribe("/queue/a", "ack:client-individual", "prefetch-count:1")
    alice.publish("/queue/a", "x")
    fields, _ = alice.message()

    alice.protocol.receive_data(said(*[f"NACK id:{fields['ack']}"] * 3), broker.now)

    assert alice.protocol.is_resting
    assert broker.broker.queues.by_name["/queue/a"].store.depth == 1


@pytest.mark.parametrize("command", ["ACK", "NACK"])
@pytest.mark.parametrize("transaction", ["", "; transaction:t"])
def test_search_through_many_subscriptions_is_followed_by_a_rest(command: str, transaction: str) -> None:
    broker = BrokerHarness()
    alice = broker.connect("1.1")
    alice.say("BEGIN transaction:t")
    for number in range(101):
        alice.subscribe("/queue/a", "ack:client", id=str(number))

    alice.protocol.receive_data(said(*[f"{command} message-id:m-1{transaction}"] * 2), broker.now)

    assert alice.protocol.is_resting


def test_acks_of_one_that_rests_and_goes_count_and_its_subscribe_does_not() -> None:
    broker = BrokerHarness()
    alice = broker.connect()
    alice.subscribe("/queue/a", "ack:client")
    alice.publish("/queue/a", "x")
    fields, _ = alice.message()

    lines = ["SUBSCRIBE id:g; destination:/topic/*", f"ACK id:{fields['ack']}"]
    lines += ["SUBSCRIBE id:t; destination:/topic/t; durable:true", "DISCONNECT"]
    alice.protocol.receive_data(said(*lines), broker.now)
    assert alice.protocol.is_resting
    alice.lose()

    assert not broker.broker.queues.by_name
    assert not broker.broker.durable_sessions.by_id


def test_peer_that_rests_is_not_missed_for_its_beats() -> None:
    broker = BrokerHarness()
    alice = broker.connect(heart_beat="1000,0")

    alice.protocol.receive_data(said("SUBSCRIBE id:g; destination:/topic/*"), broker.now)
    assert alice.protocol.tick(broker.now + 100) > 0

    assert not alice.protocol.is_finished


def test_fault_behind_a_rest_is_told() -> None:
    broker = BrokerHarness()
    alice = broker.connect()

    alice.send(said("SUBSCRIBE id:g; destination:/topic/*") + b"NONSENSE\n\n\0")

    (frame,) = alice.received()
    assert frame[1]["message"] == "unknown command 'NONSENSE'"


# Large snapshots


@pytest.fixture
def full() -> BrokerHarness:
    """A broker with many last values."""
    broker = BrokerHarness(Limits(max_unacked_values=VALUES * 2))
    alice = broker.connect()
    alice.publish("X/0", "0")
    for number in range(1, VALUES):
        alice.protocol.receive_data(said(f"SEND destination:X/{number} | {number}"), broker.now)
    broker.settle()
    return broker


def ask(peer: Peer, broker: BrokerHarness, *headers: str) -> None:
    """SUBSCRIBE to all values, and stop after the first portion."""
    line = "; ".join(("SUBSCRIBE id:s; destination:X/**; eager:true; snapshot:true", *headers))
    peer.protocol.receive_data(said(line), broker.now)
    assert peer.protocol.is_resting
    assert not peer.received()


def told(peer: Peer) -> tuple[list[str], list[str]]:
    """The destinations that it was told of, and those that said it was the end."""
    frames = [frame for frame in peer.received() if frame[0] == "MESSAGE"]
    ends = [frame[1]["destination"] for frame in frames if frame[1].get("snapshot") == "end"]
    return [frame[1]["destination"] for frame in frames], ends


def test_large_snapshot_is_told_whole_once_and_with_its_end(full: BrokerHarness) -> None:
    bob = full.connect()

    ask(bob, full)
    full.settle()

    destinations, ends = told(bob)
    assert destinations == [f"X/{number}" for number in range(VALUES)]
    assert ends == [f"X/{VALUES - 1}"]


def test_what_changes_meanwhile_is_told_as_it_is_at_the_end(full: BrokerHarness) -> None:
    bob, alice = full.connect(), full.connect()

    ask(bob, full)
    lines = ["SEND destination:X/1 | new", f"SEND destination:X/{VALUES - 1} | new", "SEND destination:X/2"]
    lines += [f"SEND destination:X/{VALUES - 2}", "SEND destination:X/later | new"]
    alice.protocol.receive_data(said(*lines), full.now)
    full.settle()

    frames = [frame for frame in bob.received() if frame[0] == "MESSAGE"]
    bodies = {frame[1]["destination"]: "".join(frame[2:]) for frame in frames}
    assert len(frames) == len(bodies)
    changed = {
        name: bodies.pop(name) for name in ("X/1", f"X/{VALUES - 1}", "X/2", f"X/{VALUES - 2}", "X/later")
    }
    assert list(changed.values()) == ["new", "new", "", "", "new"]
    assert bodies == {f"X/{number}": str(number) for number in (0, *range(3, VALUES - 2))}
    assert sum(frame[1].get("snapshot") == "end" for frame in frames) == 1


def test_end_of_a_snapshot_is_not_told_because_all_that_was_found_so_far_has_gone(
    full: BrokerHarness,
) -> None:
    bob, alice = full.connect(), full.connect()

    ask(bob, full)
    lines = [f"SEND destination:X/{number}" for number in range(VALUES // 2)]
    alice.protocol.receive_data(said(*lines), full.now)
    full.settle()

    frames = [frame for frame in bob.received() if frame[0] == "MESSAGE"]
    ends = [frame[1]["destination"] for frame in frames if frame[1].get("snapshot") == "end"]
    assert ends == [f"X/{VALUES - 1}"]
    assert sum(len(frame) == 2 for frame in frames) == VALUES // 2


def test_durable_subscription_that_breaks_off_is_owed_the_rest(full: BrokerHarness) -> None:
    bob = full.connect(client_id="bob")
    ask(bob, full, "durable:true")
    bob.lose()
    back = full.connect(client_id="bob")
    back.subscribe("X/**", "durable:true")

    assert sorted(told(back)[0]) == sorted(f"X/{number}" for number in range(VALUES))


def test_who_leaves_much_behind_is_forgotten_as_time_passes(full: BrokerHarness) -> None:
    before = full.broker.account.stored_bytes
    bob = full.connect()
    bob.block()
    ask(bob, full)
    while bob.protocol.is_resting:
        bob.go_on(full.now, in_vain=False)
    bob.lose()
    assert full.broker.account.stored_bytes > before

    full.advance(5)

    assert full.broker.account.stored_bytes == before
    assert not full.broker.values.feeds._departed


def test_snapshot_for_which_there_is_no_room_is_refused_and_leaves_nothing(full: BrokerHarness) -> None:
    before = full.broker.account.stored_bytes
    bob, alice = full.connect(), full.connect()
    account = full.broker.account
    account.max_bytes = account.watermark_bytes = before + 500_000
    bob.block()
    for number in range(3):
        bob.say(f"SUBSCRIBE id:{number}; destination:X/**; eager:true")
    full.advance(5)

    assert b"the broker has no room for all that you would be told" in bob.octets
    assert full.broker.account.stored_bytes == before
    alice.subscribe("X/1", "eager:true")
    assert alice.bodies() == ["1"]
