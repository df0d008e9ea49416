"""Senders that outrun their consumers are slowed, for a while."""

from __future__ import annotations

import pytest

from nebula.broker.core.limits import Limits
from nebula.broker.core.policies import DestinationPolicy
from tests.broker.harness import BrokerHarness, Peer
from tests.broker.script import Received

QUEUE = "/queue/slow"


@pytest.fixture
def broker() -> BrokerHarness:
    """A broker whose queues hold eight messages."""
    return BrokerHarness(Limits(max_queue_messages=8))


def slow_consumer(broker: BrokerHarness, queue: str = QUEUE) -> Peer:
    peer = broker.connect()
    peer.subscribe(queue, "ack:client-individual", "prefetch-count:1")
    return peer


def ack_all(consumer: Peer) -> list[str]:
    """Consume whatever comes, one by one; returns the bodies."""
    bodies: list[str] = []
    while frames := consumer.received():
        for frame in frames:
            bodies += frame[2:]
            consumer.ack(frame)
    return bodies


def verdicts(frames: list[Received]) -> list[str]:
    assert {frame[0] for frame in frames} <= {"RECEIPT"}
    return [frame[1]["disposition"] for frame in frames]


def fill(publisher: Peer, queue: str = QUEUE, count: int = 8) -> None:
    publisher.publish(queue, *(f"old{number}" for number in range(count)))


def test_publisher_is_held_back_when_the_queue_is_full(broker: BrokerHarness) -> None:
    alice, bob = broker.connect(), slow_consumer(broker)
    fill(alice)
    alice.say(f"SEND destination:{QUEUE}; receipt:r | new")

    assert alice.is_held_back
    assert alice.received() == []
    assert len(ack_all(bob)) == 9


def test_publisher_goes_on_when_there_is_room_and_nothing_is_lost_or_reordered(broker: BrokerHarness) -> None:
    alice, bob = broker.connect(), slow_consumer(broker)
    bodies = [str(number) for number in range(100)]
    alice.publish(QUEUE, *bodies)

    assert ack_all(bob) == bodies
    assert not alice.is_held_back


def test_publisher_does_not_flutter_between_full_and_one_less(broker: BrokerHarness) -> None:
    alice, bob = broker.connect(), slow_consumer(broker)
    fill(alice)
    alice.publish(QUEUE, "new")
    waits = []
    for _ in range(2):  # after the first seven eighths are still held
        (frame,) = bob.received()
        bob.ack(frame)
        waits.append(alice.is_held_back)

    assert waits == [True, False]


def test_wait_in_vain_ends_after_max_pause_seconds_with_rejected_full(broker: BrokerHarness) -> None:
    alice, bob = broker.connect(), slow_consumer(broker)
    fill(alice)
    alice.say(f"SEND destination:{QUEUE}; receipt:r | new")
    broker.advance(4.75)
    assert alice.received() == []

    broker.advance(0.25)

    assert verdicts(alice.received()) == ["rejected-full"]
    assert not alice.is_held_back
    assert broker.broker.account.dropped["rejected-full"] == 1
    assert ack_all(bob) == [f"old{number}" for number in range(8)]


def test_no_send_waits_longer_than_max_pause_seconds_though_others_take_the_room() -> None:
    broker = BrokerHarness(Limits(max_queue_messages=8, max_pause_seconds=1))
    bob = slow_consumer(broker)
    since = {broker.connect(): broker.now for _ in range(60)}
    waits: list[float] = []
    outcomes: list[str] = []
    for publisher in since:
        publisher.publish(QUEUE, "x", headers=["receipt:r"])
    for _ in range(80):
        for _ in range(3):
            bob.ack(bob.received()[0])
        broker.advance(0.25)
        for publisher, at in since.items():
            for verdict in verdicts(publisher.received()):
                outcomes.append(verdict)
                waits.append(broker.now - at)
                since[publisher] = broker.now
                publisher.publish(QUEUE, "x", headers=["receipt:r"])
    waits += [broker.now - at for at in since.values()]

    assert max(waits) <= 1
    assert {"accepted", "rejected-full"} == set(outcomes)


