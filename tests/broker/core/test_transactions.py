"""Transactions: what is held, until when, and what is a fault (D.24, A.11)."""

from __future__ import annotations

import pytest

from nebula.broker.core.access import Capability, Grants
from nebula.broker.core.limits import Limits
from nebula.broker.core.messages import Content
from nebula.broker.core.policies import DestinationPolicy
from nebula.broker.core.profiles import MAXAM
from tests.broker.harness import BrokerHarness, Peer
from tests.broker.memory_store import MemoryDisk, MemoryStore
from tests.broker.transacting import ABORT, BEGIN, COMMIT, IN, INDIVIDUAL, QUEUE, holder, left, receipt

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
    assert broker.broker.queues.by_name[QUEUE].store.depth == 2

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
    assert list(broker.destinations) == [QUEUE]

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
    assert broker.destinations == {}
    assert broker.broker.account.stored_bytes == 0


def test_connection_that_is_taken_over_aborts_its_transactions(broker: BrokerHarness) -> None:
    alice = broker.connect(client_id="c")
    alice.say(BEGIN)
    alice.publish(QUEUE, "x", headers=[IN])
    broker.connect(client_id="c")

    assert alice.is_closed
    assert broker.destinations == {}
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

    assert broker.broker.account.stored_bytes > 20_000


def test_transaction_counts_against_the_memory_of_the_broker() -> None:
    broker = BrokerHarness(Limits(max_body_bytes=5000, max_queue_bytes=9000, max_memory_bytes=9000))
    alice, bob = broker.connect(), broker.connect()
    alice.say(BEGIN)
    alice.publish(QUEUE, "x" * 5000, headers=[IN])
    bob.publish(QUEUE, "x" * 4000, headers=["receipt:r"])
    assert bob.is_held_back
    broker.advance(broker.broker.limits.max_pause_seconds + 1)
    assert bob.received()[0][1]["disposition"] == "rejected-full"

    alice.publish(QUEUE, "x" * 5000, headers=[IN, "receipt:full"])
    alice.say(f"{COMMIT}; receipt:c")

    assert alice.received()[1:] == [receipt("c", disposition="rejected-full", failed_receipt="full")]
    assert broker.broker.account.stored_bytes == 0


# What is refused is not held

GRANTS = Grants(
    {
        "clerk": Capability(publish=("/queue/a", "/queue/small", "X/*")),
        "reader": Capability(subscribe=("X/*",)),
    },
    {"clerk": ("clerk",), "anonymous": ("reader",)},
)
HELD_BYTES = 1_300


@pytest.mark.parametrize(
    ("principal", "destination", "headers", "verdict"),
    [
        ("anonymous", QUEUE, [], "rejected-unauthorised"),
        ("clerk", "/queue/nebula.secret", [], "rejected-unauthorised"),
        ("clerk", "/queue/nebula.inbox.1", [], "rejected-no-consumer"),
        ("clerk", QUEUE, ["persistent:perhaps"], "rejected-invalid"),
        ("clerk", "X/checked", [], "rejected-invalid"),
        ("clerk", "/queue/small", [], "rejected-full"),
    ],
)
def test_send_that_would_be_refused_is_not_held(
    principal: str, destination: str, headers: list[str], verdict: str
) -> None:
    policies = [
        DestinationPolicy(pattern="/queue/small", max_bytes=1000),
        DestinationPolicy(pattern="X/checked", check=lambda _: Content.INVALID),
    ]
    broker = BrokerHarness(policies=policies, grants=GRANTS)
    alice = broker.connect(principal=principal)
    alice.say(BEGIN)
    alice.publish(destination, "x" * 5000, headers=[IN, "receipt:bad", *headers])
    held_bytes = broker.broker.account.stored_bytes
    alice.publish(QUEUE, "y" * 5000, headers=[IN, "receipt:behind"])
    alice.say(f"ACK id:s m-1; {IN}; receipt:ack")

    assert held_bytes < HELD_BYTES
    assert broker.broker.account.stored_bytes == held_bytes
    # D.24: the RECEIPTs of SENDs do not tell, that of the COMMIT does.
    assert alice.received() == [receipt("bad"), receipt("behind"), receipt("ack")]
    alice.say(f"{COMMIT}; receipt:c")
    assert alice.received() == [receipt("c", disposition=verdict, failed_receipt="bad")]
    assert broker.broker.account.stored_bytes == 0
    assert broker.broker.account.dropped == {verdict: 1}


