"""A message that is promised once is delivered when its batch is committed, so a crash doubles nothing.

The store takes what it is given only at `commit`, as a disk does whose sync takes long. A broker that starts
on the same disk finds what was committed: the one before it has crashed.
"""

from __future__ import annotations

import pytest

from nebula.broker.core.limits import Limits
from nebula.broker.core.policies import DestinationPolicy, WhenFull
from nebula.broker.operations.dead_letters import DeadLetters, Filter
from nebula.broker.operations.rows import Arrivals
from nebula.headers import DEAD_LETTER_QUEUE
from tests.broker.harness import WALL_OFFSET, BrokerHarness, Peer
from tests.broker.memory_store import MemoryDisk, MemoryStore
from tests.broker.restarted import start
from tests.broker.script import Received
from tests.broker.walks import result

QUEUE = "/queue/orders"
RECORD = "/queue/record"
PERSISTENT = "persistent:true"
ONCE = [PERSISTENT, "dedup-id:a"]
INDIVIDUAL = "ack:client-individual"
ACK_MODES = ["auto", "client", "client-individual"]


def consumer(broker: BrokerHarness, destination: str = QUEUE, *headers: str) -> Peer:
    peer = broker.connect()
    peer.subscribe(destination, *(headers or [INDIVIDUAL]))
    return peer


def ack_all(peer: Peer) -> list[str]:
    """ACK what came, and say what it was."""
    frames = [frame for frame in peer.received() if frame[0] == "MESSAGE"]
    for frame in frames:
        peer.ack(frame)
    return [body for _, _, body in frames]  # type: ignore[misc]  # each has one


def ids(frames: list[Received]) -> list[str]:
    return [frame[1]["message-id"] for frame in frames]


# --- dedup-id ---


@pytest.mark.parametrize("ack", ACK_MODES)
def test_message_with_an_id_is_delivered_when_its_batch_is_committed(disk: MemoryDisk, ack: str) -> None:
    broker = start(disk)
    bob = consumer(broker, QUEUE, f"ack:{ack}")
    broker.connect().publish(QUEUE, "x", headers=ONCE)
    assert bob.received() == []

    broker.commit()
    assert bob.bodies() == ["x"]


@pytest.mark.parametrize("ack", ACK_MODES)
def test_repetition_after_a_crash_before_the_commit_is_the_only_delivery(disk: MemoryDisk, ack: str) -> None:
    deliveries = []
    for _ in range(3):
        broker = start(disk)
        bob = consumer(broker, QUEUE, f"ack:{ack}")
        broker.connect().publish(QUEUE, "x", headers=ONCE)
        deliveries += bob.bodies()
    broker.commit()

    assert [*deliveries, *bob.bodies()] == ["x"]


def test_repetition_after_the_commit_does_nothing_though_the_consumption_is_lost(disk: MemoryDisk) -> None:
    broker = start(disk)
    bob = consumer(broker)
    broker.connect().publish(QUEUE, "x", headers=ONCE)
    broker.commit()
    first = bob.received()
    bob.ack(first[0])

    # The ACK went with the broker: the message comes again, as the one that it is.
    again = start(disk)
    bob = consumer(again)
    again.connect().publish(QUEUE, "x", headers=ONCE)
    again.commit()
    assert ids(bob.received()) == ids(first)


def test_consumption_that_is_committed_is_the_end_of_it(disk: MemoryDisk) -> None:
    broker = start(disk)
    bob = consumer(broker, QUEUE, "ack:auto")
    broker.connect().publish(QUEUE, "x", headers=ONCE)
    broker.commit()
    assert bob.bodies() == ["x"]
    broker.commit()

    again = start(disk)
    bob = consumer(again)
    again.connect().publish(QUEUE, "x", headers=ONCE)
    again.commit()
    assert bob.received() == []


def test_what_comes_behind_a_message_that_waits_for_its_commit_waits_too(disk: MemoryDisk) -> None:
    broker = start(disk)
    bob = consumer(broker)
    alice = broker.connect()
    alice.publish(QUEUE, "before")
    alice.publish(QUEUE, "once", headers=ONCE)
    alice.publish(QUEUE, "behind")
    assert bob.bodies() == ["before"]

    broker.commit()
    assert bob.bodies() == ["once", "behind"]
    alice.publish(QUEUE, "after")
    assert bob.bodies() == ["after"]