def test_wait_that_others_made_vain_stops_nobody_else_from_waiting() -> None:
    broker = BrokerHarness(Limits(max_queue_messages=8, max_pause_seconds=1))
    bob, alice, carol = slow_consumer(broker), broker.connect(), broker.connect()
    fill(carol)
    carol.publish(QUEUE, "1", "2", "3", headers=["receipt:c"])
    alice.publish(QUEUE, "late", headers=["receipt:a"])
    broker.advance(0.5)
    for _ in range(2):
        bob.ack(bob.received()[0])  # room for two, which the one who has waited longer takes
    assert len(carol.received()) == 2
    assert (alice.is_held_back, carol.is_held_back) == (True, True)
    broker.advance(0.5)

    assert verdicts(alice.received()) == ["rejected-full"]
    assert carol.is_held_back
    # The consumer is alive.
    dave = broker.connect()
    dave.publish(QUEUE, "new")
    assert dave.is_held_back


def test_after_one_wait_in_vain_nobody_waits_until_a_consumer_moves(broker: BrokerHarness) -> None:
    alice, bob, carol = broker.connect(), slow_consumer(broker), broker.connect()
    fill(alice)
    alice.publish(QUEUE, "x")
    broker.advance(5)
    carol.say(*[f"SEND destination:{QUEUE}; receipt:r | y"] * 3)
    assert verdicts(carol.received()) == ["rejected-full"] * 3

    (first,) = bob.received()
    bob.ack(first)  # it consumes again
    carol.say(*[f"SEND destination:{QUEUE}; receipt:r | z"] * 2)

    assert verdicts(carol.received()) == ["accepted"]
    assert carol.is_held_back


def test_full_queue_that_nobody_consumes_holds_nobody_back(broker: BrokerHarness) -> None:
    alice = broker.connect()
    fill(alice)
    alice.say(f"SEND destination:{QUEUE}; receipt:r | new")

    assert verdicts(alice.received()) == ["rejected-full"]
    assert not alice.is_held_back


def test_refusal_without_a_receipt_is_counted(broker: BrokerHarness) -> None:
    alice = broker.connect()
    fill(alice, count=11)

    assert alice.received() == []
    assert broker.broker.account.dropped["rejected-full"] == 3


def test_connection_that_consumes_is_never_held_back(broker: BrokerHarness) -> None:
    alice, bob = broker.connect(), slow_consumer(broker)
    alice.subscribe("/topic/anything")
    fill(alice)
    alice.say(f"SEND destination:{QUEUE}; receipt:r | new")

    assert not alice.is_held_back
    assert verdicts(alice.received()) == ["rejected-full"]
    assert len(ack_all(bob)) == 8


def test_consumer_that_answers_into_a_full_queue_keeps_its_acks_flowing(broker: BrokerHarness) -> None:
    worker, caller = broker.connect(), slow_consumer(broker, "/queue/replies")
    fill(broker.connect(), "/queue/replies")
    worker.subscribe("/queue/requests", "ack:client-individual", "prefetch-count:1")
    broker.connect().publish("/queue/requests", *map(str, range(5)))
    for _ in range(5):
        (request,) = worker.received()
        worker.publish("/queue/replies", "reply")
        worker.ack(request)

    assert worker.received() == []
    assert "/queue/requests" in broker.destinations
    assert broker.broker.account.dropped["rejected-full"] == 5
    assert len(ack_all(caller)) == 8


def test_dead_queue_does_not_stop_its_sender_for_an_alive_one(broker: BrokerHarness) -> None:
    alice, dead, alive = broker.connect(), slow_consumer(broker), slow_consumer(broker, "/queue/alive")
    fill(alice)
    for number in range(20):
        alice.publish(QUEUE, "lost")
        alice.publish("/queue/alive", str(number))
    assert ack_all(alive) == []  # behind the first one that waits

    broker.advance(5)

    assert ack_all(alive) == [str(number) for number in range(20)]
    assert not alice.is_held_back
    assert broker.broker.account.dropped["rejected-full"] == 20
    assert len(dead.received()) == 1


def test_frames_behind_a_held_back_send_are_handled_in_order(broker: BrokerHarness) -> None:
    alice, bob = broker.connect(), slow_consumer(broker)
    fill(alice)
    alice.say(
        f"SEND destination:{QUEUE}; receipt:1 | a",
        "SEND destination:/queue/other; receipt:2 | b",
        "DISCONNECT receipt:3",
    )
    assert alice.received() == []

    ack_all(bob)

    assert [frame[1]["receipt-id"] for frame in alice.received()] == ["1", "2", "3"]
    assert alice.is_closed


def test_octets_that_come_while_held_back_are_kept(broker: BrokerHarness) -> None:
    alice, bob = broker.connect(), slow_consumer(broker)
    fill(alice)
    alice.publish(QUEUE, "a")
    alice.protocol.receive_data(b"SEND\ndestination:/queue/slow\n\nb", broker.now)  # read already
    alice.protocol.receive_data(b"\0SEND\ndestination:/queue/slow\n\nc\0", broker.now)

    assert ack_all(bob)[8:] == ["a", "b", "c"]


