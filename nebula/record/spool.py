"""Spool: messages on disk between a broker that has been ACKed and a reader that has not yet read them.

A spool turns "the broker redelivers until the ACK" into positions that a reader can ask for again. It is
a log of *segments*, Avro container files named after the position of their first datum, plus the
recorder's ledger:

- A datum is durable when its block is synced and the ledger has a line with its id. The recorder's four
  steps (`nebula.record.recorder`) are the same here: append, sync, ACK, confirm.
- A redelivered message is known by its id until its ACK is confirmed, and is not appended again.
- A position never changes its meaning, over all restarts. A reader that has lost its state reads the same
  data from the same position; that is what makes a Spark query that restarts from a checkpoint exact.
- A reader says up to which position it has read; segments that lie below it as a whole are removed. What
  remains of the first segment is skipped by counting blocks, so that a segment has a bounded number of
  syncs.

The trap is the end of a segment after a crash: bytes behind the length in the ledger's last line were
never ACKed, come again, and are truncated before anything is appended.
"""

from __future__ import annotations

import os
import threading
from bisect import bisect_right
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final, Self

from nebula.errors import LocalProtocolError, SettingsError
from nebula.private import tighten
from nebula.record.container import ContainerWriter
from nebula.record.disk import LOCK_SECONDS, lock_folder, make_folders, sync_folder, truncate
from nebula.record.ledger import MAX_IN_DOUBT, Ledger, LedgerDamaged, Mark
from nebula.record.message import MESSAGE_TEXT

SEGMENT_BYTES: Final = 64 * 1024 * 1024
SEGMENT_GROUPS: Final = 4096
"""Syncs of one segment at most: each is a block, and a slice is found by counting blocks from the start."""

_NO_LIMIT: Final = 1 << 62
_SUFFIX: Final = ".avro"
_DIGITS: Final = 20  # names of segments sort as their positions do


@dataclass(frozen=True, slots=True)
class Synced:
    """What a `Spool.sync` made durable: to be handed to `Spool.acked` when its ACKs are confirmed.

    Attributes:
        position: how many data the spool has taken by then, ever.
        group: of ids in the ledger; None: there was nothing new, or its ids must be kept.
    """

    position: int
    group: int | None


@dataclass(frozen=True, slots=True)
class Slice:
    """A run of data in one segment. Plain values: it may be sent to another process.

    Attributes:
        path: of the segment, an Avro container file of `nebula.RecordedMessage`.
        skip: data before the first.
        count: of the data.
    """

    path: str
    skip: int
    count: int


@dataclass(slots=True)
class _Segment:
    """A file of the spool: the position of its first datum, and how many count."""

    path: Path
    start: int
    count: int

    @property
    def end(self) -> int:
        return self.start + self.count