def test_what_was_held_is_let_go_when_a_later_send_is_refused(broker: BrokerHarness) -> None:
    alice = broker.connect()
    alice.say(BEGIN)
    alice.publish(QUEUE, *["x" * 5000] * 3, headers=[IN])
    assert broker.broker.account.stored_bytes > 15_000

    alice.publish("/queue/nebula.secret", "x", headers=[IN])

    assert broker.broker.account.stored_bytes < HELD_BYTES


def test_connections_cannot_fill_the_memory_with_what_they_may_not_publish() -> None:
    limits = Limits(max_body_bytes=100_000, max_queue_bytes=1_000_000, max_memory_bytes=1_000_000)
    broker = BrokerHarness(limits, grants=GRANTS)
    for number in range(20):
        mallory = broker.connect(principal=f"mallory{number}")
        mallory.say(BEGIN)
        mallory.publish(QUEUE, *["x" * 90_000] * 3, headers=[IN])
    clerk = broker.connect(principal="clerk")
    clerk.publish(QUEUE, "work", headers=["receipt:r"])

    assert clerk.received() == [receipt("r", disposition="accepted", durable="false", consumers="0")]


def test_failed_transaction_can_be_aborted_and_begun_anew(broker: BrokerHarness) -> None:
    alice = broker.connect()
    alice.say(BEGIN)
    alice.publish("/queue/nebula.secret", "x", headers=[IN])
    alice.say(ABORT, BEGIN)
    alice.publish(QUEUE, "x", headers=[IN])
    alice.say(f"{COMMIT}; receipt:c")

    assert alice.received() == [receipt("c")]


def test_rights_are_judged_again_at_the_commit() -> None:
    broker = BrokerHarness(grants=GRANTS)
    clerk = broker.connect(principal="clerk")
    clerk.say(BEGIN)
    clerk.publish(QUEUE, "x", headers=[IN, "receipt:r"])
    broker.broker.review(Grants(GRANTS.capabilities, {}), broker.now)
    clerk.say(f"{COMMIT}; receipt:c")

    assert clerk.received()[1:] == [receipt("c", disposition="rejected-unauthorised", failed_receipt="r")]


def test_body_in_a_transaction_is_checked_once() -> None:
    checked: list[bytes] = []

    def check(body: bytes) -> Content:
        checked.append(body)
        return Content.VALID

    broker = BrokerHarness(policies=[DestinationPolicy(pattern=QUEUE, check=check)])
    alice = broker.connect()
    alice.say(BEGIN)
    alice.publish(QUEUE, "x", headers=[IN])
    assert checked == [b"x"]
    alice.say(COMMIT)

    assert checked == [b"x"]
    assert left(broker) == ["x"]


def test_answer_that_a_transaction_holds_spends_no_right_before_the_commit(broker: BrokerHarness) -> None:
    alice, bob = broker.connect(), broker.connect()
    inbox = "/queue/nebula.inbox.1"
    alice.subscribe(inbox, "exclusive:true")
    bob.subscribe(QUEUE)
    alice.publish(QUEUE, "?", headers=[f"neb-reply-to:{inbox}", "neb-reply-id:1"])
    bob.say(BEGIN)
    bob.publish(inbox, "held", headers=[IN, "neb-in-reply-to:1"])
    bob.publish(inbox, "at once", headers=["neb-in-reply-to:1"])

    assert alice.bodies() == ["at once"]


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
    assert broker.destinations == {}


def test_name_that_is_open_already_is_an_error_and_aborts(broker: BrokerHarness) -> None:
    alice = broker.connect()
    alice.say(BEGIN)
    alice.publish(QUEUE, "x", headers=[IN])
    alice.say(f"{BEGIN}; receipt:r")

    ((answer, headers, *_),) = alice.received()
    assert (answer, headers["receipt-id"]) == ("ERROR", "r")
    assert headers["message"] == "the transaction 't' has begun already"
    assert broker.destinations == {}


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


# A subscription that ends before its transaction


