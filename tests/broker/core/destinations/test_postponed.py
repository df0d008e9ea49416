"""NACKs with `redelivery-delay`: the message comes again when it is due, in its place, whatever happens.

Rules: G.retry.
"""

from __future__ import annotations

from itertools import pairwise

import pytest

from nebula.broker.core.limits import Limits
from nebula.headers import DEAD_LETTER_QUEUE
from tests.broker.harness import BrokerHarness, Peer
from tests.broker.memory_store import MemoryDisk, MemoryStore
from tests.broker.script import Received

QUEUE = "/queue/orders"
INDIVIDUAL = "ack:client-individual"
PERSISTENT = ["persistent:true"]


def consumer(broker: BrokerHarness, *headers: str) -> Peer:
    peer = broker.connect()
    peer.subscribe(QUEUE, INDIVIDUAL, *headers)
    return peer


def delivered(broker: BrokerHarness, *bodies: str, persistent: bool = False) -> tuple[Peer, list[Received]]:
    """A consumer that has these messages, and has settled none."""
    bob = consumer(broker)
    broker.connect().publish(QUEUE, *bodies, headers=PERSISTENT if persistent else ())
    return bob, bob.received()


class World:
    """A broker that stops or crashes and starts again."""

    def __init__(self, *, page_messages: int | None = None) -> None:
        self.disk = MemoryDisk()
        self.page_messages = page_messages
        self.broker = self._started()

    def _started(self) -> BrokerHarness:
        return BrokerHarness(store=MemoryStore(self.disk, page_messages=self.page_messages))

    def restart(self, *, clean: bool) -> BrokerHarness:
        if clean:
            self.broker.stop()
        else:
            self.broker.commit()
        self.broker = self._started()
        return self.broker


@pytest.fixture
def world() -> World:
    return World()


def test_postponed_message_comes_when_it_is_due_and_not_before(broker: BrokerHarness) -> None:
    bob, (one,) = delivered(broker, "1")
    bob.nack(one, "redelivery-delay:2000")
    broker.advance(1.75)
    early = bob.received()
    broker.advance(0.25)

    headers, body = bob.message()
    assert early == []
    assert (body, headers["redelivered"], headers["delivery-count"]) == ("1", "true", "1")
    assert headers["message-id"] == one[1]["message-id"]


def test_others_go_on_meanwhile_in_their_order(broker: BrokerHarness) -> None:
    bob = consumer(broker, "prefetch-count:1")
    broker.connect().publish(QUEUE, "1", "2", "3", "4")
    (one,) = bob.received()
    bob.nack(one, "redelivery-delay:1000")
    bodies: list[object] = []
    for _ in range(2):
        (frame,) = bob.received()
        bodies += frame[2:]
        bob.ack(frame)
    broker.advance(1)
    (four,) = bob.received()
    bob.ack(four)

    assert [*bodies, *four[2:]] == ["2", "3", "4"]
    assert bob.bodies() == ["1"]


def test_due_messages_come_before_all_that_was_sent_later(broker: BrokerHarness) -> None:
    bob, (one, two, three) = delivered(broker, "1", "2", "3")
    bob.nack(one, "redelivery-delay:1000")
    bob.nack(two, "redelivery-delay:500")
    bob.ack(three)
    bob.disconnect()
    broker.connect().publish(QUEUE, "4")
    broker.advance(2)

    assert consumer(broker).bodies() == ["1", "2", "4"]


def test_cumulative_nack_postpones_all_of_its_scope(broker: BrokerHarness) -> None:
    bob = broker.connect()
    bob.subscribe(QUEUE, "ack:client")
    broker.connect().publish(QUEUE, "1", "2", "3")
    _, two, _ = bob.received()
    bob.nack(two, "redelivery-delay:1000")
    before = bob.received()
    broker.advance(1)

    assert (before, bob.bodies()) == ([], ["1", "2"])


def test_queue_without_consumers_keeps_what_is_postponed(broker: BrokerHarness) -> None:
    bob, (one,) = delivered(broker, "1")
    bob.nack(one, "redelivery-delay:60000")
    bob.disconnect()
    broker.advance(1)
    carol = consumer(broker)
    before = carol.received()
    broker.advance(60)

    assert (before, carol.bodies()) == ([], ["1"])


