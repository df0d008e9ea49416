"""What single queues do otherwise: when they are full, with time, by priority (G.forms)."""

from __future__ import annotations

import pytest

from nebula.broker.core.limits import Limits
from nebula.broker.core.policies import DestinationPolicy, SlowSubscriber, WhenFull
from nebula.headers import DEAD_LETTER_QUEUE
from tests.broker.harness import WALL_OFFSET, BrokerHarness, Peer
from tests.broker.memory_store import MemoryDisk, MemoryStore

QUEUE = "/queue/orders"
INDIVIDUAL = "ack:client-individual"


def world(*, limits: Limits | None = None, **policy: object) -> BrokerHarness:
    """A broker with a policy for the queue."""
    return BrokerHarness(limits, [DestinationPolicy(pattern=QUEUE, **policy)])  # type: ignore[arg-type]


def drain(broker: BrokerHarness, destination: str = QUEUE) -> list[str]:
    peer = broker.connect()
    peer.subscribe(destination)
    bodies = peer.bodies()
    peer.disconnect()
    return bodies


def dead(broker: BrokerHarness) -> list[tuple[str, str, str]]:
    """Reason, origin and body of each dead letter, which are taken."""
    peer = broker.connect()
    peer.subscribe(DEAD_LETTER_QUEUE)
    letters = [
        (headers["dead-letter-reason"], headers["dead-letter-from"], "".join(body))
        for _, headers, *body in peer.received()
    ]
    peer.disconnect()
    return letters


def milliseconds(broker: BrokerHarness, seconds: float) -> int:
    """What the wall clock shows so many seconds from now."""
    return round((WALL_OFFSET + broker.now + seconds) * 1000)


# --- full ---


def test_queue_that_drops_the_oldest_is_never_full() -> None:
    broker = world(max_messages=2, when_full=WhenFull.DROP_OLDEST)
    alice = broker.connect()
    alice.publish(QUEUE, "1", "2", "3", headers=["receipt:r"])

    assert [headers["disposition"] for _, headers, *_ in alice.received()] == ["accepted"] * 3
    assert broker.broker.account.dropped == {"full": 1}
    assert drain(broker) == ["2", "3"]


def test_queue_that_buries_the_oldest_says_so() -> None:
    broker = world(max_messages=2, when_full=WhenFull.DEAD_LETTER)
    broker.connect().publish(QUEUE, "1", "2", "3", "4")

    assert dead(broker) == [("full", QUEUE, "1"), ("full", QUEUE, "2")]
    assert drain(broker) == ["3", "4"]


def test_bytes_make_room_too() -> None:
    broker = world(max_bytes=10_000, when_full=WhenFull.DROP_OLDEST)
    broker.connect().publish(QUEUE, *(letter * 3000 for letter in "abc"), headers=["kind:x"])

    assert [body[0] for body in drain(broker)] == ["b", "c"]


def test_message_that_could_never_fit_is_refused_and_costs_nobody_a_place() -> None:
    broker = world(max_bytes=5000, when_full=WhenFull.DROP_OLDEST)
    alice = broker.connect()
    alice.publish(QUEUE, "small")
    alice.publish(QUEUE, "x" * 9000, headers=["receipt:r"])

    assert alice.received()[0][1]["disposition"] == "rejected-full"
    assert drain(broker) == ["small"]


def test_what_is_unacked_is_not_dropped_for_room() -> None:
    broker = world(max_messages=2, when_full=WhenFull.DROP_OLDEST)
    bob = broker.connect()
    bob.subscribe(QUEUE, INDIVIDUAL, "prefetch-count:2")
    alice = broker.connect()
    alice.subscribe("/topic/else")  # so it is not held back
    alice.publish(QUEUE, "1", "2", "3", headers=["receipt:r"])

    assert [headers["disposition"] for _, headers, *_ in alice.received()] == ["accepted"] * 2 + [
        "rejected-full"
    ]
    assert bob.bodies() == ["1", "2"]


def test_full_queue_on_a_low_disk_refuses_what_is_to_be_kept() -> None:
    broker = BrokerHarness(store=MemoryStore(MemoryDisk()))
    broker.broker.account.is_disk_low = True
    alice = broker.connect()
    alice.publish(QUEUE, "kept", headers=["persistent:true", "receipt:1"])
    alice.publish(QUEUE, "light", headers=["receipt:2"])

    assert [headers["disposition"] for _, headers, *_ in alice.received()] == ["rejected-full", "accepted"]


