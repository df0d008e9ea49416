"""Contract tests for a `Store`: what a store must keep so that a broker can run over it.

Each function under "the promises" is a sentence of the contract in `nebula.broker.store.store`, and its name
is the name of a test. They need the interface only. Two things cannot be tested through it: that a batch
survives a crash, and what happens when the disk fails. `tests/recovery` has ways to do that.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeAlias

from nebula.broker.core.storage import KeptLine, PageRequest, StoredMessage
from nebula.broker.core.tables import (
    DELAYED,
    DUPLICATES,
    SESSIONS,
    SUBSCRIPTIONS,
    VALUES,
    Drop,
    DuplicateRow,
    PendingRow,
    Put,
    SessionRow,
    SubscriptionRow,
    Write,
)
from nebula.broker.store.store import Snapshot, Store
from nebula.testing.stored import (
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

__all__ = ["check_store", "store_promises"]

_Promise: TypeAlias = Callable[[NewStore], None]

# In the order of the file, simple promises first, so that the first failure is the most basic one.
_PROMISES: Final[dict[str, _Promise]] = {}


def _promise(function: _Promise) -> _Promise:
    _PROMISES[function.__name__] = function
    return function


def _same(found: object, expected: object) -> None:
    # No `assert`: pytest does not rewrite it here, so that it would not show the two values.
    if found != expected:
        raise AssertionError(f"found {found!r}, expected {expected!r}")


def _line(found: Snapshot, name: str) -> KeptLine:
    if name not in found.lines:
        raise AssertionError(f"found the lines {sorted(found.lines)}, expected {name!r} among them")
    return found.lines[name]


_ONE, _OTHER, _THIRD = (f"\0till\0{name}" for name in ("one", "other", "third"))


# --- the promises ---


# A new store is clean although it was never closed, because it has lost nothing.
@_promise
def new_store_is_empty_and_clean(new_store: NewStore) -> None:
    found = new_store().load()

    _same(found, Snapshot(0, found.incarnation, is_clean=True))
    _same(len(bytes.fromhex(found.incarnation)), 4)


# The numbers of messages depend on the run (`Snapshot.first_number`): two runs of one number would give two
# messages one id, which D.20 forbids. 1 and 3, because `reloaded` loads twice.
@_promise
def each_load_counts_a_run_of_one_incarnation(new_store: NewStore) -> None:
    found = [reloaded(new_store), reloaded(new_store)]

    _same([one.run for one in found], [1, 3])
    _same(found[0].incarnation, found[1].incarnation)


# Repeated headers, line ends, NUL and every byte: all that a frame can carry. A store that uses JSON or C
# strings fails here.
@_promise
def message_comes_back_as_it_was(new_store: NewStore) -> None:
    odd = StoredMessage(
        7,
        "/queue/ü:\n",
        (("a", ""), ("a", "twice"), ("naïve", 'quote" \\ \t\n')),
        bytes(range(256)),
        1.75e9,
        3,
        is_request=True,
    )

    _same(lines(reloaded(new_store, [put_message("/queue/DLQ", odd)])), {"/queue/DLQ": [odd]})


# A store that sorts numbers as texts, or keeps 32 bits, fails here.
@_promise
def messages_of_a_queue_come_in_order_of_number(new_store: NewStore) -> None:
    batches: list[list[Write]] = [[put_message("/queue/a", message(number))] for number in (3 << 44, 9, 10)]

    found = _line(reloaded(new_store, *batches), "/queue/a").first

    _same([one.number for one in found], [9, 10, 3 << 44])


# The key is queue and number: a drop in one queue leaves the message in the other.
@_promise
def one_message_waits_in_two_queues(new_store: NewStore) -> None:
    puts: list[Write] = [put_message("one", message(5)), put_message("other", message(5))]

    _same(lines(reloaded(new_store, puts, [*drop_message("one", 5)])), {"other": [message(5)]})


# A put inserts or replaces.
@_promise
def put_replaces_the_message_of_its_number(new_store: NewStore) -> None:
    again = StoredMessage(5, "/queue/a", (), b"hello", None, 2)

    found = reloaded(new_store, [put_message("/queue/a", message(5))], [put_message("/queue/a", again)])

    _same(lines(found), {"/queue/a": [again]})


# A store that sorts the writes of a batch by kind fails here or in the next promise.
@_promise
def put_and_drop_in_one_batch_leave_nothing(new_store: NewStore) -> None:
    earlier: list[Write] = [put_message("/queue/a", message(5))]

    found = reloaded(new_store, earlier, [put_message("/queue/a", message(5)), *drop_message("/queue/a", 5)])

    _same(lines(found), {})


@_promise
def drop_and_put_in_one_batch_leave_the_new_one(new_store: NewStore) -> None:
    earlier: list[Write] = [put_message("/queue/a", message(5, b"old"))]

    found = reloaded(new_store, earlier, [*drop_message("/queue/a", 5), put_message("/queue/a", message(5))])

    _same(lines(found), {"/queue/a": [message(5)]})


# The range begins after the first number, and includes the last one.
@_promise
def range_of_a_line_is_dropped_and_nothing_beside_it(new_store: NewStore) -> None:
    puts: list[Write] = [put_message(line, message(number)) for line in "ab" for number in range(6)]

    found = lines(reloaded(new_store, puts, [*drop_messages("a", 1, 4)]))

    _same(
        {line: [one.number for one in kept] for line, kept in found.items()},
        {
            "a": [0, 1, 5],
            "b": [0, 1, 2, 3, 4, 5],
        },
    )


# The broker does not read deep queues at its start: these numbers are all that it knows of them.
@_promise
def line_says_how_much_it_holds(new_store: NewStore) -> None:
    puts: list[Write] = [put_message("a", message(number, b"x" * number)) for number in (3, 9, 4)]

    found = _line(reloaded(new_store, puts), "a")

    _same((found.count, found.body_bytes, found.last_number), (3, 16, 9))


# Times have fractions, and a message that is put again has only its last time.
@_promise
def delayed_messages_come_in_the_order_in_which_they_are_due(new_store: NewStore) -> None:
    first, second, third = message(1), message(2), message(3)
    puts: list[Write] = [
        put_delayed(first, 1.75e9 + 0.25),
        put_delayed(second, 1.75e9),
        put_delayed(third, 1.0),
    ]

    found = reloaded(new_store, puts, [Drop(DELAYED, (3,)), put_delayed(first, 1.75e9 + 0.5)])

    _same(found.delayed, [(second, 1.75e9), (first, 1.75e9 + 0.5)])


# The broker forgets them in this order. An id counts for its principal and its destination
# (docs/decisions/0037).
@_promise
def duplicates_come_in_the_order_in_which_they_end(new_store: NewStore) -> None:
    one, other = DuplicateRow("/queue/a", "bob", "1", 9.5), DuplicateRow("/queue/a", "bob", "2", 7.25)
    elsewhere, over = DuplicateRow("/queue/b", "bob", "1", 8.0), DuplicateRow("/queue/b", "bob", "2", 1.0)
    others = DuplicateRow("/queue/a", "eve", "1", 8.5)
    renewed = one._replace(until=10.0)

    writes: list[Write] = [put(row) for row in (one, other, elsewhere, over, others)]
    found = reloaded(new_store, writes, [put(renewed), Drop(DUPLICATES, ("/queue/b", "bob", "2"))])

    _same(found.duplicates, [other, elsewhere, others, renewed])


# Not an error, because the broker drops rows without asking whether they exist.
@_promise
def dropping_what_is_not_there_does_nothing(new_store: NewStore) -> None:
    drops: list[Write] = [
        *drop_message("q", 1),
        *drop_messages("p", 0, 9),
        Drop(DELAYED, (1,)),
        Drop(DUPLICATES, ("q", "alice", "1")),
    ]

    found = reloaded(
        new_store, [*drops, Drop(VALUES, ("X/a",)), Drop(SESSIONS, ("s",)), Drop(SUBSCRIPTIONS, ("s", "1"))]
    )

    _same(found, Snapshot(found.run, found.incarnation, is_clean=True))


# An empty body is a deletion that a durable subscription has still to receive, and a row like any other.
@_promise
def last_value_is_kept_for_each_destination(new_store: NewStore) -> None:
    def value(number: int, name: str, body: bytes) -> Put:
        return put_value(message(number, body, destination=f"X/{name}"))

    found = reloaded(
        new_store,
        [value(1, "a", b"old"), value(2, "b", b"stays"), value(3, "c", b"goes")],
        [value(4, "a", b""), Drop(VALUES, ("X/c",))],
    )

    _same(
        found.values,
        [
            message(2, b"stays", destination="X/b"),
            message(4, b"", destination="X/a"),
        ],
    )


@_promise
def session_is_kept_with_its_subscriptions_and_what_they_miss(new_store: NewStore) -> None:
    away = SessionRow("till-1", "ab12", 1.75e9)

    found = reloaded(new_store, [SESSION, SUBSCRIPTION, PENDING], [put(away)])

    _same((found.sessions, found.subscriptions), ([away], [SUBSCRIPTION.row]))
    _same(found.pending, {("till-1", "0"): ("X/a", "X/ü")})


# An empty row is kept: it is not the same as no row.
@_promise
def pending_replaces_what_was_pending(new_store: NewStore) -> None:
    found = reloaded(new_store, [SESSION, SUBSCRIPTION, PENDING], [put(PendingRow("till-1", "0", ()))])

    _same(found.pending, {("till-1", "0"): ()})


# No cascade: the core drops each row by itself, so that a batch means the same in every store.
@_promise
def row_goes_alone_and_no_other_of_its_table(new_store: NewStore) -> None:
    other = SubscriptionRow("till-2", "0", "X/*", "client", 10, 77)

    found = reloaded(
        new_store, [SESSION, SUBSCRIPTION, PENDING, put(other)], [Drop(SUBSCRIPTIONS, ("till-1", "0"))]
    )

    _same((found.sessions, found.subscriptions), ([SESSION.row], [other]))
    _same(set(found.pending), {("till-1", "0")})


@_promise
def later_one_of_two_writes_to_a_row_counts(new_store: NewStore) -> None:
    drops: list[Write] = [Drop(SESSIONS, ("till-1",)), Drop(SUBSCRIPTIONS, ("till-1", "0"))]

    found = reloaded(new_store, [SESSION, SUBSCRIPTION], [*drops, SESSION, SUBSCRIPTION, drops[1]])

    _same((found.sessions, found.subscriptions), ([SESSION.row], []))


@_promise
def batch_of_any_size_is_kept_and_dropped_whole(new_store: NewStore) -> None:
    count = 1500  # more than one statement takes, and no power of two
    puts: list[Write] = [put_message("/queue/a", message(number)) for number in range(count)]
    drops: list[Write] = [
        write for number in range(0, count, 2) for write in drop_message("/queue/a", number)
    ]

    found = _line(reloaded(new_store, puts, drops), "/queue/a").first

    _same([one.number for one in found], list(range(1, count, 2)))


@_promise
def close_is_idempotent_and_needs_no_load(new_store: NewStore) -> None:
    idle, used = new_store(), new_store()
    idle.close()
    used.load()
    used.close()
    used.close()

    _same(new_store().load().is_clean, True)


# A message for a thousand durable subscriptions is one body and a thousand small rows.
@_promise
def shared_message_is_in_each_of_its_lines(new_store: NewStore) -> None:
    odd = StoredMessage(
        7, "/topic/ü", (("a", "twice"), ("a", "b")), bytes(range(256)), 1.75e9, is_request=True
    )

    found = reloaded(new_store, [*put_shared((_ONE, _OTHER), odd), put_message(_ONE, message(6))])

    _same(lines(found), {_ONE: [message(6), odd], _OTHER: [odd]})
    one = _line(found, _ONE)
    _same((one.count, one.body_bytes, one.last_number), (2, 256 + len(message(6).body), 7))


@_promise
def shared_message_that_is_settled_in_one_line_stays_in_the_others(new_store: NewStore) -> None:
    puts: list[Write] = [
        write for number in (5, 6) for write in put_shared((_ONE, _OTHER, _THIRD), message(number))
    ]

    found = reloaded(new_store, puts, [*drop_message(_ONE, 5), *drop_messages(_OTHER, 4, 6)])

    _same(lines(found), {_ONE: [message(6)], _THIRD: [message(5), message(6)]})


@_promise
def shared_message_is_put_and_dropped_in_one_batch(new_store: NewStore) -> None:
    found = reloaded(
        new_store,
        [
            *put_shared((_ONE, _OTHER), message(5)),
            *drop_message(_ONE, 5),
            *put_shared((_ONE, _OTHER), message(6)),
            *set_attempts(_ONE, 6, 1),
        ],
        [*put_shared((_ONE, _OTHER), message(7)), *drop_message(_ONE, 7), *drop_message(_OTHER, 7)],
    )

    _same(lines(found), {_ONE: [message(6)._replace(attempts=1)], _OTHER: [message(5), message(6)]})


# Each line counts for itself, because another subscriber may accept the message. A count for a message that
# is gone makes no row.
@_promise
def failed_deliveries_are_counted_for_each_line(new_store: NewStore) -> None:
    puts: list[Write] = [
        *put_shared((_ONE, _OTHER), message(5)),
        *(put_message(_ONE, message(n)) for n in (6, 7)),
    ]

    found = reloaded(
        new_store,
        [*puts, *set_attempts(_ONE, 7, 4)],
        [*set_attempts(_ONE, 5, 3), *set_attempts(_ONE, 6, 2), *set_attempts(_OTHER, 9, 1)],
        [*set_attempts(_ONE, 5, 4)],
    )

    kept = lines(found)
    _same({line: [each.attempts for each in kept[line]] for line in kept}, {_ONE: [4, 2, 4], _OTHER: [0]})
    _same(_line(found, _ONE).first[1:], [message(6)._replace(attempts=2), message(7)._replace(attempts=4)])


# The two tables are merged by number, also where count or bytes end a page.
@_promise
def page_has_shared_messages_and_others_in_order(new_store: NewStore) -> None:
    store = new_store()
    store.load()
    store.apply([put_message(_ONE, message(number, b"x" * number)) for number in (2, 4, 6)])
    for number in (1, 3, 5):
        store.apply(put_shared((_ONE, _OTHER), message(number, b"y" * number)))
    expected = [message(number, (b"y" if number % 2 else b"x") * number) for number in range(1, 7)]

    _same(store.page(PageRequest(_ONE, 0, 6, 100, 1000)), expected)
    _same(store.page(PageRequest(_ONE, 1, 5, 2, 1000)), expected[1:3])
    _same(store.page(PageRequest(_ONE, 0, 6, 100, 6)), expected[:3])
    _same(store.page(PageRequest(_OTHER, 0, 6, 100, 1000)), expected[::2])
    _same(store.page(PageRequest(_THIRD, 0, 6, 100, 1000)), [])


@_promise
def page_is_the_asked_part_of_a_line_in_order(new_store: NewStore) -> None:
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

    _same(store.page(PageRequest("a", 2, 6, 100, 10_000)), [kept[2], kept[4], kept[5]])
    _same(store.page(PageRequest("a", 0, 8, 3, 10_000)), kept[:3])
    _same(store.page(PageRequest("a", 8, 99, 3, 10_000)), [])
    _same(store.page(PageRequest("/queue/none", 0, 99, 3, 10_000)), [])


# Otherwise a message above the limit could never be delivered.
@_promise
def page_holds_as_many_bytes_as_asked_for_but_one_message_at_least(
    new_store: NewStore,
) -> None:
    store = new_store()
    store.load()
    store.apply([put_message("a", message(number, b"x" * 10)) for number in range(1, 6)])

    for max_bytes, count in ((1, 1), (10, 1), (19, 1), (20, 2), (29, 2), (30, 3)):
        _same(len(store.page(PageRequest("a", 0, 9, 4, max_bytes))), count)


@_promise
def page_of_empty_bodies_is_read(new_store: NewStore) -> None:
    store = new_store()
    store.load()
    store.apply([put_message("a", message(number, b"")) for number in (1, 2)])

    _same(store.page(PageRequest("a", 0, 9, 4, 1)), [message(1, b""), message(2, b"")])


@_promise
def empty_batch_has_no_effect(new_store: NewStore) -> None:
    found = reloaded(new_store, [], [put_message("a", message(1))], [])

    _same(lines(found), {"a": [message(1)]})
    _same(found.is_clean, True)


# The broker reads pages on another thread than it writes batches. A connection with an older snapshot would
# miss the message.
@_promise
def page_that_begins_after_a_batch_sees_it_from_another_thread(new_store: NewStore) -> None:
    store = new_store()
    with ThreadPoolExecutor(1) as worker, ThreadPoolExecutor(1) as reader:
        worker.submit(store.load).result()
        for number in (1, 2, 3):
            worker.submit(store.apply, [put_message("a", message(number))]).result()
            page = reader.submit(store.page, PageRequest("a", 0, 9, 9, 1000)).result()
            _same(page, [message(each) for each in range(1, number + 1)])
        worker.submit(store.close).result()


# The caller may change what it gets: a store that returns one list twice fails here.
@_promise
def what_is_returned_belongs_to_the_caller(new_store: NewStore) -> None:
    writes: list[Write] = [put_message("a", message(1)), put_value(message(2))]
    writes += [SESSION, SUBSCRIPTION, PENDING]
    first = new_store()
    first.load()
    first.apply(writes)
    writes.clear()
    request = PageRequest("a", 0, 9, 9, 1000)
    first.page(request).clear()
    _same(first.page(request), [message(1)])
    first.close()

    second = new_store()
    found = second.load()
    _line(found, "a").first.clear()
    for each in (found.lines, found.values, found.sessions, found.subscriptions, found.pending):
        each.clear()
    _same(second.page(request), [message(1)])
    second.close()

    again = reloaded(new_store)
    _same(lines(again), {"a": [message(1)]})
    _same(again.values, [message(2)])
    _same((again.sessions, again.subscriptions), ([SESSION.row], [SUBSCRIPTION.row]))
    _same(again.pending, {("till-1", "0"): ("X/a", "X/ü")})


# --- public ---


def store_promises() -> tuple[str, ...]:
    """What `check_store` checks, in its order: each promise is the name of a test."""
    return tuple(_PROMISES)


def check_store(make: Callable[[Path], Store], promise: str = "") -> None:
    """Check that a store of your own keeps the contract of `nebula.broker.store.store.Store`.

    With a test for each promise:

        @pytest.mark.parametrize("promise", store_promises())
        def test_my_store(promise: str) -> None:
            check_store(MyStore, promise)

    Crashes and errors of the disk are not checked: they need more than the interface.

    Args:
        make: makes a store over the rows in a folder, which exists and is empty at first. It is called again
            with the same folder for a restart, when the store before it is closed.
        promise: one of `store_promises()`; empty: all of them, until one is broken.

    Raises:
        AssertionError: the store breaks a promise. A note names it, even on exceptions of the store itself.
        ValueError: there is no such promise.
    """
    if promise and promise not in _PROMISES:
        raise ValueError(f"no promise {promise!r}; there are {', '.join(_PROMISES)}")
    for name in [promise] if promise else list(_PROMISES):
        try:
            _check(make, _PROMISES[name])
        except Exception as error:
            error.add_note(f"promise: {name}")
            raise


def _check(make: Callable[[Path], Store], check: _Promise) -> None:
    made: list[Store] = []
    with tempfile.TemporaryDirectory(prefix="nebula-store-") as folder:

        def new_store() -> Store:
            made.append(make(Path(folder)))
            return made[-1]

        try:
            check(new_store)
        finally:
            # `close` is idempotent, so stores that a promise has closed may be closed again.
            for store in made:
                store.close()
