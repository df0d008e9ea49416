"""Deep queues: what is beyond the window is on disk alone, and comes back in its place."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest

from nebula.broker.core.destinations.queue import Queue
from nebula.broker.core.limits import Limits
from nebula.broker.core.policies import DestinationPolicy, WhenFull
from nebula.broker.core.storage import PageRequest, StoredMessage
from nebula.broker.operations.administration import Administration
from nebula.headers import DEAD_LETTER_QUEUE
from tests.broker.harness import BrokerHarness, Peer
from tests.broker.memory_store import MemoryDisk, MemoryStore

QUEUE = "/queue/deep"
PERSISTENT = ["persistent:true"]
INDIVIDUAL = "ack:client-individual"

# A window of some six messages: a page has three.
SMALL = Limits(queue_window_bytes=2000)
COUNT = 60


def start(
    disk: MemoryDisk, limits: Limits = SMALL, policies: Sequence[DestinationPolicy] = ()
) -> BrokerHarness:
    return BrokerHarness(limits, policies, store=MemoryStore(disk, page_messages=3))


def fill(broker: BrokerHarness, count: int = COUNT, *, persistent: bool = True, begin: int = 0) -> list[str]:
    """Publish so many, each in a batch of its own."""
    bodies = [str(number) for number in range(begin, begin + count)]
    alice = broker.connect()
    for body in bodies:
        alice.publish(QUEUE, body, headers=PERSISTENT if persistent else [])
        broker.commit()
    alice.disconnect()
    return bodies


def queue(broker: BrokerHarness, name: str = QUEUE) -> Queue:
    found = broker.broker.queues.get(name)
    assert found is not None
    return found


def in_memory(broker: BrokerHarness) -> int:
    return len(list(queue(broker).store.line.in_memory()))


def drain(broker: BrokerHarness, *headers: str, name: str = QUEUE) -> list[str]:
    peer = broker.connect()
    peer.subscribe(name, *headers)
    bodies = peer.bodies()
    peer.disconnect()
    return bodies


def test_deep_queue_keeps_a_window_in_memory_and_loses_nothing(disk: MemoryDisk) -> None:
    broker = start(disk)
    bodies = fill(broker)

    assert in_memory(broker) < 12
    assert queue(broker).store.depth == COUNT
    assert drain(broker) == bodies
    broker.commit()
    assert disk.messages == {}
    assert queue_is_forgotten(broker)


def queue_is_forgotten(broker: BrokerHarness) -> bool:
    return broker.broker.queues.get(QUEUE) is None and broker.broker.account.stored_bytes == 0


def test_messages_leave_memory_only_after_their_commit(disk: MemoryDisk) -> None:
    broker = start(disk)
    alice = broker.connect()
    alice.publish(QUEUE, *map(str, range(COUNT)), headers=PERSISTENT)

    assert in_memory(broker) == COUNT
    broker.commit()
    alice.publish(QUEUE, "last", headers=PERSISTENT)
    broker.commit()
    assert in_memory(broker) < 12


def test_what_is_not_kept_on_disk_stays_in_memory(disk: MemoryDisk) -> None:
    broker = start(disk)
    bodies = fill(broker, persistent=False)

    assert in_memory(broker) == COUNT
    assert drain(broker) == bodies


def test_both_kinds_in_one_queue_keep_their_order(disk: MemoryDisk) -> None:
    broker = start(disk)
    bodies = []
    for begin in range(0, COUNT, 3):
        bodies += fill(broker, 2, begin=begin)
        bodies += fill(broker, 1, begin=begin + 2, persistent=False)

    assert in_memory(broker) < COUNT / 2
    assert drain(broker) == bodies


def test_restart_with_a_deep_queue_reads_a_page_and_gives_all(disk: MemoryDisk) -> None:
    bodies = fill(start(disk))
    broker = start(disk)

    assert in_memory(broker) == 3
    assert queue(broker).store.depth == COUNT
    assert drain(broker) == bodies


def fill_many(broker: BrokerHarness, body: str) -> dict[str, list[str]]:
    """Forty queues of ten messages, beside values and delayed ones that have to be in memory."""
    alice = broker.connect()
    alice.say(*(f"SEND destination:X/{number} | {body}" for number in range(10)))
    alice.publish("/queue/late", *[body] * 10, headers=["delay:3600000", *PERSISTENT])
    bodies: dict[str, list[str]] = {}
    for line in range(40):
        name = f"/queue/{line:02}"
        bodies[name] = [f"{line}.{number} {body}" for number in range(10)]
        alice.publish(name, *bodies[name], headers=[*PERSISTENT, f"line:{line}"])
    broker.commit()
    return bodies


@pytest.mark.parametrize(
    ("body", "max_bytes", "pages"), [("", 600_000, "some"), ("large" * 500, 300_000, "none")]
)
def test_restart_takes_no_more_into_memory_than_half_of_what_the_broker_may_hold(
    disk: MemoryDisk, body: str, max_bytes: int, pages: str
) -> None:
    bodies = fill_many(BrokerHarness(store=MemoryStore(disk)), body)
    limits = Limits(max_memory_bytes=max_bytes, max_body_bytes=10_000, queue_window_bytes=100_000)
    broker = BrokerHarness(limits, store=MemoryStore(disk))

    stored_bytes = broker.broker.account.stored_bytes
    with_pages = [name for name in bodies if in_memory_of(broker, name)]
    if pages == "some":
        assert len(with_pages) == 40
        assert stored_bytes <= max_bytes // 2
    else:
        # Not even one of each: half of it is values and delayed ones.
        assert 0 < len(with_pages) < 40
        assert stored_bytes <= max_bytes
    # An operator reaches what is on disk alone, it keeps its order, and what comes is behind it.
    last = "/queue/39"
    assert Administration(broker.broker, broker.now).queue(last, broker.now).summary.depth == 10
    purged = Administration(broker.broker, broker.now).purge(last, broker.now)
    with pytest.raises(StopIteration) as end:
        next(purged)
    assert end.value.value == len(bodies.pop(last))
    for name, expected in bodies.items():
        broker.connect().publish(name, "behind")
        bob = broker.connect()
        bob.subscribe(name)
        assert bob.bodies() == [*expected, "behind"]
    broker.commit()
    assert disk.messages == {}


def in_memory_of(broker: BrokerHarness, name: str) -> int:
    return len(list(queue(broker, name).store.line.in_memory()))


def test_what_comes_after_a_restart_waits_behind(disk: MemoryDisk) -> None:
    bodies = fill(start(disk))
    broker = start(disk)

    bodies += fill(broker, 20, begin=COUNT)
    assert drain(broker) == bodies


def test_unacked_messages_come_back_before_the_pages(disk: MemoryDisk) -> None:
    broker = start(disk)
    bodies = fill(broker)
    bob = broker.connect()
    bob.subscribe(QUEUE, INDIVIDUAL, "prefetch-count:20")
    assert bob.bodies() == bodies[:20]
    bob.lose()

    assert drain(broker) == bodies


def test_nacked_messages_keep_their_count_over_a_page(disk: MemoryDisk) -> None:
    broker = start(disk)
    bodies = fill(broker)
    bob = broker.connect()
    bob.subscribe(QUEUE, INDIVIDUAL, "prefetch-count:1")
    bob.nack(bob.received()[0])
    bob.lose()
    broker.commit()

    carol = broker.connect()
    carol.subscribe(QUEUE, INDIVIDUAL, f"prefetch-count:{COUNT}")
    frames = carol.received()
    first, rest = frames[0], frames[1:]
    assert first[1]["delivery-count"] == "2"
    assert [frame[-1] for frame in frames] == bodies
    assert not any("redelivered" in frame[1] for frame in rest)


def test_failed_deliveries_come_back_from_the_disk(disk: MemoryDisk) -> None:
    broker = start(disk)
    fill(broker)
    bob = broker.connect()
    bob.subscribe(QUEUE, INDIVIDUAL, f"prefetch-count:{COUNT}")
    bob.lose()
    broker.commit()

    carol = start(disk).connect()
    carol.subscribe(QUEUE, INDIVIDUAL, f"prefetch-count:{COUNT}")
    assert {frame[1].get("delivery-count") for frame in carol.received()} == {"1"}


def test_pages_are_asked_for_one_at_a_time_and_before_the_front_is_empty(disk: MemoryDisk) -> None:
    asked: list[tuple[PageRequest, int]] = []

    class Watched(MemoryStore):
        def page(self, request: PageRequest) -> list[StoredMessage]:
            asked.append((request, len(queue(broker).store.line.lines[0].front)))
            return super().page(request)

    broker = BrokerHarness(Limits(queue_window_bytes=8000), store=Watched(disk))
    fill(broker, 100)
    bob = broker.connect()
    bob.subscribe(QUEUE, INDIVIDUAL, "prefetch-count:1")
    for _ in range(100):
        bob.ack(bob.received()[-1])

    assert all(one.after < following.after for (one, _), (following, _) in pairwise(asked))
    assert all(in_front > 0 for _, in_front in asked)


def test_purge_takes_what_is_on_disk_alone_too(disk: MemoryDisk) -> None:
    broker = start(disk)
    fill(broker)

    assert queue(broker).store.clear("purged") == COUNT
    broker.broker.queues.forget_if_idle(queue(broker), broker.now)
    broker.commit()
    assert disk.messages == {}
    assert broker.broker.account.dropped["purged"] == COUNT
    assert fill(broker, 1) == drain(broker)


def test_page_that_was_asked_for_before_a_purge_is_not_taken(disk: MemoryDisk) -> None:
    broker = start(disk)
    fill(broker)
    deep = queue(broker)
    deep.store.expire(0.0, 1000)
    (line,) = deep.store.line.lines
    for _ in range(len(line.front)):
        line.pop()
    (request,) = deep.store.paging.wanted_pages(deep.store, is_scarce=False)
    line.paged = None

    assert deep.store.paging.take_page(request, []) is None


def test_expired_messages_on_disk_die_when_they_come(disk: MemoryDisk) -> None:
    broker = start(disk, policies=[DestinationPolicy(pattern=QUEUE, time_to_live=10.0)])
    bodies = fill(broker)
    broker.advance(11.0)
    bodies += fill(broker, 1, begin=COUNT)

    assert drain(broker) == bodies[-1:]
    broker.commit()
    dead = broker.connect()
    dead.subscribe(DEAD_LETTER_QUEUE, "prefetch-count:1000")
    frames = dead.received()
    assert [frame[-1] for frame in frames] == bodies[:-1]
    assert {frame[1]["dead-letter-reason"] for frame in frames} == {"expired"}


def test_what_expired_before_its_neighbours_left_memory_comes_from_no_page(disk: MemoryDisk) -> None:
    broker = start(disk)
    alice = broker.connect()
    for number in range(20):
        expires = ["expires:1700000001000"] if number == 15 else []
        alice.publish(QUEUE, str(number), headers=[*PERSISTENT, *expires])
    # It dies while its batch is on the way to the disk, so its row is there until the next commit.
    broker.begin_commit()
    broker.advance(2.0)
    broker.commit()
    assert queue(broker).store.paging.paged_bytes
    assert (QUEUE, "15") in {(line, row.body.decode()) for (line, _), row in disk.messages.items()}

    assert drain(broker) == [str(number) for number in range(20) if number != 15]
    broker.commit()
    assert drain(broker, name=DEAD_LETTER_QUEUE) == ["15"]
    broker.commit()
    assert disk.messages == {}


@pytest.mark.parametrize("when_full", [WhenFull.DROP_OLDEST, WhenFull.DEAD_LETTER])
def test_deep_queue_that_is_full_loses_the_oldest(disk: MemoryDisk, when_full: WhenFull) -> None:
    policy = DestinationPolicy(pattern=QUEUE, max_messages=40, when_full=when_full)
    broker = start(disk, policies=[policy])
    bodies = fill(broker)

    assert queue(broker).store.depth == 40
    assert drain(broker) == bodies[20:]
    died = DEAD_LETTER_QUEUE in broker.destinations
    assert died == (when_full is WhenFull.DEAD_LETTER)


def test_deep_queue_with_priorities_gives_the_highest_first(disk: MemoryDisk) -> None:
    policy = DestinationPolicy(pattern=QUEUE, has_priorities=True)
    broker = start(disk, policies=[policy])
    alice = broker.connect()
    for number in range(COUNT):
        alice.publish(QUEUE, str(number), headers=[*PERSISTENT, f"priority:{number % 3 * 4}"])
        broker.commit()
    expected = [str(number) for level in (2, 1, 0) for number in range(level, COUNT, 3)]
    assert in_memory(broker) < COUNT

    # Also after a restart, with the policy or without.
    again = start(disk)
    assert queue(again).store.depth == COUNT
    assert drain(again) == expected
    assert drain(broker) == expected


def test_scarce_memory_makes_the_window_small(disk: MemoryDisk) -> None:
    scarce = Limits(max_body_bytes=9000, queue_window_bytes=100_000, max_memory_bytes=40_000)
    broker = start(disk, scarce)
    bodies = fill(broker, 200)

    assert broker.broker.account.dropped == {}
    assert broker.broker.account.stored_bytes < 40_000
    assert drain(broker) == bodies


def test_durable_subscription_that_is_away_for_long_is_deep_too(disk: MemoryDisk) -> None:
    broker = start(disk)
    bob = broker.connect(client_id="bob")
    bob.subscribe("/topic/news", "durable:true")
    bob.disconnect()
    alice: Peer = broker.connect()
    for number in range(COUNT):
        alice.publish("/topic/news", str(number))
        broker.commit()
    assert broker.broker.account.stored_bytes < 8000

    for world in (start(disk), broker):
        back = world.connect(client_id="bob")
        back.subscribe("/topic/news", "durable:true")
        assert back.bodies() == [str(number) for number in range(COUNT)]


def test_unacked_messages_are_not_taken_for_pages(disk: MemoryDisk) -> None:
    broker = start(disk)
    large = "large" * 500
    bob = broker.connect()
    bob.subscribe(QUEUE, INDIVIDUAL, "prefetch-count:5")
    broker.connect().publish(QUEUE, large, headers=PERSISTENT)
    bodies = fill(broker, 4)
    first, *others = bob.received()
    assert len(others) == 4
    # It comes back and fills the window alone, while some that came after it are un-ACKed.
    bob.block()
    bob.nack(first)
    bodies += fill(broker, 20, begin=4)
    assert queue(broker).store.paging.paged_bytes
    carol = broker.connect()
    carol.subscribe(QUEUE, INDIVIDUAL, f"prefetch-count:{COUNT}")

    assert carol.bodies() == [large, *bodies[4:]]
    bob.unblock()


def test_what_was_taken_out_does_not_come_back_with_its_page(disk: MemoryDisk) -> None:
    broker = start(disk)
    bodies = fill(broker)
    alice = broker.connect()
    late = [str(number) for number in range(COUNT, COUNT + 20)]
    alice.publish(QUEUE, *late, headers=PERSISTENT)
    # The store has them, but has not said so when one of them goes: its row goes with the next batch.
    journal, store, deep = broker.broker.journal, broker.store, queue(broker)
    assert journal is not None
    assert store is not None
    batch, writes = journal.take()
    store.apply(writes)
    deep.store.withdraw(
        [message for message in deep.store.line.in_memory() if message.body == late[5].encode()]
    )
    broker.broker.committed(batch, broker.now)
    broker.settle()

    assert drain(broker) == [*bodies, *late[:5], *late[6:]]


class Reading(BrokerHarness):
    """One whose pages are read when the test says so."""

    def __init__(self, disk: MemoryDisk, policies: Sequence[DestinationPolicy] = ()) -> None:
        super().__init__(SMALL, policies, store=MemoryStore(disk, page_messages=3))
        self.asked: list[PageRequest] = []

    def fetch(self, page: PageRequest) -> None:
        self.asked.append(page)

    def hand_in(self) -> PageRequest | None:
        """Read the page that was asked for first; which one is asked for before it is taken."""
        assert self.store is not None
        request = self.asked.pop(0)
        rows = self.store.page(request)
        following = self.broker.page_after(request, rows)
        if following is not None:
            self.asked.append(following)
        self.broker.take_page(request, rows, self.now)
        self.settle()
        return following


def test_page_that_somebody_waits_for_is_read_while_the_one_before_it_is_taken(disk: MemoryDisk) -> None:
    broker = Reading(disk)
    bodies = fill(broker)
    bob = broker.connect()
    bob.subscribe(QUEUE)
    found = bob.bodies()

    request = broker.asked[0]
    following = broker.hand_in()
    assert following is not None
    assert following.after == request.after + 3
    # Only this one: taking the page asks for no third.
    assert broker.asked == [following]
    while broker.asked:
        broker.hand_in()
    assert found + bob.bodies() == bodies


def test_no_page_is_read_ahead_for_a_consumer_that_has_yet_to_ack(disk: MemoryDisk) -> None:
    broker = Reading(disk)
    fill(broker)
    broker.connect().subscribe(QUEUE, INDIVIDUAL)

    assert broker.hand_in() is None


def test_page_that_was_read_ahead_of_a_purge_is_not_taken(disk: MemoryDisk) -> None:
    broker = Reading(disk)
    fill(broker)
    bob = broker.connect()
    bob.subscribe(QUEUE)
    assert broker.hand_in() is not None
    bob.bodies()

    queue(broker).store.clear("purged")
    broker.commit()
    last = fill(broker, 1)
    broker.hand_in()
    assert bob.bodies() == last
    assert queue(broker).store.depth == 0


def test_queue_that_refuses_loses_nothing_where_it_takes_more_room_in_memory_than_on_disk(
    disk: MemoryDisk,
) -> None:
    limits = Limits(queue_window_bytes=8000)
    broker = start(disk, limits, [DestinationPolicy(pattern=QUEUE, max_bytes=50_000)])
    alice = broker.connect()
    # Each has headers of its own, which count in memory alone.
    for number in range(COUNT):
        alice.publish(QUEUE, str(number), headers=[*PERSISTENT, f"mine:{number}", f"receipt:{number}"])
        broker.commit()
    accepted = [frame[1]["receipt-id"] for frame in alice.received() if frame[1]["disposition"] == "accepted"]
    assert len(accepted) == COUNT

    bob = broker.connect()
    bob.subscribe(QUEUE, INDIVIDUAL, f"prefetch-count:{COUNT}")
    assert bob.bodies() == accepted
    bob.lose()
    assert drain(broker) == accepted


def test_queue_that_refuses_loses_nothing_where_its_limit_was_lowered(disk: MemoryDisk) -> None:
    bodies = fill(start(disk))
    broker = start(disk, policies=[DestinationPolicy(pattern=QUEUE, max_messages=10)])

    assert drain(broker) == bodies
    assert broker.broker.account.dropped == {}


def test_many_deep_queues_that_are_read_at_once_keep_to_the_brokers_memory(disk: MemoryDisk) -> None:
    writer = BrokerHarness(store=MemoryStore(disk))
    names = [f"/queue/{number}" for number in range(40)]
    bodies = [f"{number}{'x' * 1000}" for number in range(60)]
    for name in names:
        writer.connect().publish(name, *bodies, headers=PERSISTENT)
        writer.commit()
    limits = Limits(max_memory_bytes=1_000_000, max_body_bytes=10_000, queue_window_bytes=100_000)
    broker = BrokerHarness(limits, store=MemoryStore(disk))
    readers = [broker.connect() for _ in names]
    for reader, name in zip(readers, names, strict=True):
        reader.subscribe(name, INDIVIDUAL, "prefetch-count:1")

    for body in bodies[:20]:
        assert broker.broker.account.stored_bytes <= limits.max_memory_bytes
        for reader in readers:
            (message,) = reader.received()
            assert message[-1] == body
            reader.ack(message)


@pytest.mark.parametrize("has_priorities", [False, True])
def test_what_comes_back_from_two_consumers_around_a_page_out_keeps_its_order(
    disk: MemoryDisk, *, has_priorities: bool
) -> None:
    broker = start(disk, policies=[DestinationPolicy(pattern=QUEUE, has_priorities=has_priorities)])
    alice, bob = broker.connect(), broker.connect()
    alice.subscribe(QUEUE, INDIVIDUAL, "prefetch-count:8")
    bodies = fill(broker, 8)
    bob.subscribe(QUEUE, INDIVIDUAL, "prefetch-count:1")
    bodies += fill(broker, 3, begin=8)
    assert len(alice.received()) == 8
    assert bob.bodies() == ["8"]
    # More comes back than the window holds; what came later goes to the disk alone, and then "8" comes back.
    alice.lose()
    bodies += fill(broker, COUNT, begin=11)
    assert queue(broker).store.paging.paged_bytes
    bob.say("UNSUBSCRIBE id:s")

    assert drain(broker) == bodies


def test_messages_that_come_back_one_by_one_while_pages_come_and_go_keep_their_order(
    disk: MemoryDisk,
) -> None:
    broker = Reading(disk)
    holders = [broker.connect() for _ in range(9)]
    for prefetch, holder in enumerate(holders, 1):
        holder.subscribe(QUEUE, INDIVIDUAL, f"prefetch-count:{prefetch}")
    bodies = fill(broker, 47)
    assert not queue(broker).store.paging.paged_bytes
    for holder in holders[::2]:
        holder.lose()
    bodies += fill(broker, 20, begin=len(bodies))
    assert queue(broker).store.paging.paged_bytes
    dave = broker.connect()
    for holder in holders[1::2]:
        holder.say("UNSUBSCRIBE id:s")
        if holder is holders[3]:
            dave.subscribe(QUEUE, INDIVIDUAL, "prefetch-count:32")
            assert broker.asked
            broker.hand_in()
            found = dave.bodies()
            assert len(found) == 32
            assert found == sorted(found, key=bodies.index)
        bodies += fill(broker, 5, begin=len(bodies))
    dave.lose()
    erin = broker.connect()
    erin.subscribe(QUEUE, INDIVIDUAL, "prefetch-count:1000")
    while broker.asked:
        broker.hand_in()

    assert erin.bodies() == bodies


def test_urgent_message_does_not_wait_for_the_page_of_a_lower_level(disk: MemoryDisk) -> None:
    broker = Reading(disk, [DestinationPolicy(pattern=QUEUE, has_priorities=True)])
    bodies = fill(broker)
    bob = broker.connect()
    bob.subscribe(QUEUE)
    found = bob.bodies()
    assert broker.asked
    broker.connect().publish(QUEUE, "urgent", headers=[*PERSISTENT, "priority:9"])

    assert bob.bodies() == ["urgent"]
    while broker.asked:
        broker.hand_in()
    assert found + bob.bodies() == bodies


def test_sender_pays_no_longer_for_the_row_of_a_message_that_is_in_memory_again() -> None:
    broker = start(MemoryDisk())
    fill(broker)
    paid = queue(broker).store.paging._paged_by
    before_bytes = paid.total()
    assert before_bytes > 0

    peer = broker.connect()
    peer.subscribe(QUEUE, INDIVIDUAL, "prefetch-count:20")

    assert len(peer.bodies()) == 20
    assert paid.total() < before_bytes
