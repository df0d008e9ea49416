"""Dead letters that an operator looks at, puts back or drops: none is lost, and none comes twice."""

from __future__ import annotations

import pytest

from nebula.broker.core.access import Capability, Grants
from nebula.broker.core.limits import Limits
from nebula.broker.core.messages import QUEUE_KIND, Head
from nebula.broker.core.policies import DestinationPolicy, WhenFull
from nebula.broker.core.storage import PageRequest
from nebula.broker.core.tables import MESSAGES, Drop, MessageRow, Put
from nebula.broker.operations.dead_letters import DeadLetters, Filter, Replayed
from nebula.broker.operations.rows import Arrivals
from nebula.errors import Refused
from nebula.headers import DEAD_LETTER_QUEUE
from tests.broker.counted import Counted
from tests.broker.dead import dead_bodies, reject
from tests.broker.harness import WALL_OFFSET, BrokerHarness
from tests.broker.memory_store import MemoryDisk, MemoryStore
from tests.broker.walks import result

QUEUE = "/queue/orders"
OTHER = "/queue/other"


def letters_of(broker: BrokerHarness) -> DeadLetters:
    return DeadLetters(broker.broker, Arrivals(1, 0.0))


def replay(broker: BrokerHarness, wanted: Filter | None = None, limit: int = 100, to: str = "") -> Replayed:
    outcome = result(letters_of(broker).replay(wanted or Filter(), limit, broker.now, to=to or None))
    broker.settle()
    return outcome


def bodies_in(broker: BrokerHarness, queue: str) -> list[str]:
    peer = broker.connect()
    peer.subscribe(queue)
    bodies = peer.bodies()
    peer.disconnect()
    return bodies


def test_list_says_from_where_why_when_and_how_often(broker: BrokerHarness) -> None:
    broker.advance(2.0)
    reject(broker, "one", "two")
    reject(broker, "three", queue=OTHER)

    letters = result(letters_of(broker).rows(Filter(), 10))
    others = result(letters_of(broker).rows(Filter(source=OTHER), 10))
    behind = result(letters_of(broker).rows(Filter(after=letters.rows[0].number), 1))

    first = letters.rows[0]
    assert (first.source, first.reason, first.deliveries, first.body_bytes) == (QUEUE, "rejected", 1, 3)
    assert first.died_at == WALL_OFFSET + 2.0
    assert [each.source for each in letters.rows] == [QUEUE, QUEUE, OTHER]
    assert [each.source for each in others.rows] == [OTHER]
    assert [each.number for each in behind.rows] == [letters.rows[1].number]
    assert dead_bodies(broker) == ["one", "two", "three"]


def test_replay_into_a_full_queue_that_buries_its_oldest_comes_to_an_end() -> None:
    policy = DestinationPolicy(pattern=QUEUE, max_messages=2, when_full=WhenFull.DEAD_LETTER)
    broker = BrokerHarness(policies=[policy])
    broker.connect().publish(QUEUE, *"abcdef")

    # Each pushes out another, which is a dead letter in its turn.
    assert replay(broker).replayed == 4
    assert bodies_in(broker, QUEUE) == ["c", "d"]
    assert sorted(dead_bodies(broker)) == ["a", "b", "e", "f"]


def test_replayed_message_is_as_it_was_sent(broker: BrokerHarness) -> None:
    reject(broker, "body", headers=["kind:new", "neb-reply-to:/queue/answers", "priority:7"])

    outcome = replay(broker)

    assert outcome == Replayed(1, 0, 0, 0, on_disk=0)
    bob = broker.connect()
    bob.subscribe(QUEUE)
    headers, body = bob.message()
    assert body == "body"
    assert {name: headers[name] for name in ("destination", "kind", "neb-reply-to", "sender")} == {
        "destination": QUEUE,
        "kind": "new",
        "neb-reply-to": "/queue/answers",
        "sender": "anonymous",
    }
    assert not [name for name in headers if name.startswith("dead-letter") or name == "redelivered"]
    assert dead_bodies(broker) == []


def test_replayed_messages_keep_their_order_and_the_others_stay(broker: BrokerHarness) -> None:
    reject(broker, "1", "2", "3")
    reject(broker, "other", queue=OTHER)
    reject(broker, "4", "5")

    outcome = replay(broker, Filter(source=QUEUE), limit=4)

    assert outcome.replayed == 4
    assert bodies_in(broker, QUEUE) == ["1", "2", "3", "4"]
    assert dead_bodies(broker) == ["other", "5"]


