"""The journal: what happened, as the fewest rows that say it."""

from __future__ import annotations

import pytest

from nebula.broker.journal import Journal
from nebula.broker.messages import Head, Kind, Message
from nebula.broker.store import DropMessage, DropMessages, PutMessage, Write

QUEUE = "/queue/a"
HEAD = Head(Kind.QUEUE, QUEUE, "alice", (), is_persistent=True)
MANY = 500


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
        journal.drop_message(queue, message(number))


def taken(journal: Journal) -> list[Write]:
    return journal.take()[1]


def test_many_drops_in_a_row_are_one_row(journal: Journal) -> None:
    drop(journal, *range(11, 211))

    assert journal.pending_count == 200
    assert taken(journal) == [DropMessages(QUEUE, 10, 210)]
    assert journal.is_empty


def test_few_drops_are_a_row_each(journal: Journal) -> None:
    drop(journal, 1, 2, 3)

    assert not journal.is_empty
    assert taken(journal) == [DropMessage(QUEUE, number) for number in (1, 2, 3)]


def test_gap_and_another_line_end_a_run(journal: Journal) -> None:
    drop(journal, *range(1, 101))
    drop(journal, *range(102, 202))
    drop(journal, *range(202, 302), queue="/queue/b")

    ranges = [DropMessages(QUEUE, 0, 100), DropMessages(QUEUE, 101, 201), DropMessages("/queue/b", 201, 301)]
    assert taken(journal) == ranges


def test_what_is_put_again_after_a_run_stays(journal: Journal) -> None:
    drop(journal, *range(1, 101))
    journal.put_again(QUEUE, message(50), 1)

    drops, put = taken(journal)
    assert drops == DropMessages(QUEUE, 0, 100)
    assert isinstance(put, PutMessage)
    assert put.message.number == 50


def test_message_of_this_batch_leaves_no_row_and_the_run_goes_on_behind_it(journal: Journal) -> None:
    drop(journal, *range(1, 51))
    journal.put_message(QUEUE, message(MANY + 1))
    drop(journal, MANY + 1)
    drop(journal, *range(51, 101))

    assert taken(journal) == [DropMessages(QUEUE, 0, 100)]
    assert journal.backlog_bytes == 0


def test_count_that_was_put_again_is_dropped_with_its_message(journal: Journal) -> None:
    journal.put_again(QUEUE, message(5), 1)
    drop(journal, 5)

    assert taken(journal) == [DropMessage(QUEUE, 5)]
