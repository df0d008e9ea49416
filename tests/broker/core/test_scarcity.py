"""What is kept, and what it costs, where something runs short: disk, memory, room, time, levels."""

from __future__ import annotations

import pytest

from nebula.broker.core.destinations.line import Line
from nebula.broker.core.limits import Limits
from nebula.broker.core.messages import QUEUE_KIND, Head
from nebula.broker.core.policies import DestinationPolicy, WhenFull
from nebula.broker.operations.dead_letters import DeadLetters, Filter
from nebula.broker.operations.rows import Arrivals
from nebula.headers import DEAD_LETTER_QUEUE
from tests.broker.counted import Counted
from tests.broker.harness import WALL_OFFSET, BrokerHarness, Peer
from tests.broker.memory_store import MemoryDisk, MemoryStore

QUEUE = "/queue/orders"
INDIVIDUAL = "ack:client-individual"
PERSISTENT = ["persistent:true"]


def world(disk: MemoryDisk, limits: Limits | None = None, **policy: object) -> BrokerHarness:
    """A broker with a policy for the queue."""
    policies = [DestinationPolicy(pattern=QUEUE, **policy)]  # type: ignore[arg-type]
    return BrokerHarness(limits, policies, store=MemoryStore(disk, page_messages=3))


def take(broker: BrokerHarness, destination: str = QUEUE) -> list[str]:
    """Consume all that waits, to the disk."""
    peer = broker.connect()
    peer.subscribe(destination, INDIVIDUAL)
    messages = peer.received()
    for message in messages:
        peer.ack(message)
    peer.disconnect()
    broker.commit()
    return ["".join(body) for _, _, *body in messages]


def dispositions(peer: Peer) -> list[str | None]:
    return [headers.get("disposition") for command, headers, *_ in peer.received() if command == "RECEIPT"]


@pytest.mark.parametrize("when_full", [WhenFull.DROP_OLDEST, WhenFull.DEAD_LETTER])
def test_low_disk_does_not_empty_a_queue_that_loses_its_oldest(when_full: WhenFull) -> None:
    broker = world(MemoryDisk(), when_full=when_full)
    alice = broker.connect()
    alice.publish(QUEUE, "1", "2", headers=PERSISTENT)
    broker.commit()

    broker.broker.account.is_disk_low = True
    alice.publish(QUEUE, "3", headers=[*PERSISTENT, "receipt:r"])
    broker.commit()

    assert dispositions(alice) == ["rejected-full"]
    assert take(broker) == ["1", "2"]


@pytest.mark.parametrize("end", ["", "full", "expired"])
def test_low_disk_loses_nothing_of_what_was_for_later(end: str) -> None:
    disk = MemoryDisk()
    broker = world(disk, max_messages=1)
    alice = broker.connect()
    headers = [*PERSISTENT, "delay:1000"]
    if end == "expired":
        headers.append(f"expires:{round((WALL_OFFSET + 0.5) * 1000)}")
    alice.publish(QUEUE, "later", headers=headers)
    if end == "full":
        alice.publish(QUEUE, "is there", headers=PERSISTENT)
    broker.commit()

    broker.broker.account.is_disk_low = True
    broker.advance(2.0)
    broker.commit()

    assert take(broker, DEAD_LETTER_QUEUE if end else QUEUE) == ["later"]
    assert disk.delayed == {}
    # Others with the same headers are refused as before.
    alice.publish(QUEUE, "new", headers=[*headers[:2], "receipt:r"])
    alice.publish(QUEUE, "new", headers=[*PERSISTENT, "receipt:r"])
    broker.commit()
    assert dispositions(alice) == ["rejected-full", "rejected-full"]


def test_low_disk_loses_no_dead_letter() -> None:
    broker = world(MemoryDisk())
    alice = broker.connect()
    alice.publish(QUEUE, "1", "2", "3", headers=PERSISTENT)
    bob = broker.connect()
    bob.subscribe(QUEUE, INDIVIDUAL)
    first, second, third = bob.received()
    bob.nack(first, "requeue:false")
    bob.nack(second, "requeue:false")
    broker.commit()

    broker.broker.account.is_disk_low = True
    bob.nack(third, "requeue:false")
    broker.commit()

    # What was on disk may be moved there; what was not has to wait outside.
    broker.connect().publish(QUEUE, "4", headers=PERSISTENT)
    assert take(broker, DEAD_LETTER_QUEUE) == ["1", "2", "3"]


