"""Part files of a recorder: hidden while they grow, then seen whole by a rename."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from nebula.avro.schema import Schema
from nebula.errors import AvroError, SettingsError
from nebula.logs import get_logger
from nebula.private import open_private, tighten
from nebula.record.container import ContainerError, ContainerWriter, cut
from nebula.record.disk import make_folders, sync_file, sync_folder, truncate
from nebula.record.ledger import Ledger, LedgerDamaged, Mark
from nebula.record.sorting import Kind

__all__ = ["Parts", "Rotation"]

_log = get_logger(__name__)

_HOUR_MS: Final = 3_600_000
_PART: Final = ".part"
_SCHEMA_FILE: Final = "_schema.avsc"  # readers of data leave out what begins so

# Each open file takes a descriptor, and the data for the next sync.
_MOST_OPEN: Final = 200

# A block for each sync, and none before.
_NO_LIMIT: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class Rotation:
    """When a file is closed and the next one begun.

    Attributes:
        size_bytes: close a file when it has at least this size.
        seconds: close a file this long after it was begun, at least; at the end of its hour in any case.

    Raises:
        SettingsError: one of them is nothing.
    """

    size_bytes: int = 128 * 1024 * 1024
    seconds: float = 300.0

    def __post_init__(self) -> None:
        if not (self.size_bytes > 0 and self.seconds > 0):
            raise SettingsError("rotation: a file has more than 0 bytes and is open for more than 0 seconds")


@dataclass(slots=True)
class _Part:
    writer: ContainerWriter
    final: Path
    began: float
    hour: int


_Key = tuple[Kind, int]


# Theory of the files. One file is open for each kind of data and hour of receipt. It is hidden while it
# grows, so that readers of the folder list complete files only. It is closed by size, by age, when its hour
# is over or when too many are open, and only if the ledger has all of its data; then a rename makes it
# visible, and the ledger forgets the file. After a crash the hidden files of this instance are cut to what
# the ledger says and renamed, or removed if nothing in them counts. So readers need no lock, and what they
# see is never cut again.
class Parts:
    """The open files of one recorder. For one thread at a time.

    Files are `<folder>/<type>/date=YYYY-MM-DD/hour=HH/<instance>-<start>-<number>.avro`, by the time of
    receipt in UTC. A type's folder has its schema in `_schema.avsc`; another schema of the same name has a
    folder of its own, which its fingerprint ends.

    Args:
        folder: which is there.
        instance: begins the names of files: no other recorder of the folder has it.
        codec: of the files.
        rotation: when they are closed.
        now: seconds since 1970.
    """

    def __init__(
        self,
        folder: Path,
        instance: str,
        *,
        codec: str,
        rotation: Rotation,
        now: Callable[[], float],
    ) -> None:
        self._folder, self._instance = folder, instance
        self._codec, self._rotation, self._now = codec, rotation, now
        # The time of the start makes the names of two runs differ.
        self._names = f"{instance}-{_stamp(now())}"
        self._number = 0
        self._waiting: dict[_Key, list[bytes]] = {}
        self._open: dict[_Key, _Part] = {}
        self._dirty: set[_Key] = set()
        self._homes: dict[Kind, Path] = {}

    def append(self, kind: Kind, time_ms: int, datum: bytes) -> None:
        """Take a datum; in memory until `sync`."""
        # By the hour of receipt: all data of a file are in its folder's hour.
        key = kind, time_ms // _HOUR_MS
        data = self._waiting.get(key)
        if data is None:
            data = self._waiting[key] = []
        data.append(datum)

    def sync(self) -> dict[str, Mark]:
        """Make durable what was appended; the files that have grown, and up to where.

        Raises:
            OSError: no room. Nothing is lost: call it again.
            SyncFailed: the disk failed.
        """
        while self._waiting:
            key = next(iter(self._waiting))
            # A new file may fail for want of room; the data are still in `_waiting` then.
            part = self._open.get(key) or self._begin(key)
            # From the one to the other at once: no try finds it in both, or in none.
            part.writer.extend(self._waiting.pop(key))
            self._dirty.add(key)
        # `_dirty` is cleared by `settle` alone. If the ledger cannot be written, the next call returns these
        # marks again.
        marks: dict[str, Mark] = {}
        for key in self._dirty:
            writer = self._open[key].writer
            writer.sync()
            marks[self._name(writer.path)] = Mark(writer.size_bytes, writer.written)
        return marks

    def settle(self) -> None:
        """What `sync` returned is in the ledger."""
        self._dirty.clear()

    def rotate(self, ledger: Ledger) -> list[Path]:
        """Close the files whose time has come, all of whose data are in the ledger.

        Returns:
            Their names, visible to readers now.

        Raises:
            SyncFailed: the disk failed.
            OSError: a file cannot be renamed.
        """
        settled = self._settled()
        ended = [key for key in settled if self._has_ended(self._open[key])]
        rest = [key for key in settled if key not in ended]
        # Those that were begun first: what is written to all the time is begun again at once.
        ended += rest[: max(0, len(rest) - _MOST_OPEN)]
        return [self._finish(key, ledger) for key in ended]

    def finish_all(self, ledger: Ledger) -> list[Path]:
        """As `rotate`, of all."""
        return [self._finish(key, ledger) for key in self._settled()]

    def _settled(self) -> list[_Key]:
        # A file that has grown since the ledger's last line may hold what does not count, and comes again:
        # it stays as it is until that is settled, or a new start cuts it.
        return [key for key in self._open if key not in self._dirty]

    def abandon(self) -> None:
        """Close all files as they are. Idempotent."""
        for part in self._open.values():
            part.writer.abandon()
        self._open.clear()

    def recover(self, ledger: Ledger) -> list[Path]:
        """Finish what an earlier process of this instance left open, cut to what its ledger says.

        Returns:
            The files that are whole now.

        Raises:
            LedgerDamaged: a file is shorter than what was synced of it.
            OSError, SyncFailed: of the disk.
        """
        found = list(self._left_open(ledger))
        # The ledger has open files only, and none is open now.
        for name in list(ledger.files):
            ledger.drop(name)
        return found

    def _left_open(self, ledger: Ledger) -> Iterator[Path]:
        # Not those of an instance whose name begins with ours.
        ours = re.compile(rf"\.{re.escape(self._instance)}-\d{{8}}T\d{{9}}-\d+\.avro\.part")
        for path in sorted(self._folder.glob(f"*/date=*/hour=*/.*{_PART}")):
            if not ours.fullmatch(path.name):
                continue
            mark = ledger.files.get(self._name(path))
            if mark is None and ledger.is_new:
                # It is unknown what counts: what is whole is kept, and may come again.
                mark = _cut(path)
            records = 0 if mark is None else mark.records
            if mark is not None and records:
                tighten(path)
                self._cut_to(path, mark)
                yield _reveal(path, path.with_name(path.name.removeprefix(".").removesuffix(_PART)))
                _log.info("open file finished", file=str(path), records=records)
            else:
                path.unlink()  # nothing in it was ever ACKed

    def _cut_to(self, path: Path, mark: Mark) -> None:
        size = path.stat().st_size
        if size < mark.size_bytes:
            raise LedgerDamaged(f"{path}: {size} bytes of {mark.size_bytes} are left: restore the file")
        if size > mark.size_bytes:
            truncate(path, mark.size_bytes)

    def _begin(self, key: _Key) -> _Part:
        kind, hour = key
        when = datetime.fromtimestamp(hour * _HOUR_MS / 1000, UTC)
        folder = self._home(kind) / when.strftime("date=%Y-%m-%d") / when.strftime("hour=%H")
        make_folders(folder, self._folder)
        final = self._free_name(folder)
        # Readers of data lakes, Spark among them, skip names that begin with a dot.
        hidden = final.with_name(f".{final.name}{_PART}")
        writer = ContainerWriter(hidden, kind.schema, codec=self._codec, block_bytes=_NO_LIMIT)
        part = self._open[key] = _Part(writer, final, self._now(), hour)
        sync_folder(folder)
        return part

    def _free_name(self, folder: Path) -> Path:
        while True:
            self._number += 1
            path = folder / f"{self._names}-{self._number:06}.avro"
            if not path.exists():  # a clock may have gone back
                return path

    def _home(self, kind: Kind) -> Path:
        home = self._homes.get(kind)
        if home is None:
            home = self._folder / kind.name
            # Two schemas of one name in one folder would make a table that no reader can read as a whole.
            if not _claim(home, kind, self._folder):
                home = self._folder / f"{kind.name}.{kind.fingerprint:016x}"
                _claim(home, kind, self._folder)
            self._homes[kind] = home
        return home

    def _has_ended(self, part: _Part) -> bool:
        now = self._now()
        return (
            part.writer.size_bytes >= self._rotation.size_bytes
            # A clock that was set back makes the difference negative: the file is closed rather than left
            # open until the clock has caught up.
            or not 0 <= now - part.began < self._rotation.seconds
            # All data of a file are of one hour, and no more are received when that is over.
            or int(now * 1000) // _HOUR_MS > part.hour
        )

    def _finish(self, key: _Key, ledger: Ledger) -> Path:
        part = self._open.pop(key)
        part.writer.abandon()  # all of it has been synced
        _reveal(part.writer.path, part.final)
        # Dropped after the rename: after a crash in between the ledger names a file that is no longer
        # hidden, which `recover` does not look for.
        ledger.drop(self._name(part.writer.path))
        return part.final

    def _name(self, path: Path) -> str:
        return str(path.relative_to(self._folder))


def _reveal(hidden: Path, final: Path) -> Path:
    hidden.rename(final)
    sync_folder(final.parent)
    return final


def _cut(path: Path) -> Mark | None:
    try:
        found = cut(path)
    except ContainerError:
        return None
    return Mark(found.size_bytes, found.count)


def _claim(home: Path, kind: Kind, root: Path) -> bool:
    """Whether a type's folder is this kind's; a folder without a kind becomes one of this kind."""
    make_folders(home, root)
    file = home / _SCHEMA_FILE
    # With the process id, since several recorders of a folder may claim the same type at once.
    draft = home / f".{os.getpid()}{_SCHEMA_FILE}.tmp"
    if not file.exists():
        try:
            with open(open_private(draft, os.O_WRONLY | os.O_TRUNC), "w", encoding="utf-8") as text:  # noqa: PTH123
                text.write(json.dumps(json.loads(kind.schema), indent=2) + "\n")
                text.flush()
                sync_file(text.fileno(), draft)
            os.link(draft, file)  # whole or not at all, and never in place of another's
            sync_folder(home)
        except FileExistsError:
            pass
        finally:
            draft.unlink(missing_ok=True)
    try:
        return Schema.from_text(file.read_bytes()).fingerprint == kind.fingerprint
    except AvroError:
        return False


def _stamp(seconds: float) -> str:
    when = datetime.fromtimestamp(seconds, UTC)
    return when.strftime("%Y%m%dT%H%M%S") + f"{when.microsecond // 1000:03}"
