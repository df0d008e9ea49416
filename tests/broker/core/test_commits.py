"""COMMIT: all of a transaction or nothing, judged when it comes (D.24)."""

from __future__ import annotations

import pytest

from nebula.broker.core.limits import Limits
from nebula.broker.core.policies import DestinationPolicy, WhenFull
from tests.broker.harness import WALL_OFFSET, BrokerHarness, Peer
from tests.broker.memory_store import MemoryDisk, MemoryStore
from tests.broker.transacting import BEGIN, COMMIT, IN, INDIVIDUAL, QUEUE, holder, left, receipt

# Refused at the COMMIT

REFUSED = [
    ("/queue/nebula.secret", [], "rejected-unauthorised"),
    ("/queue/nebula.inbox.1", [], "rejected-no-consumer"),
    ("/topic/no*", [], "rejected-invalid"),
    ("/queue/b", ["persistent:perhaps"], "rejected-invalid"),
    ("/queue/b", ["require-consumers:true"], "rejected-no-consumer"),
    ("/queue/full", [], "rejected-full"),
]


@pytest.mark.parametrize(("destination", "headers", "verdict"), REFUSED)
def test_one_send_that_is_refused_refuses_all(destination: str, headers: list[str], verdict: str) -> None:
    broker = BrokerHarness(policies=[DestinationPolicy(pattern="/queue/full", max_bytes=1)])
    bob, (one,) = holder(broker, "1")
    bob.ack(one, IN)
    bob.publish("/queue/b", "before", headers=[IN, "receipt:before"])
    bob.publish(destination, "x", headers=[IN, "receipt:bad", *headers])
    bob.publish("/queue/b", "after", headers=[IN])
    bob.say(f"{COMMIT}; receipt:c")

    assert bob.received()[2:] == [receipt("c", disposition=verdict, failed_receipt="bad")]
    assert list(broker.destinations) == [QUEUE]


def test_last_value_and_topic_of_a_refused_transaction_are_not_sent(broker: BrokerHarness) -> None:
    alice, bob = broker.connect(), broker.connect()
    bob.subscribe("X/*", id="x")
    bob.subscribe("/topic/t", id="t")
    alice.say(BEGIN)
    for destination in ("X/v", "/topic/t", "/queue/nebula.secret"):
        alice.publish(destination, "x", headers=[IN])
    alice.say(f"{COMMIT}; receipt:c")

    assert alice.received() == [receipt("c", disposition="rejected-unauthorised")]
    assert bob.received() == []
    assert broker.broker.values.topics == {}


def test_failed_receipt_is_left_out_where_the_refused_send_asked_for_none(broker: BrokerHarness) -> None:
    alice = broker.connect()
    alice.say(BEGIN)
    alice.publish("/queue/nebula.secret", "x", headers=[IN])
    alice.publish("/queue/nebula.secret", "x", headers=[IN, "receipt:second"])
    alice.say(f"{COMMIT}; receipt:c")

    assert alice.received()[1:] == [receipt("c", disposition="rejected-unauthorised")]


def test_refused_commit_without_a_receipt_is_an_error(broker: BrokerHarness) -> None:
    alice = broker.connect()
    alice.say(BEGIN)
    alice.publish("/queue/nebula.secret", "x", headers=[IN])
    alice.say(COMMIT)

    ((command, headers, *_),) = alice.received()
    assert (command, headers["message"]) == ("ERROR", "the transaction is refused: rejected-unauthorised")
    assert alice.is_closed


def test_refused_commit_ends_the_transaction(broker: BrokerHarness) -> None:
    alice = broker.connect()
    alice.say(BEGIN)
    alice.publish("/queue/nebula.secret", "x", headers=[IN])
    alice.say(f"{COMMIT}; receipt:c", f"{BEGIN}; receipt:b", f"{COMMIT}; receipt:d")

    assert alice.received()[1:] == [receipt("b"), receipt("d")]