# --- time ---


def test_message_that_waits_for_longer_than_its_queue_lets_it_is_dead() -> None:
    broker = world(time_to_live=10.0)
    alice = broker.connect()
    alice.publish(QUEUE, "old")
    broker.advance(6)
    alice.publish(QUEUE, "new")
    broker.advance(5)

    assert dead(broker) == [("expired", QUEUE, "old")]
    assert drain(broker) == ["new"]


def test_request_that_waits_too_long_is_counted_and_no_dead_letter() -> None:
    broker = world(time_to_live=10.0)
    broker.connect().publish(QUEUE, "ask", headers=["neb-timeout:2000"])
    broker.advance(3)

    assert DEAD_LETTER_QUEUE not in broker.destinations
    assert broker.broker.account.dropped == {"expired": 1}


def test_own_time_is_told_by_its_header_and_no_request_is_made_of_it() -> None:
    broker = BrokerHarness()
    expires = milliseconds(broker, 10)
    broker.connect().publish(QUEUE, "x", headers=[f"expires:{expires}"])
    bob = broker.connect()
    bob.subscribe(QUEUE)

    headers, _ = bob.message()
    assert headers["expires"] == str(expires)
    assert "neb-timeout" not in headers


def test_expired_message_is_dead_and_does_not_expire_again() -> None:
    broker = BrokerHarness()
    expires = milliseconds(broker, 5)
    broker.connect().publish(QUEUE, "x", headers=[f"expires:{expires}"])
    broker.advance(6)
    broker.advance(100)
    carol = broker.connect()
    carol.subscribe(DEAD_LETTER_QUEUE)

    headers, _ = carol.message()
    assert headers["dead-letter-reason"] == "expired"
    assert headers["dead-letter-expires"] == str(expires)
    assert "expires" not in headers


def test_message_that_comes_too_late_is_dead_at_once() -> None:
    broker = BrokerHarness()
    bob = broker.connect()
    bob.subscribe(QUEUE)
    alice = broker.connect()
    alice.publish(QUEUE, "x", headers=[f"expires:{milliseconds(broker, -1)}", "receipt:r"])

    assert alice.received()[0][1]["disposition"] == "accepted"
    assert bob.received() == []
    assert dead(broker) == [("expired", QUEUE, "x")]


def test_expiry_survives_a_restart_as_what_it_was() -> None:
    disk = MemoryDisk()
    broker = BrokerHarness(store=MemoryStore(disk))
    alice = broker.connect()
    alice.publish(QUEUE, "mail", headers=[f"expires:{milliseconds(broker, 5)}", "persistent:true"])
    alice.publish(QUEUE, "ask", headers=["neb-timeout:5000", "persistent:true"])
    broker.commit()
    again = BrokerHarness(store=MemoryStore(disk))
    again.advance(6)
    again.commit()

    assert dead(again) == [("expired", QUEUE, "mail")]
    assert again.broker.account.dropped == {"expired": 1}


def test_durable_subscription_buries_what_expired_while_it_was_away() -> None:
    broker = BrokerHarness()
    bob = broker.connect(client_id="bob")
    bob.subscribe("/topic/news", "durable:true")
    bob.disconnect()
    broker.connect().publish("/topic/news", "x", headers=[f"expires:{milliseconds(broker, 5)}"])
    broker.advance(6)

    assert dead(broker) == [("expired", "/topic/news", "x")]


@pytest.mark.parametrize("has_priorities", [False, True])
def test_much_that_waits_is_looked_at_in_portions(has_priorities: bool) -> None:
    broker = world(has_priorities=has_priorities)
    alice = broker.connect()
    ends = [f"expires:{milliseconds(broker, 5)}"]
    for number in range(50):
        alice.publish(QUEUE, str(number), headers=[f"priority:{number % 5}", *(ends if number % 3 else [])])
    queue = broker.broker.queues.get(QUEUE)
    assert queue is not None
    portions = []
    while looked := queue.store.expire(6.0, 7):
        portions.append(looked)
    broker.settle()

    assert sum(portions) == 50
    assert max(portions) == 7
    kept = [number for number in range(50) if not number % 3]
    if has_priorities:
        kept.sort(key=lambda number: -(number % 5))
    assert len(dead(broker)) == 50 - len(kept)
    assert drain(broker) == list(map(str, kept))


