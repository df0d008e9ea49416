"""The store and the kernel: a RECEIPT waits for the disk, and no call that ends or fails tears a batch."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.faults.served import Wire
from tests.recovery.broker import FAULT
from tests.recovery.scripted import BATCHES, kept_in, states
from tests.recovery.traced import count_calls, receipts, run, running, strace

# strace is a Debian package: `make test-foreign` and `make torture` install it.
pytestmark = [pytest.mark.foreign, pytest.mark.timeout(300)]

_STATES = states()
_SCRIPT = "tests.recovery.scripted"
_SENDS = 20

# Of some three hundred calls that write a page each, and all that wait for the disk.
_PLACES = 20


def _receipts_of_a_broker(folder: Path, fault: str = "") -> list[bool]:
    """Send one persistent message after the other; see `receipts`."""
    trace = folder / "trace"
    words = ("broker", "--port", "0", "--data", str(folder / "data"))
    command = strace(trace, "tests.recovery.broker", str(folder / "marks"), *words)
    with running(command, **{FAULT: fault}) as process:
        assert process.stdout is not None
        wire = Wire(urlsplit(json.loads(process.stdout.readline())["url"]).port or 0)
        wire.connect("1.2")
        for number in range(_SENDS):
            wire.say(f"SEND destination:/queue/a; persistent:true; receipt:{number} | x")
            assert wire.next() is not None
        wire.close()
    return list(receipts(trace))


def test_receipt_is_sent_when_the_disk_has_the_message(tmp_path: Path) -> None:
    assert _receipts_of_a_broker(tmp_path) == [True] * _SENDS


# A kill does not show this: it leaves the page cache.
def test_store_that_does_not_wait_for_the_disk_is_seen(tmp_path: Path) -> None:
    assert _receipts_of_a_broker(tmp_path, "never syncs") == [False] * _SENDS


def _said(output: str) -> int:
    """How many batches the script said were durable."""
    return max(0, len(output.split()) - 1)


def _places(folder: Path, call: str) -> range:
    """Some of the script's calls of this name, by their number from 1."""
    done = run(folder / "trace", _SCRIPT, str(folder / "whole"))
    assert done.returncode == 0, done.stderr
    assert _said(done.stdout) == len(BATCHES)
    count = count_calls(folder / "trace", call)
    return range(1, count + 1, max(1, count // _PLACES))


@pytest.mark.parametrize("call", ["pwrite64", "fdatasync"])
def test_kill_within_a_commit_leaves_whole_batches(tmp_path: Path, call: str) -> None:
    for at in _places(tmp_path, call):
        folder = tmp_path / str(at)

        done = run(tmp_path / "trace", _SCRIPT, str(folder), inject=f"{call}:signal=KILL:when={at}")

        said = _said(done.stdout)
        assert done.returncode != 0
        assert kept_in(folder) in _STATES[said : said + 2], f"call {at}: {said} batches said"


@pytest.mark.parametrize(
    ("call", "error", "reason"),
    [("pwrite64", "ENOSPC", "database or disk is full"), ("fdatasync", "EIO", "disk I/O error")],
)
def test_disk_that_fails_from_some_call_on_is_told_and_leaves_whole_batches(
    tmp_path: Path, call: str, error: str, reason: str
) -> None:
    told = 0
    for at in _places(tmp_path, call):
        folder = tmp_path / str(at)

        done = run(tmp_path / "trace", _SCRIPT, str(folder), inject=f"{call}:error={error}:when={at}+")

        said = _said(done.stdout)
        assert "Traceback" not in done.stderr
        if said < len(BATCHES):
            assert done.returncode == 1
            assert done.stderr.startswith(str(folder))
            told += reason in done.stderr
        assert kept_in(folder) in _STATES[said : said + 2], f"call {at}: {said} batches said"
    assert told > len(BATCHES)
