"""`delay`, `deliver-at`, `dedup-id` and `copy_to` (G.delay, G.dedup, G.copies)."""

from __future__ import annotations

import pytest

from nebula.broker.core.limits import Limits
from nebula.broker.core.messages import Content
from nebula.broker.core.policies import DestinationPolicy, WhenFull
from nebula.broker.core.tables import DuplicateRow
from nebula.headers import DEAD_LETTER_QUEUE
from tests.broker.harness import WALL_OFFSET, BrokerHarness, Peer
from tests.broker.memory_store import MemoryDisk
from tests.broker.restarted import start
from tests.broker.script import Received

QUEUE = "/queue/orders"
RECORD = "/queue/record"
PERSISTENT = "persistent:true"


def verdicts(peer: Peer) -> list[tuple[str, bool]]:
    """Of each RECEIPT: its disposition, and whether it was a duplicate."""
    return [(headers["disposition"], "duplicate" in headers) for _, headers, *_ in peer.received()]


# --- delay ---


def test_delayed_message_comes_when_it_is_due() -> None:
    broker = BrokerHarness()
    bob = broker.connect()
    bob.subscribe(QUEUE)
    broker.connect().publish(QUEUE, "later", headers=["delay:5000"])
    broker.advance(4.75)
    assert bob.received() == []

    broker.advance(0.5)
    headers, body = bob.message()
    assert body == "later"
    assert "delay" not in headers


def test_time_of_day_counts_as_well() -> None:
    broker = BrokerHarness()
    bob = broker.connect()
    bob.subscribe(QUEUE)
    broker.connect().publish(QUEUE, "later", headers=[f"deliver-at:{round((WALL_OFFSET + 5) * 1000)}"])
    broker.advance(4.75)
    assert bob.received() == []
    broker.advance(0.5)
    assert bob.bodies() == ["later"]


@pytest.mark.parametrize("header", ["delay:0", f"deliver-at:{round((WALL_OFFSET - 5) * 1000)}"])
def test_what_is_due_by_now_comes_at_once(header: str) -> None:
    broker = BrokerHarness()
    bob = broker.connect()
    bob.subscribe(QUEUE)
    broker.connect().publish(QUEUE, "now", headers=[header])

    assert bob.bodies() == ["now"]


def test_message_that_expires_at_0_never_does() -> None:
    broker = BrokerHarness()
    broker.connect().publish(QUEUE, "kept", headers=["expires:0"])
    broker.advance(1_000)

    bob = broker.connect()
    bob.subscribe(QUEUE)
    assert bob.bodies() == ["kept"]


def test_delayed_message_is_the_newest_when_it_comes(disk: MemoryDisk) -> None:
    broker = start(disk)
    alice = broker.connect()
    alice.publish(QUEUE, "late", headers=["delay:5000", PERSISTENT])
    alice.publish(QUEUE, "1", "2", headers=[PERSISTENT])
    broker.advance(6)
    alice.publish(QUEUE, "3", headers=[PERSISTENT])
    broker.commit()

    for world in (start(disk), broker):
        bob = world.connect()
        bob.subscribe(QUEUE)
        assert bob.bodies() == ["1", "2", "late", "3"]


def test_delayed_message_waits_over_a_restart(disk: MemoryDisk) -> None:
    broker = start(disk)
    broker.connect().publish(QUEUE, "later", headers=["delay:5000", PERSISTENT])
    broker.commit()
    again = start(disk)
    bob = again.connect()
    bob.subscribe(QUEUE)
    again.advance(4.75)
    assert bob.received() == []

    again.advance(0.5)
    again.commit()
    assert bob.bodies() == ["later"]
    again.commit()
    assert disk.delayed == {}
    assert disk.messages == {}