def test_each_batch_is_waited_for_by_its_own_messages(disk: MemoryDisk) -> None:
    broker = start(disk)
    journal = broker.broker.journal
    assert journal is not None
    bob = consumer(broker)
    alice = broker.connect()
    alice.publish(QUEUE, "1", headers=ONCE)
    first, writes = journal.take()
    alice.publish(QUEUE, "2", headers=[PERSISTENT, "dedup-id:b"])
    alice.publish(QUEUE, "3")
    MemoryStore(disk).apply(writes)
    broker.broker.committed(first, broker.now)
    broker.settle()
    assert bob.bodies() == ["1"]

    broker.commit()
    assert bob.bodies() == ["2", "3"]


def test_what_comes_back_meanwhile_is_delivered_at_once(disk: MemoryDisk) -> None:
    broker = start(disk)
    bob = consumer(broker)
    alice = broker.connect()
    alice.publish(QUEUE, "back")
    alice.publish(QUEUE, "once", headers=ONCE)
    bob.nack(bob.received()[0])
    assert bob.bodies() == ["back"]

    broker.commit()
    assert bob.bodies() == ["once"]


@pytest.mark.parametrize("headers", [["dedup-id:a"], [PERSISTENT]])
def test_delivery_of_what_is_not_promised_once_does_not_wait(disk: MemoryDisk, headers: list[str]) -> None:
    broker = start(disk)
    bob = consumer(broker)
    broker.connect().publish(QUEUE, "x", headers=headers)

    assert bob.bodies() == ["x"]


def test_nothing_waits_where_nothing_is_kept() -> None:
    broker = BrokerHarness()
    bob = consumer(broker)
    broker.connect().publish(QUEUE, "x", headers=ONCE)

    assert bob.bodies() == ["x"]


def test_order_of_levels_holds_among_what_waits_for_its_commit(disk: MemoryDisk) -> None:
    broker = start(disk, [DestinationPolicy(pattern=QUEUE, has_priorities=True)])
    bob = consumer(broker)
    alice = broker.connect()
    for level, dedup_id in ((4, "a"), (9, "b"), (0, "c")):
        alice.publish(QUEUE, str(level), headers=[PERSISTENT, f"dedup-id:{dedup_id}", f"priority:{level}"])
    alice.publish(QUEUE, "plain", headers=["priority:9"])
    assert bob.received() == []

    broker.commit()
    assert bob.bodies() == ["9", "plain", "4", "0"]


def test_durable_subscription_has_it_once_and_others_as_long_as_they_are_there(disk: MemoryDisk) -> None:
    def world() -> tuple[BrokerHarness, Peer, Peer]:
        broker = start(disk)
        durable, direct = broker.connect(client_id="bob"), broker.connect()
        durable.subscribe("/topic/news", INDIVIDUAL, "durable:true")
        direct.subscribe("/topic/news")
        return broker, durable, direct

    broker, durable, direct = world()
    broker.commit()
    broker.connect().publish("/topic/news", "x", headers=ONCE)
    assert durable.received() == []
    # Its subscription ends with the broker, and nothing is stored for it.
    assert direct.bodies() == ["x"]

    broker, durable, direct = world()
    broker.connect().publish("/topic/news", "x", headers=ONCE)
    assert durable.received() == []
    broker.commit()
    assert ack_all(durable) == ["x"]
    broker.commit()

    broker, durable, direct = world()
    broker.connect().publish("/topic/news", "x", headers=ONCE)
    broker.commit()
    assert durable.received() == []
    assert direct.received() == []


def test_last_value_is_told_at_once(disk: MemoryDisk) -> None:
    broker = start(disk)
    bob = consumer(broker, "X/a", "ack:auto")
    broker.connect().publish("X/a", "v", headers=["dedup-id:a"])

    assert bob.bodies() == ["v"]