@pytest.mark.parametrize("header", ["expires", "delay", "deliver-at", "priority"])
@pytest.mark.parametrize("value", ["", "-1", "1.5", "soon", "12345678901234567"])
def test_value_outside_its_form_is_a_verdict(header: str, value: str) -> None:
    alice = BrokerHarness().connect()
    alice.publish(QUEUE, "x", headers=[f"{header}:{value}", "receipt:r"])

    assert alice.received()[0][1]["disposition"] == "rejected-invalid"
    assert not alice.is_closed


# --- priority ---


def test_highest_priority_goes_first_and_equals_in_order() -> None:
    broker = world(has_priorities=True)
    alice = broker.connect()
    for body, level in [("a", "4"), ("b", "0"), ("c", "9"), ("d", None), ("e", "9")]:
        alice.publish(QUEUE, body, headers=[] if level is None else [f"priority:{level}"])

    assert drain(broker) == ["c", "e", "a", "d", "b"]


def test_what_comes_back_keeps_its_level() -> None:
    broker = world(has_priorities=True)
    bob = broker.connect()
    bob.subscribe(QUEUE, INDIVIDUAL, "prefetch-count:2")
    alice = broker.connect()
    alice.publish(QUEUE, "low", headers=["priority:1"])
    alice.publish(QUEUE, "high", headers=["priority:8"])
    alice.publish(QUEUE, "middle", headers=["priority:5"])
    bob.lose()

    assert drain(broker) == ["high", "middle", "low"]


def test_queue_without_priorities_ignores_them_and_passes_them_on() -> None:
    broker = BrokerHarness()
    alice = broker.connect()
    alice.publish(QUEUE, "low", headers=["priority:1"])
    alice.publish(QUEUE, "high", headers=["priority:8"])
    bob = broker.connect()
    bob.subscribe(QUEUE)

    assert [(headers["priority"], *body) for _, headers, *body in bob.received()] == [
        ("1", "low"),
        ("8", "high"),
    ]


def test_full_queue_with_priorities_drops_the_oldest_of_the_lowest() -> None:
    broker = world(has_priorities=True, max_messages=3, when_full=WhenFull.DROP_OLDEST)
    alice = broker.connect()
    for number, level in enumerate("9150"):
        alice.publish(QUEUE, f"{number}", headers=[f"priority:{level}"])

    assert drain(broker) == ["0", "2", "3"]


def test_priorities_survive_a_restart() -> None:
    disk = MemoryDisk()
    policy = DestinationPolicy(pattern=QUEUE, has_priorities=True)
    broker = BrokerHarness(policies=[policy], store=MemoryStore(disk))
    alice = broker.connect()
    for level in "1948":
        alice.publish(QUEUE, level, headers=[f"priority:{level}", "persistent:true"])
    broker.commit()

    assert drain(BrokerHarness(policies=[policy], store=MemoryStore(disk))) == ["9", "8", "4", "1"]


# --- slow subscribers of topics ---


def slow_reader(broker: BrokerHarness, destination: str, *headers: str) -> Peer:
    bob = broker.connect()
    bob.subscribe(destination, *headers)
    bob.block()
    for number in range(40):
        broker.connect().publish("/topic/news", f"{number:<500}")
    return bob


SLOW = Limits(max_body_bytes=2000, outbox_high_water_bytes=4000, max_outbox_bytes=8000)


@pytest.mark.parametrize("mode", ["ack:auto", "ack:client", INDIVIDUAL])
def test_slow_subscriber_is_disconnected(mode: str) -> None:
    broker = BrokerHarness(SLOW)
    bob = slow_reader(broker, "/topic/news", mode)

    assert bob.is_closed


@pytest.mark.parametrize("mode", ["ack:auto", "ack:client", INDIVIDUAL])
@pytest.mark.parametrize("destination", ["/topic/news", "/topic/*"])
def test_slow_subscriber_loses_the_oldest_where_that_is_wanted(mode: str, destination: str) -> None:
    policy = DestinationPolicy(pattern="/topic/**", slow_subscriber=SlowSubscriber.DROP_OLDEST)
    broker = BrokerHarness(SLOW, [policy])
    bob = slow_reader(broker, destination, mode)
    bob.unblock()

    bodies = [int(body) for body in bob.bodies()]
    assert not bob.is_closed
    assert bodies == sorted(bodies)
    assert bodies[-1] == 39
    assert broker.broker.account.dropped == {"full": 40 - len(bodies)}
    assert len(bodies) < 40
