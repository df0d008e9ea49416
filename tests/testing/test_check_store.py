"""The contract tests for stores find each kind of store that breaks the contract, and say which promise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from nebula.broker.core.storage import PageRequest, StoredMessage
from nebula.broker.core.tables import Drop, DropRange, Put, SetAttempts, Write
from nebula.broker.store.store import Snapshot, Store
from nebula.testing import check_store, store_promises
from tests.broker.memory_store import MemoryDisk, MemoryStore


class _Sound(MemoryStore):
    """Keeps the contract. Those below change one thing."""


class _Forgets(_Sound):
    def apply(self, writes: Sequence[Write]) -> None:
        pass


class _NeverDrops(_Sound):
    def apply(self, writes: Sequence[Write]) -> None:
        super().apply([write for write in writes if not isinstance(write, Drop | DropRange)])


class _NeverReplaces(_Sound):
    def apply(self, writes: Sequence[Write]) -> None:
        super().apply([write for write in writes if not self._replaces(write)])

    def _replaces(self, write: Write) -> bool:
        return isinstance(write, Put) and write.row[: write.table.key_width] in self._disk.rows[write.table]


class _LaterWriteLoses(_Sound):
    def apply(self, writes: Sequence[Write]) -> None:
        super().apply(list(reversed(writes)))


class _CountsNoAttempts(_Sound):
    def apply(self, writes: Sequence[Write]) -> None:
        super().apply([write for write in writes if not isinstance(write, SetAttempts)])


class _ListsTheWrongWayRound(_Sound):
    def load(self) -> Snapshot:
        found = super().load()
        for rows in (found.delayed, found.duplicates, *(line.first for line in found.lines.values())):
            rows.reverse()  # type: ignore[attr-defined]
        return found


class _CountsRunsFromOne(_Sound):
    def load(self) -> Snapshot:
        self._disk.runs = max(1, self._disk.runs)
        return super().load()


class _CountsNoRuns(_Sound):
    def load(self) -> Snapshot:
        found = super().load()
        self._disk.runs = 0
        return found


class _NeverEndsCleanly(_Sound):
    def close(self) -> None:
        pass


class _ClosesOnce(_Sound):
    is_closed = False

    def close(self) -> None:
        if self.is_closed:
            raise RuntimeError("closed already")
        self.is_closed = True
        super().close()


class _PagesTooMuch(_Sound):
    def page(self, request: PageRequest) -> list[StoredMessage]:
        return super().page(PageRequest(request.line, request.after, request.up_to, 1 << 30, 1 << 30))


class _PagesNothingLarge(_Sound):
    def page(self, request: PageRequest) -> list[StoredMessage]:
        page = super().page(request)
        return page if sum(len(each.body) for each in page) <= request.max_bytes else []


class _KeepsItsFirstPage(_Sound):
    _kept: list[StoredMessage] | None = None

    def page(self, request: PageRequest) -> list[StoredMessage]:
        if self._kept is None:
            self._kept = super().page(request)
        return list(self._kept)


class _ReturnsWhatItKeeps(_Sound):
    def __init__(self, disk: MemoryDisk) -> None:
        super().__init__(disk)
        self._pages: dict[object, list[StoredMessage]] = {}

    def page(self, request: PageRequest) -> list[StoredMessage]:
        return self._pages.setdefault((request, len(self._disk.messages)), super().page(request))


class _RefusesAnEmptyBatch(_Sound):
    def apply(self, writes: Sequence[Write]) -> None:
        if not writes:
            raise ValueError("nothing to write")
        super().apply(writes)


def _maker(kind: type[MemoryStore]) -> Callable[[Path], Store]:
    disks: dict[Path, MemoryDisk] = {}
    return lambda folder: kind(disks.setdefault(folder, MemoryDisk()))


def _broken_promises(kind: type[MemoryStore]) -> set[str]:
    found: set[str] = set()
    for promise in store_promises():
        try:
            check_store(_maker(kind), promise)
        except (AssertionError, ValueError, RuntimeError) as error:
            found.update(note.removeprefix("promise: ") for note in error.__notes__)
    return found


# Each with the promise that says what is wrong with it. It may break others as well.
_BROKEN: dict[type[MemoryStore], str] = {
    _Forgets: "message_comes_back_as_it_was",
    _NeverDrops: "row_goes_alone_and_no_other_of_its_table",
    _NeverReplaces: "put_replaces_the_message_of_its_number",
    _LaterWriteLoses: "later_one_of_two_writes_to_a_row_counts",
    _CountsNoAttempts: "failed_deliveries_are_counted_for_each_line",
    _ListsTheWrongWayRound: "delayed_messages_come_in_the_order_in_which_they_are_due",
    _CountsRunsFromOne: "new_store_is_empty_and_clean",
    _CountsNoRuns: "each_load_counts_a_run_of_one_incarnation",
    _NeverEndsCleanly: "close_is_idempotent_and_needs_no_load",
    _ClosesOnce: "close_is_idempotent_and_needs_no_load",
    _PagesTooMuch: "page_is_the_asked_part_of_a_line_in_order",
    _PagesNothingLarge: "page_holds_as_many_bytes_as_asked_for_but_one_message_at_least",
    _KeepsItsFirstPage: "page_that_begins_after_a_batch_sees_it_from_another_thread",
    _ReturnsWhatItKeeps: "what_is_returned_belongs_to_the_caller",
    _RefusesAnEmptyBatch: "empty_batch_has_no_effect",
}


def test_store_that_keeps_the_contract_passes_all_at_once() -> None:
    check_store(_maker(_Sound))


@pytest.mark.parametrize("kind", _BROKEN)
def test_store_that_breaks_a_promise_is_found_out(kind: type[MemoryStore]) -> None:
    assert _BROKEN[kind] in _broken_promises(kind)


def test_every_promise_is_broken_by_some_store() -> None:
    broken = [_broken_promises(kind) for kind in _BROKEN]

    assert set().union(*broken) == set(store_promises())


def test_check_of_all_promises_ends_at_the_first_that_is_broken() -> None:
    with pytest.raises(AssertionError, match=r"found .*expected ") as raised:
        check_store(_maker(_CountsNoRuns))

    assert raised.value.__notes__ == ["promise: each_load_counts_a_run_of_one_incarnation"]


def test_unknown_promise_is_told_with_those_that_there_are() -> None:
    with pytest.raises(ValueError, match="no promise 'eternal'; there are new_store_is_empty_and_clean, "):
        check_store(_maker(_Sound), "eternal")