def test_sends_that_were_parked_count_when_the_connection_is_lost(broker: BrokerHarness) -> None:
    alice, bob = broker.connect(), slow_consumer(broker)
    fill(alice)
    alice.say(f"SEND destination:{QUEUE} | full", "SEND destination:/queue/other | 1")
    alice.protocol.receive_data(b"SEND\ndestination:/queue/other\n\n2\0", broker.now)
    alice.lose()

    carol = broker.connect()
    carol.subscribe("/queue/other")
    assert carol.bodies() == ["1", "2"]
    assert len(ack_all(bob)) == 8


@pytest.mark.parametrize(
    "end",
    [
        "DISCONNECT",
        "CONNECT accept-version:1.2",
        "SEND no-destination:x",
        "SEND destination:/queue/o; transaction:t",
    ],
)
def test_nothing_counts_behind_a_parked_frame_that_ends_the_session(broker: BrokerHarness, end: str) -> None:
    alice, bob = broker.connect(), slow_consumer(broker)
    fill(alice)
    alice.say(f"SEND destination:{QUEUE} | full", end, "SEND destination:/queue/other | 1")
    alice.lose()

    assert "/queue/other" not in broker.destinations
    assert len(ack_all(bob)) == 8


def test_held_back_peer_may_beat_or_not_and_is_not_dead() -> None:
    broker = BrokerHarness(Limits(max_queue_messages=8, max_pause_seconds=60))
    alice, bob = broker.connect(heart_beat="1000,1000"), slow_consumer(broker)
    fill(alice)
    alice.publish(QUEUE, "new")
    broker.advance(30)  # of beats of 1 s
    assert alice.is_held_back
    assert not alice.octets.count(b"ERROR")

    ack_all(bob)
    broker.advance(1.75)
    assert not alice.octets.count(b"ERROR")
    broker.advance(0.5)

    assert alice.received()[0][1]["message"] == "no heart-beat came in time"


def test_held_back_peer_is_told_that_we_live() -> None:
    broker = BrokerHarness(Limits(max_queue_messages=8, max_pause_seconds=60))
    alice, _bob = broker.connect(heart_beat="1000,1000"), slow_consumer(broker)
    fill(alice)
    alice.publish(QUEUE, "new")
    written = len(alice.octets)
    broker.advance(10)

    assert alice.octets[written:] == b"\n" * 20


def test_two_hundred_publishers_are_all_held_back_and_all_served(broker: BrokerHarness) -> None:
    bob = slow_consumer(broker)
    publishers = [broker.connect() for _ in range(200)]
    for number, publisher in enumerate(publishers):
        publisher.publish(QUEUE, *(f"{number}-{each}" for each in range(3)))
    assert sum(publisher.is_held_back for publisher in publishers) == 198

    bodies = ack_all(bob)

    assert len(bodies) == 600
    assert not any(publisher.is_held_back for publisher in publishers)
    for number in range(200):
        theirs = [body for body in bodies if body.startswith(f"{number}-")]
        assert theirs == [f"{number}-{each}" for each in range(3)]


def test_queue_whose_consumers_are_gone_lets_its_senders_go(broker: BrokerHarness) -> None:
    alice, bob = broker.connect(), slow_consumer(broker)
    fill(alice)
    alice.say(f"SEND destination:{QUEUE}; receipt:r | new")
    bob.lose()
    broker.advance(5)

    assert verdicts(alice.received()) == ["rejected-full"]


def test_auto_delete_queue_that_goes_lets_its_senders_go(broker: BrokerHarness) -> None:
    alice, bob = broker.connect(), broker.connect()
    bob.subscribe(QUEUE, "auto-delete:true", "ack:client", "prefetch-count:1")
    fill(alice)
    alice.say(f"SEND destination:{QUEUE}; receipt:r | new")
    bob.lose()

    assert verdicts(alice.received()) == ["accepted"]


# Large messages and small queues


def test_message_that_no_room_would_ever_suffice_for_is_refused_at_once() -> None:
    broker = BrokerHarness(policies=[DestinationPolicy(pattern=QUEUE, max_bytes=10_000)])
    alice, bob = broker.connect(), slow_consumer(broker)
    alice.publish(QUEUE, "x" * 2000)
    alice.say(f"SEND destination:{QUEUE}; receipt:r | " + "x" * 10_000)

    assert verdicts(alice.received()) == ["rejected-full"]
    assert bob.bodies() == ["x" * 2000]