def test_replay_of_numbers_takes_those_alone(broker: BrokerHarness) -> None:
    reject(broker, "1", "2", "3")
    second = result(letters_of(broker).rows(Filter(), 10)).rows[1].number

    assert replay(broker, Filter(numbers=[second, 987654])).replayed == 1

    assert bodies_in(broker, QUEUE) == ["2"]


def test_replay_of_a_reason_takes_those_alone(broker: BrokerHarness) -> None:
    reject(broker, "rejected")

    assert replay(broker, Filter(reason="exhausted")).replayed == 0
    assert replay(broker, Filter(reason="rejected")).replayed == 1


def test_replayed_persistent_message_changes_its_row_in_one_batch() -> None:
    disk = MemoryDisk()
    broker = BrokerHarness(store=MemoryStore(disk))
    reject(broker, "kept", headers=["persistent:true"])
    broker.commit()

    replay(broker)

    assert broker.broker.journal is not None
    _, rows = broker.broker.journal.take()
    put, drop = sorted(rows, key=lambda row: type(row).__name__, reverse=True)
    assert isinstance(put, Put)
    row = MessageRow(*put.row)
    assert (row.line, row.body) == (QUEUE, b"kept")
    assert isinstance(drop, Drop)
    assert (drop.table, drop.key[0]) == (MESSAGES, DEAD_LETTER_QUEUE)


def test_message_that_was_not_persistent_is_not_kept_after_its_replay() -> None:
    broker = BrokerHarness(store=MemoryStore(MemoryDisk()))
    reject(broker, "fleeting")

    replay(broker)

    assert broker.broker.journal is not None
    assert broker.broker.journal.take()[1] == []


def test_message_that_finds_no_room_stays_a_dead_letter() -> None:
    broker = BrokerHarness(policies=[DestinationPolicy(pattern=QUEUE, max_messages=2)])
    reject(broker, "1", "2")
    reject(broker, "3")

    outcome = replay(broker)

    assert (outcome.replayed, outcome.full) == (2, 1)
    assert dead_bodies(broker) == ["3"]
    assert bodies_in(broker, QUEUE) == ["1", "2"]


def test_queue_that_is_too_small_for_what_is_put_there_is_not_made() -> None:
    broker = BrokerHarness(policies=[DestinationPolicy(pattern=OTHER, max_bytes=10)])
    reject(broker, "m")

    assert replay(broker, to=OTHER).full == 1

    assert broker.broker.queues.get(OTHER) is None
    assert dead_bodies(broker) == ["m"]


def test_message_of_a_topic_goes_to_a_queue_that_is_named_and_nowhere_else(broker: BrokerHarness) -> None:
    alice, bob = broker.connect(), broker.connect(client_id="till-1")
    bob.subscribe("/topic/news", "durable:true", "ack:client-individual")
    listener = broker.connect()
    listener.subscribe("/topic/news")
    alice.publish("/topic/news", "m")
    bob.nack(bob.received()[0], "requeue:false")
    listener.received()

    outcome = replay(broker)

    assert (outcome.replayed, outcome.without_queue) == (0, 1)
    assert replay(broker, to=OTHER).replayed == 1
    assert listener.received() == []
    assert bodies_in(broker, OTHER) == ["m"]


def test_message_that_was_sent_to_the_dead_letter_queue_has_nowhere_to_go_back(broker: BrokerHarness) -> None:
    broker.connect().publish(DEAD_LETTER_QUEUE, "m", headers=[f"dead-letter-from:{QUEUE}"])

    assert replay(broker).without_queue == 1

    assert bodies_in(broker, QUEUE) == []


@pytest.mark.parametrize("target", ["/topic/news", "X/a", "/queue/nebula.broker", DEAD_LETTER_QUEUE])
def test_dead_letters_are_put_into_ordinary_queues_only(broker: BrokerHarness, target: str) -> None:
    reject(broker, "m")

    with pytest.raises(Refused, match="bad-target"):
        replay(broker, to=target)

    assert dead_bodies(broker) == ["m"]


def test_sender_who_lost_the_right_to_send_gets_nothing_back_by_a_replay() -> None:
    everything = Capability(publish=("**",), subscribe=("**", DEAD_LETTER_QUEUE))
    broker = BrokerHarness(grants=Grants({"All": everything}, {"anonymous": ("All",)}))
    reject(broker, "m")
    only_read = Capability(subscribe=("**", DEAD_LETTER_QUEUE))
    broker.broker.review(Grants({"Read": only_read}, {"anonymous": ("Read",)}), broker.now)

    outcome = replay(broker)

    assert (outcome.replayed, outcome.not_permitted) == (0, 1)
    assert dead_bodies(broker) == ["m"]


