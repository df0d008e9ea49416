"""Ledger of recorded files: which messages are in them, and up to where they count.

A message's datum is written and synced first, then a line of the ledger is, with the ids of all that were
written together and the length of each file: a *group*. What a file has behind the length that its last line
says is cut off when the ledger is opened again. So a datum and its id count together or not at all, whenever
the process or the machine dies.

A group's ids are kept until the broker has confirmed its ACKs. Until then the broker may give its messages
out again, and they are known.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from nebula.errors import NebulaError
from nebula.logs import get_logger
from nebula.private import open_private
from nebula.record.disk import sync_file, sync_folder, write_at

_log = get_logger(__name__)

MAX_IN_DOUBT: Final = 300_000
"""Ids that are kept at most, by default, of messages whose ACKs are unconfirmed."""

# Below this the ledger is not written anew: a few lines more cost nothing.
_LEAST_COMPACTED_BYTES: Final = 4 * 1024 * 1024
_BYTES_PER_ID: Final = 200  # twice what one takes, or so
_CHECKSUM: Final = 8


class LedgerDamaged(NebulaError):
    """The ledger, or a file that it names, is not what was written. Says which, and what to do."""


class Mark(NamedTuple):
    """Up to where a file counts.

    Attributes:
        size_bytes: of the file; what follows does not count.
        records: up to there.
    """

    size_bytes: int
    records: int


@dataclass(slots=True)
class _State:
    """What the lines say together."""

    last_group: int = 0
    position: int = 0


# docs/decisions/0028: ids next to the files, as no reader should have to drop repeated messages.
class Ledger:
    """Ids and lengths in a file, synced group by group. For one thread at a time.

    Args:
        path: of the file; it is made if missing.
        max_in_doubt: ids that are kept; the oldest are forgotten beyond it.

    Raises:
        LedgerDamaged: a line is not what was written, and others follow it.
        OSError, SyncFailed: it cannot be read or written.

    Attributes:
        files: up to where each file counts, by name. Read-only.
        is_new: there was no ledger, or an empty one. The opener repairs the files first and then calls
            `rewrite`: until then a lost ledger counts as lost, also after a crash in between.
        size_bytes: of the ledger.
    """

    def __init__(self, path: Path, *, max_in_doubt: int = MAX_IN_DOUBT) -> None:
        self.path = path
        self.files: dict[str, Mark] = {}
        self._max_in_doubt = max_in_doubt
        self._state = _State()
        # By group in rising order, since dictionaries keep the order of insertion; `_forget_oldest` takes
        # the first.
        self._groups: dict[int, Sequence[str]] = {}
        self._group_of: dict[str, int] = {}
        # Written down with the next group.
        self._confirmed: list[int] = []
        self._gone: list[str] = []
        is_made = not path.exists()
        self._file = open_private(path, os.O_RDWR)
        try:
            self.size_bytes = self._load()
            self.is_new = self.size_bytes == 0
            # The file's name has to be durable before its first line counts.
            if is_made:
                sync_folder(path.parent)
        except BaseException:
            self.close()
            raise

    @property
    def position(self) -> int:
        """How many data were committed, ever."""
        return self._state.position

    @property
    def in_doubt(self) -> int:
        """How many ids are kept."""
        return len(self._group_of)

    def __contains__(self, message_id: str) -> bool:
        return message_id in self._group_of

    def commit(
        self,
        ids: Sequence[str],
        files: Mapping[str, Mark],
        *,
        again: Sequence[str] = (),
    ) -> int:
        """Write down, durably, that these messages are in these files, which are synced.

        Args:
            ids: of the messages that were written.
            files: those that have grown, and up to where they count now.
            again: ids that were known and have come again: confirmed with this group.

        Returns:
            The group, for `confirm`.

        Raises:
            OSError: nothing was written down: try again, with the same.
            SyncFailed: the ledger has to be opened anew.
        """
        # Nothing of `self` changes before the line is on disk: a caller that got OSError tries again with the
        # same arguments, and gets the same group. `write_at` cuts off what a failed try has written.
        group = self._state.last_group + 1
        # `count` is apart from `ids`: lines that `rewrite` writes have ids of earlier groups, and count
        # nothing.
        entry: dict[str, Any] = {"group": group, "ids": list(ids), "count": len(ids), "files": files}
        rest = {"again": again, "gone": self._gone, "confirmed": self._confirmed}
        entry |= {name: list(value) for name, value in rest.items() if value}
        self.size_bytes = write_at(self._file, _line(entry), self.size_bytes)
        sync_file(self._file, self.path)
        self._gone, self._confirmed = [], []
        self._apply(entry)
        self._forget_oldest()
        return group

    def confirm(self, group: int) -> None:
        """The broker will not give a group's messages out again: forget their ids.

        Written down with the next group: until then a new start knows them still, which does no harm.
        """
        # Durable only with the next group: a sync for each confirmation would double the number of syncs.
        self._forget(group)
        self._confirmed.append(group)

    def drop(self, name: str) -> None:
        """A file is gone, or is complete and needs no further care. Written down with the next group."""
        if self.files.pop(name, None) is not None:
            self._gone.append(name)

    def compact(self) -> None:
        """Write the ledger anew without what is forgotten, if that is much and there is room.

        Raises:
            SyncFailed: the ledger has to be opened anew.
        """
        # Only when most of it is out of date, so that the cost of rewriting is spread over many groups.
        if self.size_bytes < max(_LEAST_COMPACTED_BYTES, _BYTES_PER_ID * self.in_doubt):
            return
        try:
            self.rewrite()
        except OSError as error:
            # It is whole as it is, and the next group finds out whether the disk is worse than full.
            _log.warning("ledger not compacted", ledger=str(self.path), reason=error.strerror)

    def rewrite(self) -> None:
        """Write the ledger anew without what is forgotten; it is seen whole or not at all.

        Raises:
            OSError: there is no room. The old one is as it was.
            SyncFailed: the ledger has to be opened anew.
        """
        # The order makes it atomic: the draft is whole on disk before it gets the name, and the folder is
        # synced before the old file is closed. A crash at any point leaves one whole ledger.
        draft = self.path.with_name(self.path.name + ".tmp")
        file = open_private(draft, os.O_RDWR | os.O_TRUNC)
        try:
            size = 0
            for entry in self._entries():
                size = write_at(file, _line(entry), size)
            sync_file(file, draft)
            draft.replace(self.path)
            sync_folder(self.path.parent)
        except BaseException:
            os.close(file)
            draft.unlink(missing_ok=True)
            raise
        os.close(self._file)
        self._file, self.size_bytes = file, size
        self._gone, self._confirmed = [], []

    def close(self) -> None:
        """Close the file; what was confirmed since the last group is known again next time. Idempotent."""
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)

    def _entries(self) -> Iterator[dict[str, Any]]:
        """The fewest lines that say the same: the group at the end holds the place of the last one."""
        # In the order of groups, as `_forget_oldest` relies on it after the next start, too.
        for group, ids in self._groups.items():
            # Ids that came again belong to a later group, and are written with that one.
            kept = [each for each in ids if self._group_of.get(each) == group]
            if kept:
                yield {"group": group, "ids": kept, "count": 0, "files": {}}
        state = self._state
        yield {
            "group": state.last_group,
            "ids": [],
            "count": 0,
            "files": self.files,
            "position": state.position,
        }

    def _load(self) -> int:
        """Read what there is; the length up to where it is whole. A line that was cut is no line."""
        size = 0
        with open(self._file, "rb", closefd=False) as lines:
            for line in lines:
                entry = _entry(line)
                if entry is None:
                    # A power cut can only damage the last line: it was being written, and nothing in it was
                    # ACKed. A bad line with others behind it means that the disk changed what was synced.
                    if lines.read(1):
                        raise LedgerDamaged(
                            f"{self.path}: byte {size} and on are not what was written: restore the file"
                        )
                    os.ftruncate(self._file, size)
                    sync_file(self._file, self.path)
                    break
                size += len(line)
                # Confirmations first: they are of earlier groups.
                for group in entry.get("confirmed", ()):
                    self._forget(group)
                self._apply(entry)
        self._forget_oldest()
        return size

    def _apply(self, entry: Mapping[str, Any]) -> None:
        group = entry["group"]
        self._state.last_group = group
        # The last line of `rewrite` has the position itself; all others only add to it.
        self._state.position = entry.get("position", self._state.position) + entry["count"]
        if ids := [*entry["ids"], *entry.get("again", ())]:
            # An id that came again belongs to its new group: its earlier ACK may be lost, so only the RECEIPT
            # of the new group says that the broker is done with it.
            self._groups[group] = ids
            self._group_of.update(dict.fromkeys(ids, group))
        self.files.update({name: Mark(*mark) for name, mark in entry["files"].items()})
        for name in entry.get("gone", ()):
            self.files.pop(name, None)

    def _forget(self, group: int) -> None:
        for each in self._groups.pop(group, ()):
            # It may have come again since, and belong to the group of that time.
            if self._group_of.get(each) == group:
                del self._group_of[each]

    def _forget_oldest(self) -> None:
        # Those whose confirmation was lost with a connection, and that never come again, would stay for ever.
        if self.in_doubt <= self._max_in_doubt:
            return
        before = self.in_doubt
        while self.in_doubt > self._max_in_doubt:
            self._forget(next(iter(self._groups)))
        _log.warning("oldest unconfirmed ids forgotten", count=before - self.in_doubt, ledger=str(self.path))


_dumps: Callable[[Any], str] = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


# The checksum tells a whole line from one that a power cut left with zeros or old bytes in it: a file system
# may make a file longer before it has written the data.
def _line(entry: Mapping[str, Any]) -> bytes:
    text = _dumps(entry).encode()
    return b"%08x %b\n" % (zlib.crc32(text), text)


def _entry(line: bytes) -> dict[str, Any] | None:
    """What a line says; None if it is not whole."""
    checksum, _, text = line.partition(b" ")
    # `text[:-1]` is without the line end, which is not part of the checksum.
    if not text.endswith(b"\n") or len(checksum) != _CHECKSUM or checksum != b"%08x" % zlib.crc32(text[:-1]):
        return None
    found: dict[str, Any] = json.loads(text)
    return found
