"""The journal: what happened, as the fewest rows that say it."""

from __future__ import annotations

import pytest

from nebula.broker.core.journal import Journal
from nebula.broker.core.messages import QUEUE_KIND, Head, Message
from nebula.broker.core.storage import StoredMessage
from nebula.broker.core.tables import BODIES, Put, SharedMessageRow, Write
from nebula.testing.stored import drop_message, drop_messages, put, put_message, put_shared, set_attempts

QUEUE = "/queue/a"
HEAD = Head(QUEUE_KIND, QUEUE, "alice", (), is_persistent=True)
MANY = 500
ALICE = HEAD.usage
SENT_BY = (("sender", "alice"),)


def message(number: int) -> Message:
    return Message(HEAD, b"", number, 0.0)


@pytest.fixture
def journal() -> Journal:
    """One that has told of so many messages already."""
    journal = Journal()
    journal.begin(MANY)
    return journal


def drop(journal: Journal, *numbers: int, queue: str = QUEUE) -> None:
    for number in numbers:
        journal.drop_message(queue, message(number), ALICE)


def taken(journal: Journal) -> list[Write]:
    return journal.take()[1]


def test_many_drops_in_a_row_are_one_row(journal: Journal) -> None:
    drop(journal, *range(11, 211))

    assert journal.pending_count == 200
    assert taken(journal) == [*drop_messages(QUEUE, 10, 210)]
    assert journal.is_empty


def test_few_drops_are_a_row_each(journal: Journal) -> None:
    drop(journal, 1, 2, 3)

    assert not journal.is_empty
    assert taken(journal) == [write for number in (1, 2, 3) for write in drop_message(QUEUE, number)]


def test_gap_and_another_line_end_a_run(journal: Journal) -> None:
    drop(journal, *range(1, 101))
    drop(journal, *range(102, 202))
    drop(journal, *range(202, 302), queue="/queue/b")

    ranges = [
        *drop_messages(QUEUE, 0, 100),
        *drop_messages(QUEUE, 101, 201),
        *drop_messages("/queue/b", 201, 301),
    ]
    assert taken(journal) == ranges


def test_what_is_put_again_after_a_run_stays(journal: Journal) -> None:
    drop(journal, *range(1, 101))
    journal.put_again(QUEUE, message(50), 1)

    drops, put = taken(journal)
    assert [drops] == drop_messages(QUEUE, 0, 100)
    assert put == put_message(QUEUE, StoredMessage(50, QUEUE, SENT_BY, b"", attempts=1))


def test_message_of_this_batch_leaves_no_row_and_the_run_goes_on_behind_it(journal: Journal) -> None:
    drop(journal, *range(1, 51))
    journal.put_message(QUEUE, message(MANY + 1), ALICE)
    drop(journal, MANY + 1)
    drop(journal, *range(51, 101))

    assert taken(journal) == [*drop_messages(QUEUE, 0, 100)]
    assert journal.backlog_bytes == 0


def test_count_that_was_put_again_is_dropped_with_its_message(journal: Journal) -> None:
    journal.put_again(QUEUE, message(5), 1)
    drop(journal, 5)

    assert taken(journal) == [*drop_message(QUEUE, 5)]


# --- one message in several lines ---

ONE, OTHER = "\0till\0one", "\0till\0other"


def fan_out(journal: Journal, number: int, *lines: str, body: bytes = b"") -> Message:
    """What a topic does with a message that several receive."""
    sent = Message(HEAD, body, number, 0.0)
    sent.shared = {}
    for line in lines:
        journal.put_message(line, sent, ALICE)
    return sent


def test_message_of_several_lines_is_one_row_with_one_body(journal: Journal) -> None:
    fan_out(journal, MANY + 1, ONE, OTHER, body=b"hello")

    hello = StoredMessage(MANY + 1, QUEUE, SENT_BY, b"hello")
    assert taken(journal) == put_shared((ONE, OTHER), hello)
    assert journal.is_empty


def test_message_that_is_left_in_one_line_alone_is_a_row_as_any_other(journal: Journal) -> None:
    both = fan_out(journal, MANY + 1, ONE, OTHER)
    fan_out(journal, MANY + 2, ONE)
    journal.drop_message(OTHER, both, ALICE)

    kept = [StoredMessage(number, QUEUE, SENT_BY, b"") for number in (MANY + 1, MANY + 2)]
    assert taken(journal) == [put_message(ONE, each) for each in kept]


def test_message_that_left_all_its_lines_in_its_batch_leaves_no_row(journal: Journal) -> None:
    gone = fan_out(journal, MANY + 1, ONE, OTHER)
    for line in (ONE, OTHER):
        journal.drop_message(line, gone, ALICE)

    assert taken(journal) == []
    assert journal.backlog_bytes == 0


def test_count_of_one_line_is_told_beside_the_shared_message(journal: Journal) -> None:
    sent = fan_out(journal, MANY + 1, ONE, OTHER)
    journal.put_again(OTHER, sent, 2)

    body, *lines = taken(journal)
    assert isinstance(body, Put)
    assert (body.table, lines) == (
        BODIES,
        [put(SharedMessageRow(ONE, MANY + 1, 0)), put(SharedMessageRow(OTHER, MANY + 1, 2))],
    )


def test_message_of_a_durable_subscription_that_comes_back_later_is_told_without_its_body(
    journal: Journal,
) -> None:
    journal.put_again(ONE, message(5), 1)
    journal.put_again(ONE, message(5), 2)
    journal.put_again(QUEUE, message(5), 2)

    *attempts, again = taken(journal)
    assert attempts == set_attempts(ONE, 5, 2)
    assert again == put_message(QUEUE, StoredMessage(5, QUEUE, SENT_BY, b"", attempts=2))


def test_message_of_a_durable_subscription_that_came_back_is_dropped_with_its_count(journal: Journal) -> None:
    journal.put_again(ONE, message(5), 1)
    journal.drop_message(ONE, message(5), ALICE)

    assert taken(journal) == [*drop_message(ONE, 5)]


def test_whoever_pays_does_so_from_put_to_drop(journal: Journal) -> None:
    kept = message(MANY + 1)
    before_bytes = ALICE.disk_bytes
    journal.put_message(QUEUE, kept, ALICE)
    assert ALICE.disk_bytes == before_bytes + kept.disk_bytes
    journal.drop_message(QUEUE, kept, ALICE)
    assert ALICE.disk_bytes == before_bytes
