"""Transactions: what is held, until when, and what is a fault (D.24, A.11)."""

from __future__ import annotations

import pytest

from nebula.broker.limits import Limits
from nebula.broker.policies import DestinationPolicy
from nebula.broker.profiles import MAXAM
from tests.broker.harness import BrokerHarness
from tests.broker.transacting import ABORT, BEGIN, COMMIT, IN, QUEUE, holder, left, receipt

# What is held


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_sends_are_delivered_at_the_commit_in_their_order(broker: BrokerHarness, version: str) -> None:
    alice, bob = broker.connect(version), broker.connect()
    bob.subscribe(QUEUE)
    alice.say(BEGIN)
    alice.publish(QUEUE, "1", "2", headers=[IN])
    assert bob.bodies() == []

    alice.say(COMMIT)

    assert bob.bodies() == ["1", "2"]


def test_commit_sends_to_all_kinds_of_destinations(broker: BrokerHarness) -> None:
    alice, bob = broker.connect(), broker.connect()
    names = [QUEUE, "/topic/t", "X/v"]
    alice.say(BEGIN)
    for name in names:
        bob.subscribe(name, id=name)
        alice.publish(name, f"to {name}", headers=[IN])
    assert bob.bodies() == []

    alice.say(COMMIT)

    assert bob.bodies() == [f"to {name}" for name in names]


def test_transaction_is_not_told_to_receivers(broker: BrokerHarness) -> None:
    alice, bob = broker.connect(), broker.connect()
    bob.subscribe(QUEUE)
    alice.say(BEGIN)
    alice.publish(QUEUE, "x", headers=[IN, "kind:new"])
    alice.say(COMMIT)

    headers, _ = bob.message()
    assert headers["kind"] == "new"
    assert "transaction" not in headers


def test_send_without_the_header_is_not_part_of_an_open_transaction(broker: BrokerHarness) -> None:
    alice = broker.connect()
    alice.say(BEGIN)
    alice.publish(QUEUE, "held", headers=[IN])
    alice.publish(QUEUE, "at once")

    assert left(broker) == ["at once"]


def test_ack_holds_until_the_commit(broker: BrokerHarness) -> None:
    bob, (one, _) = holder(broker, "1", "2")
    bob.ack(one, IN)
    assert broker.broker.queues.by_name[QUEUE].depth == 2

    bob.say(COMMIT)
    bob.lose()

    assert left(broker) == ["2"]


def test_nack_holds_until_the_commit(broker: BrokerHarness) -> None:
    bob, (one, _) = holder(broker, "1", "2")
    bob.nack(one, IN)
    assert bob.received() == []

    bob.say(COMMIT)

    headers, body = bob.message()
    assert (body, headers["delivery-count"]) == ("1", "1")


def test_nack_without_requeue_holds_until_the_commit(broker: BrokerHarness) -> None:
    bob, (one,) = holder(broker, "1")
    bob.nack(one, IN, "requeue:false")
    assert list(broker.broker.destinations) == [QUEUE]

    bob.say(COMMIT)

    assert left(broker, "/queue/DLQ") == ["1"]


def test_cumulative_ack_takes_at_the_commit_what_was_delivered_before_its_message(
    broker: BrokerHarness,
) -> None:
    bob, (_, two, _) = holder(broker, "1", "2", "3", ack="ack:client")
    bob.ack(two, IN)
    bob.say(COMMIT)
    bob.lose()

    assert left(broker) == ["3"]


def test_work_and_its_answer_are_done_together(broker: BrokerHarness) -> None:
    bob, (one,) = holder(broker, "work")
    bob.ack(one, IN)
    bob.publish("/queue/done", "answer", headers=[IN])
    bob.say(COMMIT)
    bob.lose()

    assert left(broker) == []
    assert left(broker, "/queue/done") == ["answer"]


def test_two_transactions_of_one_connection_do_not_mix(broker: BrokerHarness) -> None:
    alice = broker.connect()
    alice.say("BEGIN transaction:t", "BEGIN transaction:u")
    alice.publish(QUEUE, "t1", headers=["transaction:t"])
    alice.publish(QUEUE, "u1", headers=["transaction:u"])
    alice.publish(QUEUE, "t2", headers=["transaction:t"])
    alice.say("ABORT transaction:u", "COMMIT transaction:t")

    assert left(broker) == ["t1", "t2"]


def test_name_of_a_transaction_belongs_to_its_connection(broker: BrokerHarness) -> None:
    alice, bob = broker.connect(), broker.connect()
    alice.say(BEGIN)
    bob.say(BEGIN)
    alice.publish(QUEUE, "alice's", headers=[IN])
    bob.publish(QUEUE, "bob's", headers=[IN])
    bob.say(COMMIT)

    assert left(broker) == ["bob's"]


