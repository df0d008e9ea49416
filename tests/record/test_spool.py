"""The spool: what was synced is there once, whatever happened between."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from nebula.errors import LocalProtocolError, SettingsError
from nebula.record.ledger import LedgerDamaged
from nebula.record.message import encode_message
from nebula.record.spool import Spool, Synced
from tests.dying import deaths
from tests.record.full_disk import files_of_at_most
from tests.record.messages import Acks, records

MESSAGES = [f"m-{number}" for number in range(30)]
_BATCH = 4
_SMALL = 400  # bytes of a segment, so that there are several


def datum(message_id: str) -> bytes:
    return encode_message(message_id, "/queue/readings", 1_000, {"type": "x"}, message_id.encode())


def add(spool: Spool, *ids: str) -> Synced:
    for each in ids:
        spool.append(each, datum(each))
    return spool.sync()


def bodies(spool: Spool, start: int = 0, end: int | None = None) -> list[str]:
    return [
        record["body"].decode()
        for part in spool.slices(start, spool.end if end is None else end)
        for record in records(Path(part.path))[part.skip : part.skip + part.count]
    ]


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    with Spool(tmp_path / "spool", codec="null", segment_bytes=_SMALL) as opened:
        yield opened


def test_any_run_of_positions_is_read(spool: Spool) -> None:
    for start in range(0, 30, _BATCH):
        add(spool, *MESSAGES[start : start + _BATCH])

    assert (spool.start, spool.end) == (0, 30)
    for start in range(31):
        for end in range(start, 31):
            assert bodies(spool, start, end) == MESSAGES[start:end]


def test_a_segment_ends_when_it_has_many_groups_however_small(tmp_path: Path) -> None:
    with Spool(tmp_path, segment_groups=3) as spool:
        for each in MESSAGES[:7]:
            add(spool, each)

        assert [part.count for part in spool.slices(0, 7)] == [3, 3, 1]
        assert spool.delete(4) == 1, "what was read goes, though little was written behind it"
        assert bodies(spool, 3) == MESSAGES[3:7]


def test_a_message_that_comes_again_is_dropped_until_its_ack_is_confirmed(spool: Spool) -> None:
    synced = add(spool, "a", "b")
    assert not spool.append("a", datum("a"))
    again = spool.sync()

    spool.acked(synced)
    assert not spool.append("a", datum("a")), "its second ACK is not confirmed"
    assert spool.append("b", datum("b")), (
        "a message-id is never used again; the spool need not know it any more"
    )
    spool.acked(again)
    spool.acked(spool.sync())
    assert spool.in_doubt == 0


def test_a_message_that_comes_twice_before_the_sync_is_taken_once(spool: Spool) -> None:
    spool.append("a", datum("a"))

    assert not spool.append("a", datum("a"))
    spool.sync()
    assert bodies(spool) == ["a"]


def test_the_next_process_knows_data_and_ids_and_goes_on_counting(tmp_path: Path) -> None:
    with Spool(tmp_path) as spool:
        spool.acked(add(spool, "a", "b"))
        add(spool, "c")
        spool.append("d", datum("d"))

    with Spool(tmp_path) as spool:
        assert spool.end == 3
        assert not spool.append("c", datum("c"))
        assert add(spool, "d").position == 4
        assert bodies(spool) == ["a", "b", "c", "d"]


def test_deleted_segments_are_gone_and_positions_go_on(tmp_path: Path) -> None:
    with Spool(tmp_path, codec="null", segment_bytes=_SMALL) as spool:
        for each in MESSAGES:
            add(spool, each)
        files = len(list(tmp_path.glob("*.avro")))

        assert 0 < spool.delete(20) < files
        assert 0 < spool.start <= 20
        assert bodies(spool, 20) == MESSAGES[20:]
        with pytest.raises(LocalProtocolError, match="holds positions"):
            spool.slices(0, 30)
        start = spool.start

    with Spool(tmp_path) as spool:
        assert (spool.start, spool.end) == (start, 30)
        spool.delete(30)
        assert list(tmp_path.glob("*.avro")) == []
        assert (spool.start, spool.end) == (30, 30)
        assert not spool.append("m-29", datum("m-29")), "ids outlive their files"

    with Spool(tmp_path) as spool:
        assert add(spool, "new").position == 31
        assert bodies(spool, 30) == ["new"]


def test_a_second_process_is_refused_with_the_folders_name(tmp_path: Path) -> None:
    with Spool(tmp_path), pytest.raises(SettingsError, match=f"{tmp_path} is in use"):
        Spool(tmp_path)
    Spool(tmp_path).close()


def test_a_full_disk_is_waited_for(spool: Spool) -> None:
    add(spool, "a")

    for size in (0, 10, 100, 300, 600):
        spool.append(f"b{size}", datum(f"b{size}"))
        with files_of_at_most(size), suppress(OSError):
            spool.sync()
    assert spool.end < 6, "none of the files was too large"
    spool.sync()
    assert bodies(spool) == ["a", "b0", "b10", "b100", "b300", "b600"]


def test_what_is_still_to_come_again_is_known_when_others_are_confirmed(tmp_path: Path) -> None:
    with Spool(tmp_path) as spool:
        with files_of_at_most(0), pytest.raises(OSError, match="too large"):
            add(spool, "a", "b")
        spool.reconnected()

        spool.acked(add(spool, "b"))  # its ACK is of no other
        assert not spool.append("a", datum("a"))
        spool.acked(spool.sync())
        assert bodies(spool) == ["a", "b"]
        spool.acked(add(spool, "c"))
        assert spool.in_doubt == 1, "b was ACKed with its group, and is forgotten as one of the oldest"


def test_a_segment_that_lost_what_was_synced_is_damage(tmp_path: Path) -> None:
    with Spool(tmp_path) as spool:
        add(spool, "a")
    (segment,) = tmp_path.glob("*.avro")
    os.truncate(segment, segment.stat().st_size - 1)

    with pytest.raises(LedgerDamaged, match=segment.name):
        Spool(tmp_path)


def test_a_segment_that_is_missing_between_others_is_damage(tmp_path: Path) -> None:
    with Spool(tmp_path, segment_bytes=1) as spool:
        for each in "abc":
            add(spool, each)
    sorted(tmp_path.glob("*.avro"))[1].unlink()

    with pytest.raises(LedgerDamaged, match="between others"):
        Spool(tmp_path)


def test_segments_without_their_ledger_are_left_alone(tmp_path: Path) -> None:
    with Spool(tmp_path) as spool:
        add(spool, "a")
    (tmp_path / "ledger").unlink()

    for _ in range(2):
        with pytest.raises(LedgerDamaged, match="ledger"):
            Spool(tmp_path)
    (tmp_path / "ledger").touch()  # as a kill leaves it that comes just then
    with pytest.raises(LedgerDamaged, match="ledger"):
        Spool(tmp_path)
    assert len(list(tmp_path.glob("*.avro"))) == 1


def live(folder: Path) -> None:
    """Take all messages as from a broker that gives out again what was not acked; the ACKs are in a file."""
    acks = Acks(folder)
    with Spool(folder / "spool", codec="null", segment_bytes=_SMALL) as spool:
        left = [each for each in MESSAGES if each not in acks.ids]
        while left:
            batch, left = left[:_BATCH], left[_BATCH:]
            synced = add(spool, *batch)
            acks.send(batch)
            spool.acked(synced)
            spool.delete(spool.end - 10)
    acks.close()


def test_killed_at_any_step_it_has_each_message_once(tmp_path: Path) -> None:
    steps = deaths(f"{__name__}:live", tmp_path)

    assert steps > 50
    for step in range(steps):
        folder = tmp_path / str(step)
        with Spool(folder / "spool") as spool:
            # Some ACKs never reached the broker, though they were written.
            before = bodies(spool, spool.start)
            assert before == MESSAGES[spool.start : spool.end], step
        live(folder)
        with Spool(folder / "spool") as spool:
            assert bodies(spool, spool.start) == MESSAGES[spool.start :], step
            assert spool.end == len(MESSAGES), step
            # Whole for every other reader, too.
            found = [each for path in (folder / "spool").glob("*.avro") for each in records(path)]
            assert len(found) == spool.end - spool.start, step
