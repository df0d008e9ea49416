"""The disk fails under a real broker: nobody is promised what is not kept, and the operator is told."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Callable
from pathlib import Path

import pytest

from nebula.broker.store.sqlite import STORE_FILE
from tests.broker.script import Received
from tests.faults.programs import Program, program
from tests.faults.served import Wire
from tests.recovery.broker import FAULT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

_MOST = 5000
_BODY = "x" * 400

# Of a deep queue few messages are in memory.
_DEEP = {"NEBULA_SERVER_LIMITS__QUEUE_WINDOW_BYTES": "50000"}


def kept_in(folder: Path) -> list[str]:
    """The numbers in the queue, as a broker finds them that starts now."""
    with program(folder) as broker:
        wire = broker.connect()
        wire.say("SUBSCRIBE id:s; destination:/queue/a; ack:client; prefetch-count:100000")
        numbers = numbers_of(wire.probe())
        wire.say("DISCONNECT")
        wire.rest()
        broker.process.terminate()
        assert broker.end()[0] == 0
    return numbers


def numbers_of(frames: list[Received]) -> list[str]:
    messages = [frame for frame in frames if frame[0] == "MESSAGE"]
    bodies = ["".join(frame[2:]) for frame in messages]
    assert all(body.endswith(f" {_BODY}") for body in bodies)
    return [body.partition(" ")[0] for body in bodies]


def send_until_error(wire: Wire) -> tuple[list[str], Received]:
    """SEND with receipts, some at once, until the broker ends it: which came, and the last frame."""
    receipts: list[str] = []
    for first in range(0, _MOST, 20):
        # It may have ended us already; what it said before can still be read.
        with contextlib.suppress(ConnectionError):
            wire.say(*(send(number) for number in range(first, first + 20)))
        for _ in range(20):
            frame = wire.next()
            assert frame is not None
            if frame[0] == "ERROR":
                return receipts, frame
            receipts.append(frame[1]["receipt-id"])
    raise AssertionError("the disk never failed")


def send(number: int) -> str:
    return f"SEND destination:/queue/a; persistent:true; receipt:{number} | {number} {_BODY}"


def _no_fault(_: Program) -> None:
    pass


def _no_larger_files(broker: Program) -> None:
    """From now on the kernel refuses to let a file of this process grow above so much."""
    most = 200_000
    resource.prlimit(broker.process.pid, resource.RLIMIT_FSIZE, (most, most))


@pytest.mark.parametrize(
    ("fault", "spoil", "reason"),
    [
        ("fills up", _no_fault, "database or disk is full; make room"),
        ("", _no_larger_files, "disk I/O error; see to the disk"),
    ],
)
def test_disk_that_takes_no_more_ends_the_broker_and_no_promise_is_broken(
    tmp_path: Path, fault: str, spoil: Callable[[Program], None], reason: str
) -> None:
    with program(tmp_path, **{FAULT: fault}) as broker:
        sender, idle = broker.connect(), broker.connect()
        spoil(broker)

        receipts, last = send_until_error(sender)

        # Also who waits for nothing is told why it ends.
        assert [frame[1]["message"] for frame in (last, *idle.rest())] == [
            "the broker cannot keep messages"
        ] * 2
        status, said = broker.end()
    assert status == 1
    assert said.startswith(f"nebula: {broker.folder / STORE_FILE}: cannot be written, {reason}")
    kept = kept_in(tmp_path)
    assert kept[: len(receipts)] == receipts
    # The last batch failed with all that was in it, or was written and could not be told.
    assert kept == sorted(set(kept), key=int)
    assert len(receipts) >= 20


def _spoil_pages(file: Path, first_page: int = 2) -> None:
    """Overwrite all pages from this one on."""
    with file.open("r+b") as opened:
        size = opened.seek(0, 2)
        opened.seek(4096 * (first_page - 1))
        opened.write(b"\xff" * (size - opened.tell()))


def _fill(broker: Program, count: int) -> None:
    wire = broker.connect()
    wire.say(*(send(number) for number in range(count)))
    for _ in range(count):
        assert wire.next() is not None
    wire.close()


def test_store_with_spoilt_pages_is_refused_at_the_start(tmp_path: Path) -> None:
    with program(tmp_path) as broker:
        _fill(broker, 100)
        broker.process.terminate()
        assert broker.end()[0] == 0
    _spoil_pages(broker.folder / STORE_FILE)

    with program(tmp_path) as again:
        status, said = again.end()

    assert status == 1
    assert said.startswith(f"nebula: {broker.folder / STORE_FILE}: cannot be used, ")
    assert "restore the folder from a backup" in said


def test_page_that_is_spoilt_while_the_broker_runs_ends_it_before_anything_wrong_is_told(
    tmp_path: Path,
) -> None:
    count = 5000
    with program(tmp_path, **_DEEP) as broker:
        # Two runs: in the second nothing of it is in SQLite's memory, nor in its log.
        _fill(broker, count)
        broker.process.terminate()
        assert broker.end()[0] == 0
    with program(tmp_path, **_DEEP) as broker:
        wire = broker.connect()
        _spoil_pages(broker.folder / STORE_FILE, first_page=100)
        wire.say("SUBSCRIBE id:s; destination:/queue/a; ack:client; prefetch-count:100000")

        *messages, last = wire.rest()

        assert (last[0], last[1]["message"]) == ("ERROR", "the broker cannot keep messages")
        numbers = numbers_of(messages)
        assert numbers == [str(number) for number in range(len(numbers))]
        assert 0 < len(numbers) < count
        status, said = broker.end()
    assert status == 1
    assert said.startswith(f"nebula: {broker.folder / STORE_FILE}: cannot be read, ")