def test_messages_acked_in_a_refused_transaction_are_unacked_on_the_same_subscription(
    broker: BrokerHarness,
) -> None:
    bob, (one, _) = holder(broker, "1", "2")
    bob.ack(one, IN)
    bob.publish("/queue/nebula.secret", "x", headers=[IN])
    bob.say(f"{COMMIT}; receipt:c")
    bob.received()

    # Not delivered again: it never left the subscription.
    bob.ack(one, "receipt:again")
    assert bob.received() == [receipt("again")]
    bob.lose()
    assert left(broker) == ["2"]


def test_refused_transaction_is_counted_once(broker: BrokerHarness) -> None:
    alice = broker.connect()
    alice.say(BEGIN)
    for _ in range(3):
        alice.publish("/queue/nebula.secret", "x", headers=[IN])
    alice.say(f"{COMMIT}; receipt:c")

    assert broker.broker.account.dropped == {"rejected-unauthorised": 1}


# Room, consumers and time are judged at the COMMIT


def test_room_is_judged_for_all_of_a_transaction_together() -> None:
    broker = BrokerHarness(Limits(max_queue_messages=3))
    alice = broker.connect()
    alice.publish(QUEUE, "there")
    alice.say(BEGIN)
    for number in range(3):
        alice.publish(QUEUE, f"{number}", headers=[IN, f"receipt:{number}"])
    alice.say(f"{COMMIT}; receipt:c")

    assert alice.received()[-1] == receipt("c", disposition="rejected-full", failed_receipt="2")
    assert left(broker) == ["there"]


def test_bytes_of_a_queue_are_judged_for_all_of_a_transaction_together() -> None:
    broker = BrokerHarness(Limits(max_body_bytes=5000, max_queue_bytes=9000))
    alice = broker.connect()
    alice.say(BEGIN)
    for name in ("a", "b"):
        alice.publish(QUEUE, "x" * 4000, headers=[IN, f"receipt:{name}"])
    alice.say(f"{COMMIT}; receipt:c")

    assert alice.received()[-1] == receipt("c", disposition="rejected-full", failed_receipt="b")
    assert broker.destinations == {}


@pytest.mark.parametrize(
    "names",
    [
        ["/queue/1", "/queue/2", "/queue/3"],
        ["X/1", "X/2", "X/3"],
        ["X/1", "/queue/2", "X/3"],
        ["/queue/1", "X/2", "/queue/3"],
    ],
)
def test_number_of_destinations_is_judged_for_all_of_a_transaction_together(names: list[str]) -> None:
    broker = BrokerHarness(Limits(max_destinations=2))
    alice = broker.connect()
    alice.say(BEGIN)
    for number, name in enumerate(names):
        alice.publish(name, "x", headers=[IN, f"receipt:{number}"])
    alice.say(f"{COMMIT}; receipt:c")

    assert alice.received()[-1] == receipt("c", disposition="rejected-full", failed_receipt="2")
    assert broker.destinations == {}


def test_consumers_are_looked_for_at_the_commit(broker: BrokerHarness) -> None:
    alice, bob = broker.connect(), broker.connect()
    alice.say(BEGIN)
    alice.publish(QUEUE, "x", headers=[IN, "require-consumers:true"])
    bob.subscribe(QUEUE)
    alice.say(f"{COMMIT}; receipt:c")

    assert alice.received() == [receipt("c")]
    assert bob.bodies() == ["x"]


def test_time_to_live_counts_from_the_commit(broker: BrokerHarness) -> None:
    alice = broker.connect()
    alice.say(BEGIN)
    alice.publish(QUEUE, "x", headers=[IN, "neb-timeout:2000"])
    broker.advance(5)
    alice.say(COMMIT)
    broker.advance(1)
    bob = broker.connect()
    bob.subscribe(QUEUE)

    headers, body = bob.message()
    assert (body, headers["neb-timeout"]) == ("x", "1000")


def test_commit_never_holds_its_sender_back() -> None:
    broker = BrokerHarness(Limits(max_queue_messages=1))
    broker.connect().subscribe(QUEUE, "ack:client", "prefetch-count:1")
    alice = broker.connect()
    alice.publish(QUEUE, "fills it")
    alice.say(BEGIN)
    alice.publish(QUEUE, "x", headers=[IN])
    alice.say(f"{COMMIT}; receipt:c")

    assert not alice.is_held_back
    assert alice.received() == [receipt("c", disposition="rejected-full")]


# The store