def test_low_disk_takes_no_more_values_but_lets_them_go() -> None:
    broker = world(MemoryDisk())
    alice = broker.connect()
    alice.publish("X/a", "1")
    broker.commit()

    broker.broker.account.is_disk_low = True
    alice.publish("X/a", "2", headers=["receipt:r1"])
    alice.publish("X/b", "3", headers=["receipt:r2", "ephemeral:true"])
    alice.publish("X/a", "", headers=["receipt:r3", "content-length:0"])
    broker.commit()

    assert dispositions(alice) == ["rejected-full", "accepted", "accepted"]


def test_transaction_is_refused_on_a_low_disk() -> None:
    broker = world(MemoryDisk())
    alice = broker.connect()
    broker.broker.account.is_disk_low = True
    alice.say("BEGIN transaction:t")
    alice.publish(QUEUE, "1", headers=[*PERSISTENT, "transaction:t"])
    alice.say("COMMIT transaction:t; receipt:r")
    broker.commit()

    assert dispositions(alice) == ["rejected-full"]
    assert broker.broker.account.dropped["dead-letter-full"] == 0


def test_transaction_is_refused_where_no_more_can_be_delayed() -> None:
    broker = world(MemoryDisk(), Limits(max_delayed_messages=1))
    alice = broker.connect()
    alice.publish(QUEUE, "1", headers=["delay:1000"])
    alice.say("BEGIN transaction:t")
    alice.publish(QUEUE, "2", headers=["delay:1000", "transaction:t"])
    alice.say("COMMIT transaction:t; receipt:r")
    broker.commit()

    assert dispositions(alice) == ["rejected-full"]
    assert broker.broker.queues.get(DEAD_LETTER_QUEUE) is None


def test_sender_waits_quietly_where_nothing_can_be_dropped() -> None:
    broker = world(MemoryDisk(), max_bytes=10_000, when_full=WhenFull.DROP_OLDEST)
    bob = broker.connect()
    bob.subscribe(QUEUE, INDIVIDUAL)
    alice = broker.connect()
    alice.publish(QUEUE, "a" * 5_000)
    (message,) = bob.received()
    alice.publish(QUEUE, "b" * 5_000, headers=["receipt:r"])
    assert alice.is_held_back

    bob.ack(message)
    assert dispositions(alice) == ["accepted"]


def test_queue_that_was_deep_keeps_to_its_length() -> None:
    limits = Limits(queue_window_bytes=2000)
    broker = world(MemoryDisk(), limits, max_messages=40, when_full=WhenFull.DROP_OLDEST)
    alice = broker.connect()
    for number in range(30):
        alice.publish(QUEUE, str(number), headers=PERSISTENT)
        broker.commit()
    bob = broker.connect()
    bob.subscribe(QUEUE, INDIVIDUAL, "prefetch-count:40")
    alice.publish(QUEUE, *map(str, range(30, 50)), headers=["receipt:r"])
    broker.commit()

    # All forty are un-ACKed: there is none to be dropped.
    assert dispositions(alice) == ["accepted"] * 10
    assert len(bob.bodies()) == 40


@pytest.mark.parametrize("has_priorities", [False, True])
def test_what_a_policy_gives_levels_or_takes_them_is_settled_for_good(*, has_priorities: bool) -> None:
    disk = MemoryDisk()
    broker = world(disk, has_priorities=has_priorities)
    broker.connect().publish(QUEUE, "1", headers=[*PERSISTENT, "priority:9"])
    broker.commit()
    broker.stop()

    broker = world(disk, has_priorities=not has_priorities)
    assert take(broker) == ["1"]
    assert disk.messages == {}


