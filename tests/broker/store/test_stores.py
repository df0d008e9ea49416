"""What any store does, over each store."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Callable
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
from nebula.testing import check_store, store_promises
from nebula.testing.stored import (
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
from tests.broker.log_store import LogStore
from tests.broker.memory_store import MemoryDisk, MemoryStore


def _memory_store(disks: dict[Path, MemoryDisk], folder: Path) -> Store:
    """A store over the rows that are kept in this process under the folder's name."""
    return MemoryStore(disks.setdefault(folder, MemoryDisk()))


_MAKERS: dict[str, Callable[[Path], Store]] = {
    "sqlite": lambda folder: SqliteStore(folder / "data"),
    "memory": partial(_memory_store, {}),
    "log": lambda folder: LogStore(folder / "log"),
}


@pytest.mark.parametrize("promise", store_promises())
@pytest.mark.parametrize("kind", _MAKERS)
def test_store_keeps(kind: str, promise: str) -> None:
    check_store(_MAKERS[kind], promise)


# --- one message in several lines ---

ONE, OTHER, THIRD = (f"\0till\0{name}" for name in ("one", "other", "third"))


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


# --- against the store in memory, and within limits ---


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