class Spool:
    """Data and the ids of their messages in a folder, which this process alone may use.

    The order of calls for a receiver of messages: `append` each, `sync`, ACK them with a
    receipt, and at the RECEIPT `acked`; with each connection after the first, `reconnected`. Then nothing is
    lost or doubled, wherever the process or the machine dies: what was not synced was not ACKed and comes
    again; what was synced and comes again, as its ACK was lost, is known by its id.

    Positions count data from 0 on, without gaps, over all restarts. All methods may be called from any
    thread; `append` and `sync` from one at a time.

    Args:
        folder: made if missing. On a disk that keeps what it has synced.
        codec: of the segments.
        segment_bytes: a segment that holds this many is followed by the next one.
        segment_groups: so is one with this many syncs.
        max_in_doubt: ids that are kept at most, see `Ledger`: at least twice what the broker may send
            ahead of its ACKs.
        lock_seconds: how long another process that uses the folder is waited for.

    Raises:
        SettingsError: another process uses the folder, or it cannot be used. Names it.
        LedgerDamaged: what is in it is not what was written there.
        SyncFailed: the disk fails.
    """

    def __init__(
        self,
        folder: Path,
        *,
        codec: str = "deflate",
        segment_bytes: int = SEGMENT_BYTES,
        segment_groups: int = SEGMENT_GROUPS,
        max_in_doubt: int = MAX_IN_DOUBT,
        lock_seconds: float = LOCK_SECONDS,
    ) -> None:
        self.folder = folder
        self._codec = codec
        self._segment_bytes, self._segment_groups = segment_bytes, segment_groups
        # Reentrant: properties that take it are used within other methods. Readers and the receiver are two
        # threads.
        self._guard = threading.RLock()
        self._waiting: dict[str, bytes] = {}  # for the next sync, in order
        self._writing = 0  # how many of them the segment's writer has by now
        self._again: dict[str, None] = {}
        self._absent: set[str] = set()  # of both, those that have not come by this connection
        self._writer: ContainerWriter | None = None
        self._groups = 0  # of the segment that is being written
        try:
            with ExitStack() as opened:
                make_folders(folder, folder)
                # The lock is taken before anything is read: another process may be truncating.
                opened.callback(os.close, lock_folder(folder, "the spool", lock_seconds))
                self._ledger = _open_ledger(folder, max_in_doubt)
                opened.callback(self._ledger.close)
                self._segments = self._recover()
                if self._ledger.is_new:
                    # Only after the check of the segments: until then a lost ledger counts as lost.
                    self._ledger.rewrite()
                self._opened = opened.pop_all()
        except OSError as error:
            raise SettingsError(f"the spool {folder}: {error.strerror}") from error

    @property
    def start(self) -> int:
        """The position of the first datum that is still there; `end` if the spool is empty."""
        with self._guard:
            return self._segments[0].start if self._segments else self._ledger.position

    @property
    def end(self) -> int:
        """The position behind the last one that was synced."""
        with self._guard:
            return self._ledger.position

    @property
    def size_bytes(self) -> int:
        """Of all segments, up to what was synced."""
        with self._guard:
            return sum(mark.size_bytes for mark in self._ledger.files.values())

    @property
    def in_doubt(self) -> int:
        """How many ids are kept of messages that may come again."""
        with self._guard:
            return self._ledger.in_doubt

    def append(self, message_id: str, datum: bytes) -> bool:
        """Take a datum; in memory until `sync`.

        Args:
            message_id: equal whenever the broker gives the message out, and no other's.
            datum: of `nebula.RecordedMessage`.

        Returns:
            Whether it is new. Else it is there already: ACK it with the others after the next `sync`.
        """
        with self._guard:
            # It may still wait for the next sync from the connection before: then that one is written, and
            # this one is only ACKed with it.
            self._absent.discard(message_id)
            if message_id in self._waiting:
                return False
            if message_id in self._ledger:
                self._again[message_id] = None
                return False
            self._waiting[message_id] = datum
            return True

    def reconnected(self) -> None:
        """What was appended and not synced comes again, some of it after the next group's ACK."""
        with self._guard:
            self._absent = {*self._waiting, *self._again}

    def sync(self) -> Synced:
        """Make durable what was appended, with its ids. ACK only then.

        Raises:
            OSError: no room, or a file cannot be written. Nothing of it counts and nothing is lost: call it
                again. See `nebula.record.disk.is_full`.
            SyncFailed: the disk failed. Nothing of it may be ACKed; open the spool anew.
        """
        with self._guard:
            if not self._waiting and not self._again:
                return Synced(self.end, None)
            files = self._write() if self._waiting else {}
            group = self._ledger.commit(list(self._waiting), files, again=list(self._again))
            if self._waiting:
                self._segments[-1].count += len(self._waiting)
                self._groups += 1
            # Those that still come again must be known then, whatever the ACK of the others confirms.
            confirmed = None if self._absent else group
            self._waiting, self._again, self._absent = {}, {}, set()
            self._writing = 0
            self._ledger.compact()
            if self._writer is not None and self._is_enough(self._writer):
                self._end_segment()
            return Synced(self.end, confirmed)

    def acked(self, synced: Synced) -> None:
        """The broker has confirmed the ACKs of all that a `sync` covered, also what came again: forget it.

        A confirmation that was lost with the connection never comes: then the ids stay, until their messages
        have come again and that is confirmed.
        """
        with self._guard:
            if synced.group is not None:
                self._ledger.confirm(synced.group)

    def slices(self, start: int, end: int) -> list[Slice]:
        """Where the data of these positions are, in order.

        Raises:
            LocalProtocolError: they are not all there: not yet, or not any more.
        """
        with self._guard:
            if not self.start <= start <= end <= self.end:
                held = f"positions {self.start} to {self.end}"
                raise LocalProtocolError(f"the spool {self.folder} holds {held}, not {start} to {end}")
            found = []
            # The last segment that does not begin behind `start`; segments are sorted by their starts.
            first = max(0, bisect_right(self._segments, start, key=lambda each: each.start) - 1)
            for segment in self._segments[first:]:
                begin, until = max(start, segment.start), min(end, segment.end)
                if begin < until:
                    found.append(Slice(str(segment.path), begin - segment.start, until - begin))
            return found

    def delete(self, up_to: int) -> int:
        """Remove the segments that hold nothing from this position on. The ids of their messages stay.

        Returns:
            How many files are gone.

        Raises:
            OSError: a file cannot be removed.
        """
        with self._guard:
            gone = [each for each in self._segments if each.end <= min(up_to, self.end)]
            # The last segment may be deleted while it is written, when the reader has caught up.
            if gone and self._writer is not None and gone[-1].path == self._writer.path:
                # While a failed sync waits for its next try, its data are in there and do not count yet.
                if self._writing:
                    gone.pop()
                else:
                    self._end_segment()
            for each in gone:
                each.path.unlink(missing_ok=True)
                self._ledger.drop(each.path.name)
            self._segments = self._segments[len(gone) :]
            # Segments are deleted from the front, so the rest has no gap.
            return len(gone)

    def close(self) -> None:
        """Release the folder. What was appended and not synced is gone: it was not ACKed. Idempotent."""
        with self._guard:
            if self._writer is not None:
                self._end_segment()
            self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _write(self) -> dict[str, Mark]:
        """Sync what waits into the segment; what a failed try has appended is not appended again."""
        if self._writer is None:
            position = self._ledger.position
            path = self.folder / f"{position:0{_DIGITS}}{_SUFFIX}"
            # A block for each sync, and none before: what is appended twice must not be written once already.
            self._writer = ContainerWriter(path, MESSAGE_TEXT, codec=self._codec, block_bytes=_NO_LIMIT)
            self._segments.append(_Segment(path, position, 0))
            self._groups = 0
            sync_folder(self.folder)
        # `_writing` counts across tries: the writer keeps in memory what it could not write to a full disk.
        for datum in islice(self._waiting.values(), self._writing, None):
            self._writer.append(datum)
            self._writing += 1
        self._writer.sync()
        return {self._writer.path.name: Mark(self._writer.size_bytes, self._writer.written)}

    def _is_enough(self, segment: ContainerWriter) -> bool:
        return segment.size_bytes >= self._segment_bytes or self._groups >= self._segment_groups

    def _end_segment(self) -> None:
        assert self._writer is not None
        self._writer.abandon()
        self._writer = None

    def _recover(self) -> list[_Segment]:
        """Cut the segments to what counts, and remove those of which nothing does."""
        known = self._ledger.files
        found: list[_Segment] = []
        for path in sorted(self.folder.glob("*" + _SUFFIX)):
            mark = known.get(path.name)
            if mark is None:
                # Begun, and nothing in it was ever written down, so nothing in it was ACKed.
                path.unlink()
                continue
            tighten(path)
            size = path.stat().st_size
            if size < mark.size_bytes:
                raise LedgerDamaged(f"{path}: {size} bytes of {mark.size_bytes} are left: restore the file")
            if size > mark.size_bytes:
                truncate(path, mark.size_bytes)
            found.append(_Segment(path, int(path.stem), mark.records))
        self._check(found)
        for name in known.keys() - {each.path.name for each in found}:
            self._ledger.drop(name)  # it was removed, and that was not written down
        return found

    def _check(self, found: list[_Segment]) -> None:
        """The first ones may have been deleted, and no others."""
        ends = [each.end for each in found]
        starts = [each.start for each in found[1:]]
        # Each segment must end where the next one begins, and the last one at the ledger's position.
        if found and ends != [*starts, self._ledger.position]:
            raise LedgerDamaged(f"the spool {self.folder} lacks a segment between others: restore its files")


def _open_ledger(folder: Path, max_in_doubt: int) -> Ledger:
    ledger = Ledger(folder / "ledger", max_in_doubt=max_in_doubt)
    # Segments without their ledger: it is unknown what was ACKed, so guessing would lose or double data.
    if ledger.is_new and any(folder.glob("*" + _SUFFIX)):
        ledger.close()
        ledger.path.unlink()
        raise LedgerDamaged(f"the spool {folder} lacks its ledger: restore the file")
    return ledger
