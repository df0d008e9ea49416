"""A disk that is nearly full: persistent messages are refused in time, everything else goes on."""

from __future__ import annotations

import pytest

from nebula.broker.core.limits import Limits
from nebula.broker.store.disk import DiskWatch
from tests.broker.memory_store import MemoryDisk, MemoryStore
from tests.faults.served import Served, serve, wait_until
from tests.own_logs import own_logs

_LIMITS = Limits(min_free_disk_bytes=1000)


class Disk:
    """A disk with so much room."""

    def __init__(self, free_bytes: int) -> None:
        self.free_bytes = free_bytes
        self.fails = False

    def __call__(self) -> int:
        if self.fails:
            raise OSError("gone")
        return self.free_bytes


@pytest.mark.parametrize(("free_bytes", "is_low"), [(1000, False), (999, True)])
def test_disk_is_low_below_the_limit(free_bytes: int, is_low: bool) -> None:
    watch = DiskWatch(Disk(free_bytes), 1000)

    watch.look(1.0)

    assert watch.is_low == is_low


def test_log_says_once_when_it_begins_and_once_when_it_is_over() -> None:
    disk = Disk(999)
    watch = DiskWatch(disk, 1000)
    with own_logs() as logged:
        for now, free_bytes in enumerate([999, 10, 1100, 999, 1250, 1001]):
            disk.free_bytes = free_bytes
            watch.look(float(now))

    assert [(line["event"], line["free_bytes"]) for line in logged] == [
        ("disk nearly full", 999),
        ("disk has room again", 1250),
    ]


def test_disk_is_not_asked_at_every_look() -> None:
    disk = Disk(5000)
    watch = DiskWatch(disk, 1000)
    watch.look(10.0)
    disk.free_bytes = 0
    watch.look(10.9)

    assert not watch.is_low


def test_disk_that_cannot_be_asked_stays_as_it_was() -> None:
    disk = Disk(0)
    watch = DiskWatch(disk, 1000)
    watch.look(1.0)
    disk.fails = True
    watch.look(3.0)

    assert watch.is_low


def verdicts(broker: Served) -> list[str]:
    """Of a persistent SEND and of another one."""
    wire = broker.connect()
    wire.say(
        "SEND destination:/queue/a; persistent:true; receipt:1 | x",
        "SEND destination:/queue/b; receipt:2 | x",
    )
    frames = [wire.next(), wire.next()]
    wire.close()
    return [frame[1]["disposition"] for frame in frames if frame is not None]


def test_persistent_messages_are_refused_until_there_is_room_again() -> None:
    disk = Disk(0)
    with serve(_LIMITS, store=MemoryStore(MemoryDisk()), free_disk_bytes=disk) as broker:
        assert verdicts(broker) == ["rejected-full", "accepted"]

        disk.free_bytes = 5000
        wait_until(broker, lambda: not broker.server.broker.account.is_disk_low)

        assert verdicts(broker) == ["accepted", "accepted"]


@pytest.mark.parametrize(
    ("limit", "is_low", "verdict"),
    # At the limit the disk is not low yet, but nothing is left that a principal could have a share of.
    [(1000, False, "accepted"), (5000, False, "rejected-full"), (5001, True, "rejected-full")],
)
def test_broker_leaves_the_least_free_space_alone(limit: int, *, is_low: bool, verdict: str) -> None:
    limits, store = Limits(min_free_disk_bytes=limit), MemoryStore(MemoryDisk())
    with serve(limits, store=store, free_disk_bytes=Disk(5000)) as broker:
        assert verdicts(broker) == [verdict, "accepted"]
        assert broker.ask(lambda: broker.server.broker.account.is_disk_low) is is_low