# RECEIPTs of what is held


@pytest.mark.parametrize("destination", [QUEUE, "/topic/t", "X/v", "/topic/no*", "/queue/nebula.secret"])
def test_receipt_of_a_held_send_says_nothing_of_its_fate(broker: BrokerHarness, destination: str) -> None:
    alice = broker.connect()
    alice.say(BEGIN)
    alice.publish(destination, "x", headers=[IN, "receipt:r"])

    assert alice.received() == [receipt("r")]


@pytest.mark.parametrize("command", ["ACK", "NACK"])
def test_receipt_of_a_held_ack_says_nothing_of_its_fate(broker: BrokerHarness, command: str) -> None:
    bob, (one,) = holder(broker, "1")
    bob.ack(one, IN, "receipt:known", command=command)
    bob.say(f"{command} id:s m-99; transaction:t; receipt:unknown")

    assert bob.received() == [receipt("known"), receipt("unknown")]


@pytest.mark.parametrize("line", [BEGIN, ABORT])
def test_begin_and_abort_are_receipted(broker: BrokerHarness, line: str) -> None:
    alice = broker.connect()
    alice.say(*([BEGIN] if line is ABORT else []), f"{line}; receipt:r")

    assert alice.received() == [receipt("r")]


def test_receipt_of_a_good_commit_is_plain(broker: BrokerHarness) -> None:
    alice = broker.connect()
    alice.say(BEGIN)
    alice.publish(QUEUE, "x", headers=[IN, "persistent:true"])
    alice.say(f"{COMMIT}; receipt:c")

    assert alice.received() == [receipt("c")]


def test_empty_transaction_is_accepted(broker: BrokerHarness) -> None:
    alice = broker.connect()
    alice.say(BEGIN, f"{COMMIT}; receipt:c")

    assert alice.received() == [receipt("c")]


def test_ack_that_has_become_meaningless_does_not_fail_the_commit(broker: BrokerHarness) -> None:
    bob, (one,) = holder(broker, "1")
    bob.ack(one, IN)
    bob.ack(one)
    bob.say("UNSUBSCRIBE id:s", f"{COMMIT}; receipt:c")

    assert bob.received() == [receipt("c")]
    assert left(broker) == []


# Ends that are no COMMIT


@pytest.mark.parametrize("ending", ["abort", "lose", "disconnect"])
def test_nothing_of_a_transaction_happens_without_its_commit(broker: BrokerHarness, ending: str) -> None:
    bob, (one, two) = holder(broker, "1", "2")
    bob.ack(one, IN)
    bob.nack(two, IN, "requeue:false")
    bob.publish("/queue/b", "x", headers=[IN])
    if ending == "abort":
        bob.say(ABORT)
        bob.say("UNSUBSCRIBE id:s")
    else:
        getattr(bob, ending)()

    assert left(broker) == ["1", "2"]
    assert broker.broker.destinations == {}
    assert broker.broker.account.stored_bytes == 0


def test_connection_that_is_taken_over_aborts_its_transactions(broker: BrokerHarness) -> None:
    alice = broker.connect(client_id="c")
    alice.say(BEGIN)
    alice.publish(QUEUE, "x", headers=[IN])
    broker.connect(client_id="c")

    assert alice.is_closed
    assert broker.broker.destinations == {}
    assert broker.broker.account.stored_bytes == 0


@pytest.mark.parametrize("ending", ["commit", "abort", "lose", "refused", "error"])
def test_what_a_transaction_holds_is_counted_until_its_end(broker: BrokerHarness, ending: str) -> None:
    alice = broker.connect()
    alice.say(BEGIN)
    before = broker.broker.account.stored_bytes
    alice.publish("/topic/t", "x" * 5000, headers=[IN])
    assert broker.broker.account.stored_bytes - before > 5000

    if ending == "lose":
        alice.lose()
    elif ending == "refused":
        alice.publish("/queue/nebula.secret", "x", headers=[IN])
        alice.say(f"{COMMIT}; receipt:c")
    elif ending == "error":
        alice.say("COMMIT transaction:other")
        assert alice.is_closed
    else:
        alice.say(COMMIT if ending == "commit" else ABORT)

    assert broker.broker.account.stored_bytes == 0


def test_headers_of_what_is_held_are_counted(broker: BrokerHarness) -> None:
    alice = broker.connect()
    alice.say(BEGIN)
    alice.publish("/topic/t", "", headers=[IN, f"h:{'x' * 10_000}", "n:1"])
    alice.publish("/topic/t", "", headers=[IN, f"h:{'x' * 10_000}", "n:2"])

    assert broker.broker.account.stored_bytes > 40_000