def test_receipt_of_a_delayed_message_waits_for_the_disk(disk: MemoryDisk) -> None:
    broker = start(disk)
    alice = broker.connect()
    alice.publish(QUEUE, "later", headers=["delay:5000", PERSISTENT, "receipt:r"])
    assert alice.received() == []
    broker.commit()
    assert verdicts(alice) == [("accepted", False)]


def test_delayed_message_may_expire_before_it_is_due() -> None:
    broker = BrokerHarness()
    alice = broker.connect()
    expires = round((WALL_OFFSET + 2) * 1000)
    alice.publish(QUEUE, "x", headers=["delay:5000", f"expires:{expires}"])
    broker.advance(6)

    assert list(broker.destinations) == [DEAD_LETTER_QUEUE]


def test_delayed_message_that_finds_no_room_is_dead() -> None:
    broker = BrokerHarness(Limits(max_queue_messages=1))
    alice = broker.connect()
    alice.publish(QUEUE, "later", headers=["delay:5000"])
    alice.publish(QUEUE, "now")
    broker.advance(6)
    carol = broker.connect()
    carol.subscribe(DEAD_LETTER_QUEUE)

    headers, body = carol.message()
    assert (headers["dead-letter-reason"], body) == ("full", "later")


def test_delayed_message_that_finds_no_room_leaves_no_empty_queue() -> None:
    broker = BrokerHarness(policies=[DestinationPolicy(pattern=QUEUE, max_bytes=2_000)])
    broker.connect().publish(QUEUE, "x" * 2_000, headers=["delay:5000"])
    broker.advance(6)

    assert list(broker.destinations) == [DEAD_LETTER_QUEUE]


def test_delayed_messages_for_many_queues_make_no_more_than_there_may_be() -> None:
    broker = BrokerHarness(Limits(max_destinations=5))
    alice = broker.connect()
    for number in range(9):
        alice.publish(f"/queue/{number}", "x", headers=["delay:5000"])
    broker.advance(6)
    bob = broker.connect()
    bob.subscribe(DEAD_LETTER_QUEUE)

    assert sorted(broker.destinations) == sorted([*(f"/queue/{n}" for n in range(5)), DEAD_LETTER_QUEUE])
    dead = [headers for _, headers, *_ in bob.received()]
    assert [headers["dead-letter-from"] for headers in dead] == [f"/queue/{number}" for number in range(5, 9)]
    assert {headers["dead-letter-reason"] for headers in dead} == {"full"}


def test_delay_in_a_transaction_counts_from_its_commit() -> None:
    broker = BrokerHarness()
    bob = broker.connect()
    bob.subscribe(QUEUE)
    alice = broker.connect()
    alice.say("BEGIN transaction:t", f"SEND destination:{QUEUE}; transaction:t; delay:5000 | x")
    broker.advance(4)
    alice.say("COMMIT transaction:t")
    broker.advance(4)
    assert bob.received() == []
    broker.advance(1.25)
    assert bob.bodies() == ["x"]


def test_delay_means_nothing_on_a_topic() -> None:
    broker = BrokerHarness()
    bob = broker.connect()
    bob.subscribe("/topic/news")
    broker.connect().publish("/topic/news", "x", headers=["delay:5000"])

    assert bob.bodies() == ["x"]


@pytest.mark.parametrize("is_written", [False, True])
def test_what_is_for_later_counts_once_until_the_store_has_it(disk: MemoryDisk, *, is_written: bool) -> None:
    broker = start(disk)
    journal = broker.broker.journal
    assert journal is not None
    broker.connect().publish(QUEUE, "x", headers=["delay:1000", PERSISTENT])
    size_bytes = journal.backlog_bytes
    assert size_bytes > 0
    if is_written:
        broker.commit()
        assert journal.backlog_bytes == 0

    # Out of the one place, and into the other.
    broker.advance(2)
    assert journal.backlog_bytes == size_bytes
    broker.commit()
    assert journal.backlog_bytes == 0


# --- dedup-id ---