def test_dead_letter_that_is_put_back_keeps_its_level_and_is_settled_for_good() -> None:
    disk = MemoryDisk()
    broker = world(disk, has_priorities=True)
    broker.connect().publish(QUEUE, "1", headers=[*PERSISTENT, "priority:9"])
    bob = broker.connect()
    bob.subscribe(QUEUE, INDIVIDUAL)
    bob.nack(bob.received()[0], "requeue:false")
    bob.disconnect()
    for _ in DeadLetters(broker.broker, Arrivals(1, 0.0)).replay(Filter(), 10, broker.now):
        pass
    broker.commit()
    broker.stop()

    broker = world(disk, has_priorities=True)
    broker.connect().publish(QUEUE, "2", headers=[*PERSISTENT, "priority:8"])
    assert take(broker) == ["1", "2"]
    assert disk.messages == {}


def test_copy_of_what_bears_a_priority_is_settled_for_good() -> None:
    disk = MemoryDisk()
    policies = [
        DestinationPolicy(pattern="X/a", copy_to="/queue/copies"),
        DestinationPolicy(pattern="/queue/copies", has_priorities=True),
    ]
    broker = BrokerHarness(None, policies, store=MemoryStore(disk, page_messages=3))
    broker.connect().publish("X/a", "1", headers=["priority:9"])
    broker.commit()
    broker.stop()

    broker = BrokerHarness(None, policies, store=MemoryStore(disk, page_messages=3))
    assert take(broker, "/queue/copies") == ["1"]
    assert disk.messages == {}


def test_what_a_restart_brought_back_may_leave_memory_again() -> None:
    disk = MemoryDisk()
    broker = world(disk, Limits(queue_window_bytes=100_000))
    alice = broker.connect()
    alice.publish(QUEUE, *map(str, range(12)), headers=PERSISTENT)
    broker.commit()
    broker.stop()

    # As a store gives shallow lines whole, and many of them make memory scarce.
    broker = BrokerHarness(Limits(queue_window_bytes=2000), store=MemoryStore(disk, page_messages=1000))
    broker.connect().publish("/queue/other", "x", headers=PERSISTENT)
    broker.commit()

    found = broker.broker.queues.get(QUEUE)
    assert found is not None
    assert found.store.paging.paged_bytes > 0


def test_much_that_is_due_at_once_comes_in_portions_and_in_order() -> None:
    broker = world(MemoryDisk())
    alice = broker.connect()
    many = 6_000
    alice.publish(QUEUE, *map(str, range(many)), headers=["delay:1000"])

    broker.broker.advance(1.0)
    found = broker.broker.queues.get(QUEUE)
    assert found is not None
    assert 0 < found.store.depth < many

    broker.broker.advance(1.25)
    assert [int(each.body) for each in found.store.line.in_memory()] == list(range(many))


@pytest.mark.interpreted
def test_window_that_comes_back_one_by_one_costs_in_proportion() -> None:
    line, many = Line(QUEUE), 1_000
    head = Head(QUEUE_KIND, QUEUE, "anonymous", ())
    messages = [Counted(head, b"", number, 0.0) for number in range(many + 1)]
    line.append(messages[many])

    Counted.looks = 0
    for message in messages[:many]:
        line.put_back([message])

    assert Counted.looks < 50 * many
    assert list(line.in_memory()) == messages


def test_consumer_that_settles_nothing_does_not_bring_a_deep_queue_into_memory() -> None:
    most_bytes = 60_000
    broker = world(MemoryDisk(), Limits(queue_window_bytes=8000, max_queue_memory_bytes=most_bytes))
    alice, many = broker.connect(), 100
    for number in range(many):
        alice.publish(QUEUE, str(number), headers=PERSISTENT)
        broker.commit()
    bob = broker.connect()
    bob.subscribe(QUEUE, INDIVIDUAL)
    found = broker.broker.queues.get(QUEUE)
    assert found is not None
    assert found.store.stored_bytes < most_bytes
    assert found.store.paging.paged_bytes > 0

    messages = bob.received()
    for message in messages:
        bob.ack(message)
        more = bob.received()
        messages += more
        assert found.store.stored_bytes < most_bytes
    assert ["".join(body) for _, _, *body in messages] == [str(number) for number in range(many)]