def ended(broker: BrokerHarness, *bodies: str, command: str = "ACK", ack: str = INDIVIDUAL) -> Peer:
    """A consumer that has settled the first of these in its transaction, sent one more, and unsubscribed."""
    bob, (first, *_) = holder(broker, *bodies, ack=ack)
    bob.ack(
        first, IN, *(["requeue:false"] if command == "drop" else []), command=command.replace("drop", "NACK")
    )
    bob.publish("/queue/done", "done", headers=[IN])
    bob.say("UNSUBSCRIBE id:s")
    return bob


def test_both_halves_of_a_transaction_are_done_though_its_subscription_ended(broker: BrokerHarness) -> None:
    bob = ended(broker, "1", "2")
    assert left(broker) == ["2"]
    bob.say(f"{COMMIT}; receipt:c")

    assert bob.received() == [receipt("c")]
    assert left(broker) == []
    assert left(broker, "/queue/done") == ["done"]


def test_cumulative_ack_of_a_subscription_that_ended_takes_all_before_its_message(
    broker: BrokerHarness,
) -> None:
    bob, (_, two, _) = holder(broker, "1", "2", "3", ack="ack:client")
    bob.ack(two, IN)
    bob.say("UNSUBSCRIBE id:s")
    assert left(broker) == ["3"]

    bob.say(COMMIT)

    assert broker.destinations == {}


def test_nack_of_a_subscription_that_ended_gives_back_at_the_commit(broker: BrokerHarness) -> None:
    bob = ended(broker, "1", command="NACK")
    carol = broker.connect()
    carol.subscribe(QUEUE)
    assert carol.received() == []

    bob.say(COMMIT)

    headers, body = carol.message()
    assert (body, headers["delivery-count"]) == ("1", "1")


def test_nack_without_requeue_of_a_subscription_that_ended_buries_at_the_commit(
    broker: BrokerHarness,
) -> None:
    bob = ended(broker, "1", command="drop")
    bob.say(COMMIT)

    assert left(broker, "/queue/DLQ") == ["1"]


@pytest.mark.parametrize("ending", ["abort", "refused", "failed", "lose", "disconnect"])
def test_message_of_a_subscription_that_ended_goes_back_without_the_commit(
    broker: BrokerHarness, ending: str
) -> None:
    bob = ended(broker, "1", "2")
    carol = broker.connect()
    carol.subscribe(QUEUE)
    assert carol.bodies() == ["2"]
    if ending == "abort":
        bob.say(ABORT)
    elif ending == "refused":
        bob.publish("/queue/nobody", "x", headers=[IN, "require-consumers:true"])
        bob.say(f"{COMMIT}; receipt:c")
    elif ending == "failed":
        bob.publish("/queue/nebula.secret", "x", headers=[IN])
    else:
        getattr(bob, ending)()

    headers, body = carol.message()
    assert (body, headers["redelivered"]) == ("1", "true")
    assert headers.get("delivery-count") == ("1" if ending == "lose" else None)


def test_subscription_of_the_same_id_gets_what_no_transaction_has(broker: BrokerHarness) -> None:
    bob = ended(broker, "1", "2")
    bob.subscribe(QUEUE, INDIVIDUAL)
    assert bob.bodies() == ["2"]

    bob.say(COMMIT)
    bob.lose()

    assert left(broker) == ["2"]


def test_message_that_two_transactions_have_stays_until_both_have_ended(broker: BrokerHarness) -> None:
    bob, (one, two) = holder(broker, "1", "2")
    bob.say("BEGIN transaction:u")
    for message, transaction in [(one, "t"), (one, "u"), (two, "t")]:
        bob.ack(message, f"transaction:{transaction}")
    bob.say("UNSUBSCRIBE id:s", ABORT)
    assert left(broker) == ["2"]

    bob.say("ABORT transaction:u")

    assert left(broker) == ["1"]


def test_drain_that_ends_leaves_its_transaction_what_it_has(broker: BrokerHarness) -> None:
    bob, (one, _) = holder(broker, "1", "2")
    bob.ack(one, IN)
    bob.say("UNSUBSCRIBE id:s; keep-unacked:true", "UNSUBSCRIBE id:s")
    assert left(broker) == ["2"]

    bob.say(COMMIT)

    assert broker.destinations == {}


