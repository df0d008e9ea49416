"""What any store does, over each store."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nebula.broker.assembly import Assembly
from nebula.broker.core.storage import PageRequest, StoredMessage
from nebula.broker.core.tables import (
    DELAYED,
    DUPLICATES,
    MESSAGES,
    POSTPONED,
    SESSIONS,
    SUBSCRIPTIONS,
    VALUES,
    Drop,
    DropRange,
    DuplicateRow,
    PendingRow,
    PostponedRow,
    Put,
    SessionRow,
    SubscriptionRow,
    Write,
)
from nebula.broker.core.tables import PENDING as PENDING_TABLE
from nebula.broker.settings import BrokerSettings, LimitsSettings
from nebula.broker.store.sqlite import STORE_FILE, SqliteStore
from nebula.broker.store.sqlite_reads import read_into
from nebula.broker.store.store import Snapshot, Store
from nebula.broker.store.tools import open_store
from tests.broker.log_store import LogStore
from tests.broker.memory_store import MemoryDisk, MemoryStore
from tests.broker.stored import (
    PENDING,
    SESSION,
    SUBSCRIPTION,
    NewStore,
    drop_message,
    drop_messages,
    lines,
    message,
    put,
    put_delayed,
    put_message,
    put_shared,
    put_value,
    reloaded,
    set_attempts,
)


@pytest.fixture(params=["sqlite", "memory", "log"])
def new_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[NewStore]:
    """Makes stores over the same rows, as a broker does that is started again; closes them after the test."""
    disk = MemoryDisk()
    made: list[Store] = []

    makers: dict[str, NewStore] = {
        "sqlite": lambda: SqliteStore(tmp_path / "data"),
        "memory": lambda: MemoryStore(disk),
        "log": lambda: LogStore(tmp_path / "log"),
    }

    def make() -> Store:
        made.append(makers[request.param]())
        return made[-1]

    yield make
    for store in made:
        store.close()


def test_new_store_is_empty_and_clean(new_store: NewStore) -> None:
    found = new_store().load()

    assert found == Snapshot(0, found.incarnation, is_clean=True)
    assert len(bytes.fromhex(found.incarnation)) == 4


def test_each_load_counts_a_run_of_one_incarnation(new_store: NewStore) -> None:
    found = [reloaded(new_store), reloaded(new_store)]

    assert [one.run for one in found] == [1, 3]
    assert found[0].incarnation == found[1].incarnation


def test_message_comes_back_as_it_was(new_store: NewStore) -> None:
    odd = StoredMessage(
        7,
        "/queue/ü:\n",
        (("a", ""), ("a", "twice"), ("naïve", 'quote" \\ \t\n')),
        bytes(range(256)),
        1.75e9,
        3,
        is_request=True,
    )

    assert lines(reloaded(new_store, [put_message("/queue/DLQ", odd)])) == {"/queue/DLQ": [odd]}


def test_messages_of_a_queue_come_in_order_of_number(new_store: NewStore) -> None:
    batches: list[list[Write]] = [[put_message("/queue/a", message(number))] for number in (3 << 44, 9, 10)]

    found = lines(reloaded(new_store, *batches))["/queue/a"]

    assert [one.number for one in found] == [9, 10, 3 << 44]


def test_one_message_waits_in_two_queues(new_store: NewStore) -> None:
    puts: list[Write] = [put_message("one", message(5)), put_message("other", message(5))]

    assert lines(reloaded(new_store, puts, [*drop_message("one", 5)])) == {"other": [message(5)]}


def test_put_replaces_the_message_of_its_number(new_store: NewStore) -> None:
    again = StoredMessage(5, "/queue/a", (), b"hello", None, 2)

    found = reloaded(new_store, [put_message("/queue/a", message(5))], [put_message("/queue/a", again)])

    assert lines(found) == {"/queue/a": [again]}


def test_put_and_drop_in_one_batch_leave_nothing(new_store: NewStore) -> None:
    earlier: list[Write] = [put_message("/queue/a", message(5))]

    found = reloaded(new_store, earlier, [put_message("/queue/a", message(5)), *drop_message("/queue/a", 5)])

    assert lines(found) == {}


def test_drop_and_put_in_one_batch_leave_the_new_one(new_store: NewStore) -> None:
    earlier: list[Write] = [put_message("/queue/a", message(5, b"old"))]

    found = reloaded(new_store, earlier, [*drop_message("/queue/a", 5), put_message("/queue/a", message(5))])

    assert lines(found) == {"/queue/a": [message(5)]}


def test_range_of_a_line_is_dropped_and_nothing_beside_it(new_store: NewStore) -> None:
    puts: list[Write] = [put_message(line, message(number)) for line in "ab" for number in range(6)]

    found = lines(reloaded(new_store, puts, [*drop_messages("a", 1, 4)]))

    assert {line: [one.number for one in kept] for line, kept in found.items()} == {
        "a": [0, 1, 5],
        "b": [0, 1, 2, 3, 4, 5],
    }


def test_line_says_how_much_it_holds(new_store: NewStore) -> None:
    puts: list[Write] = [put_message("a", message(number, b"x" * number)) for number in (3, 9, 4)]

    found = reloaded(new_store, puts).lines["a"]

    assert (found.count, found.body_bytes, found.last_number) == (3, 16, 9)


def test_delayed_messages_come_in_the_order_in_which_they_are_due(new_store: NewStore) -> None:
    first, second, third = message(1), message(2), message(3)
    puts: list[Write] = [
        put_delayed(first, 1.75e9 + 0.25),
        put_delayed(second, 1.75e9),
        put_delayed(third, 1.0),
    ]

    found = reloaded(new_store, puts, [Drop(DELAYED, (3,)), put_delayed(first, 1.75e9 + 0.5)])

    assert found.delayed == [(second, 1.75e9), (first, 1.75e9 + 0.5)]


def test_duplicates_come_in_the_order_in_which_they_end(new_store: NewStore) -> None:
    one, other = DuplicateRow("/queue/a", "bob", "1", 9.5), DuplicateRow("/queue/a", "bob", "2", 7.25)
    elsewhere, over = DuplicateRow("/queue/b", "bob", "1", 8.0), DuplicateRow("/queue/b", "bob", "2", 1.0)
    others = DuplicateRow("/queue/a", "eve", "1", 8.5)
    renewed = one._replace(until=10.0)

    writes: list[Write] = [put(row) for row in (one, other, elsewhere, over, others)]
    found = reloaded(new_store, writes, [put(renewed), Drop(DUPLICATES, ("/queue/b", "bob", "2"))])

    assert found.duplicates == [other, elsewhere, others, renewed]


def test_dropping_what_is_not_there_does_nothing(new_store: NewStore) -> None:
    drops: list[Write] = [
        *drop_message("q", 1),
        *drop_messages("p", 0, 9),
        Drop(DELAYED, (1,)),
        Drop(DUPLICATES, ("q", "alice", "1")),
    ]

    found = reloaded(
        new_store, [*drops, Drop(VALUES, ("X/a",)), Drop(SESSIONS, ("s",)), Drop(SUBSCRIPTIONS, ("s", "1"))]
    )

    assert found == Snapshot(found.run, found.incarnation, is_clean=True)


def test_last_value_is_kept_for_each_destination(new_store: NewStore) -> None:
    def value(number: int, name: str, body: bytes) -> Put:
        return put_value(message(number, body, destination=f"X/{name}"))

    found = reloaded(
        new_store,
        [value(1, "a", b"old"), value(2, "b", b"stays"), value(3, "c", b"goes")],
        [value(4, "a", b""), Drop(VALUES, ("X/c",))],
    )

    assert found.values == [
        message(2, b"stays", destination="X/b"),
        message(4, b"", destination="X/a"),
    ]


def test_session_is_kept_with_its_subscriptions_and_what_they_miss(new_store: NewStore) -> None:
    away = SessionRow("till-1", "ab12", 1.75e9)

    found = reloaded(new_store, [SESSION, SUBSCRIPTION, PENDING], [put(away)])

    assert (found.sessions, found.subscriptions) == ([away], [SUBSCRIPTION.row])
    assert found.pending == {("till-1", "0"): ("X/a", "X/ü")}


def test_pending_replaces_what_was_pending(new_store: NewStore) -> None:
    found = reloaded(new_store, [SESSION, SUBSCRIPTION, PENDING], [put(PendingRow("till-1", "0", ()))])

    assert found.pending == {("till-1", "0"): ()}


def test_row_goes_alone_and_no_other_of_its_table(new_store: NewStore) -> None:
    other = SubscriptionRow("till-2", "0", "X/*", "client", 10, 77)

    found = reloaded(
        new_store, [SESSION, SUBSCRIPTION, PENDING, put(other)], [Drop(SUBSCRIPTIONS, ("till-1", "0"))]
    )

    assert (found.sessions, found.subscriptions) == ([SESSION.row], [other])
    assert set(found.pending) == {("till-1", "0")}


def test_later_one_of_two_writes_to_a_row_counts(new_store: NewStore) -> None:
    drops: list[Write] = [Drop(SESSIONS, ("till-1",)), Drop(SUBSCRIPTIONS, ("till-1", "0"))]

    found = reloaded(new_store, [SESSION, SUBSCRIPTION], [*drops, SESSION, SUBSCRIPTION, drops[1]])

    assert (found.sessions, found.subscriptions) == ([SESSION.row], [])


def test_batch_of_any_size_is_kept_and_dropped_whole(new_store: NewStore) -> None:
    count = 1500  # more than one statement takes, and no power of two
    puts: list[Write] = [put_message("/queue/a", message(number)) for number in range(count)]
    drops: list[Write] = [
        write for number in range(0, count, 2) for write in drop_message("/queue/a", number)
    ]

    found = lines(reloaded(new_store, puts, drops))["/queue/a"]

    assert [one.number for one in found] == list(range(1, count, 2))


def test_close_is_idempotent_and_needs_no_load(new_store: NewStore) -> None:
    idle, used = new_store(), new_store()
    idle.close()
    used.load()
    used.close()
    used.close()

    assert new_store().load().is_clean


# --- one message in several lines ---

ONE, OTHER, THIRD = (f"\0till\0{name}" for name in ("one", "other", "third"))


def test_shared_message_is_in_each_of_its_lines(new_store: NewStore) -> None:
    odd = StoredMessage(
        7, "/topic/ü", (("a", "twice"), ("a", "b")), bytes(range(256)), 1.75e9, is_request=True
    )

    found = reloaded(new_store, [*put_shared((ONE, OTHER), odd), put_message(ONE, message(6))])

    assert lines(found) == {ONE: [message(6), odd], OTHER: [odd]}
    one = found.lines[ONE]
    assert (one.count, one.body_bytes, one.last_number) == (2, 256 + len(message(6).body), 7)


def test_shared_message_that_is_settled_in_one_line_stays_in_the_others(new_store: NewStore) -> None:
    puts: list[Write] = [
        write for number in (5, 6) for write in put_shared((ONE, OTHER, THIRD), message(number))
    ]

    found = reloaded(new_store, puts, [*drop_message(ONE, 5), *drop_messages(OTHER, 4, 6)])

    assert lines(found) == {ONE: [message(6)], THIRD: [message(5), message(6)]}


def test_shared_message_is_put_and_dropped_in_one_batch(new_store: NewStore) -> None:
    found = reloaded(
        new_store,
        [
            *put_shared((ONE, OTHER), message(5)),
            *drop_message(ONE, 5),
            *put_shared((ONE, OTHER), message(6)),
            *set_attempts(ONE, 6, 1),
        ],
        [*put_shared((ONE, OTHER), message(7)), *drop_message(ONE, 7), *drop_message(OTHER, 7)],
    )

    assert lines(found) == {ONE: [message(6)._replace(attempts=1)], OTHER: [message(5), message(6)]}


def test_failed_deliveries_are_counted_for_each_line(new_store: NewStore) -> None:
    puts: list[Write] = [
        *put_shared((ONE, OTHER), message(5)),
        *(put_message(ONE, message(n)) for n in (6, 7)),
    ]

    found = reloaded(
        new_store,
        [*puts, *set_attempts(ONE, 7, 4)],
        [*set_attempts(ONE, 5, 3), *set_attempts(ONE, 6, 2), *set_attempts(OTHER, 9, 1)],
        [*set_attempts(ONE, 5, 4)],
    )

    kept = lines(found)
    assert {line: [each.attempts for each in kept[line]] for line in kept} == {ONE: [4, 2, 4], OTHER: [0]}
    assert kept[ONE][1:] == [message(6)._replace(attempts=2), message(7)._replace(attempts=4)]


def test_page_has_shared_messages_and_others_in_order(new_store: NewStore) -> None:
    store = new_store()
    store.load()
    store.apply([put_message(ONE, message(number, b"x" * number)) for number in (2, 4, 6)])
    store.apply(
        [write for number in (1, 3, 5) for write in put_shared((ONE, OTHER), message(number, b"y" * number))]
    )
    expected = [message(number, (b"y" if number % 2 else b"x") * number) for number in range(1, 7)]

    assert store.page(PageRequest(ONE, 0, 6, 100, 1000)) == expected
    assert store.page(PageRequest(ONE, 1, 5, 2, 1000)) == expected[1:3]
    assert store.page(PageRequest(ONE, 0, 6, 100, 6)) == expected[:3]
    assert store.page(PageRequest(OTHER, 0, 6, 100, 1000)) == expected[::2]
    assert store.page(PageRequest(THIRD, 0, 6, 100, 1000)) == []


def test_lines_that_share_messages_and_are_deep_bring_a_page_each(tmp_path: Path) -> None:
    names, body = [f"\0till\0{number}" for number in range(20)], bytes(10_000)
    puts: list[Write] = [
        write for number in range(1, 21) for write in put_shared(tuple(names), message(number, body))
    ]
    found = reloaded(partial(SqliteStore, tmp_path, most_first_bytes=1_000_000), puts)

    assert {(line.count, line.body_bytes, line.last_number) for line in found.lines.values()} == {
        (20, 200_000, 20)
    }
    first = [each for line in found.lines.values() for each in line.first]
    assert len(names) <= len(first) < 100
    assert [line.first[0] for line in found.lines.values()] == [message(1, body)] * len(names)


@pytest.mark.parametrize("most_first_bytes", [1 << 30, 1_000_000])
def test_body_of_several_lines_is_one_object_after_a_start(tmp_path: Path, most_first_bytes: int) -> None:
    names = tuple(f"\0till\0{number}" for number in range(20))
    puts: list[Write] = [
        *put_shared(names, message(1, bytes(10_000))),
        *put_shared(names, message(2, bytes(99_999))),
    ]

    found = reloaded(partial(SqliteStore, tmp_path, most_first_bytes=most_first_bytes), puts)

    assert len({id(line.first[0].body) for line in found.lines.values()}) == 1


# --- pages ---


def test_page_is_the_asked_part_of_a_line_in_order(new_store: NewStore) -> None:
    store = new_store()
    store.load()
    kept = [
        StoredMessage(
            number, f"/queue/{number}:\n", (("n", f"{number}\n"),), b"\x00\xff" * number, 1e9 + 0.1, number
        )
        for number in range(1, 9)
    ]
    store.apply([put_message("a", each) for each in reversed(kept)])
    store.apply([put_message("b", message(5)), *drop_message("a", 4)])

    assert store.page(PageRequest("a", 2, 6, 100, 10_000)) == [kept[2], kept[4], kept[5]]
    assert store.page(PageRequest("a", 0, 8, 3, 10_000)) == kept[:3]
    assert store.page(PageRequest("a", 8, 99, 3, 10_000)) == []
    assert store.page(PageRequest("nobody's", 0, 99, 3, 10_000)) == []


@pytest.mark.parametrize(("max_bytes", "count"), [(1, 1), (10, 1), (19, 1), (20, 2), (29, 2), (30, 3)])
def test_page_holds_as_many_bytes_as_asked_for_but_one_message_at_least(
    new_store: NewStore, max_bytes: int, count: int
) -> None:
    store = new_store()
    store.load()
    store.apply([put_message("a", message(number, b"x" * 10)) for number in range(1, 6)])

    assert len(store.page(PageRequest("a", 0, 9, 4, max_bytes))) == count


def test_page_of_empty_bodies_is_read(new_store: NewStore) -> None:
    store = new_store()
    store.load()
    store.apply([put_message("a", message(number, b"")) for number in (1, 2)])

    assert store.page(PageRequest("a", 0, 9, 4, 1)) == [message(1, b""), message(2, b"")]


NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
FEW_NAMES = st.sampled_from(["a", "b", "c"])
FEW_NUMBERS = st.sampled_from([0, 1, 2, 3, 1 << 62, (1 << 62) + 1])
SOME_MESSAGES = st.builds(
    StoredMessage,
    number=FEW_NUMBERS,
    destination=FEW_NAMES,
    headers=st.lists(st.tuples(NAMES, NAMES), max_size=3).map(tuple),
    body=st.binary(max_size=20),
    expires_at=st.none() | st.floats(allow_nan=False),
    attempts=st.integers(0, 20),
    is_request=st.booleans(),
)
TIMES = st.floats(0, 1e10)
WRITES: st.SearchStrategy[Write] = st.one_of(
    st.builds(put_message, FEW_NAMES, SOME_MESSAGES),
    st.builds(Drop, st.just(MESSAGES), st.tuples(FEW_NAMES, FEW_NUMBERS)),
    st.builds(put_delayed, SOME_MESSAGES, TIMES),
    st.builds(Drop, st.just(DELAYED), st.tuples(FEW_NUMBERS)),
    st.builds(PostponedRow, FEW_NAMES, FEW_NUMBERS, TIMES).map(put),
    st.builds(Drop, st.just(POSTPONED), st.tuples(FEW_NAMES, FEW_NUMBERS)),
    st.builds(DuplicateRow, FEW_NAMES, FEW_NAMES, NAMES, TIMES).map(put),
    st.builds(Drop, st.just(DUPLICATES), st.tuples(FEW_NAMES, FEW_NAMES, NAMES)),
    st.builds(put_value, SOME_MESSAGES),
    st.builds(Drop, st.just(VALUES), st.tuples(FEW_NAMES)),
    st.builds(SessionRow, FEW_NAMES, NAMES, st.none() | st.floats(allow_nan=False)).map(put),
    st.builds(Drop, st.just(SESSIONS), st.tuples(FEW_NAMES)),
    st.builds(SubscriptionRow, FEW_NAMES, FEW_NAMES, NAMES, NAMES, st.integers(0, 99), FEW_NUMBERS).map(put),
    st.builds(Drop, st.sampled_from([SUBSCRIPTIONS, PENDING_TABLE]), st.tuples(FEW_NAMES, FEW_NAMES)),
    st.builds(PendingRow, FEW_NAMES, FEW_NAMES, st.lists(NAMES, max_size=3).map(tuple)).map(put),
)
# They do not stand next to other writes to the same line.
RANGES: st.SearchStrategy[Write] = st.builds(
    DropRange, st.just(MESSAGES), FEW_NAMES, FEW_NUMBERS, FEW_NUMBERS
)


DURABLE = st.sampled_from([ONE, OTHER, THIRD])
SHARED_NUMBERS = st.integers(100, 106)
# Each is the writes that the journal makes of one event.
SHARED_WRITES: st.SearchStrategy[tuple[Any, ...]] = st.one_of(
    st.tuples(st.just("share"), st.lists(DURABLE, min_size=1, unique=True), SOME_MESSAGES),
    st.tuples(st.just("put"), DURABLE, SOME_MESSAGES.map(lambda each: each._replace(number=each.number % 7))),
    st.tuples(st.just("count"), DURABLE, st.integers(0, 6) | SHARED_NUMBERS, st.integers(0, 3)),
    st.tuples(st.just("drop"), DURABLE, st.integers(0, 6) | SHARED_NUMBERS),
)
SHARED_RANGES: st.SearchStrategy[tuple[Any, ...]] = st.tuples(
    st.just("range"), DURABLE, SHARED_NUMBERS, SHARED_NUMBERS
)


def written(batches: list[list[tuple[Any, ...]]]) -> list[list[Write]]:
    """The batches as writes, with a number of its own for each shared message, as the journal gives it."""
    numbers = count(100)

    def writes_of(event: tuple[Any, ...]) -> list[Write]:
        match event:
            case ("share", names, message):
                return put_shared(names, message._replace(number=next(numbers)))
            case ("put", line, message):
                return [put_message(line, message)]
            case ("count", line, number, attempts):
                return set_attempts(line, number, attempts)
            case ("drop", line, number):
                return drop_message(line, number)
            case _:
                return drop_messages(*event[1:])

    return [[write for event in batch for write in writes_of(event)] for batch in batches]


def sorted_rows(snapshot: Snapshot) -> list[object]:
    """The snapshot, without the order that nobody promises."""
    return [
        snapshot.lines,
        *(
            sorted(rows, key=repr)
            for rows in (
                snapshot.delayed,
                snapshot.postponed,
                snapshot.duplicates,
                snapshot.values,
                snapshot.sessions,
                snapshot.subscriptions,
                snapshot.pending.items(),
            )
        ),
    ]


@settings(deadline=None)
@given(batches=st.lists(st.lists(WRITES, max_size=12) | st.lists(RANGES, max_size=3), max_size=5))
def test_store_on_disk_holds_what_the_one_in_memory_holds(batches: list[list[Write]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        expected = reloaded(partial(MemoryStore, MemoryDisk()), *batches)
        found = reloaded(partial(SqliteStore, Path(folder)), *batches)

        assert sorted_rows(found) == sorted_rows(expected)
        assert [value.number for value in found.values] == [value.number for value in expected.values]


@settings(deadline=None)
@given(
    batches=st.lists(st.lists(SHARED_WRITES, max_size=8) | st.lists(SHARED_RANGES, max_size=3), max_size=6)
)
def test_no_body_is_kept_too_long_or_too_briefly(batches: list[list[tuple[Any, ...]]]) -> None:
    writes = written(batches)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        expected = reloaded(partial(MemoryStore, MemoryDisk()), *writes)
        found = reloaded(partial(SqliteStore, folder), *writes)

        assert found.lines == expected.lines
        with open_store(folder) as opened:
            assert set(opened.check()) <= {None}


@settings(deadline=None, max_examples=50)
@given(
    messages=st.lists(SOME_MESSAGES, max_size=12),
    after=FEW_NUMBERS,
    max_messages=st.integers(1, 4),
    max_bytes=st.integers(1, 40),
)
def test_page_from_the_disk_is_the_one_from_memory(
    messages: list[StoredMessage], after: int, max_messages: int, max_bytes: int
) -> None:
    request = PageRequest("a", after, 1 << 62, max_messages, max_bytes)
    pages = []
    with tempfile.TemporaryDirectory() as folder:
        for store in (MemoryStore(MemoryDisk()), SqliteStore(Path(folder))):
            store.load()
            store.apply([put_message("a", message) for message in messages])
            pages.append(store.page(request))
            store.close()

    assert pages[0] == pages[1]


def test_first_pages_of_many_lines_are_small_together(tmp_path: Path) -> None:
    folder, body, many = tmp_path / "data", bytes(1_000), 50
    puts: list[Write] = [
        put_message(f"/queue/{line}", message(1 + number * many + line, body))
        for number in range(20)
        for line in range(many)
    ]
    assert sum(map(len, lines(reloaded(partial(SqliteStore, folder), puts)).values())) == len(puts)

    snapshot = Snapshot(1, "", is_clean=True)
    with closing(sqlite3.connect(folder / STORE_FILE)) as db:
        read_into(snapshot, db, lambda _done, _total: None, 400_000)

    assert {line.count for line in snapshot.lines.values()} == {20}
    assert all(snapshot.lines[f"/queue/{line}"].first[0].number == 1 + line for line in range(many))
    first = [each for line in snapshot.lines.values() for each in line.first]
    assert many <= len(first) < 400


@pytest.mark.parametrize("count", [1, 3])
def test_load_keeps_to_half_of_the_brokers_memory_whatever_lines_begin_with(
    tmp_path: Path, count: int
) -> None:
    folder, body, many = tmp_path / "data", bytes(100_000), 20
    puts: list[Write] = [
        put_message(f"/queue/{line:02}", message(1 + number * many + line, body))
        for number in range(count)
        for line in range(many)
    ]
    reloaded(partial(SqliteStore, folder), puts)
    limits = LimitsSettings(max_memory_bytes=1_000_000, max_body_bytes=100_000)
    settings = BrokerSettings(data=folder, limits=limits)

    store = Assembly(settings, lambda error: None).store
    assert store is not None
    kept = store.load()
    first = [each for line in kept.lines.values() for each in line.first]
    assert 0 < sum(len(each.body) for each in first) <= 500_000
    assert {line.count for line in kept.lines.values()} == {count}
    assert [len(store.page(PageRequest(name, 0, 1 << 62, 9, 1 << 30))) for name in kept.lines] == [
        count
    ] * many
    store.close()


def test_batch_that_a_crash_cuts_short_has_no_effect(tmp_path: Path) -> None:
    file = tmp_path / "log"
    store = LogStore(file)
    store.load()
    store.apply([put_message("/queue/a", message(1))])
    before_bytes = file.stat().st_size
    store.apply([put_message("/queue/a", message(2)), put_message("/queue/b", message(3))])
    log = file.read_bytes()
    store.close()

    for cut in range(before_bytes, len(log)):
        file.write_bytes(log[:cut])
        after = LogStore(file)
        assert lines(after.load()) == {"/queue/a": [message(1)]}
        after.close()
