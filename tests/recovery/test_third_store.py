"""Crash tests of a store that was added for its interface alone, a log file: it keeps the same contract."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from nebula.errors import StoreError
from tests.broker import log_store
from tests.broker.log_store import LogStore
from tests.recovery.scripted import BATCHES, rows_of, states, write_all

_STATES = states()

_STEP_BYTES = 1_000


def _kept_in(file: Path) -> tuple[object, ...]:
    """What a broker finds that starts now."""
    store = LogStore(file)
    try:
        return rows_of(store.load())
    finally:
        store.close()


# --- the end of the process: the log only grows, so that each image a crash can leave begins it ---


def test_every_beginning_of_the_log_holds_whole_batches_and_all_that_were_durable(tmp_path: Path) -> None:
    file, image = tmp_path / "log", tmp_path / "image"
    sizes: list[int] = []
    store = LogStore(file)
    write_all(store, lambda _: sizes.append(file.stat().st_size))
    log = file.read_bytes()
    store.close()
    assert len(sizes) == len(BATCHES) + 1

    cuts = {edge + offset for edge in sizes for offset in (-1, 0, 1)} | set(range(0, len(log), _STEP_BYTES))
    for cut in sorted(cut for cut in cuts if cut <= len(log)):
        image.write_bytes(log[:cut])

        durable = max(0, sum(size <= cut for size in sizes) - 1)
        again = LogStore(image)
        assert rows_of(again.load()) == _STATES[durable], f"{cut} of {len(log)} bytes"
        # What is written next is found as well: no torn record is left before it.
        for batch in BATCHES[durable : durable + 1]:
            again.apply(batch)
        again.close()
        assert _kept_in(image) == _STATES[: durable + 2][-1], f"{cut} of {len(log)} bytes"


# --- an error of the disk ---


class _Disk:
    """The functions of `os` that the log store writes with; the call of one of them with this number fails.

    Args:
        call: the name of the function.
        at: counted from 1; 0: none fails.
        is_partial: a write of which only half is done, and no error.
    """

    def __init__(self, call: str = "", at: int = 0, *, is_partial: bool = False) -> None:
        self._call, self._at, self._is_partial = call, at, is_partial
        self.counts = {"write": 0, "fdatasync": 0}

    def write(self, file: int, data: bytes) -> int:
        if self._is_due("write"):
            done = os.write(file, data[: len(data) // 2])
            if self._is_partial:
                return done
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return os.write(file, data)

    def fdatasync(self, file: int) -> None:
        if self._is_due("fdatasync"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        os.fdatasync(file)

    def __getattr__(self, name: str) -> Callable[..., object]:
        function: Callable[..., object] = getattr(os, name)
        return function

    def _is_due(self, call: str) -> bool:
        self.counts[call] += 1
        return call == self._call and self.counts[call] == self._at


def _run(file: Path, disk: _Disk, monkeypatch: pytest.MonkeyPatch) -> tuple[int, Exception | None]:
    """Write until something fails: how many batches were written, and what was said of the next."""
    written = [0]
    error: Exception | None = None
    store = LogStore(file)
    with monkeypatch.context() as patch:
        patch.setattr(log_store, "os", disk)
        try:
            write_all(store, written.append)
            store.close()
        except (OSError, StoreError) as raised:
            error = raised
        store.close()
    return written[-1], error


def _places(file: Path, monkeypatch: pytest.MonkeyPatch) -> range:
    """The calls of a whole run by their number, which is the same for each function."""
    disk = _Disk()
    assert _run(file, disk, monkeypatch) == (len(BATCHES), None)
    # One for each batch, for the beginning of the run and for its end.
    assert disk.counts == dict.fromkeys(disk.counts, len(BATCHES) + 2)
    return range(1, len(BATCHES) + 3)


@pytest.mark.parametrize(
    ("call", "reason"), [("write", "No space left on device"), ("fdatasync", "Input/output error")]
)
def test_call_that_fails_is_told_and_nothing_of_its_batch_takes_effect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, reason: str
) -> None:
    for at in _places(tmp_path / "whole", monkeypatch):
        file = tmp_path / str(at)

        written, error = _run(file, _Disk(call, at), monkeypatch)

        assert isinstance(error, StoreError), f"{call} {at}: {error!r}"
        assert str(error).startswith(f"{file}: cannot be written, {reason}; ")
        assert written == max(0, min(at - 2, len(BATCHES)))
        again = LogStore(file)
        found = again.load()
        again.close()
        assert rows_of(found) == _STATES[written], f"{call} {at}"
        # Before its beginning was written there was no run.
        assert found.is_clean is (at == 1), f"{call} {at}"


def test_write_that_is_done_in_part_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for at in _places(tmp_path / "whole", monkeypatch):
        file = tmp_path / str(at)

        assert _run(file, _Disk("write", at, is_partial=True), monkeypatch) == (len(BATCHES), None)

        assert file.read_bytes() == (tmp_path / "whole").read_bytes(), f"write {at}"


def test_log_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    store = LogStore(tmp_path)  # a folder

    with pytest.raises(StoreError, match=": cannot be read, Is a directory; "):
        store.load()
    store.close()