def test_receipt_of_a_commit_waits_for_the_store() -> None:
    broker = BrokerHarness(store=MemoryStore(MemoryDisk()))
    alice = broker.connect()
    alice.say(BEGIN)
    alice.publish(QUEUE, "x", headers=[IN, "persistent:true", "receipt:held"])
    alice.say(f"{COMMIT}; receipt:c")
    assert alice.received() == [receipt("held")]

    broker.commit()

    assert alice.received() == [receipt("c")]


def test_transaction_is_one_batch_of_the_store() -> None:
    store = MemoryStore(MemoryDisk())
    broker = BrokerHarness(store=store)
    bob = broker.connect()
    bob.subscribe(QUEUE, INDIVIDUAL)
    broker.connect().publish(QUEUE, "work", headers=["persistent:true"])
    broker.commit()
    (work,) = bob.received()
    bob.say(BEGIN)
    bob.ack(work, IN)
    bob.publish("/queue/done", "answer", headers=[IN, "persistent:true"])
    assert broker.broker.journal is not None
    assert broker.broker.journal.is_empty

    bob.say(COMMIT)
    broker.commit()

    assert {name: [each.body for each in kept.first] for name, kept in store.load().lines.items()} == {
        "/queue/done": [b"answer"]
    }


# What leaves nothing behind


@pytest.mark.parametrize("headers", [[f"expires:{round(WALL_OFFSET * 1000) - 1}"], ["dedup-id:a"]])
def test_sends_of_a_commit_that_come_to_nothing_leave_no_queue_behind(headers: list[str]) -> None:
    broker = BrokerHarness(Limits(max_destinations=3))
    bob = broker.connect()
    bob.subscribe("/queue/DLQ")
    alice = broker.connect()
    for number in range(5):
        name = f"/queue/{number}"
        if headers == ["dedup-id:a"]:
            bob.subscribe(name, id=name)
            alice.publish(name, "x", headers=headers)
            bob.say(f"UNSUBSCRIBE id:{name}")
        alice.say(BEGIN)
        alice.publish(name, "x", headers=[IN, *headers])
        alice.say(f"{COMMIT}; receipt:{number}")

    assert alice.received() == [receipt(str(number)) for number in range(5)]
    assert list(broker.destinations) == ["/queue/DLQ"]


def test_copies_of_what_has_expired_need_room_and_what_has_expired_needs_none() -> None:
    policies = [
        DestinationPolicy(pattern=QUEUE, copy_to="/queue/record", max_messages=1),
        DestinationPolicy(pattern="/queue/record", max_messages=2),
    ]
    broker = BrokerHarness(policies=policies)
    alice = broker.connect()
    expired = [IN, f"expires:{round(WALL_OFFSET * 1000) - 1}"]
    for bodies in (["1", "2"], ["3"]):
        alice.say(BEGIN)
        alice.publish(QUEUE, *bodies, headers=expired)
        alice.say(f"{COMMIT}; receipt:c")

    assert [frame[1].get("disposition", "accepted") for frame in alice.received()] == [
        "accepted",
        "rejected-full",
    ]
    assert left(broker, "/queue/record") == ["1", "2"]


# Duplicates


def test_transaction_of_duplicates_is_accepted_by_a_full_queue() -> None:
    broker = BrokerHarness(Limits(max_queue_messages=2))
    alice = broker.connect()
    for name in ("first", "again"):
        alice.say(BEGIN)
        for id_ in ("a", "b"):
            alice.publish(QUEUE, id_, headers=[IN, f"dedup-id:{id_}"])
        alice.say(f"{COMMIT}; receipt:{name}")

    assert alice.received() == [receipt(name) for name in ("first", "again")]
    assert broker.broker.account.dropped == {"duplicate": 2}
    assert left(broker) == ["a", "b"]


def test_second_message_of_an_id_in_one_transaction_needs_no_room() -> None:
    broker = BrokerHarness(Limits(max_queue_messages=1))
    alice = broker.connect()
    alice.say(BEGIN)
    alice.publish(QUEUE, "first", "second", headers=[IN, "dedup-id:a"])
    alice.say(f"{COMMIT}; receipt:c")

    assert alice.received() == [receipt("c")]
    assert left(broker) == ["first"]


