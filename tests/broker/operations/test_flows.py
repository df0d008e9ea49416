"""Counts of messages by sender and destination."""

from __future__ import annotations

from nebula.broker.operations.flows import MAX_FLOWS, Flows
from tests.broker.harness import BrokerHarness
from tests.broker.transacting import ABORT, BEGIN, COMMIT, IN, QUEUE


def test_each_pair_of_sender_and_destination_has_its_own_count() -> None:
    flows = Flows()

    flows.note("alice", "/queue/orders")
    flows.note("bob", "/queue/orders")
    flows.note("alice", "/queue/orders")
    flows.note("alice", "X/price")

    assert flows.counts == {
        ("alice", "/queue/orders"): 2,
        ("bob", "/queue/orders"): 1,
        ("alice", "X/price"): 1,
    }


def test_inboxes_and_other_queues_of_nebula_are_not_counted() -> None:
    flows = Flows()

    flows.note("alice", "/queue/nebula.inbox.1")
    flows.note("alice", "/queue/nebula.broker")

    assert flows.counts == {}


def test_only_so_many_pairs_are_counted() -> None:
    flows = Flows()
    for number in range(MAX_FLOWS):
        flows.note("alice", f"X/{number}")

    flows.note("alice", "X/new")

    assert len(flows.counts) == MAX_FLOWS // 2 + 1
    assert ("alice", "X/0") not in flows.counts
    assert flows.counts["alice", "X/new"] == flows.counts["alice", f"X/{MAX_FLOWS - 1}"] == 1


def test_messages_are_counted_when_they_are_accepted_in_a_transaction_too() -> None:
    flows = Flows()
    alice = BrokerHarness(note_flow=flows.note).connect(principal="alice")

    alice.publish(QUEUE, "1")
    alice.say(BEGIN)
    alice.publish(QUEUE, "2", "3", headers=[IN])
    assert flows.counts == {("alice", QUEUE): 1}

    alice.say(COMMIT, BEGIN)
    alice.publish(QUEUE, "4", headers=[IN])
    alice.say(ABORT)
    alice.publish(QUEUE, "5", headers=["priority:none"])

    assert flows.counts == {("alice", QUEUE): 3}
