"""What a restart of the broker leaves of values, sessions, subscriptions and messages (D.20)."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from nebula.broker.core.limits import Limits
from nebula.broker.core.policies import DestinationPolicy
from nebula.broker.store.sqlite import STORE_FILE, SqliteStore
from nebula.headers import DEAD_LETTER_QUEUE
from tests.broker.harness import WALL_OFFSET, BrokerHarness, Peer
from tests.broker.memory_store import MemoryDisk, MemoryStore
from tests.broker.script import Received

DURABLE = ("ack:client-individual", "durable:true")
PERSISTENT = ["persistent:true"]
GOING = "/queue/going"
GOES = ("ack:client-individual", "auto-delete:true")


class Restarting:
    """A broker that is stopped, or crashes, and starts again with what it has kept."""

    def __init__(self, limits: Limits | None = None, policies: Sequence[DestinationPolicy] = ()) -> None:
        self.disk = MemoryDisk()
        self.limits = limits
        self.policies = policies
        self.broker = self.started()

    def started(self) -> BrokerHarness:
        return BrokerHarness(self.limits, self.policies, store=MemoryStore(self.disk))

    def restart(self, *, clean: bool = True) -> BrokerHarness:
        if clean:
            self.broker.stop()
        else:
            self.broker.commit()
        self.broker = self.started()
        return self.broker

    def reader(self, pattern: str = "X/*", *headers: str, id: str = "s") -> Peer:  # noqa: A002
        peer = self.broker.connect(client_id="reader", principal="reader")
        peer.subscribe(pattern, *DURABLE, *headers, id=id)
        return peer


def told(peer: Peer) -> list[tuple[str, str]]:
    return [(headers["destination"], "".join(body)) for _, headers, *body in peer.received()]


def about(frame: Received) -> tuple[dict[str, str], tuple[str, ...]]:
    """Headers and body of a MESSAGE, without what belongs to this delivery."""
    return {
        name: value for name, value in frame[1].items() if name not in ("redelivered", "delivery-count")
    }, frame[2:]


@pytest.fixture
def world() -> Restarting:
    return Restarting()


@pytest.mark.parametrize("clean", [True, False])
def test_values_are_there_again_with_their_headers_and_ids(world: Restarting, *, clean: bool) -> None:
    bob = world.broker.connect(principal="bob")
    bob.publish("X/a", "old", "v", headers=["kind:k"])
    bob.publish("X/b", "v", "")
    reader = world.broker.connect()
    reader.subscribe("X/*", "eager:true")
    before = reader.received()
    world.restart(clean=clean)
    reader = world.broker.connect()
    reader.subscribe("X/*", "eager:true")

    assert reader.received() == before
    assert ["".join(body) for _, _, *body in before] == ["v"]


@pytest.mark.parametrize("clean", [True, False])
def test_numbers_go_on_above_all_that_were_used(world: Restarting, *, clean: bool) -> None:
    ids = []
    for _ in range(3):
        alice = world.broker.connect()
        alice.subscribe("X/*")
        alice.publish("X/a", "1", "2", "3")
        ids += [frame[1]["message-id"] for frame in alice.received()]
        world.restart(clean=clean)

    numbers = [int(each.rpartition("-")[2]) for each in ids]
    assert numbers == sorted(set(numbers))


def test_session_is_told_what_changed_while_it_was_away_and_nothing_else(world: Restarting) -> None:
    bob = world.broker.connect()
    for key in "abc":
        bob.publish(f"X/{key}", "1")
    world.reader().lose()
    bob.publish("X/a", "2")
    bob.publish("X/b", "")
    world.restart()
    world.broker.connect().publish("X/d", "3")

    assert told(world.reader()) == [("X/a", "2"), ("X/b", ""), ("X/d", "3")]


def test_what_was_in_flight_at_the_stop_is_told_again(world: Restarting) -> None:
    reader = world.reader()
    bob = world.broker.connect()
    for key in "ab":
        bob.publish(f"X/{key}", "1")
    frames = reader.received()
    reader.ack(frames[0])
    world.restart()

    assert told(world.reader()) == [("X/b", "1")]


def test_crash_tells_too_much_rather_than_too_little(world: Restarting) -> None:
    bob = world.broker.connect()
    bob.publish("X/a", "1")
    bob.publish("X/b", "1")
    world.reader().lose()
    bob.publish("X/a", "2")
    bob.publish("X/b", "")
    world.restart(clean=False)

    changed = told(world.reader())
    assert {("X/a", "2"), ("X/b", "")} <= set(changed)
    assert len(changed) == len(dict(changed))


def test_nothing_is_told_twice_over_two_clean_restarts(world: Restarting) -> None:
    world.reader().lose()
    world.broker.connect().publish("X/a", "1")
    world.restart()
    reader = world.reader()
    (frame,) = reader.received()
    reader.ack(frame)
    world.restart()

    assert told(world.reader()) == []


def test_pending_is_kept_over_a_run_without_its_session(world: Restarting) -> None:
    world.reader().lose()
    bob = world.broker.connect()
    bob.publish("X/a", "1")
    bob.publish("X/b", "")
    bob.publish("X/c", "1", "")
    world.restart()
    world.restart()

    assert told(world.reader()) == [("X/a", "1"), ("X/c", "")]


def test_deletion_that_all_were_told_of_leaves_no_row(world: Restarting) -> None:
    reader = world.reader()
    bob = world.broker.connect()
    bob.publish("X/a", "1", "")
    while frames := reader.received():
        reader.ack(frames[0])
    world.broker.commit()

    assert world.disk.values == {}


def test_deletion_that_nobody_is_owed_any_more_is_swept_away(world: Restarting) -> None:
    world.reader().lose()
    bob = world.broker.connect()
    bob.publish("X/a", "1", "")
    world.broker.commit()
    assert set(world.disk.values) == {"X/a"}
    reader = world.broker.connect(client_id="reader", principal="reader")
    reader.say("UNSUBSCRIBE id:s; durable:true")
    world.restart()
    world.broker.commit()

    assert (world.disk.values, world.disk.subscriptions, world.disk.sessions) == ({}, {}, {})


def test_removed_subscription_stays_removed(world: Restarting) -> None:
    world.reader().say("UNSUBSCRIBE id:s; durable:true")
    world.restart()
    world.broker.connect().publish("X/a", "1")

    assert told(world.reader()) == []


def test_replaced_subscription_stays_replaced(world: Restarting) -> None:
    world.reader("X/a").lose()
    world.reader("X/b").lose()
    world.restart()
    bob = world.broker.connect()
    bob.publish("X/a", "1")
    bob.publish("X/b", "1")

    assert told(world.reader("X/b")) == [("X/b", "1")]


def test_session_stays_its_owners(world: Restarting) -> None:
    world.reader().lose()
    world.restart()
    stranger = world.broker.accept(principal="mallory")
    stranger.send("CONNECT\naccept-version:1.2\nhost:h\nclient-id:reader\n\n\0")

    assert [frame[0] for frame in stranger.received()] == ["ERROR"]


def test_abandoned_session_expires_in_the_order_of_leaving_after_a_restart() -> None:
    world = Restarting(Limits(session_expiry_seconds=10))
    late, early = (world.broker.connect(client_id=name) for name in ("a-late", "b-early"))
    for peer in (late, early):
        peer.subscribe("X/*", *DURABLE)
    world.broker.commit()
    early.lose()
    world.broker.advance(5)
    late.lose()
    # The clock of a new harness begins at 0 again, as if five seconds had been taken back.
    world.restart()
    standing = world.broker.broker.durable_sessions
    assert list(standing._away) == ["b-early", "a-late"]
    world.broker.advance(11)

    assert not standing.by_id


@pytest.mark.parametrize("clean", [True, False])
def test_durable_topic_subscription_keeps_all_messages(world: Restarting, *, clean: bool) -> None:
    reader = world.reader("/topic/*")
    bob = world.broker.connect()
    bob.publish("/topic/a", "1")
    (first,) = reader.received()
    reader.ack(first)
    bob.publish("/topic/a", "2")
    (in_flight,) = reader.received()
    reader.lose()
    bob.publish("/topic/b", "3")
    world.restart(clean=clean)
    world.broker.connect().publish("/topic/a", "4")
    frames = world.reader("/topic/*").received()

    assert ["".join(body) for _, _, *body in frames] == ["2", "3", "4"]
    assert about(frames[0]) == about(in_flight)


def test_bound_queues_of_several_subscriptions_keep_apart(world: Restarting) -> None:
    for pattern, id_ in (("/topic/a", "1"), ("/topic/*", "2")):
        world.reader(pattern, id=id_).lose()
    world.broker.connect().publish("/topic/a", "m")
    world.restart()
    reader = world.reader("/topic/a", id="1")
    assert reader.bodies() == ["m"]
    reader.subscribe("/topic/*", *DURABLE, id="2")

    assert reader.bodies() == ["m"]


def test_message_to_many_durable_subscriptions_is_on_the_disk_once_until_the_last_has_settled_it(
    tmp_path: Path,
) -> None:
    many, body = 30, "x" * 100_000
    store = SqliteStore(tmp_path)
    broker = BrokerHarness(store=store)
    for number in range(many):
        peer = broker.connect(client_id=f"c{number}")
        peer.subscribe("/topic/t", *DURABLE)
        peer.lose()
    broker.connect().publish("/topic/t", body, "next", headers=PERSISTENT)
    broker.commit()
    assert stored(tmp_path) == (2 * many, [len(body), 4])
    store.close()
    assert (tmp_path / STORE_FILE).stat().st_size < 2 * len(body)

    store = SqliteStore(tmp_path)
    broker = BrokerHarness(store=store)
    for number in range(many):
        assert stored(tmp_path) == (2 * many - number, [len(body), 4])
        peer = broker.connect(client_id=f"c{number}")
        peer.subscribe("/topic/t", *DURABLE, "prefetch-count:1")
        (frame,) = peer.received()
        assert frame[2:] == (body,)
        # Given back and counted, it has no body of its own; dead, it has, where it is dead.
        peer.nack(frame, *(["requeue:false"] if number == 5 else []))
        peer.lose()
        broker.commit()
        assert stored(tmp_path)[1] == [len(body), 4]
        peer = broker.connect(client_id=f"c{number}")
        peer.subscribe("/topic/t", *DURABLE, "prefetch-count:1")
        if number != 5:
            peer.ack(peer.received()[0])
        broker.commit()
    assert stored(tmp_path) == (many, [4])
    store.close()


def stored(folder: Path) -> tuple[int, list[int]]:
    """How many messages refer to bodies, and how large these are."""
    with closing(sqlite3.connect(folder / STORE_FILE)) as db:
        ((count,),) = db.execute("SELECT COUNT(*) FROM shared_messages")
        sizes = db.execute("SELECT LENGTH(body) FROM bodies ORDER BY number").fetchall()
    return count, [size for (size,) in sizes]


@pytest.mark.parametrize("clean", [True, False])
def test_persistent_messages_are_there_in_order_with_equal_ids(world: Restarting, *, clean: bool) -> None:
    bob = world.broker.connect(principal="bob")
    bob.publish("/queue/q", "1", "2", "3", headers=[*PERSISTENT, "kind:k"])
    bob.publish("/queue/q", "passing")
    alice = world.broker.connect()
    alice.subscribe("/queue/q", "ack:client-individual")
    frames = alice.received()
    alice.ack(frames[1])
    world.restart(clean=clean)
    alice = world.broker.connect()
    alice.subscribe("/queue/q", "ack:client-individual")

    assert list(map(about, alice.received())) == [about(frames[0]), about(frames[2])]


def test_dead_letters_stay_dead_letters(world: Restarting) -> None:
    bob = world.broker.connect()
    bob.subscribe("/queue/q", "ack:client")
    bob.publish("/queue/q", "dead", headers=PERSISTENT)
    (frame,) = bob.received()
    bob.nack(frame, "requeue:false")
    world.restart()
    alice = world.broker.connect()
    alice.subscribe("/queue/DLQ")
    headers, body = alice.message()

    assert body == "dead"
    assert (headers["dead-letter-reason"], headers["dead-letter-from"]) == ("rejected", "/queue/q")


def test_time_to_live_goes_on_over_a_restart(world: Restarting) -> None:
    bob = world.broker.connect()
    bob.publish("/queue/q", "short", headers=[*PERSISTENT, "neb-timeout:5000"])
    bob.publish("/queue/q", "long", headers=[*PERSISTENT, "neb-timeout:50000"])
    world.restart()
    world.broker.advance(6)
    alice = world.broker.connect()
    alice.subscribe("/queue/q")

    assert alice.bodies() == ["long"]


def letter_left_out(destination: str) -> str:
    """The key of `X/E.<letter>.<rest>` (D.30)."""
    entity, _, rest = destination.partition(".")
    return f"{entity}.{rest.partition('.')[2]}"


def test_key_belongs_to_its_last_letter_after_a_restart_too() -> None:
    disk = MemoryDisk()
    broker = BrokerHarness(store=MemoryStore(disk), key_of=letter_left_out)
    reader = broker.connect(client_id="reader")
    reader.subscribe("X/*", *DURABLE)
    reader.lose()
    bob = broker.connect()
    bob.publish("X/E.X.1", "x")
    bob.publish("X/E.Q.1", "q")
    broker.stop()
    broker = BrokerHarness(store=MemoryStore(disk), key_of=letter_left_out)
    broker.connect().publish("X/E.X.1", "again")
    alice = broker.connect()
    alice.subscribe("X/*", "eager:true")

    assert told(alice) == [("X/E.X.1", "again")]


def test_message_that_failed_before_a_restart_is_known_for_it(world: Restarting) -> None:
    alice, bob = world.broker.connect(), world.broker.connect()
    bob.subscribe("/queue/a", "ack:client-individual")
    alice.publish("/queue/a", "x", headers=PERSISTENT)
    world.broker.commit()
    (first,) = bob.received()
    bob.nack(first)
    bob.received()

    again = world.restart().connect()
    again.subscribe("/queue/a", "ack:client-individual")

    headers, body = again.message()
    # One NACK, and the loss of the connection at the stop.
    assert (headers["redelivered"], headers["delivery-count"], body) == ("true", "2", "x")


def test_message_that_failed_and_is_settled_then_leaves_nothing(world: Restarting) -> None:
    alice, bob = world.broker.connect(), world.broker.connect()
    bob.subscribe("/queue/a", "ack:client-individual")
    alice.publish("/queue/a", "x", headers=PERSISTENT)
    world.broker.commit()
    (first,) = bob.received()
    bob.nack(first)
    (again,) = bob.received()
    bob.ack(again)

    back = world.restart().connect()
    back.subscribe("/queue/a")

    assert back.received() == []


def test_reader_of_dead_letters_may_answer_none_after_a_restart(world: Restarting) -> None:
    alice, bob = world.broker.connect(principal="alice"), world.broker.connect(principal="bob")
    bob.subscribe("/queue/a", "ack:client-individual")
    alice.publish("/queue/a", "x", headers=[*PERSISTENT, "neb-reply-to:/queue/b", "neb-reply-id:1"])
    (request,) = bob.received()
    bob.nack(request, "requeue:false")

    reader = world.restart().connect(principal="bob")
    reader.subscribe("/queue/DLQ")

    assert len(reader.received()) == 1
    assert reader.session.reply_rights.find("/queue/b", "1", world.broker.now) is None


def test_session_that_was_there_when_the_broker_was_killed_expires_over_further_starts() -> None:
    world = Restarting(Limits(session_expiry_seconds=100))
    world.reader()
    world.restart(clean=False)
    world.broker.commit()
    assert world.broker.broker.durable_sessions.by_id["reader"].away_since == 0.0

    world.restart(clean=False)

    assert [row.away_since for row in world.disk.sessions.values()] == [WALL_OFFSET]


@pytest.mark.parametrize(("eager", "expected"), [("false", ["new"]), ("true", ["old", "new"])])
def test_after_a_crash_nothing_is_told_that_was_not_asked_for(
    world: Restarting, eager: str, expected: list[str]
) -> None:
    bob = world.broker.connect()
    bob.publish("X/old", "old")
    world.reader("X/*", f"eager:{eager}").lose()
    bob.publish("X/new", "new")

    world.restart(clean=False)

    assert sorted(world.reader().bodies(), reverse=True) == expected


@pytest.mark.parametrize("clean", [True, False])
def test_auto_delete_queue_goes_with_the_broker(world: Restarting, *, clean: bool) -> None:
    bob = world.broker.connect()
    bob.subscribe(GOING, *GOES, "prefetch-count:1")
    world.broker.connect().publish(GOING, "1", "2", headers=PERSISTENT)
    (first,) = bob.received()
    assert world.disk.messages == {}
    world.restart(clean=clean)
    assert GOING not in world.broker.destinations
    carol = world.broker.connect()
    carol.subscribe(GOING)

    assert first[-1] == "1"
    assert carol.bodies() == []


def test_receipt_of_a_persistent_message_to_an_auto_delete_queue_says_that_it_is_not_on_disk(
    world: Restarting,
) -> None:
    alice, bob = world.broker.connect(), world.broker.connect()
    bob.subscribe(GOING, *GOES)
    # Neither an id that is remembered nor what another queue writes makes it durable.
    alice.publish(GOING, "1", headers=[*PERSISTENT, "receipt:1"])
    alice.publish(GOING, "2", headers=[*PERSISTENT, "receipt:2", "dedup-id:d"])
    world.broker.commit()

    assert [frame[1]["durable"] for frame in alice.received()] == ["false", "false"]


def test_message_to_an_auto_delete_queue_may_be_sent_again_after_a_crash(world: Restarting) -> None:
    once = [*PERSISTENT, "dedup-id:d", "receipt:r"]
    for _ in range(2):
        bob = world.broker.connect()
        bob.subscribe(GOING, *GOES)
        alice = world.broker.connect()
        alice.publish(GOING, "1", headers=once)
        world.broker.commit()
        assert bob.bodies() == ["1"]
        assert "duplicate" not in alice.received()[0][1]
        world.restart(clean=False)


def test_dead_letter_of_an_auto_delete_queue_is_on_disk(world: Restarting) -> None:
    bob = world.broker.connect()
    bob.subscribe(GOING, *GOES)
    world.broker.connect().publish(GOING, "1", headers=PERSISTENT)
    bob.nack(bob.received()[0], "requeue:false")
    world.restart(clean=False)
    carol = world.broker.connect()
    carol.subscribe(DEAD_LETTER_QUEUE)

    assert carol.bodies() == ["1"]


@pytest.mark.parametrize("name", [DEAD_LETTER_QUEUE, "/queue/record"])
def test_queue_that_others_rely_on_is_on_disk_whoever_subscribes_to_it_first(name: str) -> None:
    world = Restarting(policies=[DestinationPolicy(pattern="/queue/orders", copy_to="/queue/record")])
    world.broker.connect().subscribe(name, *GOES)
    alice, bob = world.broker.connect(), world.broker.connect()
    bob.subscribe("/queue/orders", "ack:client-individual")
    alice.publish("/queue/orders", "1", headers=PERSISTENT)
    bob.nack(bob.received()[0], "requeue:false")
    world.restart(clean=False)
    carol = world.broker.connect()
    carol.subscribe(name)

    assert carol.bodies() == ["1"]


def test_auto_delete_queue_takes_messages_while_the_disk_is_low(world: Restarting) -> None:
    alice, bob = world.broker.connect(), world.broker.connect()
    bob.subscribe(GOING, *GOES)
    world.broker.broker.account.is_disk_low = True
    alice.publish(GOING, "1", headers=[*PERSISTENT, "receipt:r"])

    assert bob.bodies() == ["1"]
    assert alice.received()[0][1]["disposition"] == "accepted"