def test_replay_pauses_and_takes_nothing_that_was_consumed_meanwhile(broker: BrokerHarness) -> None:
    bodies = [str(number) for number in range(450)]
    reject(broker, *bodies)
    steps = letters_of(broker).replay(Filter(), 1_000, broker.now)
    next(steps)
    broker.settle()
    rest = dead_bodies(broker)

    outcome = result(steps)

    assert outcome.replayed == len(bodies) - len(rest)
    assert bodies_in(broker, QUEUE) + rest == bodies


def test_replay_goes_through_pages_of_a_deep_queue() -> None:
    limits = Limits(queue_window_bytes=20_000)
    broker = BrokerHarness(limits, store=MemoryStore(MemoryDisk()))
    bodies = [str(number) for number in range(300)]
    for body in bodies:
        reject(broker, body, headers=["persistent:true"])
        broker.commit()
    on_disk = result(letters_of(broker).rows(Filter(), 1)).on_disk
    assert on_disk > 100

    steps = letters_of(broker).replay(Filter(), 1_000, broker.now)
    outcome: Replayed | None = None
    while outcome is None:
        try:
            next(steps)
        except StopIteration as end:
            outcome = end.value
        broker.commit()

    assert (outcome.replayed, outcome.on_disk) == (300, 0)
    assert bodies_in(broker, QUEUE) == bodies


class Late(BrokerHarness):
    """A broker whose store reads no page until it is told to."""

    asked: PageRequest | None = None

    def fetch(self, page: PageRequest) -> None:
        self.asked = page

    def read(self) -> None:
        assert self.asked is not None
        super().fetch(self.asked)


def test_replay_waits_for_a_page_that_is_on_its_way() -> None:
    broker = Late(Limits(queue_window_bytes=20_000), store=MemoryStore(MemoryDisk()))
    for number in range(50):
        reject(broker, str(number), headers=["persistent:true"])
        broker.commit()
    steps = letters_of(broker).replay(Filter(), 1_000, broker.now)
    while broker.asked is None:
        next(steps)
        broker.commit()
    for _ in range(5):
        next(steps)  # nothing is there yet
        broker.settle()
    broker.read()

    assert next(steps) is None
    broker.settle()
    assert broker.broker.queues.by_name[QUEUE].store.depth > 20


def test_dropped_dead_letters_are_counted_and_the_others_stay(broker: BrokerHarness) -> None:
    reject(broker, "1", "2")
    reject(broker, "other", queue=OTHER)

    outcome = result(letters_of(broker).drop(Filter(source=QUEUE), 100, broker.now))
    broker.settle()

    assert outcome.purged == 2
    assert broker.broker.account.dropped["purged"] == 2
    assert dead_bodies(broker) == ["other"]


def test_one_dead_letter_is_shown_with_why_it_died(broker: BrokerHarness) -> None:
    reject(broker, "body", headers=["kind:new"])
    (row,) = result(letters_of(broker).rows(Filter(), 10)).rows

    shown = letters_of(broker).show(row.number, broker.now, 2)

    assert (shown.body, shown.is_cut) == ("bo", True)
    assert shown.headers["dead-letter-reason"] == "rejected"
    assert shown.headers["kind"] == "new"
    with pytest.raises(Refused, match="not-found"):
        letters_of(broker).show(row.number + 1, broker.now, 2)


@pytest.mark.interpreted
def test_dropping_every_other_letter_of_many_does_not_look_at_all_of_them_for_each_few(
    broker: BrokerHarness,
) -> None:
    core = broker.broker
    queue = core.queues.create(DEAD_LETTER_QUEUE, core.account.own)
    head = Head(QUEUE_KIND, DEAD_LETTER_QUEUE, "alice", ())
    count = 20_000
    for number in range(1, count + 1):
        queue.send(Counted(head, b"%d" % number, number, 0.0), 0.0)
    every_other = frozenset(range(2, count + 1, 2))

    Counted.looks = 0
    purged = result(letters_of(broker).drop(Filter(every_other), count, broker.now)).purged

    assert purged == count // 2
    assert Counted.looks < 50 * count
    assert [message.body for message in queue.store.line.in_memory()] == [
        b"%d" % each for each in range(1, count + 1, 2)
    ]