def test_new_message_among_duplicates_still_needs_room() -> None:
    broker = BrokerHarness(Limits(max_queue_messages=1))
    alice = broker.connect()
    alice.publish(QUEUE, "first", headers=["dedup-id:a"])
    alice.say(BEGIN)
    alice.publish(QUEUE, "first", headers=[IN, "dedup-id:a"])
    alice.publish(QUEUE, "second", headers=[IN, "dedup-id:b"])
    alice.say(f"{COMMIT}; receipt:c")

    assert alice.received() == [receipt("c", disposition="rejected-full")]
    assert left(broker) == ["first"]


# Queues that make room


MAKES_ROOM = pytest.mark.parametrize("when_full", [WhenFull.DROP_OLDEST, WhenFull.DEAD_LETTER])


def held_world(
    when_full: WhenFull, *, max_messages: int = 2, prefetch: int = 2
) -> tuple[BrokerHarness, Peer]:
    """A queue that makes room, and a consumer with credit."""
    policies = [
        DestinationPolicy(pattern=QUEUE, max_messages=max_messages, when_full=when_full),
        DestinationPolicy(pattern="/queue/copied", copy_to=QUEUE),
    ]
    broker = BrokerHarness(policies=policies)
    bob = broker.connect()
    bob.subscribe(QUEUE, INDIVIDUAL, f"prefetch-count:{prefetch}")
    return broker, bob


def commit(broker: BrokerHarness, *bodies: str, to: str = QUEUE) -> str:
    """The verdict on a transaction of these messages."""
    alice = broker.connect()
    alice.say(BEGIN)
    alice.publish(to, *bodies, headers=[IN])
    alice.say(f"{COMMIT}; receipt:c")
    ((_, headers, *_),) = alice.received()
    alice.disconnect()
    return headers.get("disposition", "accepted")


@MAKES_ROOM
def test_commit_is_refused_where_all_room_is_unacked(when_full: WhenFull) -> None:
    broker, bob = held_world(when_full)
    broker.connect().publish(QUEUE, "1", "2")
    verdict = commit(broker, "3")

    assert verdict == "rejected-full"
    assert bob.bodies() == ["1", "2"]
    assert left(broker, "/queue/DLQ") == []


@MAKES_ROOM
def test_copy_is_refused_with_its_original_where_all_room_is_unacked(when_full: WhenFull) -> None:
    broker, _ = held_world(when_full)
    alice = broker.connect()
    alice.publish(QUEUE, "1", "2")
    alice.say("SUBSCRIBE id:o; destination:/queue/other", "SEND destination:/queue/copied; receipt:r | 3")

    assert alice.received()[-1][1]["disposition"] == "rejected-full"
    assert commit(broker, "3", to="/queue/copied") == "rejected-full"
    assert left(broker, "/queue/copied") == []
    assert left(broker, "/queue/DLQ") == []


@MAKES_ROOM
def test_commit_takes_what_its_messages_become_into_account(when_full: WhenFull) -> None:
    broker, bob = held_world(when_full, max_messages=3, prefetch=2)

    # Two become un-ACKed, and each of the others takes the place of the one before it.
    assert commit(broker, *"12345") == "accepted"
    assert bob.bodies() == ["1", "2"]
    assert broker.broker.queues.by_name[QUEUE].store.depth == 3


@MAKES_ROOM
def test_commit_is_refused_where_its_own_messages_would_take_all_room_unacked(when_full: WhenFull) -> None:
    broker, bob = held_world(when_full, max_messages=2, prefetch=5)

    assert commit(broker, *"123") == "rejected-full"
    assert commit(broker, *"12") == "accepted"
    assert bob.bodies() == ["1", "2"]


@MAKES_ROOM
def test_commit_makes_room_among_what_waits(when_full: WhenFull) -> None:
    broker, bob = held_world(when_full, prefetch=1)
    broker.connect().publish(QUEUE, "1", "2")

    assert commit(broker, "3", "4") == "accepted"
    assert bob.bodies() == ["1"]
    assert [message.body for message in broker.broker.queues.by_name[QUEUE].store.line.in_memory()] == [b"4"]