def test_message_larger_than_the_margin_waits_until_it_fits() -> None:
    broker = BrokerHarness(policies=[DestinationPolicy(pattern=QUEUE, max_bytes=10_000)])
    alice, bob = broker.connect(), slow_consumer(broker)
    alice.publish(QUEUE, "x" * 2000, "x" * 2000)
    alice.say(f"SEND destination:{QUEUE}; receipt:r | " + "y" * 6000)
    assert alice.is_held_back

    assert [body[0] for body in ack_all(bob)] == ["x", "x", "y"]
    assert verdicts(alice.received()) == ["accepted"]


def test_refused_send_leaves_no_queue_behind() -> None:
    broker = BrokerHarness(policies=[DestinationPolicy(pattern="/queue/*", max_bytes=100)])
    alice = broker.connect()
    alice.say("SEND destination:/queue/new; receipt:r | x")

    assert verdicts(alice.received()) == ["rejected-full"]
    assert broker.destinations == {}


def test_all_queues_together_are_bounded() -> None:
    limits = Limits(max_body_bytes=1000, max_queue_bytes=20_000, max_memory_bytes=90_000)
    broker = BrokerHarness(limits)
    alice = broker.connect()
    for number in range(30):
        alice.say(f"SEND destination:/queue/{number}; receipt:r | " + "x" * 1000)
    # Whoever publishes waits first: anybody's consumer may make room.
    held_back = [alice.is_held_back]
    broker.advance(limits.max_pause_seconds + 1)
    # Once in vain is enough: the others are told at once.
    held_back.append(alice.is_held_back)
    assert held_back == [True, False]

    outcomes = verdicts(alice.received())
    accepted = outcomes.count("accepted")
    assert 5 < accepted < 20
    assert outcomes == ["accepted"] * accepted + ["rejected-full"] * (30 - accepted)
    assert 80_000 < broker.broker.account.stored_bytes <= 90_000


def test_publisher_goes_on_when_anybody_has_made_room_in_the_brokers_memory() -> None:
    broker = BrokerHarness(Limits(max_body_bytes=1000, max_queue_bytes=20_000, max_memory_bytes=150_000))
    alice, bob = broker.connect(), broker.connect()
    for number in range(30):
        alice.say(f"SEND destination:/queue/{number}; receipt:r | " + "x" * 1000)
    accepted = len(alice.received())
    assert alice.is_held_back

    for number in range(30):
        bob.subscribe(f"/queue/{number}", id=str(number))
    assert verdicts(alice.received()) == ["accepted"] * (30 - accepted)


# Slow sockets


def test_queue_does_not_dispatch_to_a_consumer_that_does_not_read(broker: BrokerHarness) -> None:
    alice, bob, carol = broker.connect(), broker.connect(), broker.connect()
    bob.subscribe(QUEUE)
    carol.subscribe(QUEUE)
    bob.block()
    alice.publish(QUEUE, "1", "2", "3")
    assert carol.bodies() == ["1", "2", "3"]
    carol.block()
    alice.publish(QUEUE, "4")

    bob.unblock()

    assert bob.bodies() == ["4"]


def test_consumer_gets_a_high_water_mark_at_a_time(broker: BrokerHarness) -> None:
    broker = BrokerHarness(Limits(outbox_high_water_bytes=2000))
    alice, bob = broker.connect(), broker.connect()
    bodies = [f"{number:0500}" for number in range(50)]
    alice.publish(QUEUE, *bodies)
    bob.subscribe(QUEUE)

    assert bob.bodies() == bodies


def test_blocked_peer_with_beats_costs_no_timer_that_never_rests(broker: BrokerHarness) -> None:
    alice, bob = broker.connect(), broker.connect(heart_beat="0,1000")
    bob.subscribe("/topic/t")
    bob.block()
    alice.publish("/topic/t", "1")

    broker.advance(10)  # the harness looks at each deadline

    bob.unblock()
    assert bob.bodies() == ["1"]


def test_peer_that_reads_no_receipts_is_ended() -> None:
    limits = Limits(max_body_bytes=1000, outbox_high_water_bytes=1000, max_outbox_bytes=5000)
    broker = BrokerHarness(limits)
    alice = broker.connect()
    alice.block()
    for number in range(200):
        alice.say(f"UNSUBSCRIBE id:x; receipt:{number}")

    assert alice.is_closed