def test_postponed_messages_count_against_the_limits_of_their_queue() -> None:
    broker = BrokerHarness(Limits(max_queue_messages=1))
    bob, (one,) = delivered(broker, "1")
    bob.nack(one, "redelivery-delay:60000")
    bob.disconnect()
    alice = broker.connect()
    alice.say(f"SEND destination:{QUEUE}; receipt:r | 2")

    ((_, headers, *_),) = alice.received()
    queue = broker.broker.queues.by_name[QUEUE]
    assert headers["disposition"] == "rejected-full"
    assert (queue.store.depth, queue.store.unacked_count, queue.store.postponed_count) == (1, 0, 1)


def test_delay_in_a_transaction_counts_from_its_commit(broker: BrokerHarness) -> None:
    bob, (one,) = delivered(broker, "1")
    bob.say("BEGIN transaction:t")
    bob.nack(one, "transaction:t", "redelivery-delay:1000")
    broker.advance(5)
    bob.say("COMMIT transaction:t")
    broker.advance(0.75)
    before = bob.received()
    broker.advance(0.25)

    assert (before, bob.bodies()) == ([], ["1"])


def test_delay_after_a_drain_is_a_delivery_that_failed(broker: BrokerHarness) -> None:
    bob, (one,) = delivered(broker, "1")
    carol = consumer(broker)
    bob.say("UNSUBSCRIBE id:s; keep-unacked:true")
    bob.nack(one, "redelivery-delay:1000")
    broker.advance(1)

    headers, _ = carol.message()
    assert headers["delivery-count"] == "1"


def test_message_that_expires_while_postponed_is_dead_at_its_time(broker: BrokerHarness) -> None:
    bob = consumer(broker)
    at = 1_700_000_000_000 + 3_000
    broker.connect().publish(QUEUE, "1", headers=[f"expires:{at}"])
    (one,) = bob.received()
    bob.nack(one, "redelivery-delay:60000")
    broker.advance(3.5)
    carol = broker.connect()
    carol.subscribe(DEAD_LETTER_QUEUE)

    headers, _ = carol.message()
    assert headers["dead-letter-reason"] == "expired"


def test_purge_drops_what_is_postponed(broker: BrokerHarness) -> None:
    bob, (one, _two) = delivered(broker, "1", "2")
    bob.nack(one, "redelivery-delay:1000")
    queue = broker.broker.queues.by_name[QUEUE]
    count = queue.store.clear("purged")
    broker.advance(2)

    assert (count, queue.store.depth, bob.received()) == (1, 1, [])


@pytest.mark.parametrize("text", ["soon", "-1", "1.5", " 1", ""])
def test_delay_outside_its_form_ends_the_connection(broker: BrokerHarness, text: str) -> None:
    bob, (one,) = delivered(broker, "1")
    bob.nack(one, f"redelivery-delay:{text}")

    ((command, headers, *_),) = bob.received()
    assert command == "ERROR"
    assert "redelivery-delay" in headers["message"]


def test_delay_beyond_the_limit_is_cut_to_it() -> None:
    broker = BrokerHarness(Limits(max_delay_seconds=10))
    bob, (one,) = delivered(broker, "1")
    bob.nack(one, "redelivery-delay:3600000")
    broker.advance(10)

    assert bob.bodies() == ["1"]


def test_delay_of_nothing_is_no_delay(broker: BrokerHarness) -> None:
    bob, (one,) = delivered(broker, "1")
    bob.nack(one, "redelivery-delay:0")

    assert bob.bodies() == ["1"]


def test_too_many_deliveries_end_in_a_dead_letter_all_the_same() -> None:
    broker = BrokerHarness(Limits(max_deliveries=2))
    bob, (frame,) = delivered(broker, "1")
    bob.nack(frame, "redelivery-delay:1000")
    broker.advance(1)
    (frame,) = bob.received()
    bob.nack(frame, "redelivery-delay:1000", "dead-letter-code:no-room", "dead-letter-handler:note")
    carol = broker.connect()
    carol.subscribe(DEAD_LETTER_QUEUE)

    headers, _ = carol.message()
    assert {name: value for name, value in headers.items() if name.startswith("dead-letter-")} == {
        "dead-letter-reason": "exhausted",
        "dead-letter-from": QUEUE,
        "dead-letter-at": "1700000001000",
        "dead-letter-deliveries": "2",
        "dead-letter-code": "no-room",
        "dead-letter-handler": "note",
    }


def test_rejection_says_why_on_the_dead_letter(broker: BrokerHarness) -> None:
    bob, (one,) = delivered(broker, "1")
    text = "x" * 2_000
    bob.nack(one, "requeue:false", "dead-letter-code:no-room", f"dead-letter-text:{text}")
    carol = broker.connect()
    carol.subscribe(DEAD_LETTER_QUEUE)

    headers, _ = carol.message()
    assert (headers["dead-letter-code"], headers["dead-letter-text"]) == ("no-room", text[:1_000])