def test_queue_that_goes_with_its_subscription_stays_for_its_transaction(broker: BrokerHarness) -> None:
    bob = broker.connect()
    bob.subscribe(QUEUE, INDIVIDUAL, "auto-delete:true")
    bob.publish(QUEUE, "1")
    (one,) = bob.received()
    bob.say(BEGIN)
    bob.nack(one, IN, "requeue:false")
    bob.say("UNSUBSCRIBE id:s")
    assert list(broker.destinations) == [QUEUE]

    bob.say(COMMIT)

    assert list(broker.destinations) == ["/queue/DLQ"]


def test_inbox_goes_with_its_subscription_whatever_a_transaction_has(broker: BrokerHarness) -> None:
    bob = broker.connect()
    inbox = "/queue/nebula.inbox.1"
    bob.subscribe(inbox, INDIVIDUAL, "exclusive:true")
    bob.publish(inbox, "1")
    bob.say(BEGIN)
    bob.ack(bob.received()[0], IN)
    bob.say("UNSUBSCRIBE id:s")
    assert broker.destinations == {}

    bob.say(f"{COMMIT}; receipt:c")

    assert bob.received() == [receipt("c")]


def durable_holder(broker: BrokerHarness) -> Peer:
    """A durable subscription to a topic that is paused; a transaction has the first of two messages."""
    bob = broker.connect(client_id="bob")
    bob.subscribe("/topic/t", INDIVIDUAL, "durable:true")
    broker.connect().publish("/topic/t", "1", "2")
    one, _ = bob.received()
    bob.say(BEGIN)
    bob.ack(one, IN)
    bob.say("UNSUBSCRIBE id:s")
    return bob


@pytest.mark.parametrize(("ending", "bodies"), [(COMMIT, ["2"]), (ABORT, ["1", "2"])])
def test_paused_subscription_goes_on_behind_what_its_transaction_did(
    broker: BrokerHarness, ending: str, bodies: list[str]
) -> None:
    bob = durable_holder(broker)
    bob.say(ending)
    bob.subscribe("/topic/t", INDIVIDUAL, "durable:true")

    assert bob.bodies() == bodies


def test_subscription_that_goes_on_before_the_commit_does_not_get_what_the_transaction_has(
    broker: BrokerHarness,
) -> None:
    bob = durable_holder(broker)
    bob.subscribe("/topic/t", INDIVIDUAL, "durable:true")
    assert bob.bodies() == ["2"]

    bob.say(COMMIT)
    bob.lose()
    again = broker.connect(client_id="bob")
    again.subscribe("/topic/t", INDIVIDUAL, "durable:true")

    assert again.bodies() == ["2"]


def test_durable_subscription_that_is_removed_takes_all_with_it(broker: BrokerHarness) -> None:
    bob = durable_holder(broker)
    bob.say("UNSUBSCRIBE id:s; durable:true", f"{COMMIT}; receipt:c")

    assert bob.received() == [receipt("c")]
    assert broker.broker.account.dropped == {"deleted": 2}
    assert broker.broker.account.stored_bytes == 0


def test_subscriptions_that_transactions_keep_are_counted() -> None:
    broker = BrokerHarness(Limits(max_subscriptions=2))
    bob = ended(broker, "1")
    bob.subscribe("/queue/b", id="b")
    bob.subscribe("/queue/c", id="c")

    ((_, headers, *_),) = bob.received()
    assert headers["message"] == "more than 2 subscriptions"


def test_transaction_of_a_subscription_that_ended_is_one_batch_of_the_store() -> None:
    disk = MemoryDisk()
    broker = BrokerHarness(store=MemoryStore(disk))
    broker.connect().publish(QUEUE, "1", headers=["persistent:true"])
    bob = broker.connect()
    bob.subscribe(QUEUE, INDIVIDUAL)
    (one,) = bob.received()
    bob.say(BEGIN)
    bob.ack(one, IN)
    bob.publish("/queue/done", "done", headers=[IN, "persistent:true"])
    bob.say("UNSUBSCRIBE id:s")
    broker.commit()
    assert [message.body for message in disk.messages.values()] == [b"1"]

    bob.say(COMMIT)
    broker.commit()

    assert [message.body for message in disk.messages.values()] == [b"done"]