@pytest.mark.parametrize("destination", ["X/EGM.1", "/topic/EGM", QUEUE])
def test_copy_of_a_message_with_an_id_comes_once(disk: MemoryDisk, destination: str) -> None:
    policies = [DestinationPolicy(pattern=destination, copy_to=RECORD)]
    deliveries = []
    for _ in range(2):
        broker = start(disk, policies)
        recorder = consumer(broker, RECORD)
        broker.connect().publish(destination, "x", headers=ONCE)
        deliveries += recorder.bodies()
    broker.commit()
    deliveries += ack_all(recorder)
    broker.commit()

    broker = start(disk, policies)
    recorder = consumer(broker, RECORD)
    broker.connect().publish(destination, "x", headers=ONCE)
    broker.commit()
    assert [*deliveries, *recorder.bodies()] == ["x"]


def test_copy_of_a_message_without_an_id_does_not_wait(disk: MemoryDisk) -> None:
    broker = start(disk, [DestinationPolicy(pattern="X/*", copy_to=RECORD)])
    recorder = consumer(broker, RECORD)
    broker.connect().publish("X/1", "v")

    assert recorder.bodies() == ["v"]


# --- delay ---


def test_delayed_message_that_is_due_comes_when_it_has_left_where_it_waited(disk: MemoryDisk) -> None:
    broker = start(disk)
    broker.connect().publish(QUEUE, "later", headers=["delay:1000", PERSISTENT])
    broker.commit()
    deliveries = []
    for _ in range(2):
        bob = consumer(broker, QUEUE, "ack:auto")
        broker.advance(2)
        deliveries += bob.bodies()
        crashed, broker = broker, start(disk)
    crashed.commit()
    deliveries += bob.bodies()
    crashed.commit()
    bob = consumer(start(disk), QUEUE)

    assert [*deliveries, *bob.bodies()] == ["later"]


def test_delayed_message_that_is_not_kept_does_not_wait_for_a_commit(disk: MemoryDisk) -> None:
    broker = start(disk)
    bob = consumer(broker)
    broker.connect().publish(QUEUE, "later", headers=["delay:1000"])
    broker.advance(2)

    assert bob.bodies() == ["later"]


# --- transactions ---


def test_send_of_a_transaction_comes_when_its_ack_is_committed(disk: MemoryDisk) -> None:
    broker = start(disk)
    broker.connect().publish(QUEUE, "work", headers=[PERSISTENT])
    broker.commit()

    def work(broker: BrokerHarness) -> Peer:
        bob, carol = consumer(broker), consumer(broker, "/queue/done")
        (frame,) = bob.received()
        bob.say("BEGIN transaction:t")
        bob.ack(frame, "transaction:t")
        bob.publish("/queue/done", "done", headers=[PERSISTENT, "transaction:t"])
        bob.say("COMMIT transaction:t")
        return carol

    deliveries = work(broker).bodies()
    # The ACK is undone, and so the work is done again.
    broker = start(disk)
    carol = work(broker)
    deliveries += carol.bodies()
    broker.commit()
    deliveries += ack_all(carol)
    broker.commit()

    broker = start(disk)
    assert [*deliveries, *consumer(broker, "/queue/done").bodies()] == ["done"]
    assert consumer(broker).received() == []


def test_send_of_a_transaction_to_a_durable_subscription_and_as_a_copy_waits_too(disk: MemoryDisk) -> None:
    broker = start(disk, [DestinationPolicy(pattern="/topic/*", copy_to=RECORD)])
    durable, recorder = broker.connect(client_id="bob"), consumer(broker, RECORD)
    durable.subscribe("/topic/news", INDIVIDUAL, "durable:true")
    alice = broker.connect()
    alice.say(
        "BEGIN transaction:t", "SEND destination:/topic/news; transaction:t | x", "COMMIT transaction:t"
    )
    assert (durable.received(), recorder.received()) == ([], [])

    broker.commit()
    assert (durable.bodies(), recorder.bodies()) == (["x"], ["x"])


def test_send_of_a_transaction_that_is_not_kept_comes_at_once(disk: MemoryDisk) -> None:
    broker = start(disk)
    bob = consumer(broker)
    alice = broker.connect()
    alice.say("BEGIN transaction:t", f"SEND destination:{QUEUE}; transaction:t | x", "COMMIT transaction:t")

    assert bob.bodies() == ["x"]


# --- dead letters ---


def kill(broker: BrokerHarness) -> None:
    """Have what waits rejected for good."""
    bob = consumer(broker)
    for frame in bob.received():
        bob.nack(frame, "requeue:false")
    bob.disconnect()


