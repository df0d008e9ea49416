"""Files of a recorder: when they are seen, and what is in them after a process died anywhere."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import rmtree

import pytest

from nebula.avro import encode
from nebula.errors import SettingsError
from nebula.record.ledger import LedgerDamaged
from nebula.record.parts import Rotation
from nebula.record.sorting import Sorter
from nebula.record.store import RecordStore
from nebula.stomp.client import Message
from tests.dying import deaths
from tests.record.full_disk import files_of_at_most
from tests.record.messages import (
    NEWER_READING,
    READING,
    SCHEMAS,
    Acks,
    files,
    hidden,
    message,
    recorded,
    records,
)

HOUR_MS = 3_600_000
NOON_MS = 1_763_812_800_000  # 2025-11-22 12:00 UTC


class Clock:
    def __init__(self) -> None:
        self.seconds = NOON_MS / 1000

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


OpenStore = Callable[..., RecordStore]


@pytest.fixture
def open_store(tmp_path: Path, clock: Clock) -> Iterator[OpenStore]:
    stores = []

    def opened(**options: object) -> RecordStore:
        store = RecordStore(tmp_path / "recorded", Sorter(SCHEMAS.get), now=clock, **options)  # type: ignore[arg-type]
        stores.append(store)
        return store

    yield opened
    for store in stores:
        store.close()


def texts(*ids: str) -> list[tuple[Message, int]]:
    return [(message(each, each.encode()), NOON_MS) for each in ids]


def readings(*numbers: int) -> list[tuple[Message, int]]:
    return [
        (message(f"r{number}", encode({"machine": "a", "turnover": number}, READING)), NOON_MS)
        for number in numbers
    ]


def bodies(folder: Path) -> list[str]:
    return [record["body"].decode() for record in recorded(folder)]


def add(store: RecordStore, messages: list[tuple[Message, int]]) -> int:
    store.take(messages)
    group = store.sync()
    assert group is not None
    return group


def test_files_are_seen_when_they_are_whole_by_type_date_and_hour(open_store: OpenStore) -> None:
    store = open_store()
    add(store, [*texts("a", "b"), *readings(1, 2, 3)])
    assert files(store.folder) == []

    store.finish()

    names = [str(path.relative_to(store.folder)) for path in files(store.folder)]
    assert names == [
        "message.queue.readings/date=2025-11-22/hour=12/recorder-20251122T120000000-000001.avro",
        "venue.Reading_v1/date=2025-11-22/hour=12/recorder-20251122T120000000-000002.avro",
    ]
    assert [len(records(path)) for path in files(store.folder)] == [2, 3]
    assert hidden(store.folder) == []


def test_a_file_ends_with_its_size_its_time_or_its_hour(open_store: OpenStore, clock: Clock) -> None:
    store = open_store(codec="null", rotation=Rotation(size_bytes=2000, seconds=60))
    add(store, texts("a"))
    assert store.rotate() == []

    add(store, texts("x" * 5000))
    assert len(store.rotate()) == 1, "size"

    add(store, texts("b"))
    clock.seconds += 61
    assert len(store.rotate()) == 1, "time"

    clock.seconds = NOON_MS / 1000 + 3590
    add(store, texts("c"))
    assert store.rotate() == []
    clock.seconds += 15
    assert len(store.rotate()) == 1, "hour"


def test_messages_around_the_hour_go_to_its_two_folders(open_store: OpenStore) -> None:
    store = open_store()
    add(store, [(message("a", b"a"), NOON_MS - 1), (message("b", b"b"), NOON_MS)])
    store.finish()

    assert [(path.parent.name, records(path)[0]["id"]) for path in files(store.folder)] == [
        ("hour=11", "a"),
        ("hour=12", "b"),
    ]


def test_schemas_of_one_name_have_folders_of_their_own_also_for_the_next_process(
    open_store: OpenStore,
) -> None:
    newer = encode({"machine": "a", "turnover": 1, "wins": 2}, NEWER_READING)
    for _ in range(2):
        store = open_store()
        add(store, [(message("n", newer), NOON_MS), *readings(1)])
        store.finish()
        store.close()

    homes = {path.parents[2].name for path in files(store.folder)}
    assert homes == {"venue.Reading_v1", f"venue.Reading_v1.{READING.fingerprint_hex}"}
    for path in files(store.folder):
        assert ("wins" in records(path)[0]) == (path.parents[2].name == "venue.Reading_v1")


def test_what_comes_again_is_dropped_until_its_ack_is_confirmed(open_store: OpenStore) -> None:
    store = open_store()
    first = add(store, texts("a", "b"))
    second = add(store, texts("b", "c"))
    assert (store.recorded, store.doubles) == (3, 1)

    store.confirm([first, second])

    assert store.in_doubt == 0
    store.finish()
    assert bodies(store.folder) == ["a", "b", "c"]


def test_one_message_of_two_subscriptions_is_recorded_for_both(open_store: OpenStore) -> None:
    store = open_store()
    add(store, [(message("m", b"1", "/topic/a"), NOON_MS), (message("m", b"2", "/topic/*"), NOON_MS)])
    store.finish()

    assert sorted(bodies(store.folder)) == ["1", "2"]


def test_the_next_process_finishes_open_files_and_knows_their_messages(open_store: OpenStore) -> None:
    store = open_store()
    add(store, texts("a", "b"))
    (part,) = hidden(store.folder)
    # What a dying process left behind the last sync.
    with part.open("ab") as file:
        file.write(b"half a block")
    store.close()

    store = open_store()

    assert len(store.recovered) == 1
    assert bodies(store.folder) == ["a", "b"]
    assert hidden(store.folder) == []
    store.take(texts("b", "c"))
    store.sync()
    store.finish()
    assert sorted(bodies(store.folder)) == ["a", "b", "c"]
    assert store.total == 3


@pytest.mark.parametrize("is_made_anew", [False, True], ids=["lost", "made-anew-and-killed"])
def test_open_files_without_their_ledger_are_cut_at_their_last_whole_block(
    is_made_anew: bool,
    open_store: OpenStore,
) -> None:
    store = open_store()
    add(store, texts("a"))
    add(store, texts("b"))
    (part,) = hidden(store.folder)
    os.truncate(part, part.stat().st_size - 1)
    store.close()
    ledger = store.folder / ".recorder/recorder/ledger"
    ledger.unlink()
    if is_made_anew:
        ledger.touch()

    open_store()

    assert bodies(store.folder) == ["a"]


def test_an_open_file_that_lost_what_was_synced_is_damage(open_store: OpenStore) -> None:
    store = open_store()
    add(store, texts("a"))
    (part,) = hidden(store.folder)
    os.truncate(part, part.stat().st_size - 1)
    store.close()

    with pytest.raises(LedgerDamaged, match=part.name):
        open_store()


def test_another_recorders_open_files_are_left_alone(open_store: OpenStore) -> None:
    one = open_store(instance="one")
    add(one, texts("a"))
    other = open_store(instance="one-2")
    add(other, texts("b"))
    other.close()

    open_store(instance="one-2")
    assert bodies(one.folder) == ["b"]
    one.finish()
    assert sorted(bodies(one.folder)) == ["a", "b"]


def test_a_second_process_of_one_name_is_refused(open_store: OpenStore) -> None:
    open_store()

    with pytest.raises(SettingsError, match="in use by another process"):
        open_store()
    with pytest.raises(SettingsError, match="letters, digits"):
        open_store(instance="../other")


def test_a_full_disk_is_waited_for_and_nothing_is_lost(open_store: OpenStore) -> None:
    store = open_store()
    expected = []
    for size in (0, 1, 300, 700, 900, 1100, 1500):
        ids = [f"{size}-{number}" for number in range(5)]
        expected += ids
        store.take([*texts(*ids), *readings(size)])
        with files_of_at_most(size):
            for _ in range(2):
                try:
                    store.sync()
                except OSError:
                    continue
        store.sync()
    store.finish()

    # A file may be begun again where there was no room for all of them.
    found = recorded(store.folder)
    assert [each["body"].decode() for each in found if "body" in each] == expected
    assert len(found) == len(expected) + 7


def test_a_file_that_grew_without_its_ledger_is_not_shown_before_that_is_settled(
    open_store: OpenStore,
) -> None:
    store = open_store(rotation=Rotation(size_bytes=1, seconds=60))
    for number in range(40):  # a ledger that is longer than a file
        add(store, texts(f"old{number}"))
        store.rotate()
    ledger = store.folder / ".recorder/recorder/ledger"
    store.take(texts("a"))
    with files_of_at_most(ledger.stat().st_size), pytest.raises(OSError, match="too large"):
        store.sync()
    assert len(hidden(store.folder)) == 1, "the file itself has grown"

    assert store.rotate() == []
    assert store.finish() == []
    store.close()
    store = open_store()
    assert "a" not in bodies(store.folder)
    add(store, texts("a"))
    store.finish()
    assert bodies(store.folder).count("a") == 1


def test_more_kinds_than_files_may_be_open_are_recorded(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nebula.record.parts._MOST_OPEN", 5)
    store = open_store()
    for number in range(20):
        add(store, [(message(f"m{number}", b"x", f"/queue/q{number}"), NOON_MS)])
        store.rotate()
        assert len(hidden(store.folder)) <= 5
    store.finish()

    assert len(recorded(store.folder)) == 20


_ALL = [f"m{number}" for number in range(12)]


def live(folder: Path) -> None:
    """Record all messages, as from a broker that gives out again what it has no ACK of."""
    clock = Clock()
    acks = Acks(folder)
    rotation = Rotation(size_bytes=1200, seconds=60)
    with RecordStore(
        folder / "recorded", Sorter(SCHEMAS.get), codec="null", rotation=rotation, now=clock
    ) as store:
        left = [each for each in _ALL if each not in acks.ids]
        while left:
            batch, left = left[:3], left[3:]
            store.take([*texts(*batch), *readings(*(int(each[1:]) for each in batch))])
            group = store.sync()
            acks.send(batch)
            if group is not None:
                store.confirm([group])
            store.rotate()
        store.finish()
    acks.close()


def test_killed_at_any_step_each_message_is_recorded_once(tmp_path: Path) -> None:
    steps = deaths(f"{__name__}:live", tmp_path)

    assert steps > 50
    for step in range(steps):
        folder = tmp_path / str(step)
        live(folder)
        found = recorded(folder / "recorded")
        assert sorted(each["id"] for each in found if "id" in each) == sorted(_ALL), step
        assert sorted(each["turnover"] for each in found if "turnover" in each) == list(range(12)), step
        assert hidden(folder / "recorded") == [], step
        rmtree(folder)