def test_sender_cannot_say_it_of_its_own_message(broker: BrokerHarness) -> None:
    bob = consumer(broker)
    broker.connect().publish(QUEUE, "1", headers=["dead-letter-code:no-room", "dead-letter-handler:note"])

    headers, _ = bob.message()
    assert not {"dead-letter-code", "dead-letter-handler"} & headers.keys()


# --- over restarts ---


@pytest.mark.parametrize("clean", [True, False])
def test_time_of_a_persistent_message_goes_on_over_a_restart(world: World, *, clean: bool) -> None:
    bob, (one, two) = delivered(world.broker, "1", "2", persistent=True)
    bob.nack(one, "redelivery-delay:60000")
    bob.ack(two)
    # The harness's wall clock stands still between two runs.
    bob = consumer(world.restart(clean=clean))
    before = bob.received()
    world.broker.connect().publish(QUEUE, "3", headers=PERSISTENT)
    later = bob.bodies()
    world.broker.advance(60)

    headers, body = bob.message()
    assert (before, later, body, headers["delivery-count"]) == ([], ["3"], "1", "1")


def test_time_goes_on_over_two_restarts_without_a_consumer(world: World) -> None:
    bob, (one,) = delivered(world.broker, "1", persistent=True)
    bob.nack(one, "redelivery-delay:60000")
    world.restart(clean=False)
    bob = consumer(world.restart(clean=True))
    before = bob.received()
    world.broker.advance(60)

    assert (before, bob.bodies()) == ([], ["1"])


def test_nothing_is_left_on_disk_of_what_was_settled(world: World) -> None:
    bob, (one, two, three) = delivered(world.broker, "1", "2", "3", persistent=True)
    for frame in (one, two, three):
        bob.nack(frame, "redelivery-delay:1000")
    world.broker.commit()
    kept = len(world.disk.postponed)
    world.broker.advance(1)
    for frame in bob.received():
        bob.ack(frame)
    world.broker.commit()

    assert (kept, world.disk.postponed, world.disk.messages) == (3, {}, {})


def test_nothing_is_left_on_disk_of_what_was_purged_after_a_restart(world: World) -> None:
    bob, (one, two) = delivered(world.broker, "1", "2", persistent=True)
    bob.nack(one, "redelivery-delay:60000")
    bob.nack(two, "redelivery-delay:60000")
    world.restart(clean=False)
    queue = world.broker.broker.queues.by_name[QUEUE]
    count = queue.store.clear("purged")
    world.broker.broker.queues.forget_if_idle(queue, world.broker.now)
    world.broker.commit()

    assert (count, world.disk.postponed, world.disk.messages) == (2, {}, {})


def test_message_of_a_deep_queue_comes_once_and_not_before_its_time() -> None:
    world = World(page_messages=2)
    bodies = [str(number) for number in range(1, 9)]
    bob, frames = delivered(world.broker, *bodies, persistent=True)
    for frame in (frames[1], frames[5]):
        bob.nack(frame, "redelivery-delay:60000")
    bob = consumer(world.restart(clean=False))
    first = bob.bodies()
    world.broker.advance(60)

    assert first == [body for body in bodies if body not in ("2", "6")]
    assert bob.bodies() == ["2", "6"]


def test_message_of_a_durable_subscription_keeps_its_time(world: World) -> None:
    def subscribed() -> Peer:
        peer = world.broker.connect(client_id="till-1")
        peer.subscribe("/topic/news", INDIVIDUAL, "durable:true")
        return peer

    bob = subscribed()
    world.broker.connect().publish("/topic/news", "1", headers=PERSISTENT)
    world.broker.commit()
    (one,) = bob.received()
    bob.nack(one, "redelivery-delay:60000")
    world.restart(clean=False)
    bob = subscribed()
    before = bob.received()
    world.broker.advance(60)

    assert (before, bob.bodies()) == ([], ["1"])


def test_messages_due_at_once_keep_their_order_and_numbers(broker: BrokerHarness) -> None:
    bob, frames = delivered(broker, *map(str, range(50)))
    for frame in reversed(frames):
        bob.nack(frame, "redelivery-delay:1000")
    broker.advance(1)

    numbers = [int(body) for body in bob.bodies()]
    assert len(numbers) == 50
    assert all(one < following for one, following in pairwise(numbers))