def test_dead_letter_comes_when_it_has_left_where_it_died(disk: MemoryDisk) -> None:
    broker = start(disk)
    broker.connect().publish(QUEUE, "x", headers=[PERSISTENT])
    broker.commit()
    deliveries = []
    for _ in range(2):
        kill(broker)
        carol = consumer(broker, DEAD_LETTER_QUEUE)
        deliveries += carol.bodies()
        crashed, broker = broker, start(disk)
    crashed.commit()
    deliveries += ack_all(carol)
    crashed.commit()

    assert [*deliveries, *consumer(start(disk), DEAD_LETTER_QUEUE).bodies()] == ["x"]


def test_message_that_dies_while_it_waits_for_its_commit_is_a_dead_letter_once(disk: MemoryDisk) -> None:
    deliveries = []
    for _ in range(2):
        broker = start(disk)
        carol = consumer(broker, DEAD_LETTER_QUEUE)
        expires = round((WALL_OFFSET + broker.now + 1) * 1000)
        broker.connect().publish(QUEUE, "x", headers=[*ONCE, f"expires:{expires}"])
        broker.advance(2)
        deliveries += carol.bodies()
    broker.commit()

    assert [*deliveries, *carol.bodies()] == ["x"]


@pytest.mark.parametrize("to", [None, "/queue/repair"])
def test_replayed_dead_letter_comes_when_it_has_left_the_dead_letter_queue(
    disk: MemoryDisk, to: str | None
) -> None:
    broker = start(disk)
    broker.connect().publish(QUEUE, "x", headers=[PERSISTENT])
    kill(broker)
    broker.commit()
    deliveries = []
    for _ in range(2):
        bob = consumer(broker, to or QUEUE)
        letters = DeadLetters(broker.broker, Arrivals(1, 0.0))
        assert result(letters.replay(Filter(), 10, broker.now, to=to)).replayed == 1
        broker.settle()
        deliveries += bob.bodies()
        crashed, broker = broker, start(disk)
    crashed.commit()
    deliveries += ack_all(bob)
    crashed.commit()
    broker = start(disk)

    assert [*deliveries, *consumer(broker, to or QUEUE).bodies()] == ["x"]
    assert consumer(broker, DEAD_LETTER_QUEUE).received() == []


def test_message_that_is_requeued_comes_at_once_and_under_its_own_id(disk: MemoryDisk) -> None:
    broker = start(disk)
    bob = consumer(broker)
    broker.connect().publish(QUEUE, "x", headers=ONCE)
    broker.commit()
    first = bob.received()
    bob.nack(first[0])

    again = bob.received()
    assert ids(again) == ids(first)
    assert again[0][1]["redelivered"] == "true"


# --- what may happen meanwhile ---


def test_receipt_comes_with_the_delivery(disk: MemoryDisk) -> None:
    broker = start(disk)
    bob, alice = consumer(broker), broker.connect()
    alice.publish(QUEUE, "x", headers=[*ONCE, "receipt:r"])
    assert (alice.received(), bob.received()) == ([], [])

    broker.commit()
    assert [frame[1]["receipt-id"] for frame in alice.received()] == ["r"]
    assert bob.bodies() == ["x"]


def test_consumer_that_goes_meanwhile_leaves_it_to_the_next_one(disk: MemoryDisk) -> None:
    broker = start(disk)
    bob = consumer(broker, QUEUE, "ack:auto")
    broker.connect().publish(QUEUE, "x", headers=ONCE)
    bob.lose()
    carol = consumer(broker)
    assert carol.received() == []
    broker.commit()

    headers, body = carol.message()
    assert body == "x"
    assert "redelivered" not in headers


def test_queue_that_goes_with_its_consumer_drops_it(disk: MemoryDisk) -> None:
    broker = start(disk)
    bob = consumer(broker, QUEUE, INDIVIDUAL, "auto-delete:true")
    broker.connect().publish(QUEUE, "x", headers=ONCE)
    bob.disconnect()
    carol = consumer(broker)
    broker.commit()

    assert carol.received() == []
    assert disk.messages == {}
    assert broker.broker.account.dropped == {"deleted": 1}