@pytest.mark.parametrize("destination", [QUEUE, "/topic/news", "X/EGM.1"])
def test_second_message_of_an_id_is_accepted_and_does_nothing(destination: str) -> None:
    broker = BrokerHarness()
    bob = broker.connect()
    bob.subscribe(destination)
    alice = broker.connect()
    for body in ("1", "2"):
        alice.publish(destination, body, headers=["dedup-id:a", "receipt:r"])

    assert verdicts(alice) == [("accepted", False), ("accepted", True)]
    assert bob.bodies() == ["1"]
    assert broker.broker.account.dropped == {"duplicate": 1}


def test_ids_are_each_destinations_own() -> None:
    broker = BrokerHarness()
    alice = broker.connect()
    alice.publish(QUEUE, "1", headers=["dedup-id:a"])
    alice.publish("/queue/other", "1", headers=["dedup-id:a"])
    alice.publish(QUEUE, "2", headers=["dedup-id:b"])

    assert broker.broker.account.dropped == {}


def test_ids_are_each_principals_own(disk: MemoryDisk) -> None:
    broker = start(disk)
    eve, bob = broker.connect(principal="eve"), broker.connect(principal="bob")
    for peer in (eve, bob, bob):
        peer.publish(QUEUE, "x", headers=["dedup-id:a", PERSISTENT, "receipt:r"])
    broker.commit()
    assert verdicts(eve) == [("accepted", False)]
    assert verdicts(bob) == [("accepted", False), ("accepted", True)]

    again = start(disk)
    bob, carol = again.connect(principal="bob"), again.connect(principal="carol")
    for peer in (bob, carol):
        peer.publish(QUEUE, "x", headers=["dedup-id:a", PERSISTENT, "receipt:r"])
    again.commit()
    assert verdicts(bob) == [("accepted", True)]
    assert verdicts(carol) == [("accepted", False)]


def test_ids_of_an_older_store_count_for_everybody(disk: MemoryDisk) -> None:
    # It did not know whose they were.
    disk.duplicates[QUEUE, "", "a"] = DuplicateRow(QUEUE, "", "a", WALL_OFFSET + 60)
    broker = start(disk)
    alice = broker.connect()
    for dedup_id in "ab":
        alice.publish(QUEUE, "x", headers=[f"dedup-id:{dedup_id}", "receipt:r"])
    broker.commit()
    assert verdicts(alice) == [("accepted", True), ("accepted", False)]

    broker.advance(61)
    broker.commit()
    assert disk.duplicates == {}


def test_id_means_nothing_to_an_inbox(disk: MemoryDisk) -> None:
    inbox = "/queue/nebula.inbox.1"
    broker = start(disk)
    alice = broker.connect()
    alice.subscribe(inbox, "exclusive:true")
    for body in "12":
        alice.publish(inbox, body, headers=["dedup-id:a", PERSISTENT])
    assert alice.bodies() == ["1", "2"]
    broker.commit()
    assert disk.duplicates == {}

    alice.publish(inbox, "3", headers=[f"dedup-id:{'x' * 257}", "receipt:r"])
    assert verdicts(alice) == [("rejected-invalid", False)]


def test_id_may_be_used_again_after_its_window() -> None:
    broker = BrokerHarness(policies=[DestinationPolicy(pattern=QUEUE, dedup_window=5.0)])
    alice = broker.connect()
    for _ in range(3):
        alice.publish(QUEUE, "x", headers=["dedup-id:a", "receipt:r"])
        broker.advance(3)

    assert verdicts(alice) == [("accepted", False), ("accepted", True), ("accepted", False)]


def test_refused_message_does_not_use_up_its_id() -> None:
    broker = BrokerHarness(Limits(max_queue_messages=1))
    alice = broker.connect()
    alice.publish(QUEUE, "first", headers=["dedup-id:a", "receipt:r"])
    alice.publish(QUEUE, "second", headers=["dedup-id:b", "receipt:r"])
    bob = broker.connect()
    bob.subscribe(QUEUE)
    alice.publish(QUEUE, "second", headers=["dedup-id:b", "receipt:r"])

    assert verdicts(alice) == [("accepted", False), ("rejected-full", False), ("accepted", False)]
    assert bob.bodies() == ["first", "second"]


