"""The ledger itself: each kind of loss has its line, and what may be either way has none."""

from __future__ import annotations

import pytest

from tests.recovery.ledger import Ledger, ValueLedger, torn


@pytest.fixture
def ledger() -> Ledger:
    """Of ten messages: 1 to 6 with a RECEIPT."""
    ledger = Ledger("q")
    for _ in range(10):
        ledger.send()
    for number in range(1, 7):
        ledger.receipted(number)
    return ledger


def test_what_has_no_receipt_may_be_there_or_not(ledger: Ledger) -> None:
    assert ledger.differences(range(1, 11)) == []
    assert ledger.differences(range(1, 7)) == []


def test_what_was_acked_without_a_receipt_may_be_there_or_not(ledger: Ledger) -> None:
    ledger.ack(3)

    assert ledger.differences([1, 2, 3, 4, 5, 6]) == []
    assert ledger.differences([1, 2, 4, 5, 6]) == []


@pytest.mark.parametrize(
    ("found", "dead", "line"),
    [
        ([1, 2, 3, 4, 6], [], "q: lost: 1 (5)"),
        ([1, 2, 3, 4, 5, 6, 11], [], "q: came back: 1 (11)"),
        ([1, 2, 3, 4, 5, 5, 6], [], "q: there twice: 1 (5)"),
        ([1, 2, 4, 3, 5, 6], [], "q: before its elders: 1 (4)"),
        ([1, 2, 3, 4, 5], [6], "q: dead for no reason: 1 (6)"),
    ],
)
def test_each_fault_has_its_line(ledger: Ledger, found: list[int], dead: list[int], line: str) -> None:
    assert ledger.differences(found, dead) == [line]


def test_what_was_settled_must_not_come_back(ledger: Ledger) -> None:
    ledger.ack(3)
    ledger.settled(3)

    assert ledger.differences([1, 2, 3, 4, 5, 6]) == ["q: came back: 1 (3)"]


def test_what_was_nacked_is_in_one_of_two_places(ledger: Ledger) -> None:
    ledger.bury(3)

    assert ledger.differences([1, 2, 3, 4, 5, 6]) == []
    assert ledger.differences([1, 2, 4, 5, 6], [3]) == []
    assert ledger.differences([1, 2, 4, 5, 6]) == ["q: lost: 1 (3)"]
    assert ledger.differences([1, 2, 3, 4, 5, 6], [3]) == ["q: there twice: 1 (3)"]
    ledger.buried(3)
    assert ledger.differences([1, 2, 3, 4, 5, 6]) == ["q: not dead any more: 1 (3)"]


def test_what_was_found_is_owed_from_then_on(ledger: Ledger) -> None:
    ledger.adopt([1, 2, 3, 4, 5, 6, 7])

    assert ledger.owed == {1, 2, 3, 4, 5, 6, 7}
    assert ledger.differences([1, 2, 3, 4, 5, 6, 7, 8]) == ["q: came back: 1 (8)"]


def test_what_had_no_receipt_may_be_sent_again_and_is_owed_then(ledger: Ledger) -> None:
    ledger.ack(9)
    ledger.adopt([1, 2, 3, 4, 5, 6, 7])
    assert ledger.unanswered == [7, 8, 10]
    ledger.ack(7)
    ledger.settled(7)
    for number in ledger.unanswered:
        ledger.send_again(number)
        ledger.receipted(number)

    assert ledger.differences([1, 2, 3, 4, 5, 6, 8, 10]) == []
    assert ledger.differences([1, 2, 3, 4, 5, 6, 10, 10]) == ["q: lost: 1 (8)", "q: there twice: 1 (10)"]
    assert ledger.differences([1, 2, 3, 4, 5, 6, 7, 8, 10]) == ["q: came back: 1 (7)"]


def test_name_of_a_message_stays_and_what_was_settled_is_not_delivered(ledger: Ledger) -> None:
    ledger.delivered(1, "m-1")
    ledger.delivered(1, "m-1")
    assert ledger.troubles == []
    ledger.delivered(1, "m-2")
    ledger.delivered(11, "m-3")

    assert ledger.differences([1, 2, 3, 4, 5, 6]) == [
        "q: 1 was m-1 and is m-2",
        "q: 11 was delivered, and settled long ago",
    ]


def test_value_is_the_last_one_receipted_or_a_later_one() -> None:
    values = ValueLedger("X/")
    for _ in range(3):
        values.send("a")
    values.receipted("a")

    assert [values.differences({"a": number}) == [] for number in (1, 2, 3, 4)] == [True, True, True, False]
    assert values.differences({}) == ["X/: a is None, may be [1, 2, 3]"]


def test_deleted_value_stays_deleted() -> None:
    values = ValueLedger("X/")
    values.send("a")
    values.send("a", deletes=True)
    values.receipted("a")
    assert values.differences({"a": 1}) == values.differences({}) == []
    values.receipted("a")

    assert values.differences({"a": 1}) == ["X/: a is 1, may be [None]"]


def test_durable_subscription_is_told_what_it_does_not_know() -> None:
    values = ValueLedger("X/")
    for _ in range(2):
        values.send("a")
        values.receipted("a")
    assert values.untold({"a": 2}, {"a": 2}) == []
    assert values.untold({"a": 2}, {}) == ["X/: a is 2, its durable subscription knows None"]
    values.ack("a", 1)
    values.settled("a", 1)
    assert values.untold({"a": 2}, {"a": 1}) == ["X/: a is 2, its durable subscription knows 1"]
    values.ack("a", 2)

    assert values.untold({"a": 2}, {}) == []


def test_durable_subscription_may_know_of_a_value_that_went_with_the_crash() -> None:
    values = ValueLedger("X/")
    values.send("a")
    values.ack("a", 1)
    values.settled("a", 1)

    assert values.untold({}, {}) == []
    values.adopt({})
    assert values.untold({}, {}) == []


def test_transaction_is_there_whole_or_not_at_all() -> None:
    one, other = Ledger("one"), Ledger("other")
    group = [(one, one.send()), (other, other.send())]

    assert torn(group, {"one": [1], "other": [1]}) == torn(group, {"one": [], "other": []}) == []
    assert torn(group, {"one": [1], "other": []}) == ["there in part: the transaction of one 1, other 1"]
    one.ack(1)
    assert torn(group, {"one": [], "other": [1]}) == []
    one.settled(1)
    assert torn(group, {"one": [], "other": [1]}) == []