def test_what_is_purged_meanwhile_holds_nothing_up_behind_its_commit(disk: MemoryDisk) -> None:
    broker = start(disk)
    bob = consumer(broker)
    alice = broker.connect()
    alice.say(
        "BEGIN transaction:t",
        f"SEND destination:{QUEUE}; transaction:t; {PERSISTENT} | x",
        "COMMIT transaction:t",
    )
    alice.publish(QUEUE, "behind")
    broker.broker.queues.by_name[QUEUE].store.withdraw(
        [each for each in broker.broker.queues.by_name[QUEUE].store.line.in_memory() if each.body == b"x"]
    )
    broker.settle()
    assert broker.broker.journal is not None
    assert broker.broker.journal.is_empty
    # There is nothing to be written, and yet something waits for it.
    assert broker.broker.receipts.is_any

    broker.commit()
    assert bob.bodies() == ["behind"]
    assert not broker.broker.receipts.is_any


def test_message_that_expires_while_it_waits_is_not_delivered(disk: MemoryDisk) -> None:
    broker = start(disk)
    bob = consumer(broker)
    broker.connect().publish(QUEUE, "x", headers=[*ONCE, "neb-timeout:1000"])
    broker.now += 1.5
    broker.commit()

    assert bob.received() == []
    assert broker.broker.account.dropped == {"expired": 1}


@pytest.mark.parametrize(
    ("when_full", "dead"), [(WhenFull.DROP_OLDEST, []), (WhenFull.DEAD_LETTER, ["1", "2"])]
)
def test_full_queue_may_lose_what_waits_for_its_commit(
    disk: MemoryDisk, when_full: WhenFull, dead: list[str]
) -> None:
    broker = start(disk, [DestinationPolicy(pattern=QUEUE, max_messages=1, when_full=when_full)])
    bob, carol = consumer(broker), consumer(broker, DEAD_LETTER_QUEUE)
    alice = broker.connect()
    for number in "123":
        alice.publish(QUEUE, number, headers=[PERSISTENT, f"dedup-id:{number}"])
    assert (bob.received(), carol.received()) == ([], [])

    broker.commit()
    assert (bob.bodies(), carol.bodies()) == (["3"], dead)


def test_publisher_waits_for_room_until_what_is_before_it_is_committed(disk: MemoryDisk) -> None:
    broker = start(disk, [DestinationPolicy(pattern=QUEUE, max_messages=1)])
    bob = consumer(broker, QUEUE, "ack:auto")
    alice = broker.connect()
    for number in "12":
        alice.publish(QUEUE, number, headers=[PERSISTENT, f"dedup-id:{number}"])
    was_held_back = alice.is_held_back

    broker.commit()
    assert (was_held_back, alice.is_held_back) == (True, False)
    broker.commit()
    assert bob.bodies() == ["1", "2"]


def test_deep_queue_keeps_its_order(disk: MemoryDisk) -> None:
    limits = Limits(queue_window_bytes=2_000)
    broker = start(disk, limits=limits)
    alice = broker.connect()
    numbers = [str(number) for number in range(60)]
    for number in numbers[:50]:
        alice.publish(QUEUE, number, headers=[PERSISTENT, f"dedup-id:{number}"])
    broker.commit()
    queue = broker.broker.queues.by_name[QUEUE]
    assert queue.store.paging.is_deep
    for number in numbers[50:]:
        alice.publish(QUEUE, number, headers=[PERSISTENT, f"dedup-id:{number}"])
    bob = consumer(broker, QUEUE, "ack:client", "prefetch-count:1000")
    assert bob.bodies() == numbers[:50]

    broker.commit()
    assert bob.bodies() == numbers[50:]


def test_choked_consumer_has_it_when_it_reads_on(disk: MemoryDisk) -> None:
    broker = start(disk)
    bob = consumer(broker)
    broker.connect().publish(QUEUE, "x", headers=ONCE)
    bob.block()
    broker.commit()
    assert bob.received() == []

    bob.unblock()
    assert bob.bodies() == ["x"]


def test_clean_stop_keeps_what_waits_for_its_commit_and_its_id(disk: MemoryDisk) -> None:
    broker = start(disk)
    bob = consumer(broker)
    broker.connect().publish(QUEUE, "x", headers=ONCE)
    broker.stop()
    assert bob.received() == []

    again = start(disk)
    bob = consumer(again)
    again.connect().publish(QUEUE, "x", headers=ONCE)
    again.commit()
    assert bob.bodies() == ["x"]