def test_transaction_counts_against_the_memory_of_the_broker() -> None:
    broker = BrokerHarness(Limits(max_body_bytes=5000, max_queue_bytes=9000, max_memory_bytes=9000))
    alice, bob = broker.connect(), broker.connect()
    alice.say(BEGIN)
    alice.publish(QUEUE, "x" * 5000, headers=[IN])
    bob.publish(QUEUE, "x" * 4000, headers=["receipt:r"])
    assert bob.is_held_back
    broker.advance(broker.broker.limits.max_pause_seconds + 1)
    assert bob.received()[0][1]["disposition"] == "rejected-full"

    alice.publish(QUEUE, "x" * 5000, headers=[IN])

    assert alice.received()[0][1]["message"] == "the broker has no room for it"
    assert broker.broker.account.stored_bytes == 0


# Faults


@pytest.mark.parametrize("command", ["COMMIT", "ABORT"])
@pytest.mark.parametrize("before", [[], [BEGIN, COMMIT], [BEGIN, ABORT], ["BEGIN transaction:T"]])
def test_name_that_is_not_open_is_an_error(broker: BrokerHarness, command: str, before: list[str]) -> None:
    alice = broker.connect()
    alice.say(*before, f"{command} transaction:t; receipt:r")

    ((answer, headers, *_),) = alice.received()
    assert (answer, headers["receipt-id"]) == ("ERROR", "r")
    assert headers["message"] == "there is no transaction 't'"
    assert alice.is_closed


def test_send_in_a_transaction_that_never_began_is_an_error_and_not_done(broker: BrokerHarness) -> None:
    alice = broker.connect()
    alice.publish(QUEUE, "x", headers=[IN, "receipt:r"])

    ((answer, headers, *_),) = alice.received()
    assert (answer, headers["receipt-id"]) == ("ERROR", "r")
    assert broker.broker.destinations == {}


def test_name_that_is_open_already_is_an_error_and_aborts(broker: BrokerHarness) -> None:
    alice = broker.connect()
    alice.say(BEGIN)
    alice.publish(QUEUE, "x", headers=[IN])
    alice.say(f"{BEGIN}; receipt:r")

    ((answer, headers, *_),) = alice.received()
    assert (answer, headers["receipt-id"]) == ("ERROR", "r")
    assert headers["message"] == "the transaction 't' has begun already"
    assert broker.broker.destinations == {}


@pytest.mark.parametrize("command", ["BEGIN", "COMMIT", "ABORT"])
@pytest.mark.parametrize("rest", ["", " transaction:"])
def test_name_is_required(broker: BrokerHarness, command: str, rest: str) -> None:
    alice = broker.connect()
    alice.say(f"{command}{rest or ' x:y'}")

    ((answer, headers, *_),) = alice.received()
    assert answer == "ERROR"
    assert "transaction" in headers["message"]


@pytest.mark.parametrize(
    "line",
    [
        BEGIN,
        COMMIT,
        ABORT,
        f"SEND destination:X/v; {IN} | x",
        f"SEND destination:bare; {IN} | x",
        f"ACK id:s m-1; {IN}",
        f"NACK id:s m-1; {IN}",
    ],
)
def test_maxam_has_no_transactions(broker: BrokerHarness, line: str) -> None:
    alice = broker.connect(profile=MAXAM, heart_beat="10000,10000")
    alice.say(f"{line.partition(' | ')[0]}; receipt:r{' | x' if ' | ' in line else ''}")

    ((answer, headers, *_),) = alice.received()
    assert (answer, headers["receipt-id"]) == ("ERROR", "r")
    assert headers["message"] == "there are no transactions here"
    assert alice.is_closed


def test_transaction_behind_a_send_that_waits_is_done_though_its_sender_left() -> None:
    broker = BrokerHarness(policies=[DestinationPolicy(pattern=QUEUE, max_messages=1)])
    broker.connect().subscribe(QUEUE, "ack:client", "prefetch-count:1")
    alice = broker.connect()
    alice.publish(QUEUE, "fills it")
    alice.say(
        f"SEND destination:{QUEUE} | waits",
        BEGIN,
        f"SEND destination:/queue/b; {IN} | committed",
        COMMIT,
        "BEGIN transaction:u",
        "SEND destination:/queue/b; transaction:u | held",
        "SEND destination:/queue/b | last",
    )
    assert alice.is_held_back

    alice.lose()

    assert left(broker, "/queue/b") == ["committed", "last"]