def test_id_is_known_after_a_crash_though_its_message_is_gone(disk: MemoryDisk) -> None:
    broker = start(disk)
    broker.connect().publish(QUEUE, "x", headers=["dedup-id:a", PERSISTENT])
    broker.commit()
    bob = broker.connect()
    bob.subscribe(QUEUE)
    assert bob.bodies() == ["x"]
    broker.commit()

    again = start(disk)
    alice = again.connect()
    alice.publish(QUEUE, "x", headers=["dedup-id:a", PERSISTENT, "receipt:r"])
    again.commit()
    assert verdicts(alice) == [("accepted", True)]
    again.advance(again.broker.limits.dedup_seconds + 1)
    again.commit()
    assert disk.duplicates == {}


@pytest.mark.parametrize("ack", ["auto", "client"])
def test_id_is_known_after_a_crash_though_its_message_was_consumed_at_once(
    disk: MemoryDisk, ack: str
) -> None:
    broker = start(disk)
    bob = broker.connect()
    bob.subscribe(QUEUE, f"ack:{ack}")
    alice = broker.connect()
    alice.publish(QUEUE, "x", headers=["dedup-id:a", PERSISTENT, "receipt:r"])
    assert alice.received() == []
    broker.commit()
    assert verdicts(alice) == [("accepted", False)]
    (message,) = bob.received()
    if ack == "client":
        bob.ack(message)
    broker.commit()
    assert disk.messages == {}

    again = start(disk)
    alice = again.connect()
    alice.publish(QUEUE, "x", headers=["dedup-id:a", PERSISTENT, "receipt:r"])
    again.commit()
    assert verdicts(alice) == [("accepted", True)]


def test_id_that_was_on_disk_goes_from_there_though_it_is_used_again_by_another_kind(
    disk: MemoryDisk,
) -> None:
    broker = start(disk, [DestinationPolicy(pattern=QUEUE, dedup_window=0.1)])
    alice = broker.connect()
    alice.publish(QUEUE, "x", headers=["dedup-id:a", PERSISTENT])
    broker.commit()
    broker.now += 0.2
    alice.publish(QUEUE, "x", headers=["dedup-id:a"])
    broker.advance(1)
    broker.commit()

    assert disk.duplicates == {}


def test_receipt_of_a_duplicate_waits_for_the_first_ones_commit(disk: MemoryDisk) -> None:
    broker = start(disk)
    broker.connect().publish(QUEUE, "x", headers=["dedup-id:a", PERSISTENT])
    alice = broker.connect()
    alice.publish(QUEUE, "x", headers=["dedup-id:a", PERSISTENT, "receipt:r"])

    assert alice.received() == []
    broker.commit()
    assert verdicts(alice) == [("accepted", True)]


def test_duplicates_in_one_transaction_are_found_at_its_commit() -> None:
    broker = BrokerHarness()
    bob = broker.connect()
    bob.subscribe(QUEUE)
    alice = broker.connect()
    send = f"SEND destination:{QUEUE}; transaction:t; dedup-id:a | x"
    alice.say("BEGIN transaction:t", send, send, "COMMIT transaction:t; receipt:c")

    assert bob.bodies() == ["x"]
    assert alice.received() == [("RECEIPT", {"receipt-id": "c"})]


def test_id_that_is_too_long_to_be_remembered_is_refused() -> None:
    alice = BrokerHarness().connect()
    for size in (256, 257):
        alice.publish(QUEUE, "x", headers=[f"dedup-id:{'x' * size}", "receipt:r"])

    assert verdicts(alice) == [("accepted", False), ("rejected-invalid", False)]


# --- copy_to ---


def recorded(broker: BrokerHarness) -> list[Received]:
    peer = broker.connect()
    peer.subscribe(RECORD)
    frames = peer.received()
    peer.disconnect()
    return frames


def copying(pattern: str, **more: object) -> DestinationPolicy:
    return DestinationPolicy(pattern=pattern, copy_to=RECORD, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("destination", ["X/EGM.1", "/topic/EGM", QUEUE])
def test_each_accepted_message_leaves_a_copy_on_disk(disk: MemoryDisk, destination: str) -> None:
    broker = start(disk, [copying(destination)])
    alice = broker.connect(principal="alice")
    ephemera = ["neb-timeout:60000", f"expires:{round((WALL_OFFSET + 60) * 1000)}", "require-consumers:false"]
    alice.publish(destination, "1", "2", headers=[*ephemera, "kind:new"])
    broker.commit()

    for world in (start(disk), broker):
        frames = recorded(world)
        assert [frame[-1] for frame in frames] == ["1", "2"]
        for _, headers, *_ in frames:
            assert headers["original-destination"] == destination
            assert headers["sender"] == "alice"
            assert headers["kind"] == "new"
            assert not {"neb-timeout", "expires", "require-consumers"} & headers.keys()


def test_receipt_waits_for_the_copy(disk: MemoryDisk) -> None:
    broker = start(disk, [copying("/topic/*")])
    alice = broker.connect()
    alice.publish("/topic/EGM", "x", headers=["receipt:r"])

    assert alice.received() == []
    broker.commit()
    assert verdicts(alice) == [("accepted", False)]


def test_deletion_is_copied_as_an_empty_message(disk: MemoryDisk) -> None:
    broker = start(disk, [copying("X/*")])
    alice = broker.connect()
    alice.publish("X/1", "value")
    alice.say("SEND destination:X/1")

    assert [frame[2:] for frame in recorded(broker)] == [("value",), ()]


def judged(body: bytes) -> Content:
    return Content.INVALID if body == b"bad" else Content.VALID


def test_rejected_message_of_each_verdict_leaves_no_copy() -> None:
    policies = [
        copying("/queue/narrow", max_messages=1),
        copying("X/checked", check=judged),
        copying("**"),
    ]
    broker = BrokerHarness(policies=policies)
    alice = broker.connect()
    alice.publish("/queue/narrow", "accepted")
    alice.publish("/queue/narrow", "x", headers=["receipt:full"])
    alice.publish("X/checked", "bad", headers=["receipt:invalid"])
    alice.publish("/topic/nebula.x", "x", headers=["receipt:unauthorised"])
    alice.publish("/queue/nobody", "x", headers=["require-consumers:true", "receipt:no-consumer"])
    alice.publish("/queue/once", "once", headers=["dedup-id:1"])
    alice.publish("/queue/once", "x", headers=["dedup-id:1", "receipt:duplicate"])

    assert {headers["receipt-id"]: headers["disposition"] for _, headers, *_ in alice.received()} == {
        "full": "rejected-full",
        "invalid": "rejected-invalid",
        "unauthorised": "rejected-unauthorised",
        "no-consumer": "rejected-no-consumer",
        "duplicate": "accepted",
    }
    assert [frame[-1] for frame in recorded(broker)] == ["accepted", "once"]


def test_message_whose_copy_has_no_room_is_refused_whole() -> None:
    broker = BrokerHarness(policies=[copying("X/*"), DestinationPolicy(pattern=RECORD, max_messages=1)])
    alice = broker.connect()
    for number in "12":
        alice.publish("X/1", number, headers=["receipt:r"])

    assert verdicts(alice) == [("accepted", False), ("rejected-full", False)]
    bob = broker.connect()
    bob.subscribe("X/1", "eager:true")
    assert bob.bodies() == ["1"]


def test_full_recorder_may_lose_its_oldest() -> None:
    record = DestinationPolicy(pattern=RECORD, max_messages=2, when_full=WhenFull.DROP_OLDEST)
    broker = BrokerHarness(policies=[copying("X/*"), record])
    broker.connect().publish("X/1", "1", "2", "3")

    assert [frame[-1] for frame in recorded(broker)] == ["2", "3"]


def test_publisher_waits_for_a_recorder_that_is_there() -> None:
    broker = BrokerHarness(policies=[copying("X/*"), DestinationPolicy(pattern=RECORD, max_messages=1)])
    bob = broker.connect()
    bob.subscribe(RECORD, "ack:client-individual", "prefetch-count:1")
    alice = broker.connect()
    alice.publish("X/1", "1", "2", headers=["receipt:r"])
    assert alice.is_held_back

    bob.ack(bob.received()[0])
    assert verdicts(alice) == [("accepted", False)] * 2
    assert bob.bodies() == ["2"]


def test_copy_is_not_copied_again() -> None:
    broker = BrokerHarness(policies=[copying("**")])
    broker.connect().publish(QUEUE, "x")
    broker.connect().publish(RECORD, "straight")

    assert [frame[-1] for frame in recorded(broker)] == ["x", "straight"]


def test_transaction_that_has_no_room_for_a_copy_does_nothing() -> None:
    broker = BrokerHarness(policies=[copying("X/*"), DestinationPolicy(pattern=RECORD, max_messages=1)])
    alice = broker.connect()
    sends = [f"SEND destination:X/{number}; transaction:t; receipt:{number} | x" for number in "12"]
    alice.say("BEGIN transaction:t", *sends, "COMMIT transaction:t; receipt:c")

    receipts = {headers["receipt-id"]: headers for _, headers, *_ in alice.received()}
    assert receipts["c"]["disposition"] == "rejected-full"
    assert receipts["c"]["failed-receipt"] == "2"
    assert broker.destinations == {}


def leave_room(broker: BrokerHarness, size_bytes: int) -> None:
    """So much more may be held."""
    account = broker.broker.account
    account.watermark_bytes = 0
    account.max_bytes = account.stored_bytes + size_bytes


def bodies_in(broker: BrokerHarness, queue: str) -> list[str]:
    held = broker.broker.queues.get(queue)
    return [] if held is None else [message.body.decode() for message in held.store.line.in_memory()]


@pytest.mark.parametrize("room_bytes", range(1000, 8000, 200))
def test_accepted_message_has_its_copy_though_what_that_pushes_out_takes_more_memory(
    disk: MemoryDisk, room_bytes: int
) -> None:
    policies = [
        DestinationPolicy(pattern=QUEUE, copy_to=RECORD),
        DestinationPolicy(pattern=RECORD, max_messages=1, when_full=WhenFull.DEAD_LETTER),
    ]
    broker = start(disk, policies)
    alice = broker.connect()
    alice.publish(QUEUE, "1")
    leave_room(broker, room_bytes)
    alice.publish(QUEUE, "2" * 1000, headers=["receipt:r"])
    if alice.is_held_back:
        broker.advance(40)
    broker.commit()

    is_accepted = verdicts(alice) == [("accepted", False)]
    assert bodies_in(broker, RECORD) == (["2" * 1000] if is_accepted else ["1"])


def test_commit_that_was_judged_is_done_though_its_queues_take_more_memory(disk: MemoryDisk) -> None:
    broker = start(disk, [DestinationPolicy(pattern=QUEUE, copy_to=RECORD)])
    alice = broker.connect()
    alice.say("BEGIN transaction:t", f"SEND destination:{QUEUE}; transaction:t | x")
    leave_room(broker, 4000)
    alice.say("COMMIT transaction:t; receipt:r")
    broker.commit()

    assert alice.received() == [("RECEIPT", {"receipt-id": "r"})]
    assert (bodies_in(broker, QUEUE), bodies_in(broker, RECORD)) == (["x"], ["x"])
